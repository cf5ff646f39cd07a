"""metrics.jsonl: valid JSON whatever the numbers, cut exactly where a run resumes, readable while
it grows.
"""

from __future__ import annotations

import io
import json
import math
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.errors import CheckpointError
from bert_jax.training import writer


def lines(folder: Path) -> list[dict]:
    def refuse(word):
        raise AssertionError(f"{word} is no JSON")

    return [
        json.loads(line, parse_constant=refuse)
        for line in (folder / "metrics.jsonl").read_text().splitlines()
    ]


def run(folder: Path, start: int, stop: int, total: int = 100, **settings) -> None:
    made = writer.Writer(folder, total, start, **settings)
    for step in range(start + 1, stop + 1):
        made.write(step, {"train/loss": 1.0 / step})
    made.close()


def test_numbers_are_finite_or_null(tmp_path):
    made = writer.Writer(tmp_path, 10, 0, names=("tensorboard",))
    values = {
        "a": math.nan,
        "b": math.inf,
        "c": np.float32(0.5),
        "d": jnp.float32(2),
        "e": 7,
        "f": np.int64(3),
    }
    made.write(1, values)
    assert lines(tmp_path) == [
        {"step": 1, "time": lines(tmp_path)[0]["time"]}
        | {"a": None, "b": None, "c": 0.5, "d": 2, "e": 7, "f": 3}
    ]
    made.close()
    made.close()


def test_resume_continues_where_the_checkpoint_was(tmp_path):
    run(tmp_path, 0, 9)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 10, "ti')  # killed while writing
    run(tmp_path, 6, 12)
    assert [row["step"] for row in lines(tmp_path)] == list(range(1, 13))


def test_a_new_run_starts_empty(tmp_path):
    run(tmp_path, 0, 3)
    run(tmp_path, 0, 2)
    assert [row["step"] for row in lines(tmp_path)] == [1, 2]


@given(st.lists(st.integers(0, 30)), st.integers(1, 30), st.integers(0, 60), st.binary(max_size=20))
def test_truncation_keeps_exactly_the_lines_up_to_the_step(
    tmp_path_factory, steps, step, cut, noise
):
    """Against a plain statement: of the whole lines, those with a step at most this one, in their
    order.
    """
    path = tmp_path_factory.mktemp("truncate") / "metrics.jsonl"
    whole = [json.dumps({"step": s, "time": i, "x": "é"}) for i, s in enumerate(steps)]
    torn = json.dumps({"step": 0, "time": 99})[:cut][:-1]
    path.write_bytes(
        "".join(line + "\n" for line in whole).encode()
        + torn.encode()
        + noise.replace(b"\n", b"").replace(b"\r", b"")
    )
    writer.truncate(path, step)
    expected = [line for line, s in zip(whole, steps, strict=True) if s <= step]
    assert [json.dumps(json.loads(line)) for line in path.read_text().splitlines()] == expected


def test_time_ignores_the_wall_clock_and_survives_resume(tmp_path, monkeypatch):
    clock = [1000.0]
    monkeypatch.setattr(writer.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(writer.time, "time", lambda: 1e9 - clock[0])  # runs backwards
    made = writer.Writer(tmp_path, 10, 0)
    for step in (1, 2, 3):
        clock[0] += 5
        made.write(step, {})
    made.close()
    clock[0] = 50.0  # another machine, with a clock of its own
    made = writer.Writer(tmp_path, 10, 2, seconds=10.0)
    clock[0] += 5
    made.write(3, {})
    made.close()
    assert [row["time"] for row in lines(tmp_path)] == [5, 10, 15]


def test_a_full_disk_is_the_users_error(tmp_path):
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    (tmp_path / "metrics.jsonl").symlink_to("/dev/full")
    made = writer.Writer(tmp_path, 10, 0)
    assert not (tmp_path / "metrics.jsonl").is_symlink()  # replaced, never written through
    made._file.close()
    made._file = Path("/dev/full").open("a")  # noqa: SIM115  (close is what is tested)
    with pytest.raises(CheckpointError, match="disk full: /dev/full needs") as error:
        made.write(1, {})
    assert error.value.code == 4
    made.close()  # the bytes that did not fit were said to


def test_plain_lines_are_few_and_say_where_it_stands(tmp_path, monkeypatch, capsys):
    clock = [0.0]
    monkeypatch.setattr(writer.time, "monotonic", lambda: clock[0])
    made = writer.Writer(tmp_path, 1000, 0)
    for step in range(1, 101):
        clock[0] += 1
        made.write(
            step,
            {"train/loss": 2.5, "train/mlm_accuracy": 0.25, "train/tokens_per_second": 12_345.6},
        )
    made.write(
        100,
        {
            "eval/validation/examples": 9,
            "eval/validation/mlm_loss": 3.25,
            "eval/validation/mlm_accuracy": 0.25,
        },
    )
    made.close()
    out, err = capsys.readouterr()
    said = err.splitlines()
    assert out == ""
    assert 9 <= len(said) <= 13
    # 900 steps are left, at one a second
    assert any(
        line.startswith("step 91/1000  loss 2.500  mlm 25.0%  12,346 tokens/s  15:09 left")
        for line in said
    )
    assert said[-1] == "step 100/1000  validation: mlm_loss 3.250  mlm_accuracy 25.0%"


def test_a_terminal_gets_a_bar(tmp_path, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    terminal = Terminal()
    monkeypatch.setattr(writer.sys, "stderr", terminal)
    made = writer.Writer(tmp_path, 100, 40)
    made.write(50, {"train/loss": 2.5})
    made.write(50, {"eval/validation/mlm_loss": 3.25})
    writer.logger.info("saved")
    made.close()
    shown = terminal.getvalue()
    assert "50/100" in shown
    assert "loss 2.500" in shown
    assert "\nstep 50: validation: mlm_loss 3.250" in shown.replace("\r", "\n")
    assert "saved\n" in shown


def test_only_the_first_process_writes(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("jax.process_index", lambda: 1)
    run(tmp_path, 0, 3, names=("tensorboard",))
    assert list(tmp_path.iterdir()) == []
    assert capsys.readouterr().err == ""
