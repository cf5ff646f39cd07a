"""`bert-jax knobs`: the page of all knobs. What it prints is held by tests/net/transcripts."""

from pathlib import Path

from bert_jax import cli
from bert_jax.config import table

PAGE = Path(__file__).resolve().parents[2] / "configs" / "KNOBS.md"


def test_page_is_current_and_has_every_knob(capsys):
    assert cli.execute(["knobs", "--markdown"]) == 0
    page = PAGE.read_text()
    assert capsys.readouterr().out == page, "bert-jax knobs --markdown > configs/KNOBS.md"
    rows = [line for line in page.splitlines() if line.startswith("|`")]
    assert len(rows) == len(table.list_knobs())
    assert "|`draw_high`|`1.0`|above 0, up to 1|the highest rate|masking.draw=uniform|" in rows
