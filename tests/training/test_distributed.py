"""Several processes on one run, joined by gloo: what they compute and write is what one process
does.

Two processes of two devices each are held against one process of four. Dropout is off: its bits
follow the devices.
"""

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from bert_jax.checkpoints.manifest import list_steps
from bert_jax.studies.folder import StudyFolder
from bert_jax.training import stop
from tests import FEWER_PARTS, clusters, outcomes, saved, tasks, texts
from tests.texts import ROOT

LONG = 60
KNOBS = {"steps": 8, "checkpoints.every": 4, "evals.validation.every": 4}
KNOBS |= {"model.dropout": 0, "model.attention_dropout": 0}
KNOBS |= {"logging.every": 1, "logging.samples": 12}
KNOBS |= {"evals.validation.batch_size": 40}  # the last batch is padded
LAYOUTS = {"jit": {}, "pmap": {"parallel__step": "pmap"}, "fsdp": {"parallel__fsdp": 4}}
ALONE = {"pairs": "none", "masking__replace": "(1.0,0.0,0.0)"}
RUNS = {  # microbatches, views of an example, the places behind drawn rates, the causal share
    "accumulation": {"optim__accumulation": 2},
    "views": ALONE | {"masking__prediction_rate": 0.4, "batch_size": 24},
    "diffusion": ALONE | {"objectives__diffusion__weight": 1, "masking__draw": "uniform"},
    "hybrid": ALONE | {"objectives__hybrid__weight": 1, "masking__weights": "frequency"},
}


def words(base: Path, workdir: Path, **knobs: object) -> list[str]:
    chosen = {**KNOBS, **{key.replace("__", "."): value for key, value in knobs.items()}}
    settings = [f"--config.{key}={value}" for key, value in chosen.items()]
    return ["train", f"--config={base}", f"--workdir={workdir}", *settings]


def start_two(command: list[str], faults: tuple[str, str] = ("", "")) -> list[subprocess.Popen]:
    (port,) = clusters.free_ports(1)
    shared = {"JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{port}", "JAX_NUM_PROCESSES": "2"}
    return [
        texts.start(
            *command,
            "--config.parallel.distributed=true",
            devices=2,
            JAX_PROCESS_ID=str(number),
            fault=fault,
            **shared,
        )
        for number, fault in enumerate(faults)
    ]


def ends(processes: list[subprocess.Popen]) -> tuple[list[int], list[str]]:
    """Exit codes and standard errors."""
    errors = [process.communicate(timeout=250)[1] for process in processes]
    return [process.returncode for process in processes], errors


def run_two(command: list[str], faults: tuple[str, str] = ("", ""), code: int = 0) -> list[str]:
    """Run two processes, both of which must end with a code; return their standard errors."""
    codes, errors = ends(start_two(command, faults))
    assert codes == [code, code], errors
    return errors


def run_one(command: list[str], fault: str = "", code: int = 0) -> str:
    """Run one process, which must end with a code; return its standard error."""
    ended, _, error = texts.run(*command, devices=4, fault=fault)
    assert ended == code, error
    return error


def assert_close(workdir: Path, reference: Path) -> None:
    """The same lines, and in them the same numbers as far as the order of additions allows."""
    counted = re.compile(r".*(?<!weight)(?<!expected)_fraction|.*(examples|predictions)")
    ours, theirs = outcomes.metrics(workdir), outcomes.metrics(reference)
    for mine, other in zip(ours, theirs, strict=True):
        assert (mine["step"], mine.keys()) == (other["step"], other.keys())
        for name, value in other.items():
            place = (other["step"], name)
            assert mine[name] == pytest.approx(value, rel=1e-5, abs=1e-5), place
            if counted.fullmatch(name):  # not a sum of floats
                assert mine[name] == value, place
    pairs = zip(outcomes.samples(workdir), outcomes.samples(reference), strict=True)
    for mine, other in pairs:
        assert (mine["step"], mine.get("text")) == (other["step"], other.get("text"))


@pytest.fixture(scope="module")
def reference(base, tmp_path_factory) -> Path:
    workdir = tmp_path_factory.mktemp("reference")
    run_one(words(base, workdir))
    return workdir


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_two_processes_are_one_run(name, base, tmp_path):
    """The layouts are those of the next test."""
    command, alone = (words(base, tmp_path / place, **RUNS[name]) for place in ("two", "one"))
    run_one(alone)  # which prepares the text, so that the others say nothing of it
    errors = run_two(command)
    assert f"report: {tmp_path / 'two' / 'report.html'}" in errors[0]
    assert not errors[1], "process 0 alone speaks"
    assert_close(tmp_path / "two", tmp_path / "one")
    files = [sorted(path.name for path in (tmp_path / place).iterdir()) for place in ("two", "one")]
    assert files[0] == files[1]


@pytest.mark.slow
@pytest.mark.fault(3)
@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.fault(8)
def test_number_of_processes_may_change(name, base, tmp_path):
    """Two processes, then one, then two, each stopped once: no example is lost or repeated."""
    command = words(base, tmp_path / "run", steps=24, **LAYOUTS[name])
    errors = run_two(command, ("", "step:5:term"), code=75)
    stopped = list_steps(tmp_path / "run" / "checkpoints")[-1]
    assert 5 <= stopped <= 12
    assert all(f"stopped at step {stopped} of 24, saved" in err for err in errors), errors

    mesh = ["--config.parallel.fsdp=2"] if name == "fsdp" else []  # another one in between
    error = run_one([*command, *mesh], f"step:{stopped + 4}:term", code=75)
    assert f"resuming {tmp_path / 'run'} at step {stopped}" in error

    errors = run_two(command)
    assert f"resuming {tmp_path / 'run'} at step {stopped + 4}" in errors[0]

    run_one(words(base, tmp_path / "reference", steps=24, **LAYOUTS[name]))
    assert_close(tmp_path / "run", tmp_path / "reference")


@pytest.mark.slow
@pytest.mark.fault(2, 3)
def test_signal_to_one_of_two_cuts_an_evaluation_off(base, reference, tmp_path):
    """Batches of a second each: both stop before the last one, and the next start evaluates."""
    command = words(base, tmp_path, evals__validation__batch_size=4)
    errors = run_two(command, ("evaluation:*:sleep=1", "evaluation:1:term"), code=75)
    assert all("stopped at step 4 of 8, saved" in err for err in errors), errors
    assert not any("eval/validation/mlm_loss" in line for line in outcomes.metrics(tmp_path))
    run_two(words(base, tmp_path))
    assert_close(tmp_path, reference)


@pytest.mark.slow
def test_refusal_of_process_0_ends_both(base, reference):
    """A changed config is every process's error, a workdir in use is passed on: nobody waits."""
    errors = run_two(words(base, reference, masking__rate=0.5), code=2)
    assert "masking.rate: 0.15 -> 0.5" in errors[0]
    with stop.hold_run_lock(reference):
        errors = run_two(words(base, reference), code=2)
    assert f"error: another run uses {reference}: host " in errors[0]
    assert f"error: process 0 may not use {reference}" in errors[1]


def wait_for(condition: Callable[[], object]) -> None:
    """Wait for a process on a machine that may be slow."""
    deadline = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < deadline, "nothing came of it in 300 s"
        time.sleep(0.1)


def lose(dead: int, fault: str, command: list[str]) -> tuple[int, str]:
    """The end of the process with a fault, and what it says; its peer ends within two minutes."""
    processes = start_two(command, ("", fault) if dead else (fault, ""))
    lost = psutil.Process(processes[dead].pid)
    wait_for(lambda: lost.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_STOPPED))
    begun = time.monotonic()
    processes[1 - dead].wait(timeout=250)
    assert time.monotonic() - begun < 120, "jax waits 300 s"
    if lost.status() == psutil.STATUS_STOPPED:
        lost.kill()
    codes, errors = ends(processes)
    code = codes[1 - dead]
    error = errors[1 - dead]
    assert code in (75, -signal.SIGABRT), error  # the latter is jax's own abort
    said = "error: another process of this run has ended, or the link to it is cut\nhint: the same"
    assert code != 75 or said in error
    return codes[dead], errors[dead]


LOSSES = [(0, "step:6:kill"), (1, "step:6:kill"), (0, "step:6:hang"), (1, "step:6:hang")]
LOSSES += [(1, "step:6:raise"), (0, "arrays:8"), (1, "arrays:8"), (0, "manifest:8")]


@pytest.mark.slow
@pytest.mark.fault(1, 3)
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("dead", "fault"), LOSSES)
def test_lost_process_ends_its_peer_and_resumes(dead, fault, base, reference, tmp_path):
    """Process 0 keeps the list of who is alive: the other sees its end at once, and it the other's
    after a minute. One that hangs, as behind a cut link, is missed after a minute too. An error of
    a process stands, and jax's wait for all at the end keeps nobody.

    Parameters are split over both processes, so each writes a part of every step.
    """
    command = words(base, tmp_path, parallel__fsdp=4)
    code, error = lose(dead, fault, command)
    raised = fault.endswith("raise")
    assert code == (1 if raised else -signal.SIGKILL)
    assert ("RuntimeError: a fault of the tests" in error) == raised
    saved_steps = list_steps(tmp_path / "checkpoints")
    assert saved_steps == [4] or fault.startswith("step")  # which may cut off the save of step 4
    errors = run_two(command)
    assert (f"resuming {tmp_path} at step 4" in errors[0]) == (saved_steps == [4])
    assert_close(tmp_path, reference)


def trainers(workdir: Path) -> list[psutil.Process]:
    """Processes that train in a folder; not those that start them, such as srun."""
    flag = f"--workdir={workdir}"
    found = psutil.process_iter(["name", "cmdline"])
    return [p for p in found if "python" in p.info["name"] and flag in (p.info["cmdline"] or ())]


@pytest.mark.slow
@pytest.mark.fault(3)
@pytest.mark.timeout(1200)
def test_job_script_goes_on_after_kill_and_timeout(base, tmp_path):
    """On two nodes: a task is killed, then the time ends; the job is queued again after each, and
    ends like a run of one process.
    """
    workdir, log, program = tmp_path / "a run", tmp_path / "log", tmp_path / "bin" / "bert-jax"
    program.parent.mkdir()
    fault = tmp_path / "fault"
    fault.write_text("step:*:sleep=1")  # so that the time is up before the last step
    program.write_text(
        f'#!/bin/sh\nexec {sys.executable} -m tests.fault_points "$(cat {fault})" "$@"\n'
    )
    program.chmod(0o755)
    settings = "AuthInfo=cred_expire=10"  # a job that is queued again waits for so long
    with clusters.slurm(tmp_path / "slurm", settings) as found:
        variables = {
            **os.environ,
            **found,
            "PATH": f"{program.parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "XLA_FLAGS": f"--xla_force_host_platform_device_count=2 {FEWER_PARTS}",
            "JAX_COORDINATOR_PORT": str(clusters.free_ports(1)[0]),
        }

        def slurm(*command: str) -> str:
            done = subprocess.run(command, env=variables, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            return done.stdout

        def state() -> str:
            shown = slurm("scontrol", "show", "job", "--oneliner", job)
            return " ".join(re.findall(r"\b(?:JobState|Restarts|ExitCode)=\S+", shown))

        options = ["--gpus-per-node=0", "--cpus-per-task=2", "--time=20", "--signal=TERM@20"]
        script = [str(ROOT / "experiments" / "scale" / "slurm.sbatch"), str(base), str(workdir)]
        knobs = [f"--config.{k}={v}" for k, v in {**KNOBS, "steps": LONG}.items()]
        job = slurm("sbatch", "--parsable", f"--output={log}", *options, *script, *knobs).strip()
        wait_for(lambda: list_steps(workdir / "checkpoints"))
        trainers(workdir)[-1].kill()
        for restart, minutes in (1, 1), (2, 20):
            wait_for(lambda count=restart: f"Restarts={count}" in state())
            slurm("scontrol", "update", f"JobId={job}", f"TimeLimit={minutes}")
        fault.write_text("step:-1:kill")  # none
        wait_for(lambda: "JobState=COMPLETED" in state())
        assert state() == "JobState=COMPLETED Restarts=2 ExitCode=0:0"
    written = log.read_text()
    stopped = re.findall(rf"error: stopped at step (\d+) of {LONG}, saved", written)
    assert len(stopped) == 2
    assert stopped[0] == stopped[1]
    assert f"resuming {workdir} at step {stopped[0]}" in written
    run_one(words(base, tmp_path / "reference", steps=LONG))
    assert_close(workdir, tmp_path / "reference")


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_cells_over_two_nodes_equal_one_process(base, tmp_path):
    """Each cell is a job of two nodes; its first process alone evaluates and writes."""
    if importlib.util.find_spec("submitit") is None:
        pytest.skip("submitit is not installed: it is an extra, slurm")
    chosen = {**KNOBS, "checkpoints.best": "", "pairs": "none"}
    command = ["study", "sweep", f"--config={base}", "--axis=masking.rate=0.15,0.4", "--seeds=1"]
    command += [f"--config.{key}={value}" for key, value in chosen.items()]
    path = f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"
    with clusters.slurm(tmp_path / "slurm") as found:
        flags = ["--engine=slurm", "--engine-option=nodes=2", "--engine-option=cpus_per_task=2"]
        flags += ["--config.parallel.distributed=true", f"--workdir={tmp_path / 'two'}"]
        code, _, err = texts.run(*command, *flags, devices=2, timeout=900, PYTHONPATH=path, **found)
    assert code == 0, err
    run_one([*command, f"--workdir={tmp_path / 'one'}", "--fuse=never", "--jobs=1"])
    both, alone = (StudyFolder(tmp_path / name) for name in ("two", "one"))
    assert [cell.id for cell in both.read_cells()] == [cell.id for cell in alone.read_cells()]
    for cell in both.read_cells():
        assert cell.config.parallel.distributed
        assert_close(both.cell(cell.id), alone.cell(cell.id))
        ours, theirs = (place.read_result(cell, "validation") for place in (both, alone))
        assert ours.metrics == pytest.approx(theirs.metrics, rel=1e-5)
        environment = json.loads((both.cell(cell.id) / "environment.json").read_text())
        assert environment["machine"]["processes"] == 2


@pytest.mark.slow
def test_finetuning_in_two_processes_is_that_of_one(tmp_path):
    """The config file reads the model it starts from before the processes know of each other."""
    source = f"files:{tasks.write_classify(tmp_path)}"
    start = saved.run(tmp_path / "start", tasks.config("classify", source, tmp_path), {1: None})
    flags = {"task.source": source, "epochs": 2, "batch_size": 8, "logging.every": 1}
    flags |= {"model.dropout": 0, "model.attention_dropout": 0, "logging.trackers": ""}
    command = ["train", f"--config={ROOT}/configs/finetune.py:classify,init_from={start}"]
    command += [f"--config.{key}={value}" for key, value in flags.items()]
    run_one([*command, f"--workdir={tmp_path / 'one'}"])
    run_two([*command, f"--workdir={tmp_path / 'two'}"])
    assert_close(tmp_path / "two", tmp_path / "one")
