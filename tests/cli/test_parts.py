"""Commands with parts: the tasks of predict, the pages of inspect, the actions of study."""

from __future__ import annotations

import pytest

from bert_jax import cli, inspect, predict, study
from bert_jax.interop import runs
from bert_jax.predictors import TASKS
from bert_jax.predictors.base import Model, OfText
from bert_jax.predictors.options import Options
from bert_jax.studies import actions
from bert_jax.views import PAGES
from tests import texts, variants
from tests.terminals import terminal

MODEL = variants.GOLDEN / "huggingface" / "pretraining"
ACTIONS = [name for name in study.ACTIONS if name != study.WORK]
PARTS = [
    *(("predict", task) for task in TASKS),
    *(("inspect", page) for page in PAGES),
    *(("study", action) for action in ACTIONS),
]
FOREIGN = {  # a flag that some parts have, and those that have it
    ("predict", "--entities"): "predict tag has it",
    ("predict", "--top-k=3"): "predict fill-mask, answer, generate have it",
    ("inspect", "--text-pair=b"): "inspect attention has it",
    ("study", "--verbose"): "study status has it",
}


@pytest.fixture
def calls(monkeypatch):
    """List what the commands would do."""
    seen: list = []
    for module in (predict, inspect):
        monkeypatch.setattr(module, "run", lambda **settings: seen.append(settings))
    for name in ("run", "status", "report"):
        monkeypatch.setattr(actions, name, lambda *_, **settings: seen.append(settings))
    monkeypatch.setattr("bert_jax.studies.sweep.run", lambda *_: seen.append({}))
    return seen


@pytest.mark.parametrize(("command", "part"), PARTS)
def test_help_of_a_part_shows_an_example_that_runs(command, part, capsys, calls):
    assert cli.execute([command, part, "--help"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"usage: bert-jax {command} {part} ")
    assert all(len(line) <= 79 for line in out.partition("\nexample:")[0].split("\n"))
    example = out.partition("example:\n")[2].split()
    assert example[:3] == ["bert-jax", command, part]
    assert cli.execute(example[1:]) == 0
    assert len(calls) == 1


def test_help_of_a_command_hides_the_workers_action(capsys):
    assert cli.execute(["study", "--help"]) == 0
    out = capsys.readouterr().out
    assert all(f"    {action} " in out for action in ACTIONS)
    assert f"    {study.WORK} " not in out
    assert list(inspect.PAGES) == list(PAGES)


@pytest.mark.fault(20)
@pytest.mark.parametrize(("command", "flag"), FOREIGN)
def test_flag_of_other_parts_is_refused_by_their_names(command, flag, capsys):
    part = {"predict": "nsp", "inspect": "generation", "study": "report"}[command]
    assert cli.execute([command, part, flag]) == 2
    error, hint = capsys.readouterr().err.splitlines()
    assert error == f"error: {command} {part} has no flag {flag.partition('=')[0]}"
    assert hint == f"hint: {FOREIGN[command, flag]}"


@pytest.mark.parametrize("page", inspect.PAGES)
def test_lines_that_a_page_shows_are_read(page):
    reader = PAGES[page][0](Model(runs.open_run(str(MODEL)), Options()))
    assert isinstance(reader, OfText)
    for line in inspect.PAGES[page].takes:
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
