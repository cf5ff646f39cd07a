"""Engines: every task ends once with its code, in its share of the machine; stops reach it, as does
a dead parent.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import textwrap
import time
import types
from pathlib import Path

import pytest

from bert_jax.errors import ConfigError
from bert_jax.studies import engines
from bert_jax.studies.engines import local, slurm
from tests import clusters

WORKER = """
import os, signal, sys, time
def stop(number, _):
    print("told", signal.Signals(number).name)
    time.sleep(float(os.environ.get("SAVING", 0.1)))
    print("saved")
    sys.exit(75)
for number in (signal.SIGTERM, signal.SIGUSR2):
    signal.signal(number, stop)
print("cores", sorted(os.sched_getaffinity(0)))
time.sleep(float(sys.argv[1]))
sys.exit(int(sys.argv[2]))
"""


@pytest.fixture
def task(tmp_path):
    """A task that takes some seconds and ends with a code, unless it is told to stop."""
    (tmp_path / "worker.py").write_text(WORKER)

    def make(name: str, seconds: float, code: int = 0) -> engines.Task:
        command = (sys.executable, "-u", str(tmp_path / "worker.py"), str(seconds), str(code))
        return engines.Task(name, command, tmp_path / "logs" / f"{name}.log", seconds)

    return make


def finish(engine: engines.Engine, count: int, until: float = 60.0) -> dict[str, int]:
    """Codes by name of the next `count` tasks to end."""
    codes: dict[str, int] = {}
    end = time.monotonic() + until
    while len(codes) < count:
        for task, code in engine.poll():
            assert task.name not in codes
            codes[task.name] = code
        assert time.monotonic() < end, f"only {codes} ended"
        time.sleep(0.02)
    return codes


def running(*tasks: engines.Task) -> None:
    """Waits until tasks have begun."""
    end = time.monotonic() + 30
    while not all(task.log.exists() and "cores" in task.log.read_text() for task in tasks):
        assert time.monotonic() < end
        time.sleep(0.02)


# --- every engine ---------------------------------------------------------------------------------


def stand_in(name: str, monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("FAKE_RAY", str(tmp_path / "ray"))
    monkeypatch.setitem(sys.modules, name, clusters.modules()[name])


@pytest.fixture(params=["local", "slurm", "ray", "real slurm", "real ray"])
def engine(request, monkeypatch, tmp_path):
    """Each of the table; slurm and ray over stand-ins, and also over the packages where these are
    installed.
    """
    real, _, name = request.param.rpartition(" ")
    package = {"local": "sys", "slurm": "submitit", "ray": "ray"}[name]
    if real and importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed: it is an extra, {name}")
    if not real and name != "local":
        stand_in(package, monkeypatch, tmp_path)
    options = {"slurm": {"cluster": "local"}}.get(name, {})
    yield engines.make(name, tmp_path / "w", 2, options)
    if real and name == "ray":
        sys.modules["ray"].shutdown()  # type: ignore[attr-defined]  # the package


def test_each_task_ends_once_with_its_code_and_its_words(engine, task):
    given = [task("a", 0.0), task("b", 0.1, 3), task("c", 0.0, 75)]
    given[0].log.parent.mkdir()
    given[0].log.write_text("before\n")
    engine.submit(given)
    assert finish(engine, 3) == {"a": 0, "b": 3, "c": 75}
    assert engine.poll() == []
    assert given[0].log.read_text().startswith("before\ncores [")
    assert engine.room.parallel == 2
    assert "2" in engine.describe()


def test_a_stop_lets_the_running_ones_save_and_drops_the_rest(engine, task, monkeypatch):
    monkeypatch.setenv("SAVING", "0.5")
    first, second = task("a", 60), task("b", 60)
    engine.submit([first, second])
    engine.poll()
    running(first, second)
    engine.submit([task("c", 60)])
    engine.stop()
    codes = finish(engine, 3)
    assert codes == {"a": 75, "b": 75, "c": 75}
    end = time.monotonic() + 10
    while "saved" not in first.log.read_text() or "saved" not in second.log.read_text():
        assert time.monotonic() < end, first.log.read_text()
        time.sleep(0.05)
    engine.submit([task("d", 0.0)])  # nothing of it stays
    assert finish(engine, 1) == {"d": 0}


def test_a_program_that_is_not_there_is_a_failure_with_its_reason(engine, tmp_path):
    engine.submit([engines.Task("a", (str(tmp_path / "nowhere"),), tmp_path / "a.log")])
    assert finish(engine, 1) == {"a": 1}
    assert "FileNotFoundError" in (tmp_path / "a.log").read_text()


# --- local ----------------------------------------------------------------------------------------


def test_a_process_has_its_share_of_the_cores(task, tmp_path, monkeypatch):
    monkeypatch.setattr(local, "cores", lambda: sorted(os.sched_getaffinity(0)))
    mine = local.cores()
    alone, both = engines.make("local", tmp_path, 1), engines.make("local", tmp_path, 2)
    alone.submit([task("alone", 0.0)])
    finish(alone, 1)
    both.submit([task("one", 0.3), task("other", 0.3)])
    finish(both, 2)
    seen = {
        name: (tmp_path / "logs" / f"{name}.log").read_text().strip()
        for name in ("alone", "one", "other")
    }
    assert seen["alone"] == f"cores {mine}"
    assert {seen["one"], seen["other"]} == {
        f"cores {local.share(mine, 2, place)}" for place in (0, 1)
    }


@pytest.mark.parametrize(
    ("items", "jobs"), [(1, 1), (2, 2), (5, 2), (7, 3), (64, 5), (2, 3), (1, 4)]
)
def test_shares_are_even_and_leave_nothing_out(items, jobs):
    shares = [local.share(range(items), jobs, place) for place in range(jobs)]
    assert sorted({item for share in shares for item in share}) == list(range(items))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
    if jobs <= items:
        assert [item for share in shares for item in share] == list(
            range(items)
        )  # neighbours, each once


def test_jobs_follow_from_the_machine(monkeypatch, tmp_path):
    monkeypatch.setattr(local, "cores", lambda: [0, 1, 4, 5])
    assert engines.make("local", tmp_path).room.parallel == 4
    monkeypatch.setattr(local, "accelerators", lambda: ["0", "1", "2", "3"])
    monkeypatch.setattr(local, "gpus", lambda: ["0", "1", "2", "3"])
    monkeypatch.delenv("XLA_PYTHON_CLIENT_MEM_FRACTION", raising=False)
    assert engines.make("local", tmp_path).room.parallel == 1
    assert engines.make("local", tmp_path)._environment(0) == {}
    assert engines.make("local", tmp_path, 2)._environment(1) == {"CUDA_VISIBLE_DEVICES": "2,3"}
    shared = engines.make("local", tmp_path, 8)._environment(5)
    assert shared == {"CUDA_VISIBLE_DEVICES": "1", "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.450"}


def test_devices_are_those_that_jax_would_use(monkeypatch):
    monkeypatch.setattr(
        local.importlib.util,
        "find_spec",
        lambda name: "there" if name == "jax_cuda13_plugin" else None,
    )
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,5")
    assert local.accelerators() == []  # tests say JAX_PLATFORMS=cpu
    monkeypatch.delenv("JAX_PLATFORMS")
    assert local.accelerators() == ["2", "5"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert local.accelerators() == []
    monkeypatch.setattr(local.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert local.accelerators() == []


PARENT = """
    import sys, time
    from pathlib import Path
    from bert_jax.studies import engines
    engine = engines.make("local", Path(), 1)
    engine.submit([engines.Task("a", tuple(sys.argv[2:]), Path(sys.argv[1]))])
    while True:
        engine.poll()
        time.sleep(0.05)
"""


def test_a_killed_parent_takes_its_workers_along_in_order(task, tmp_path):
    child = task("a", 60)
    command = [sys.executable, "-c", textwrap.dedent(PARENT), str(child.log), *child.command]
    parent = subprocess.Popen(command, start_new_session=True)
    running(child)
    os.killpg(parent.pid, signal.SIGKILL)  # and all that is in its session
    parent.wait()
    end = time.monotonic() + 10
    while "saved" not in child.log.read_text():
        assert time.monotonic() < end
        time.sleep(0.05)
    assert "told SIGUSR2" in child.log.read_text()


ATTEND = """
    import sys
    from pathlib import Path
    from bert_jax.studies.engines import Task, local
    sys.exit(local.attend(Task("a", tuple(sys.argv[2:]), Path(sys.argv[1])), {"SAVING": "0.3"}))
"""


@pytest.mark.parametrize(
    ("sent", "told"), [("SIGINT", "SIGTERM"), ("SIGTERM", "SIGTERM"), ("SIGUSR1", "SIGUSR2")]
)
def test_a_job_passes_on_what_it_is_told(sent, told, task):
    child = task("a", 60)
    command = [sys.executable, "-c", textwrap.dedent(ATTEND), str(child.log), *child.command]
    job = subprocess.Popen(command)
    running(child)
    job.send_signal(signal.Signals[sent])
    assert job.wait(timeout=20) == 75
    assert child.log.read_text().split("\n")[1:] == [f"told {told}", "saved", ""]


# --- clusters -------------------------------------------------------------------------------------


def test_an_array_a_round_with_the_parameters_given(monkeypatch, tmp_path, task):
    stand_in("submitit", monkeypatch, tmp_path)
    options = {"cluster": "local", "mem_gb": "4", "slurm_partition": "long"}
    engine = engines.make("slurm", tmp_path, 7, options)
    executor = clusters.AutoExecutor.made[-1]
    engine.submit([])
    engine.submit([task("a", 0.0), task("b", 0.0)])
    finish(engine, 2)
    assert [len(array) for array in executor.arrays] == [2]
    wanted = {
        "mem_gb": 4,
        "slurm_partition": "long",
        "slurm_array_parallelism": 7,
        "timeout_min": 60,
    }
    assert wanted.items() <= executor.parameters.items()
    assert executor.parameters["name"] in engine.describe()
    long = engines.Task("c", task("c", 0.0).command, tmp_path / "c.log", seconds=7200.0)
    engine.submit([long])
    finish(engine, 1)
    assert executor.parameters["timeout_min"] == 360


def test_a_job_that_was_killed_is_told_from_one_that_failed(monkeypatch, tmp_path, task):
    stand_in("submitit", monkeypatch, tmp_path)
    engine = engines.make("slurm", tmp_path, 2, {"cluster": "local"})
    child = task("a", 60)
    engine.submit([child])
    running(child)
    clusters.AutoExecutor.made[-1].arrays[0][0]._call.process.kill()
    assert finish(engine, 1) == {
        "a": 75
    }  # taken away, as submitit's INTERRUPTED says: tried again without counting
    monkeypatch.setattr(clusters.Job, "state", "OUT_OF_MEMORY")
    engine.submit([task("b", 60)])
    running(child)
    clusters.AutoExecutor.made[-1].arrays[1][0]._call.process.kill()
    assert finish(engine, 1) == {"b": engines.OUT_OF_MEMORY}
    assert "OUT_OF_MEMORY" in (tmp_path / "logs" / "b.log").read_text()


def commands_of_slurm(monkeypatch, folder: Path, **programs: str) -> None:
    """Put programs first on the path, written in sh; each notes that it was called."""
    folder.mkdir()
    for name, body in programs.items():
        (folder / name).write_text(f'#!/bin/sh\necho "{name} $*" >> {folder}/calls\n{body}\n')
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


class OnSlurm(clusters.AutoExecutor):
    """As submitit with cluster="slurm", whose jobs ask sacct where they are asked how they are."""

    def __init__(self, folder: Path, cluster: str):
        super().__init__(folder, "local")

    def map_array(self, function, *iterables):
        made = super().map_array(function, *iterables)
        for job in made:
            job.done = lambda: pytest.fail("sacct is asked")
        return made


SHOWN = "echo 'JobId=0 JobName=x JobState={} Reason=None ExitCode=0:15'"
NOBODY = "echo 'Slurm accounting storage is disabled' >&2; exit 1"


@pytest.mark.parametrize(
    ("scontrol", "sacct", "code"),
    [
        (SHOWN.format("CANCELLED"), NOBODY, engines.CANCELLED),
        (SHOWN.format("PREEMPTED"), NOBODY, 75),
        (SHOWN.format("TIMEOUT"), NOBODY, engines.OUT_OF_TIME),
        (SHOWN.format("OUT_OF_MEMORY"), NOBODY, engines.OUT_OF_MEMORY),
        (SHOWN.format("FAILED"), NOBODY, 1),
        ("exit 1", "echo 'CANCELLED by 1000'", engines.CANCELLED),
        ("exit 1", NOBODY, engines.LOST),
    ],
)
def test_slurm_says_how_a_job_without_a_result_ended(
    scontrol, sacct, code, monkeypatch, tmp_path, task, capfd
):
    """From the controller, without accounting too, and with no warning of sacct's on the screen."""
    stand_in("submitit", monkeypatch, tmp_path)
    monkeypatch.setattr(sys.modules["submitit"], "AutoExecutor", OnSlurm)
    commands_of_slurm(
        *(monkeypatch, tmp_path / "bin"),
        scontrol=scontrol,
        sacct=sacct,
        squeue="exit 0",
        scancel="exit 0",
        sinfo="",
    )
    monkeypatch.setattr(slurm, "ASK_EVERY", 0.0)
    engine = engines.make("slurm", tmp_path, 2)
    engine.submit([task("a", 60)])
    OnSlurm.made[-1].arrays[0][0]._call.process.kill()
    assert finish(engine, 1) == {"a": code}
    assert "sacct" not in capfd.readouterr().err
    assert (tmp_path / "bin" / "calls").read_text().count("sacct") == (scontrol == "exit 1")


def test_slurm_takes_a_result_without_asking_accounts(monkeypatch, tmp_path, task):
    stand_in("submitit", monkeypatch, tmp_path)
    monkeypatch.setattr(sys.modules["submitit"], "AutoExecutor", OnSlurm)
    commands_of_slurm(
        monkeypatch,
        tmp_path / "bin",
        sacct=NOBODY,
        squeue="echo 0",
        scancel="",
        scontrol="",
        sinfo="",
    )
    engine = engines.make("slurm", tmp_path, 2)
    engine.submit([task("a", 0.0, 3)])
    OnSlurm.made[-1].arrays[0][0].results = lambda: [3]
    assert finish(engine, 1) == {"a": 3}
    assert "sacct" not in (tmp_path / "bin" / "calls").read_text()


def test_what_no_node_has_is_refused_before_anything_is_submitted(monkeypatch, tmp_path):
    """In a dry run too: such a job would wait for ever."""
    program = tmp_path / "bin" / "sinfo"
    commands_of_slurm(monkeypatch, tmp_path / "bin", sinfo="printf 'a (null)\\nb (null)\\n'")
    for option in ("gpus_per_task=1", "gpus_per_node=2", "slurm_gres=gpu:1"):
        with pytest.raises(
            ConfigError, match=f"no node of this cluster has a GPU, .*{option}"
        ) as error:
            engines.check("slurm", dict([option.split("=")]))
        assert "slurm_partition" in error.value.hint
    for options in (
        {"gpus_per_node": "0"},
        {"mem_gb": "4"},
        {"nodes": "2"},
        {"gpus_per_node": "1", "cluster": "local"},
    ):
        engines.check("slurm", options)
    with pytest.raises(ConfigError, match="no node of partition long"):
        engines.check("slurm", {"gpus_per_node": "1", "slurm_partition": "long"})
    with pytest.raises(ConfigError, match="this cluster has 2 nodes, and --engine-option nodes=3"):
        engines.check("slurm", {"nodes": "3"})
    program.write_text("#!/bin/sh\n")
    with pytest.raises(ConfigError, match=r"(?m)partition nope has 0 nodes$"):
        engines.check("slurm", {"slurm_partition": "nope"})
    program.write_text("#!/bin/sh\nprintf 'a gpu:h100:4(S:0-1),nvme:9\\nb (null)\\na gpu:4\\n'\n")
    for options in (
        {"gpus_per_node": "4"},
        {"gpus_per_task": "1", "tasks_per_node": "4"},
        {"slurm_gres": "gpu:h100:4"},
    ):
        engines.check("slurm", options)
    for options in (
        {"gpus_per_node": "5"},
        {"gpus_per_task": "1", "tasks_per_node": "5"},
        {"slurm_gres": "gpu:h100:8"},
    ):
        with pytest.raises(ConfigError, match="no node of this cluster has more than 4"):
            engines.check("slurm", options)
    program.write_text("#!/bin/sh\nexit 1\n")  # nobody knows
    engines.check("slurm", {"gpus_per_node": "1", "nodes": "9"})


def test_job_of_several_processes_gives_each_its_number(monkeypatch, tmp_path):
    """And ends with the code of the one that failed by itself: the others only lost it."""
    stand_in("submitit", monkeypatch, tmp_path)
    monkeypatch.chdir(tmp_path)  # as a process of a job goes there itself
    submitit, log = sys.modules["submitit"], tmp_path / "a.log"
    names = [f"JAX_{name}" for name in ("PROCESS_ID", "NUM_PROCESSES", "COORDINATOR_ADDRESS")]
    program = f"import os; print(*map(os.environ.get, {names}))"
    one = engines.Task("a", (sys.executable, "-c", program), log)
    for rank, cluster in (0, "slurm"), (1, "local"):
        job = types.SimpleNamespace(global_rank=rank, num_tasks=2, cluster=cluster, job_id="4097")
        monkeypatch.setattr(submitit, "JobEnvironment", lambda job=job: job)
        assert slurm.run(one, str(tmp_path)) == 0
    assert log.read_text() == "0 2 None\n"
    assert (tmp_path / "a.1.log").read_text() == "1 2 localhost:61441\n"
    engine = engines.make("slurm", tmp_path, 1, {"cluster": "local", "cpus_per_task": "3"})
    for codes, code in (([0, 0], 0), ([75, 1], 1), ([75, 0], 75), ([-9, 75], -9)):
        ended = types.SimpleNamespace(results=lambda codes=codes: codes)
        monkeypatch.setattr(engine, "_has_result", lambda job: True)
        assert engine._code(one, ended) == code
    assert engines.processes("slurm", {"nodes": "2", "slurm_ntasks_per_node": "4"}) == 8
    assert engines.processes("local") == engines.processes("slurm", {}) == 1
    with pytest.raises(ConfigError, match="nodes=two is not a whole number"):
        engines.processes("slurm", {"nodes": "two"})


@pytest.mark.parametrize(
    ("name", "options", "message", "hint"),
    [
        ("slrum", {}, "no engine 'slrum'", "local, slurm, ray"),
        ("local", {"mem_gb": "4"}, "engine local has no option 'mem_gb'", "it has none"),
        ("slurm", {}, "Could not detect", "--engine=local"),
        ("slurm", {"cluster": "nowhere"}, "nowhere", "slurm.py"),
        ("slurm", {"cluster": "local", "memory": "4"}, "memory", "slurm.py"),
        ("ray", {"num_gpus": "many"}, "many", "amount"),
        ("ray", {"num_gpus": "1"}, "takes 1 GPU", "num_gpus"),
        ("ray", {"address": "nowhere:6379"}, "nowhere", "ray start"),
    ],
)
def test_what_cannot_be_used_is_said_with_a_hint(
    name, options, message, hint, monkeypatch, tmp_path
):
    for package in ("submitit", "ray"):
        stand_in(package, monkeypatch, tmp_path)
    with pytest.raises(ConfigError) as error:
        engines.make(name, tmp_path, 0, options)
    assert error.value.code == 2
    assert message in str(error.value)
    assert hint in error.value.hint


@pytest.mark.parametrize(("name", "package"), [("slurm", "submitit"), ("ray", "ray")])
def test_a_package_that_is_absent_is_named_with_its_extra(name, package, monkeypatch, tmp_path):
    monkeypatch.setitem(
        sys.modules, package, None
    )  # what import makes of a package that is not there
    with pytest.raises(ConfigError, match=f"needs the package {package}") as error:
        engines.make(name, tmp_path)
    assert f"[{name}]'" in error.value.hint


def test_jobs_of_ray_follow_from_what_a_worker_takes(monkeypatch, tmp_path):
    stand_in("ray", monkeypatch, tmp_path)
    assert engines.make("ray", tmp_path).room.parallel == 2
    assert engines.make("ray", tmp_path, 1).room.parallel == 1
    assert engines.make("ray", tmp_path, 0, {"num_cpus": "2"}).room.parallel == 1
