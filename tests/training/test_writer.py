"""metrics.jsonl: valid JSON whatever the numbers, cut where a run resumes, few lines shown."""

import io
import json
import math
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.config import resolve
from bert_jax.errors import CheckpointError
from bert_jax.training import writer
from tests import outcomes


def open_writer(folder: Path, start: int = 0, steps: int = 100, **settings) -> writer.Writer:
    config = resolve({"steps": steps, "logging": {"trackers": ()}})
    return writer.Writer(folder, config, start, **settings)


@pytest.fixture
def clock(monkeypatch) -> list[float]:
    """The time, which passes when it is told to."""
    now = [1000.0]
    monkeypatch.setattr(writer.time, "monotonic", lambda: now[0])
    return now


def test_numbers_are_finite_or_null(tmp_path):
    made = open_writer(tmp_path)
    made.write(1, {"a": math.nan, "b": math.inf, "c": np.float32(0.5), "d": jnp.float32(2), "e": 7})
    made.close()
    made.close()
    (line,) = outcomes.read_lines(tmp_path)
    del line["time"]
    assert line == {"step": 1, "a": None, "b": None, "c": 0.5, "d": 2, "e": 7}


@given(st.lists(st.integers(0, 30)), st.integers(1, 30), st.integers(0, 60), st.binary(max_size=20))
def test_truncate_keeps_the_lines_up_to_the_step(tmp_path_factory, steps, step, cut, noise):
    path = tmp_path_factory.mktemp("truncate") / "metrics.jsonl"
    whole = [json.dumps({"step": s, "time": i, "x": "é"}) for i, s in enumerate(steps)]
    torn = json.dumps({"step": 0, "time": 99})[:cut][:-1].encode()
    torn += noise.replace(b"\n", b"").replace(b"\r", b"")
    path.write_bytes("".join(line + "\n" for line in whole).encode() + torn)
    writer.truncate_metrics(path, step)
    expected = [line for line, s in zip(whole, steps, strict=True) if s <= step]
    assert [json.dumps(json.loads(line)) for line in path.read_text().splitlines()] == expected


def test_evaluations_that_are_owed_leave_no_lines(tmp_path):
    names = ["train/loss", "eval/validation/loss", "eval/extra/loss"]
    samples = tmp_path / "samples.jsonl"
    for owed in (["extra"], ["validation", "extra"]):
        made = open_writer(tmp_path)
        for name in names:
            made.write(10, {name: 1.0})
        made.close()
        samples.write_text('{"step": 5}\n{"step": 10}\n')
        open_writer(tmp_path, 10, owed=owed).close()
        kept = [name for line in outcomes.read_lines(tmp_path) for name in names if name in line]
        assert kept == names[: -len(owed)]
        assert len(samples.read_text().splitlines()) == (1 if "validation" in owed else 2)


def test_guesses_stand_in_their_gaps(tmp_path, capsys):
    made = open_writer(tmp_path)
    guesses = [[{"token": name, "probability": 0.25}] for name in ("cat", "sat")]
    row = {"text": "the [MASK] [MASK].", "predictions": guesses, "answers": ["dog", "ran"]}
    made.write_samples(2, [row])
    made.close()
    assert "step 2  guesses: the [cat 25%] [sat 25%].  (was dog, ran)" in capsys.readouterr().err


def test_time_goes_on_over_a_resume(tmp_path, clock):
    for start, seconds in ((0, 0.0), (2, 10.0)):
        made = open_writer(tmp_path, start, seconds=seconds)
        for step in range(start + 1, 4):
            clock[0] += 5
            made.write(step, {})
        made.close()
        clock[0] = 50.0  # another machine, with a clock of its own
    assert [row["time"] for row in outcomes.read_lines(tmp_path)] == [5, 10, 15]


@pytest.mark.fault(4)
def test_full_disk_is_the_users_error(tmp_path):
    made = open_writer(tmp_path)
    made._file.close()
    made._file = Path("/dev/full").open("a")  # noqa: SIM115  (close is what is tested)
    with pytest.raises(CheckpointError, match="disk full: /dev/full needs"):
        made.write(1, {})
    made.close()  # the bytes that did not fit were said to


def test_plain_lines_are_few_and_tell_the_time_left(tmp_path, clock, capsys):
    made = open_writer(tmp_path, steps=1000)
    made.write(0, {"eval/validation/mlm_loss": 4.0})  # which an earlier attempt owed
    clock[0] += 500  # of compilation
    values = {"loss": 2.5, "mlm_accuracy": 0.25, "tokens_per_second": 12_345.6}
    for step in range(1, 101):
        clock[0] += 1
        made.write(step, {f"train/{name}": value for name, value in values.items()})
    evaluation = {"examples": 9, "mlm_loss": 3.25, "mlm_accuracy": 0.25}
    made.write(100, {f"eval/validation/{name}": value for name, value in evaluation.items()})
    made.close()
    said = capsys.readouterr().err.splitlines()
    assert 9 <= len(said) <= 13
    # At step 91, 909 steps are left, at one a second.
    assert "step 91/1000  loss 2.500  mlm 25.0%  12,346 tokens/s  15:09 left" in said
    assert said[-1] == "step 100/1000  validation: mlm_loss 3.250  mlm_accuracy 25.0%"


def test_terminal_gets_a_bar(tmp_path, monkeypatch):
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr(writer.sys, "stderr", terminal)
    made = open_writer(tmp_path, 40)
    made.write(50, {"train/loss": 2.5})
    made.write(50, {"eval/validation/mlm_loss": 3.25})
    made.close()
    shown = terminal.getvalue().replace("\r", "\n")
    assert "50/100" in shown
    assert "loss 2.500" in shown
    assert "\nstep 50: validation: mlm_loss 3.250" in shown


def test_only_the_first_process_writes(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("jax.process_index", lambda: 1)
    made = open_writer(tmp_path)
    made.write(1, {"train/loss": 1.0})
    made.close()
    assert list(tmp_path.iterdir()) == []
    assert capsys.readouterr().err == ""
