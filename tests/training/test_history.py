"""Metrics and samples that were lost or cut while a checkpoint stands: the run goes on and says
what is missing.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.reporting.records import METRICS, SAMPLES
from bert_jax.training import history
from bert_jax.training.writer import Writer


def runs_of(steps: list[int]) -> history.Ranges:
    runs: history.Ranges = []
    for step in steps:
        history.add(runs, step)
    return runs


@given(st.lists(st.integers(0, 40)).map(sorted))
def test_runs_hold_exactly_the_steps_that_were_added(steps):
    runs = runs_of(steps)
    assert list(history.steps(runs)) == sorted(set(steps))
    assert json.loads(json.dumps(runs)) == runs


def test_runs_of_a_long_run_are_short():
    assert runs_of([*range(100, 1_000_001, 100)]) == [[100, 1_000_000, 100]]
    assert runs_of([10, 20, 30, 35]) == [[10, 30, 10], [35, 35, 0]]


def train(
    workdir: Path, start: int, stop: int, before: dict | None = None
) -> dict[str, history.Ranges]:
    """Write what a run would: a line every second step, an evaluation and samples every fourth."""
    made = Writer(workdir, 20, start, quiet=True, before=before)
    for step in range(start + 1, stop + 1):
        if step % 2 == 0:
            made.write(step, {"train/loss": 1.0})
        if step % 4 == 0:
            made.write(step, {"eval/validation/mlm_loss": 1.0})
            made.show(step, [{"text": "a", "answers": [], "predictions": []}])
    made.close()
    return json.loads(json.dumps(made.history))


def only(file: Path, keep) -> None:
    file.write_text(
        "".join(line for line in file.read_text().splitlines(True) if keep(json.loads(line)))
    )


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


@pytest.mark.fault(51)
@pytest.mark.parametrize(
    ("lose", "said"),
    [
        (
            lambda w: (w / METRICS).unlink(),
            ["training, 6 steps from 2 to 12", "evaluation validation, 3 steps from 4"],
        ),
        (lambda w: (w / SAMPLES).unlink(), ["samples, 3 steps from 4 to 12"]),
        (
            lambda w: cut(w / METRICS),
            ["training, 2 steps from 10 to 12", "evaluation validation, step 12"],
        ),
        (lambda w: cut(w / SAMPLES), ["samples, step 12"]),
        (lambda w: only(w / METRICS, lambda line: line["step"] != 6), ["training, step 6"]),
        (
            lambda w: only(w / METRICS, lambda line: "train/loss" in line),
            ["evaluation validation, 3 steps from 4 to 12"],
        ),
    ],
    ids=[
        "metrics gone",
        "samples gone",
        "metrics cut",
        "samples cut",
        "a line gone",
        "evaluations gone",
    ],
)
def test_a_resumed_writer_says_which_lines_are_gone_and_goes_on(lose, said, tmp_path, capsys):
    before = train(tmp_path, 0, 12)
    train(tmp_path, 12, 16)  # of an attempt that was killed after the save of step 12
    lose(tmp_path)
    assert capsys.readouterr().err == ""
    after = train(tmp_path, 12, 20, before)
    warnings = capsys.readouterr().err.splitlines()
    assert len(warnings) == len(said)
    for line, words in zip(warnings, said, strict=True):
        assert line.startswith(f"warning: {tmp_path}/")
        assert f" lacks the lines of {words}" in line
        assert ", that it had when step 12 was saved" in line
    assert (
        max(json.loads(line)["step"] for line in (tmp_path / METRICS).read_text().splitlines())
        == 20
    )
    assert train(tmp_path, 20, 20, after) == after  # and says so once
    assert capsys.readouterr().err == ""


@pytest.mark.fault(51)
def test_a_resumed_writer_that_finds_everything_says_nothing(tmp_path, capsys):
    before = train(tmp_path, 0, 12)
    train(tmp_path, 12, 16)
    (tmp_path / "whole").mkdir()
    assert train(tmp_path, 12, 20, before) == train(tmp_path / "whole", 0, 20)
    train(tmp_path, 12, 20)  # a checkpoint of before there was a history knows none
    assert capsys.readouterr().err == ""
