"""Trackers get each line while they work; a tracker that fails costs one warning, and no run.

Weights & Biases and MLflow are replaced by objects that accept the calls of their interfaces.
"""

import dataclasses
import json
import sys
import threading
from pathlib import Path
from unittest import mock

import pytest
from tensorboardX.proto import event_pb2

from bert_jax.config import knobs, resolve
from bert_jax.errors import UserError
from bert_jax.training import trackers
from bert_jax.training.writer import Writer


@pytest.fixture
def fake(monkeypatch) -> mock.MagicMock:
    """The class of a tracker; its one object remembers its calls."""
    made = mock.MagicMock()
    made.return_value.run = "run"
    monkeypatch.setitem(knobs.TRACKERS, "fake", "json")
    monkeypatch.setitem(trackers.CLASSES, "fake", made)
    return made


def write_steps(folder: Path, first: int, last: int, *names: str) -> None:
    """Write the lines of some steps, as a run that goes on from the step before them."""
    folder.mkdir(exist_ok=True)
    config = resolve({"steps": last, "seed": 3, "logging": {"trackers": ()}})
    logging = dataclasses.replace(config.logging, trackers=names)
    made = Writer(folder, dataclasses.replace(config, logging=logging), first - 1, quiet=True)
    for step in range(first, last + 1):
        made.write(step, {"train/loss": 1 / step, "train/mfu": float("nan")})
    made.finished = True
    made.close()


@pytest.mark.parametrize("content", ["{", '{"fake": 3}'])
def test_damaged_ids_cost_one_warning(content, fake, tmp_path, capsys):
    (tmp_path / "trackers.json").write_text(content)
    write_steps(tmp_path, 4, 5, "fake")
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith(f"warning: {tmp_path / 'trackers.json'}: ")
    assert said.endswith(": each tracker begins a new run")
    assert json.loads((tmp_path / "trackers.json").read_text()) == {"fake": "run"}


@pytest.mark.parametrize("method", ["__init__", "add", "close"])
def test_tracker_that_fails_costs_one_warning(method, fake, tmp_path, capsys):
    """The other tracker goes on."""
    failing = fake if method == "__init__" else getattr(fake.return_value, method)
    failing.side_effect = OSError("no route to host\nand more")
    write_steps(tmp_path, 1, 5, "fake", "tensorboard")
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith("warning: tracker fake: no route to host; the run goes on without it")
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 5
    assert [*read_events(tmp_path)] == [1, 2, 3, 4, 5]


def test_tracker_without_its_package_is_refused(monkeypatch):
    monkeypatch.setitem(knobs.TRACKERS, "wandb", "package_that_nobody_has")
    with pytest.raises(UserError, match="needs the package package_that_nobody_has") as caught:
        trackers.check_trackers(["wandb"])
    assert "[wandb]'" in caught.value.hint


# --- TensorBoard ----------------------------------------------------------------------------------


def read_events(folder: Path) -> dict[int, float]:
    """Return the values that TensorBoard shows: a start of a file voids what lies after it."""
    seen: dict[int, float] = {}
    for file in sorted((folder / "tensorboard").glob("events*")):
        data = file.read_bytes()
        place = 0
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
    write_steps(tmp_path, 1, 5, "tensorboard")
    write_steps(tmp_path, 4, 6, "tensorboard")
    assert len([*(tmp_path / "tensorboard").glob("events*")]) == 2
    assert read_events(tmp_path) == pytest.approx({step: 1 / step for step in range(1, 7)})


# --- the calls of the others ----------------------------------------------------------------------


def test_wandb_resumes_the_run_by_its_id(tmp_path, monkeypatch):
    module = mock.MagicMock()
    module.init.return_value.id = "abc"
    monkeypatch.setitem(sys.modules, "wandb", module)
    for step in (1, 2, 1):  # the last attempt begins anew
        write_steps(tmp_path / "name", step, step, "wandb")
    begun = [call.kwargs for call in module.init.call_args_list]
    assert [given["id"] for given in begun] == [None, "abc", None]
    assert (begun[0]["name"], begun[0]["resume"]) == ("name", "allow")
    assert begun[0]["config"]["seed"] == 3
    run = module.init.return_value
    assert run.log.call_args_list[0] == mock.call({"train/loss": 1.0}, step=1)
    run.finish.assert_called_with(exit_code=0)
    tracker = trackers.WeightsAndBiases(tmp_path, 4, {}, "abc")  # step 4 has lines already
    for step in (4, 5):
        tracker.add(step, {})
        assert run.log.call_args == mock.call({}, step=5)


@pytest.fixture
def mlflow(monkeypatch) -> mock.MagicMock:
    """The library, which makes one run."""
    module = mock.MagicMock()
    module.MlflowClient.return_value.create_run.return_value.info.run_id = "abc"
    monkeypatch.setitem(sys.modules, "mlflow", module)
    return module


def test_mlflow_logs_to_its_own_run(tmp_path, mlflow):
    client = mlflow.MlflowClient.return_value
    for step in (1, 2):
        write_steps(tmp_path, step, step, "mlflow")
    client.create_run.assert_called_once()
    logged = [call.kwargs for call in mlflow.log_metrics.call_args_list]
    assert [(given["step"], given["run_id"]) for given in logged] == [(1, "abc"), (2, "abc")]
    client.set_terminated.assert_called_with("abc", "FINISHED")


@pytest.mark.parametrize("sender", ["log_param", "log_metrics"])
def test_mlflow_that_fails_later_costs_one_warning(sender, tmp_path, mlflow, capsys):
    """A thread sends, so a call that fails has already returned."""
    owner = mlflow if sender == "log_metrics" else mlflow.MlflowClient.return_value
    getattr(owner, sender).side_effect = OSError("no route to host")
    write_steps(tmp_path, 1, 3, "mlflow")
    (said,) = [line for line in capsys.readouterr().err.splitlines() if "warning" in line]
    assert said.startswith("warning: tracker mlflow: no route to host; the run goes on without it")


def test_mlflow_has_a_finished_run_if_it_fails_last(tmp_path, mlflow):
    mlflow.log_metrics.side_effect = OSError("no route to host")
    write_steps(tmp_path, 1, 1, "mlflow")
    mlflow.MlflowClient.return_value.set_terminated.assert_called_with("abc", "FINISHED")


def test_mlflow_tells_how_many_requests_are_lost(tmp_path, mlflow, monkeypatch, capsys):
    """A server that does not answer delays no update."""
    answered = threading.Event()
    mlflow.log_metrics.side_effect = lambda *_, **__: answered.wait(10)
    monkeypatch.setattr(trackers, "LONGEST_WAIT", 0.2)
    write_steps(tmp_path, 1, 3, "mlflow")
    answered.set()
    (said,) = [line for line in capsys.readouterr().err.splitlines() if "warning" in line]
    assert said.startswith("warning: tracker mlflow: 3 requests had no answer in 0.2 s; the run")
