"""Trackers: every step reaches them once, whatever happens to the run or to them, and training
never ends with them. The real ones run where their packages are installed.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import struct
import subprocess
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bert_jax import config, train
from bert_jax.config import knobs, recorded, resolve, run_knobs, to_dict
from bert_jax.errors import ConfigError
from bert_jax.training import trackers
from bert_jax.training.run import check_same
from bert_jax.training.trackers import sending
from bert_jax.training.writer import Writer
from tests import texts

BY_STEP = {step: {"train/loss": 1 / step} for step in range(1, 13)}


class Service:
    """A tracker, its tracked runs by id, and how it fails."""

    HINT = "ask it nicely"

    def __init__(self) -> None:
        self.runs: dict[str, list[tuple[int, dict]]] = {}
        self.ends: list[bool] = []
        self.down: Exception | None = None
        self.forgetful = False  # it may lose what was handed over, and knows what it has
        self.open = threading.Event()  # answers wait for it
        self.open.set()

    def check(self) -> None:
        if self.down:
            raise self.down

    def begin(self, place: trackers.Place) -> sending.Sender:
        return sending.begin("fake", place, self.client)

    def client(self, run: str) -> sending.Client:
        self.check()
        run = run or f"run{len(self.runs)}"
        return Client(self, run)


class Client:
    def __init__(self, service: Service, run: str):
        self.service, self.run = service, run
        self.rows = service.runs.setdefault(run, [])
        last = self.rows[-1][0] if self.rows else 0
        self.held = last if service.forgetful else None

    def log(self, step, values) -> None:
        self.service.open.wait(10)
        self.service.check()
        self.rows.append((step, dict(values)))

    def finish(self, finished: bool) -> None:
        self.service.check()
        self.service.ends.append(finished)


@pytest.fixture
def service(monkeypatch) -> Iterator[Service]:
    """A tracker that is one row of the table and one module."""
    made = Service()
    monkeypatch.setitem(run_knobs.TRACKERS, "fake", "json")
    monkeypatch.setitem(sys.modules, "bert_jax.training.trackers.fake", made)
    return made


def until(condition: Callable[[], bool]) -> None:
    """Wait for another thread."""
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def write(
    folder: Path, first: int, last: int, *, config: dict | None = None, end: str = "close"
) -> None:
    """Write the lines of some steps as a run that goes on from the step before them."""
    made = Writer(folder, 12, first - 1, ("fake",), quiet=True, config=config)
    for step in range(first, last + 1):
        made.write(step, BY_STEP[step])
    if end == "kill":  # what waits in the process is lost with it
        made._trackers[0]._queue.put(None)
        made._trackers[0]._thread.join()
        made._file.close()
        return
    made.finished = end == "finish"
    made.close()


def test_the_lines_of_a_step_are_one_row(service, tmp_path):
    made = Writer(tmp_path, 12, 0, ("fake",), quiet=True)
    made.write(5, {"train/loss": 2.0, "train/mfu": float("nan")})
    made.write(5, {"eval/validation/mlm_loss": 3.0})
    made.write(10, {"train/loss": 1.0})
    made.finished = True
    made.close()
    row = {"train/loss": 2.0, "eval/validation/mlm_loss": 3.0}
    assert service.runs == {"run0": [(5, row), (10, {"train/loss": 1.0})]}
    assert service.ends == [True]


@pytest.mark.parametrize("end", ["close", "kill"])
def test_a_resume_continues_the_tracked_run_without_a_gap_or_a_repetition(service, tmp_path, end):
    """The checkpoint is older than what was tracked; a kill loses what was not sent."""
    write(tmp_path, 1, 9, end=end)
    write(tmp_path, 7, 12, end="finish")
    assert service.runs == {"run0": [*BY_STEP.items()]}
    assert service.ends[-1] is True
    assert json.loads((tmp_path / "trackers" / "fake.json").read_text())["step"] == 12


def test_rows_that_a_tracker_lost_are_sent_again(service, tmp_path):
    service.forgetful = True
    write(tmp_path, 1, 9)
    del service.runs["run0"][5:]
    write(tmp_path, 10, 12)
    assert service.runs == {"run0": [*BY_STEP.items()]}
    service.runs["run0"].clear()  # it knows nothing, of what it had when it was last opened either
    write(tmp_path, 12, 12)
    assert service.runs == {"run0": [*BY_STEP.items()][5:]}


def test_a_tracked_run_that_is_gone_is_said_with_the_file_that_names_it(service, tmp_path):
    write(tmp_path, 1, 3)
    service.down = LookupError("no such run")
    with pytest.raises(ConfigError, match="tracker fake cannot begin: no such run") as caught:
        write(tmp_path, 4, 4)
    file = tmp_path / "trackers" / "fake.json"
    assert caught.value.hint.endswith(f"without {file} another tracked run begins")
    file.unlink()
    service.down = None
    write(tmp_path, 4, 4)
    assert service.runs["run1"] == [*BY_STEP.items()][:4]


@pytest.mark.fault(54)
def test_lines_that_a_dead_tracker_missed_are_sent_by_the_resume(service, tmp_path, capsys):
    made = Writer(tmp_path, 12, 0, ("fake",), quiet=True)
    for step in range(1, 5):
        made.write(step, BY_STEP[step])
    until(lambda: len(service.runs["run0"]) == 3)
    service.down = OSError("the server\nis gone")
    for step in range(5, 9):
        made.write(step, BY_STEP[step])
    made.close()
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert said[0].startswith("warning: tracker fake: the server; the run goes on")
    assert len(service.runs["run0"]) < 8
    service.down = None
    write(tmp_path, 9, 12)
    assert service.runs == {"run0": [*BY_STEP.items()]}


def test_a_tracker_that_comes_back_gets_what_it_missed(service, tmp_path, capsys):
    made = Writer(tmp_path, 12, 0, ("fake",), quiet=True)
    service.down = OSError("away")
    for step in (1, 2, 3):
        made.write(step, BY_STEP[step])
    until(lambda: made._trackers[0]._warned)
    service.down = None
    for step in (4, 5):
        made.write(step, BY_STEP[step])
    made.close()
    assert service.runs == {"run0": [*BY_STEP.items()][:5]}
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.fault(54)
def test_a_tracker_that_hangs_holds_up_nothing(service, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sending, "PATIENCE", 0.05)
    service.open.clear()
    write(tmp_path, 1, 12)
    assert (
        "warning: tracker fake: it has not taken everything within 0 sec" in capsys.readouterr().err
    )
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 12
    service.open.set()


def test_a_run_that_begins_anew_is_the_same_tracked_run_if_its_config_is(service, tmp_path):
    write(tmp_path, 1, 3, config={"seed": 0})
    write(tmp_path, 1, 5, config={"seed": 0})
    write(tmp_path, 1, 2, config={"seed": 1})
    assert service.runs == {"run0": [*BY_STEP.items()][:5], "run1": [*BY_STEP.items()][:2]}


def test_runs_that_train_together_are_tracked_apart(service, tmp_path):
    made = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        made.append(Writer(tmp_path / name, 12, 0, ("fake",), quiet=True))
    for writer in made:
        writer.write(1, BY_STEP[1])
    for writer in made:
        writer.close()
    assert service.runs == {name: [(1, BY_STEP[1])] for name in ("run0", "run1")}


def test_a_tracker_that_begins_late_gets_the_lines_before(service, tmp_path):
    made = Writer(tmp_path, 12, 0, quiet=True)
    for step in range(1, 7):
        made.write(step, BY_STEP[step])
    made.close()
    write(tmp_path, 5, 6)
    assert service.runs == {"run0": [*BY_STEP.items()][:6]}


def test_only_the_first_process_tracks(service, tmp_path, monkeypatch):
    monkeypatch.setattr("jax.process_index", lambda: 1)
    made = Writer(tmp_path, 12, 0, ("fake",))
    made.write(1, BY_STEP[1])
    made.close()
    assert service.runs == {}


@pytest.mark.fault(54)
def test_what_stops_a_tracker_is_said_before_anything_is_prepared(service, tmp_path):
    base = texts.configure(texts.config_file(tmp_path), corpus__path="nowhere")
    settings = dataclasses.replace(base, logging=knobs.Logging(trackers=("fake",)))
    service.down = OSError("no route\nto it")
    with pytest.raises(ConfigError, match=r"(?m)^tracker fake cannot begin: no route$") as caught:
        train.train([(settings, tmp_path / "run")])
    assert caught.value.hint.startswith("ask it nicely; --config.logging.trackers= ")
    run_knobs.TRACKERS["fake"] = "package_that_nobody_has"
    with pytest.raises(ConfigError, match="needs the package package_that_nobody_has") as caught:
        train.train([(settings, tmp_path / "run")])
    assert "[fake]'" in caught.value.hint


def test_a_second_tracker_that_cannot_begin_ends_the_first(service, tmp_path, monkeypatch):
    monkeypatch.setitem(run_knobs.TRACKERS, "other", "json")
    monkeypatch.setitem(sys.modules, "bert_jax.training.trackers.other", types.ModuleType("other"))
    place = trackers.Place(tmp_path, 0, {}, [])
    with pytest.raises(ConfigError, match="tracker other cannot begin"):
        trackers.begin(["fake", "other"], place)
    assert service.ends == [False]


def test_every_row_is_a_module_with_an_extra_outside_of_the_lock():
    root = Path(__file__).parents[1]
    lock, project = (root / name for name in ("requirements.lock", "pyproject.toml"))
    locked = {line.partition("==")[0] for line in lock.read_text().splitlines()}
    for name, package in run_knobs.TRACKERS.items():
        assert (root / "bert_jax" / "training" / "trackers" / f"{name}.py").is_file()
        assert (f'\n{name} = ["{package}' in project.read_text()) == (name != "tensorboard")
        assert (package.lower() in locked) == (name == "tensorboard")


# --- the older name of the knob -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("logging", "expected"),
    [
        ({}, ("tensorboard",)),
        ({"tensorboard": True}, ("tensorboard",)),
        ({"tensorboard": False}, ()),
        ({"trackers": ("wandb",), "tensorboard": True}, ("wandb", "tensorboard")),
        ({"trackers": ("wandb", "tensorboard"), "tensorboard": False}, ("wandb",)),
        ({"trackers": ("wandb", "mlflow", "wandb")}, ("wandb", "mlflow")),
        ({"trackers": ()}, ()),
    ],
)
def test_the_older_name_is_read_into_trackers(logging, expected):
    found = resolve({"logging": logging})
    assert (found.logging.trackers, found.logging.tensorboard) == (expected, None)
    assert recorded(to_dict(found)) == found


def test_recorded_configs_from_before_are_read():
    for old, expected in ((True, ("tensorboard",)), (False, ())):
        tree = to_dict(resolve({}))
        tree["logging"] = {"every": 10, "tensorboard": old, "samples": 12}
        assert recorded(tree).logging.trackers == expected
        marks = dict.fromkeys(("corpus", "tokenizer", "batches"), "same")
        now = marks | {"config": to_dict(resolve({"logging": {"trackers": ("mlflow",)}}))}
        assert check_same(marks | {"config": tree}, now, (), Path("run"))["config"] == tree


def test_trackers_on_the_command_line_replace_the_older_name():
    tree = config.default()
    tree.logging.tensorboard = False  # in a config file
    config.override(tree, "logging.trackers", "(tensorboard,mlflow)")
    assert resolve(tree).logging.trackers == ("tensorboard", "mlflow")
    config.override(tree, "logging.trackers", "()")
    assert resolve(tree).logging.trackers == ()


# --- the real ones --------------------------------------------------------------------------------

PAIR = """
import sys
from pathlib import Path
from bert_jax import train
from tests import texts

folder, trackers = Path(sys.argv[1]), sys.argv[2]
knobs = {"logging__trackers": trackers}
train.train([
    (texts.configure(folder / "config.py", seed=seed, **knobs), folder / f"run{seed}")
    for seed in (0, 1)
])
"""


def installed(name: str) -> types.ModuleType:
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed: pip install -e '.[{name}]'")
    return importlib.import_module(name)


def tracked_pair(folder: Path, name: str, **variables: str) -> list[list[dict]]:
    """Train two runs in one program, killed in update 18 and resumed; return their lines."""
    installed(name)
    texts.config_file(folder)
    for fault, code in (("step:18:kill", -9), ("", 0)):
        done = subprocess.run(
            [sys.executable, "-c", PAIR, folder, name],
            env={
                **os.environ,
                **variables,
                "PYTHONPATH": str(texts.ROOT),
                "BERT_JAX_FAULT": fault,
            },
            capture_output=True,
            text=True,
        )
        assert done.returncode == code, done.stderr
        assert "warning: tracker" not in done.stderr
    found = []
    for run in ("run0", "run1"):
        rows: dict[int, dict] = {}
        for line in (folder / run / "metrics.jsonl").read_text().splitlines():
            numbers = {key: value for key, value in json.loads(line).items() if "/" in key}
            rows.setdefault(json.loads(line)["step"], {}).update(numbers)
        found.append(rows)
    assert [*found[0]] == [5, 10, 15, 20, 25, 30]
    assert found[0] != found[1]
    return found


def learned(rows: dict[int, dict]) -> dict[int, dict]:
    """The numbers that are the same in every attempt of a run, unlike its speed."""
    return {
        step: {key: value for key, value in row.items() if key.endswith(("_loss", "_accuracy"))}
        for step, row in rows.items()
    }


def wandb_rows(file: Path) -> Iterator[tuple[int, dict]]:
    """Read a file of an offline run: blocks of 32 KiB of pieces of protobuf records."""
    from wandb.proto import wandb_internal_pb2

    data, at, record = file.read_bytes(), 7, b""
    while at + 7 <= len(data):
        if (room := 2**15 - at % 2**15) < 7:
            at += room
            continue
        size, piece = struct.unpack("<HB", data[at + 4 : at + 7])
        record += data[at + 7 : at + 7 + size]
        at += 7 + size
        if piece in (1, 4):  # whole, or the last piece
            parsed = wandb_internal_pb2.Record.FromString(record)
            record = b""
            if parsed.HasField("history"):
                items = {
                    item.key or "/".join(item.nested_key): json.loads(item.value_json)
                    for item in parsed.history.item
                }
                own = {key: value for key, value in items.items() if not key.startswith("_")}
                yield items["_step"], own


@pytest.mark.slow
@pytest.mark.fault(54)
@pytest.mark.filterwarnings("ignore")
def test_offline_runs_of_wandb_go_on_after_a_kill(tmp_path):
    lines = tracked_pair(tmp_path, "wandb", WANDB_MODE="offline")
    ids = set()
    for run, expected in zip(("run0", "run1"), lines, strict=True):
        (ident,) = {file.stem for file in (tmp_path / run / "wandb").glob("offline-run-*/*.wandb")}
        ids.add(ident)
        assert json.loads((tmp_path / run / "trackers" / "wandb.json").read_text())["run"] in ident
        segments = sorted((tmp_path / run / "wandb").glob("offline-run-*/*.wandb"))
        assert len(segments) == 2
        rows = [row for file in segments for row in wandb_rows(file)]
        assert [step for step, _ in rows] == [*expected]
        assert learned(dict(rows)) == learned(expected)
    assert len(ids) == 2


@pytest.mark.slow
@pytest.mark.fault(54)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "variables", "advice"),
    [
        ("wandb", {"WANDB_MODE": "online"}, "`wandb login` once; without a network, WANDB_MODE="),
        ("mlflow", {"MLFLOW_TRACKING_URI": "http://127.0.0.1:9"}, "MLFLOW_TRACKING_URI names"),
    ],
)
def test_a_tracker_without_account_or_server_is_refused(tmp_path, name, variables, advice):
    installed(name)
    words = [f"--config={texts.config_file(tmp_path)}", f"--workdir={tmp_path / 'run'}"]
    words.append(f"--config.logging.trackers={name}")
    code, _, err = texts.run("train", *words, HOME=str(tmp_path), WANDB_API_KEY="", **variables)
    error, hint = err.splitlines()
    assert code == 2
    assert error.startswith(f"error: tracker {name} cannot begin: ")
    assert hint.startswith(f"hint: {advice}")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_last_step_of_a_long_offline_run_is_found(tmp_path, monkeypatch):
    wandb = installed("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    place = trackers.Place(tmp_path, 0, {}, [])
    tracker = importlib.import_module("bert_jax.training.trackers.wandb")
    client = tracker.Client(place, "")
    for step in range(1, 3001):
        client.log(step, {f"train/value{i}": i / step for i in range(60)})
    client.finish(True)
    (file,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    assert file.stat().st_size > tracker.RECENT
    assert tracker.last_step(file) == 3000
    assert [step for step, _ in wandb_rows(file)] == [*range(1, 3001)]
    with file.open("r+b") as opened:
        opened.truncate(2 * tracker.BLOCK + 100)
    assert 10 < tracker.last_step(file) < 100
    wandb.teardown()


@pytest.mark.slow
@pytest.mark.fault(54)
@pytest.mark.filterwarnings("ignore")
def test_runs_in_a_file_store_of_mlflow_go_on_after_a_kill(tmp_path, monkeypatch):
    where = (tmp_path / "mlruns").as_uri()
    lines = tracked_pair(tmp_path, "mlflow", MLFLOW_TRACKING_URI=where)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    import mlflow

    client = mlflow.MlflowClient(where)
    (experiment,) = (e for e in client.search_experiments() if e.name == "bert_jax")
    runs = {run.info.run_name: run for run in client.search_runs([experiment.experiment_id])}
    assert runs.keys() == {"run0", "run1"}
    for seed, expected in enumerate(lines):
        run = runs[f"run{seed}"]
        assert (run.info.status, run.data.params["seed"]) == ("FINISHED", str(seed))
        for key in ("train/loss", "eval/validation/mlm_loss"):
            points = client.get_metric_history(run.info.run_id, key)
            assert [(point.step, point.value) for point in points] == [
                (step, row[key]) for step, row in expected.items() if key in row
            ]
