"""Trackers get each line while they work; a tracker that fails costs one warning, and no run.

Weights & Biases and MLflow are replaced by objects that accept the calls of their interfaces.
"""

from __future__ import annotations

import dataclasses
import errno
import json
import sys
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

import pytest
from tensorboardX.proto import event_pb2

from bert_jax import train
from bert_jax.config import resolve, run_knobs
from bert_jax.errors import ConfigError
from bert_jax.training import trackers
from bert_jax.training.writer import Writer
from tests import texts


class Fake:
    """A tracker that remembers its lines."""

    made: ClassVar[list[Fake]] = []

    def __init__(self, workdir: Path, start: int, config: Any, run: str):
        self.origin = workdir, start, config["seed"], run
        self.run = run or f"run{len(Fake.made)}"
        self.lines: list[Any] = []
        Fake.made.append(self)

    def add(self, step: int, values: dict[str, float]) -> None:
        self.lines.append((step, values))

    def close(self, finished: bool) -> None:
        self.lines.append(finished)


@pytest.fixture
def fake(monkeypatch) -> type[Fake]:
    Fake.made = []
    monkeypatch.setitem(run_knobs.TRACKERS, "fake", "json")
    monkeypatch.setitem(trackers.CLASSES, "fake", Fake)
    return Fake


def write_steps(folder: Path, first: int, last: int, names: tuple[str, ...] = ("fake",)) -> None:
    """Write the lines of some steps, as a run that goes on from the step before them."""
    folder.mkdir(exist_ok=True)
    config = resolve({"steps": last, "seed": 3, "logging": {"trackers": ()}})
    logging = dataclasses.replace(config.logging, trackers=names)
    made = Writer(folder, dataclasses.replace(config, logging=logging), first - 1, quiet=True)
    for step in range(first, last + 1):
        made.write(step, {"train/loss": 1 / step, "train/mfu": float("nan")})
    made.finished = True
    made.close()


def test_trackers_get_the_finite_numbers_of_each_line(fake, tmp_path):
    write_steps(tmp_path, 1, 2)
    (made,) = fake.made
    assert made.origin == (tmp_path, 0, 3, "")
    assert made.lines == [(1, {"train/loss": 1.0}), (2, {"train/loss": 0.5}), True]


def test_resume_continues_the_tracked_run(fake, tmp_path):
    for first in (1, 4, 1):
        write_steps(tmp_path / "a", first, 5)
    write_steps(tmp_path / "b", 1, 1)
    assert [made.run for made in fake.made] == ["run0", "run0", "run2", "run3"]
    assert json.loads((tmp_path / "a" / "trackers.json").read_text()) == {"fake": "run2"}


@pytest.mark.parametrize("method", ["__init__", "add", "close"])
def test_a_tracker_that_fails_costs_one_warning(method, fake, tmp_path, monkeypatch, capsys):
    def fail(*_: Any) -> None:
        raise OSError("no route to host\nand more")

    monkeypatch.setattr(fake, method, fail)
    write_steps(tmp_path, 1, 5, ("fake", "tensorboard"))
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert said[0].startswith("warning: tracker fake: no route to host; the run goes on without it")
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 5
    assert [*read_events(tmp_path)] == [1, 2, 3, 4, 5], "the other tracker goes on"


def test_tracker_without_its_package_is_refused(tmp_path, monkeypatch):
    monkeypatch.setitem(run_knobs.TRACKERS, "wandb", "package_that_nobody_has")
    base = texts.config_file(tmp_path)
    settings = texts.configure(base, corpus__path="nowhere", logging__trackers=("wandb",))
    with pytest.raises(ConfigError, match="needs the package package_that_nobody_has") as caught:
        train.train([(settings, tmp_path / "run")])
    assert "[wandb]'" in caught.value.hint


# --- TensorBoard ----------------------------------------------------------------------------------


def read_events(folder: Path) -> dict[int, float]:
    """Return the values that TensorBoard shows: a start of a file voids what lies after it."""
    seen: dict[int, float] = {}
    files = sorted((folder / "tensorboard").glob("events*"))
    for file in files:
        data, place = file.read_bytes(), 0
        while place < len(data):  # length (8 bytes), its checksum (4), the event, its checksum (4)
            size = int.from_bytes(data[place : place + 8], "little")
            event = event_pb2.Event.FromString(data[place + 12 : place + 12 + size])
            place += 16 + size
            if event.HasField("session_log"):
                seen = {step: value for step, value in seen.items() if step < event.step}
            for value in event.summary.value:
                assert value.tag == "train/loss"
                seen[event.step] = value.simple_value
    return seen


def test_tensorboard_hides_what_a_killed_attempt_wrote(tmp_path):
    write_steps(tmp_path, 1, 5, ("tensorboard",))
    write_steps(tmp_path, 4, 6, ("tensorboard",))
    assert len([*(tmp_path / "tensorboard").glob("events*")]) == 2
    assert read_events(tmp_path) == pytest.approx({step: 1 / step for step in range(1, 7)})


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # it stays open
def test_tensorboard_on_a_full_disk_is_one_warning(tmp_path, monkeypatch, capsys):
    writers = []

    def refuse(writer: Any) -> None:
        writers.append(writer)
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("tensorboardX.event_file_writer.EventsWriter.flush", refuse)
        write_steps(tmp_path, 1, 5, ("tensorboard",))
    writers[0].close()  # the library leaves the file open if it cannot flush
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert "warning: tracker tensorboard: [Errno 28] No space left on device" in said[0]


# --- the calls of the others ----------------------------------------------------------------------


def test_wandb_resumes_the_run_by_its_id(tmp_path, monkeypatch):
    module = mock.MagicMock()
    module.init.return_value.id = "abc"
    monkeypatch.setitem(sys.modules, "wandb", module)
    for step in (1, 2):
        write_steps(tmp_path / "name", step, step, ("wandb",))
    begun = [call.kwargs for call in module.init.call_args_list]
    assert [given["id"] for given in begun] == [None, "abc"]
    assert {given["resume"] for given in begun} == {"allow"}
    assert {given["name"] for given in begun} == {"name"}
    run = module.init.return_value
    assert run.log.call_args_list[0] == mock.call({"train/loss": 1.0}, step=1)
    run.finish.assert_called_with(exit_code=0)


def test_mlflow_logs_to_its_own_run(tmp_path, monkeypatch):
    module = mock.MagicMock()
    client = module.MlflowClient.return_value
    client.create_run.return_value.info.run_id = "abc"
    monkeypatch.setitem(sys.modules, "mlflow", module)
    for step in (1, 2):
        write_steps(tmp_path, step, step, ("mlflow",))
    client.create_run.assert_called_once()
    logged = [call.kwargs for call in module.log_metrics.call_args_list]
    assert [(given["step"], given["run_id"]) for given in logged] == [(1, "abc"), (2, "abc")]
    assert module.flush_async_logging.call_count == 2
    client.set_terminated.assert_called_with("abc", "FINISHED")
