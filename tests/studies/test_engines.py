"""Engines: each worker ends once with its code, in its share of the machine; stops reach it."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import textwrap
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bert_jax.errors import ConfigError
from bert_jax.studies import engines
from bert_jax.studies.engines import base, local, slurm
from bert_jax.studies.folder import StudyFolder
from tests import clusters

# The name of a group says how long its worker runs, and with which code it ends.
WORKER = """
import os, signal, sys, time
def stop(number, _):
    print("told", signal.Signals(number).name)
    time.sleep(0.3)
    print("saved")
    sys.exit(75)
for number in (signal.SIGTERM, signal.SIGUSR2):
    signal.signal(number, stop)
print("cores", sorted(os.sched_getaffinity(0)), os.environ.get("JAX_PROCESS_ID"))
group = sys.argv[-1].partition("=")[2]
_, seconds, code = group.split("-")
time.sleep(float(seconds))
sys.exit(int(code))
"""


@pytest.fixture
def place(tmp_path, monkeypatch) -> StudyFolder:
    """A study whose workers are small programs, in jobs of clusters too."""
    program = tmp_path / "worker.py"
    program.write_text(WORKER)
    monkeypatch.setattr(base, "WORKER", (sys.executable, "-u", str(program)))
    # Jobs of stand-ins import the engines anew.
    (tmp_path / "sitecustomize.py").write_text(
        f"from bert_jax.studies.engines import base\nbase.WORKER = {base.WORKER!r}\n"
    )
    path = os.environ.get("PYTHONPATH", "")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{Path(__file__).parents[2]}:{path}")
    return StudyFolder(tmp_path / "w")


def stand_in(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FAKE_RAY", str(tmp_path / "ray"))
    monkeypatch.setitem(sys.modules, name, clusters.modules()[name])


@pytest.fixture(params=["local", "slurm", "ray", "real slurm", "real ray"])
def engine(request, monkeypatch, tmp_path, place) -> Iterator[base.Engine]:
    """Make each engine, over stand-ins and over the packages that are installed."""
    real, _, name = request.param.rpartition(" ")
    package = {"local": "sys", "slurm": "submitit", "ray": "ray"}[name]
    if real and importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed: it is an extra, {name}")
    if not real and name != "local":
        stand_in(package, monkeypatch, tmp_path)
    options = {"slurm": {"cluster": "local"}}.get(name, {})
    yield engines.make(name, place, 2, options)
    if real and name == "ray":
        sys.modules["ray"].shutdown()  # type: ignore[attr-defined]  # the package


def wait_for_codes(engine: base.Engine, workers: list[Any]) -> list[int]:
    """Wait until workers have ended, and return their codes."""
    end = time.monotonic() + 60
    while None in (codes := [engine.poll(worker) for worker in workers]):
        assert time.monotonic() < end, codes
        time.sleep(0.05)
    return [code for code in codes if code is not None]


def wait_for_words(words: str, *logs: Path) -> None:
    """Wait until each log has some words."""
    end = time.monotonic() + 30
    while not all(log.exists() and words in log.read_text() for log in logs):
        assert time.monotonic() < end, [log.exists() and log.read_text() for log in logs]
        time.sleep(0.02)


def test_each_worker_ends_with_its_code(engine, place):
    log = place.log("a-0-0")
    log.parent.mkdir(parents=True)
    log.write_text("before\n")
    workers = engine.start(["a-0-0", "b-0.1-3"])
    assert wait_for_codes(engine, workers) == [0, 3]
    assert wait_for_codes(engine, engine.start(["c-0-75"])) == [75]
    assert log.read_text().startswith("before\ncores [")
    assert engine.capacity.parallel == 2
    assert "2" in engine.describe()


def test_stop_lets_workers_save(engine, place):
    workers = engine.start(["a-60-0", "b-60-0"])
    logs = [place.log("a-60-0"), place.log("b-60-0")]
    wait_for_words("cores", *logs)
    engine.stop(workers)
    wait_for_codes(engine, workers)
    wait_for_words("saved", *logs)
    assert wait_for_codes(engine, engine.start(["c-0-0"])) == [0]


# --- local ----------------------------------------------------------------------------------------


def test_local_workers_share_the_cores(place, monkeypatch):
    cores = local.find_cores()
    engine = engines.make("local", place, 2, {})
    wait_for_codes(engine, engine.start(["a-0.5-0", "b-0.5-0"]))
    shares = [local.share_out(cores, 2, slot) for slot in range(2)]
    for group, share in zip(("a-0.5-0", "b-0.5-0"), shares, strict=True):
        assert f"cores {share}" in place.log(group).read_text()


@pytest.mark.parametrize(("items", "jobs"), [(5, 2), (4, 4), (2, 3), (1, 1), (7, 3)])
def test_shares_are_even_and_leave_nothing_out(items, jobs):
    shares = [local.share_out(range(items), jobs, slot) for slot in range(jobs)]
    assert {item for share in shares for item in share} == set(range(items))
    sizes = [len(share) for share in shares]
    assert max(sizes) - min(sizes) <= 1


def test_devices_are_those_that_jax_would_use(monkeypatch, place):
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    monkeypatch.setattr(local.importlib.util, "find_spec", lambda name: name == "jax_cuda12_plugin")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    monkeypatch.setattr(local, "find_gpu_memory", lambda: 2.0**34)
    assert local.find_accelerators() == ["2", "3"]
    one = engines.make("local", place, 0, {})
    assert (one.most, one.capacity.devices) == (1, 2)
    four = local.Local(place, 4, {})
    assert four.capacity.memory == 0.75 * 2**34 * 0.5
    environments = [four._environment(slot) for slot in range(4)]
    assert [one["CUDA_VISIBLE_DEVICES"] for one in environments] == ["2", "3", "2", "3"]
    assert {one["XLA_PYTHON_CLIENT_MEM_FRACTION"] for one in environments} == {"0.450"}
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    assert local.find_accelerators() == []


PARENT = """
    import sys, time
    from pathlib import Path
    from bert_jax.studies import engines
    from bert_jax.studies.folder import StudyFolder
    engine = engines.make("local", StudyFolder(Path(sys.argv[1])), 1, {})
    engine.start(["a-60-0"])
    time.sleep(60)
"""


def test_killed_launcher_takes_its_workers_along(place):
    command = [sys.executable, "-c", textwrap.dedent(PARENT), str(place.workdir)]
    parent = subprocess.Popen(command, start_new_session=True)
    log = place.log("a-60-0")
    wait_for_words("cores", log)
    os.killpg(parent.pid, signal.SIGKILL)  # and all that is in its session
    parent.wait()
    wait_for_words("saved", log)
    assert "told SIGUSR2" in log.read_text()


# --- clusters -------------------------------------------------------------------------------------

ATTEND = """
    import sys
    from pathlib import Path
    from bert_jax.studies.engines.base import Attendant, start_worker
    workdir = Path(sys.argv[1])
    worker = start_worker(workdir, "a-60-0", workdir / "a.log", {})
    sys.exit(Attendant(worker).wait())
"""


@pytest.mark.parametrize(
    ("sent", "told"), [("SIGINT", "SIGTERM"), ("SIGTERM", "SIGTERM"), ("SIGUSR1", "SIGUSR2")]
)
def test_job_passes_its_signals_on(sent, told, place):
    place.workdir.mkdir()
    command = [sys.executable, "-c", textwrap.dedent(ATTEND), str(place.workdir)]
    job = subprocess.Popen(command)
    log = place.workdir / "a.log"
    wait_for_words("cores", log)
    job.send_signal(signal.Signals[sent])
    assert job.wait(timeout=20) == 75
    assert log.read_text().split("\n")[1:] == [f"told {told}", "saved", ""]


def test_slurm_job_goes_on_after_it_has_saved(place, monkeypatch, tmp_path):
    """submitit calls `checkpoint` before the time is over, and queues what it returns."""
    stand_in("submitit", monkeypatch, tmp_path)
    helpers = types.ModuleType("submitit.helpers")
    helpers.DelayedSubmission = lambda function: function  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "submitit.helpers", helpers)
    work = slurm.Work(place.workdir, "a-60-0", str(tmp_path))
    log = place.log("a-60-0")
    work._worker = base.start_worker(place.workdir, "a-60-0", log, {})
    wait_for_words("cores", log)
    again = work.checkpoint()
    assert log.read_text().endswith("told SIGUSR2\nsaved\n")
    assert isinstance(again, slurm.Work)
    assert not hasattr(again, "_worker")


def test_slurm_gets_the_parameters_given(place, monkeypatch, tmp_path):
    stand_in("submitit", monkeypatch, tmp_path)
    options = {"cluster": "local", "mem_gb": "4", "slurm_partition": "gpu"}
    engine = engines.make("slurm", place, 3, options)
    executor = clusters.AutoExecutor.made[-1]
    assert executor.parameters["mem_gb"] == 4
    assert executor.parameters["slurm_partition"] == "gpu"
    assert executor.parameters["slurm_array_parallelism"] == 3
    assert engine.capacity.memory == 0.75 * 4 * 2**30
    wait_for_codes(engine, engine.start(["a-0-0", "b-0-0"]))
    assert [len(array) for array in executor.arrays] == [2]


def test_slurm_job_of_several_processes_numbers_them(place, monkeypatch, tmp_path):
    """It ends with the code of the process that failed itself: the other ones only lost it."""
    stand_in("submitit", monkeypatch, tmp_path)
    monkeypatch.chdir(tmp_path)  # as a process of a job goes there itself
    for rank, cluster in (0, "slurm"), (1, "local"):
        job = types.SimpleNamespace(global_rank=rank, num_tasks=2, cluster=cluster, job_id="4097")
        monkeypatch.setattr(sys.modules["submitit"], "JobEnvironment", lambda job=job: job)
        assert slurm.Work(place.workdir, "a-0-0", str(tmp_path))() == 0
    log = place.log("a-0-0")
    assert log.read_text().endswith(" 0\n")
    assert log.with_suffix(".1.log").read_text().endswith(" 1\n")
    engine = engines.make("slurm", place, 1, {"cluster": "local"})
    for codes, code in (([0, 0], 0), ([75, 1], 1), ([75, 0], 75), ([-9, 75], -9)):
        ended = types.SimpleNamespace(results=lambda codes=codes: codes, done=lambda: True)
        assert engine.poll(ended) == code
    assert engines.count_processes("slurm", {"nodes": "2", "slurm_ntasks_per_node": "4"}) == 8
    assert engines.count_processes("local", {}) == engines.count_processes("slurm", {}) == 1
    with pytest.raises(ConfigError, match="nodes=two is not a whole number"):
        engines.count_processes("slurm", {"nodes": "two"})


@pytest.mark.parametrize("name", ["slurm", "ray"])
def test_job_that_is_killed_is_lost(name, place, monkeypatch, tmp_path):
    stand_in({"slurm": "submitit", "ray": "ray"}[name], monkeypatch, tmp_path)
    options = {"cluster": "local"} if name == "slurm" else {}
    engine = engines.make(name, place, 1, options)
    (worker,) = engine.start(["a-60-0"])
    wait_for_words("cores", place.log("a-60-0"))
    call = worker if name == "ray" else worker._call
    call.process.kill()
    assert wait_for_codes(engine, [worker]) == [base.LOST]
    assert base.describe_ending(base.LOST) == "its job ended without a result"
    for line in subprocess.run(
        ["ps", "-eo", "pid,args"], capture_output=True, text=True
    ).stdout.splitlines():
        if str(place.workdir.resolve()) in line and "worker.py" in line:
            os.kill(int(line.split()[0]), signal.SIGKILL)  # nothing else ends it here


@pytest.mark.parametrize(
    ("name", "options", "message", "hint"),
    [
        ("slrum", {}, "no engine 'slrum'", "local, slurm, ray"),
        ("local", {"mem_gb": "4"}, "engine local has no option 'mem_gb'", "it has none"),
        ("slurm", {}, "Could not detect", "--engine=local"),
        ("slurm", {"cluster": "nowhere"}, "nowhere", "AutoExecutor"),
        ("slurm", {"cluster": "local", "memory": "4"}, "memory", "AutoExecutor"),
        ("ray", {"num_gpus": "many"}, "many", "amount"),
        ("ray", {"num_gpus": "1"}, "takes 1 GPU", "num_gpus"),
        ("ray", {"address": "nowhere:6379"}, "nowhere", "ray start"),
    ],
)
def test_unusable_engine_is_refused(name, options, message, hint, monkeypatch, tmp_path, place):
    for package in ("submitit", "ray"):
        stand_in(package, monkeypatch, tmp_path)
    with pytest.raises(ConfigError) as error:
        engines.make(name, place, 0, options)
    assert message in str(error.value)
    assert hint in error.value.hint


@pytest.mark.parametrize(("name", "package"), [("slurm", "submitit"), ("ray", "ray")])
def test_absent_package_is_named_with_its_extra(name, package, monkeypatch, place):
    monkeypatch.setitem(sys.modules, package, None)  # as import has a package that is not there
    with pytest.raises(ConfigError, match=f"needs the package {package}") as error:
        engines.make(name, place, 0, {})
    assert f"[{name}]'" in error.value.hint


def test_ray_runs_as_many_as_fit(monkeypatch, tmp_path, place):
    stand_in("ray", monkeypatch, tmp_path)
    assert engines.make("ray", place, 0, {}).most == 2
    assert engines.make("ray", place, 1, {}).most == 1
    assert engines.make("ray", place, 0, {"num_cpus": "2"}).most == 1
