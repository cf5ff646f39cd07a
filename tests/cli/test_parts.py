"""Commands with parts: the tasks of predict, the pages of inspect, the actions of study."""

from __future__ import annotations

import pytest

from bert_jax import cli, inspect, predict, study
from bert_jax.interop import runs
from bert_jax.predictors import TASKS
from bert_jax.predictors.base import AskedModel, OfText
from bert_jax.predictors.options import Options
from bert_jax.studies import actions
from bert_jax.views import PAGES
from tests import texts, variants
from tests.terminals import terminal

MODEL = variants.GOLDEN / "huggingface" / "pretraining"
PARTS = [
    *(("predict", task) for task in TASKS),
    *(("inspect", page) for page in PAGES),
    *(("study", action) for action in study.ACTIONS if action != study.WORK),
]


@pytest.fixture
def calls(monkeypatch):
    """List what the commands would do."""
    seen: list = []
    for module in (predict, inspect):
        monkeypatch.setattr(module, "run", lambda **settings: seen.append(settings))
    for name in ("run_study", "show_status", "report_study"):
        monkeypatch.setattr(actions, name, lambda *_, **settings: seen.append(settings))
    monkeypatch.setattr("bert_jax.studies.sweep.run_sweep", lambda *_: seen.append({}))
    return seen


@pytest.mark.parametrize(("command", "part"), PARTS)
def test_help_of_a_part_shows_an_example_that_runs(command, part, capsys, calls):
    assert cli.execute([command, part, "--help"]) == 0
    example = capsys.readouterr().out.partition("example:\n")[2].split()
    assert example[:3] == ["bert-jax", command, part]
    assert cli.execute(example[1:]) == 0
    assert len(calls) == 1


@pytest.mark.parametrize("page", PAGES)
def test_lines_that_a_page_shows_are_read(page):
    kind, _ = PAGES[page].find_maker()
    reader = kind(AskedModel(runs.open_run(str(MODEL)), Options()))
    assert isinstance(reader, OfText)
    for line in PAGES[page].takes:
        assert all(reader.read(1, line.replace("<tab>", "\t")).fields.values())


@pytest.mark.parametrize(
    ("flags", "on_terminal", "in_a_pipe"),
    [("", False, True), ("--format=json", True, True), ("--format=text", False, False)],
)
def test_status_is_for_people_or_programs(flags, on_terminal, in_a_pipe, calls):
    words = ["study", "status", "--workdir=w", *flags.split()]
    with terminal([]):
        assert cli.execute(words) == 0
    assert cli.execute(words) == 0
    assert [call["as_json"] for call in calls] == [on_terminal, in_a_pipe]


def test_dry_run_on_a_terminal_leaves_the_config_out(tmp_path, capsys, monkeypatch):
    config = f"--config={texts.ROOT / 'configs' / 'tiny.py'}"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert cli.execute(["train", config, f"--workdir={tmp_path / 'w'}", "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    shown = ["parameters", "memory/device", "devices", "steps", "config"]
    assert [line.split()[0] for line in lines] == shown
