"""Several processes on one run, joined by gloo: what they compute and write is what one process
does.

Two processes of two devices each are held against one process of four. Dropout is off: its bits
follow the devices.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from bert_jax import train
from bert_jax.checkpoints.steps import list_steps
from bert_jax.training import stop
from tests import clusters, outcomes, tasks, texts
from tests.texts import ROOT

STEPS = 8
KNOBS = {
    "steps": STEPS,
    "model.dropout": 0,
    "model.attention_dropout": 0,
    "logging.every": 1,
    "logging.samples": 12,
    "checkpoints.every": 4,
    "evals.validation.every": 4,
    "evals.validation.batch_size": 40,  # the last batch is padded
}


def words(base: Path, workdir: Path, **knobs: object) -> list[str]:
    chosen = {**KNOBS, **{key.replace("__", "."): value for key, value in knobs.items()}}
    return [
        "train",
        f"--config={base}",
        f"--workdir={workdir}",
        *(f"--config.{k}={v}" for k, v in chosen.items()),
    ]


def start_two(
    command: list[str],
    faults: tuple[str, str] = ("", ""),
    hosts: Sequence[Sequence[str]] = ((), ()),
    address: str = "127.0.0.1",
) -> list[subprocess.Popen]:
    (port,) = clusters.free_ports(1)
    shared = {"JAX_COORDINATOR_ADDRESS": f"{address}:{port}", "JAX_NUM_PROCESSES": "2"}
    return [
        texts.start(
            *command,
            "--config.parallel.distributed=true",
            devices=2,
            within=host,
            JAX_PROCESS_ID=str(number),
            BERT_JAX_FAULT=fault,
            **shared,
        )
        for number, (fault, host) in enumerate(zip(faults, hosts, strict=True))
    ]


def ends(processes: list[subprocess.Popen]) -> tuple[list[int], list[str]]:
    """Exit codes and standard errors."""
    errors = [process.communicate(timeout=250)[1] for process in processes]
    return [process.returncode for process in processes], errors


def two(command: list[str], faults: tuple[str, str] = ("", "")) -> tuple[list[int], list[str]]:
    return ends(start_two(command, faults))


def one(command: list[str], fault: str = "") -> tuple[int, str]:
    code, _, err = texts.run(*command, devices=4, BERT_JAX_FAULT=fault)
    return code, err


def assert_close(workdir: Path, reference: Path) -> None:
    """The same lines, and in them the same numbers as far as the order of additions allows."""
    ours, theirs = outcomes.metrics(workdir), outcomes.metrics(reference)
    assert [(line["step"], sorted(line)) for line in ours] == [
        (line["step"], sorted(line)) for line in theirs
    ]
    for mine, other in zip(ours, theirs, strict=True):
        for name, value in other.items():
            assert mine[name] == pytest.approx(value, rel=1e-5, abs=1e-5), (other["step"], name)
            counted = name.endswith(("_fraction", "examples", "predictions"))
            if counted and not name.endswith("weight_fraction"):  # which sums weights, not tokens
                assert mine[name] == value, (other["step"], name)  # counts of the same tokens
    several = [
        [(row["step"], row["text"]) for row in outcomes.samples(folder)]
        for folder in (workdir, reference)
    ]
    assert several[0] == several[1]


@pytest.fixture(scope="module")
def reference(base, tmp_path_factory) -> Path:
    workdir = tmp_path_factory.mktemp("reference")
    code, err = one(words(base, workdir))
    assert code == 0, err
    return workdir


@pytest.mark.parametrize(
    "knobs",
    [
        {},
        {"parallel__step": "pmap"},
        {"parallel__fsdp": 4},
        {"optim__accumulation": 2},
    ],
    ids=["jit", "pmap", "fsdp", "accumulation"],
)
@pytest.mark.slow
def test_two_processes_are_one_run(knobs, base, reference, tmp_path):
    codes, errors = two(words(base, tmp_path, **knobs))
    assert codes == [0, 0], errors
    assert_close(tmp_path, reference)
    assert list_steps(tmp_path / "checkpoints") == [4, 8]
    assert f"report: {tmp_path / 'report.html'}" in errors[0]
    assert not errors[1], "process 0 alone speaks"
    files = sorted(p.name for p in tmp_path.iterdir())
    assert files == sorted(p.name for p in reference.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize(
    "knobs",
    [
        {"masking__prediction_rate": 0.4, "batch_size": 24},
        {"objectives__diffusion__weight": 1, "masking__draw": "uniform"},
        {"objectives__hybrid__weight": 1, "masking__weights": "frequency"},
    ],
    ids=["views", "diffusion", "hybrid"],
)
def test_drawn_rates_are_the_same_on_two_processes(knobs, base, tmp_path):
    """Views of an example, the places behind drawn rates and the causal share cross processes."""
    knobs = {"pairs": "none", "masking__replace": "(1.0,0.0,0.0)", **knobs}
    codes, errors = two(words(base, tmp_path / "two", **knobs))
    assert codes == [0, 0], errors
    code, err = one(words(base, tmp_path / "one", **knobs))
    assert code == 0, err
    assert_close(tmp_path / "two", tmp_path / "one")


@pytest.mark.slow
@pytest.mark.fault(3)
@pytest.mark.parametrize("step", ["jit", "pmap"])
@pytest.mark.fault(8)
def test_number_of_processes_may_change(step, base, tmp_path):
    """Two, stopped by a signal to the second alone; then one, stopped; then two: no example is lost
    or repeated.
    """
    command = words(base, tmp_path / "run", steps=24, parallel__step=step)
    codes, errors = two(command, ("", "step:5:term"))
    assert codes == [75, 75], errors
    stopped = list_steps(tmp_path / "run" / "checkpoints")[-1]
    assert 5 <= stopped <= 12
    assert all(f"stopped at step {stopped} of 24, saved" in err for err in errors), errors

    code, err = one(command, f"step:{stopped + 4}:term")
    assert code == 75, err
    assert f"resuming {tmp_path / 'run'} at step {stopped}" in err

    codes, errors = two(command)
    assert codes == [0, 0], errors
    assert f"resuming {tmp_path / 'run'} at step {stopped + 4}" in errors[0]

    code, err = one(words(base, tmp_path / "reference", steps=24, parallel__step=step))
    assert code == 0, err
    assert_close(tmp_path / "run", tmp_path / "reference")


@pytest.mark.slow
def test_refusal_of_process_0_ends_both(base, reference):
    """Nobody waits for the other: a changed config is every process's error, a workdir in use is
    passed on.
    """
    codes, errors = two(words(base, reference, masking__rate=0.5))
    assert codes == [2, 2], errors
    assert "masking.rate: 0.15 -> 0.5" in errors[0]
    with stop.run_lock(reference):
        codes, errors = two(words(base, reference))
    assert codes == [2, 2], errors
    assert f"error: another run uses {reference}: host " in errors[0]
    assert f"error: process 0 may not use {reference}" in errors[1]


def assert_lost(code: int, err: str) -> None:
    """The end of a process whose peer is gone: our line and 75, or jax's own abort."""
    assert code in (75, -signal.SIGABRT), err
    if code == 75:
        *_, error, hint = err.splitlines()
        assert error == "error: another process of this run has ended, or the link to it is cut"
        assert hint.startswith("hint: the same command continues")


@pytest.mark.slow
@pytest.mark.fault(3)
@pytest.mark.timeout(900)
@pytest.mark.parametrize("dead", [0, 1])
def test_lost_process_ends_its_peer_and_resumes(dead, base, reference, tmp_path):
    """Process 0 keeps the list of who is alive: the other sees its end at once, and it the other's
    after a minute.
    """
    kill = "step:6:kill"
    processes = start_two(words(base, tmp_path), (kill, "") if dead == 0 else ("", kill))
    processes[dead].wait(timeout=250)
    begun = time.monotonic()
    codes, errors = ends(processes)
    assert time.monotonic() - begun < 120
    assert codes[dead] == -signal.SIGKILL
    assert_lost(codes[1 - dead], errors[1 - dead])
    codes, errors = two(words(base, tmp_path))
    assert codes == [0, 0], errors
    assert_close(tmp_path, reference)


@pytest.mark.slow
@pytest.mark.fault(3)
@pytest.mark.timeout(900)
def test_failed_process_ends_its_peer(base, tmp_path):
    """Its own error stands, and jax's wait for all to meet at the end keeps nobody."""
    processes = start_two(words(base, tmp_path), ("", "step:6:raise"))
    begun = time.monotonic()
    codes, errors = ends(processes)
    assert time.monotonic() - begun < 240, "jax waits 300 s"
    assert codes[1] == 1, errors
    assert "RuntimeError: a fault of the tests" in errors[1]
    assert_lost(codes[0], errors[0])


@pytest.mark.slow
@pytest.mark.parametrize("step", ["jit", "pmap"])
def test_finetuning_in_two_processes_is_that_of_one(tmp_path, step):
    """The config file reads the model it starts from before the processes know of each other."""
    file = tasks.write_classify(tmp_path)
    base = tasks.config("classify", f"files:{file}", tmp_path, epochs=1)
    train.run(base, tmp_path / "start", command=[])
    config = ROOT / "configs" / "finetune.py"
    flags = {
        "task.source": f"files:{file}",
        "epochs": 2,
        "batch_size": 8,
        "model.dropout": 0,
        "model.attention_dropout": 0,
        "parallel.step": step,
        "logging.every": 1,
        "logging.trackers": "",
    }
    command = ["train", f"--config={config}:classify,init_from={tmp_path / 'start'}"]
    command += [f"--config.{key}={value}" for key, value in flags.items()]
    codes, errors = ends(start_two([*command, f"--workdir={tmp_path / 'two'}"]))
    assert codes == [0, 0], errors
    code, _, error = texts.run(*command, f"--workdir={tmp_path / 'one'}", devices=4)
    assert code == 0, error
    two, one = (tasks.lines(tmp_path / name) for name in ("two", "one"))
    assert [line["step"] for line in two] == [line["step"] for line in one]
    for ours, theirs in zip(two, one, strict=True):
        for key in ours.keys() & {"train/loss", "eval/validation/loss", "eval/validation/accuracy"}:
            assert ours[key] == pytest.approx(theirs[key], rel=1e-4), (ours["step"], key)
