"""`bert-jax knobs`: the page of all knobs. What it prints is held by tests/net/transcripts."""

from pathlib import Path

from bert_jax import cli

PAGE = Path(__file__).resolve().parents[2] / "configs" / "KNOBS.md"


def test_page_is_current(capsys):
    assert cli.execute(["knobs", "--markdown"]) == 0
    printed = capsys.readouterr().out
    assert printed == PAGE.read_text(), "bert-jax knobs --markdown > configs/KNOBS.md"
