"""Engines: each worker ends once with its code, in its share of the machine; stops reach it."""

import importlib.util
import re
import signal
import subprocess
import sys
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
from bert_jax.system import machine
from tests import clusters, texts

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
LONG = "a-60-0"
OPTIONS = {"slurm": {"cluster": "local"}}


@pytest.fixture
def place(tmp_path, monkeypatch) -> StudyFolder:
    """A study whose workers are small programs, in jobs of clusters too."""
    # Without sitecustomize, which jobs of stand-ins need: they import the engines anew.
    monkeypatch.setattr(base, "WORKER", (sys.executable, "-S", "-u", "-c", WORKER))
    anew = f"from bert_jax.studies.engines import base\nbase.WORKER = {base.WORKER!r}\n"
    (tmp_path / "sitecustomize.py").write_text(anew)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{texts.ROOT}", prepend=":")
    monkeypatch.setenv("FAKE_CLUSTER", str(tmp_path))
    return StudyFolder(tmp_path / "w")


@pytest.fixture
def stand_ins(monkeypatch) -> None:
    """Stand-ins for the packages of clusters."""
    for name, module in clusters.modules().items():
        monkeypatch.setitem(sys.modules, name, module)


# jax, which other tests have started, warns where ray makes its processes by a fork.
REAL_RAY = pytest.param("real ray", marks=pytest.mark.filterwarnings("ignore:os.fork.. was called"))


@pytest.fixture(params=["local", "slurm", "ray", "real slurm", REAL_RAY])
def engine(request, place) -> Iterator[base.Engine]:
    """Make each engine, over stand-ins and over the packages that are installed."""
    real, _, name = request.param.rpartition(" ")
    package = {"local": "sys", "slurm": "submitit", "ray": "ray"}[name]
    if not real:
        request.getfixturevalue("stand_ins")
    elif importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed: it is an extra, {name}")
    yield engines.TABLE[name](place, 2, OPTIONS.get(name, {}))
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


def test_engine_ends_each_worker_with_its_code(engine, place):
    log = place.log("a-0-0")
    log.parent.mkdir(parents=True)
    log.write_text("before\n")
    assert wait_for_codes(engine, [*engine.start(["a-0-0", "b-0.1-3"])]) == [0, 3]
    assert log.read_text().startswith("before\ncores [")
    assert (engine.parallel, engine.most >= 2, engine.processes) == (2, True, 1)


@pytest.mark.fault(2)
def test_engine_lets_workers_save_when_stopped(engine, place):
    workers = [*engine.start([LONG, "b-60-0"])]
    logs = [place.log(LONG), place.log("b-60-0")]
    wait_for_words("cores", *logs)
    engine.stop(workers)
    assert wait_for_codes(engine, workers) == [75, 75]
    assert [log.read_text().count("saved") for log in logs] == [1, 1]


@pytest.mark.fault(1)
@pytest.mark.parametrize("name", ["slurm", "ray"])
def test_killed_job_is_lost_and_its_worker_ends(name, place, stand_ins):
    engine = engines.TABLE[name](place, 1, OPTIONS.get(name, {}))
    (worker,) = engine.start([LONG])
    wait_for_words("cores", place.log(LONG))
    worker.process.kill()
    assert wait_for_codes(engine, [worker]) == [base.LOST]
    wait_for_words("told SIGUSR2\nsaved", place.log(LONG))


def test_local_engine_shares_out_the_cores(place):
    assert [local.share_out(range(5), 2, slot) for slot in (0, 1)] == [[0, 1], [2, 3, 4]]
    cores = machine.list_cores()
    if len(cores) < 2:
        pytest.skip("one core is nothing to share")
    engine = local.Local(place, 2, {})
    names = ["a-1-0", "b-1-0"]
    assert wait_for_codes(engine, [*engine.start(names)]) == [0, 0]
    told = [re.search(r"cores \[(.*)\]", place.log(name).read_text())[1] for name in names]
    parts = [[int(core) for core in part.split(", ")] for part in told]
    assert sorted(parts[0] + parts[1]) == sorted(cores)
    assert abs(len(parts[0]) - len(parts[1])) <= 1


@pytest.mark.parametrize(
    ("jobs", "visible", "share"), [(1, None, None), (2, "1", None), (4, "1", "0.450")]
)
def test_local_engine_shares_out_gpus(place, monkeypatch, jobs, visible, share):
    """Also where libtpu is installed, and there is no TPU."""
    monkeypatch.setenv("JAX_PLATFORMS", "")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.setattr(local, "DEVICE_FILES", ("none",))
    installed = ("libtpu", "jax_cuda12_plugin")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name in installed or None)
    variables = local.Local(place, jobs, {})._choose_devices(jobs - 1)
    assert variables.get("CUDA_VISIBLE_DEVICES") == visible
    assert variables.get(local.FRACTION) == share
    for hidden, seen in {"-1": [], "": [], "1, GPU-8932f937,-1,0": ["1", "GPU-8932f937"]}.items():
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
        assert local.find_gpus() == seen


JOB = """
import sys
from pathlib import Path
from bert_jax.studies.engines.base import start_worker, wait_for
workdir = Path(sys.argv[1])
sys.exit(wait_for(start_worker(workdir, "a-60-0", workdir / "a.log", {})))
"""


@pytest.mark.fault(1)
@pytest.mark.parametrize(
    ("sent", "told"),
    [("SIGINT", "SIGTERM"), ("SIGTERM", "SIGTERM"), ("SIGUSR1", "SIGUSR2"), ("SIGKILL", "SIGUSR2")],
)
def test_worker_saves_when_its_parent_is_stopped(sent, told, place):
    """The parent passes signals on; a worker whose parent is killed is told by the kernel."""
    place.workdir.mkdir()
    job = subprocess.Popen([sys.executable, "-c", JOB, str(place.workdir)])
    log = place.workdir / "a.log"
    wait_for_words("cores", log)
    job.send_signal(signal.Signals[sent])
    assert job.wait(timeout=20) == (-signal.SIGKILL if sent == "SIGKILL" else 75)
    wait_for_words(f"told {told}\nsaved\n", log)
    # The kernel may tell the same twice, which counts as one notice (`signals.SAME`).
    assert log.read_text().count("told") == 1 or sent == "SIGKILL"


def test_slurm_job_goes_on_after_it_has_saved(place, stand_ins):
    """At the time limit submitit's handler calls `checkpoint` and queues the job again."""
    engine = slurm.Slurm(place, 1, {"cluster": "local"})
    (job,) = engine.start([LONG])
    log = place.log(LONG)
    wait_for_words("cores", log)
    job.process.send_signal(signal.SIGUSR2)
    wait_for_words("saved\ncores", log)
    assert engine.poll(job) is None
    engine.stop([job])
    assert wait_for_codes(engine, [job]) == [75]
    assert re.findall("told (.*)", log.read_text()) == ["SIGUSR2", "SIGTERM"]


def test_slurm_numbers_the_processes_of_a_job(place, stand_ins, monkeypatch, tmp_path):
    """The job ends with the code of the process that failed itself: others only lost it."""
    monkeypatch.chdir(tmp_path)  # as a process of a job goes there itself
    for rank, cluster in (0, "slurm"), (1, "local"):
        job = types.SimpleNamespace(global_rank=rank, num_tasks=2, cluster=cluster, job_id="4097")
        monkeypatch.setattr(sys.modules["submitit"], "JobEnvironment", lambda job=job: job)
        assert slurm.Work(place.workdir, "a-0-0", str(tmp_path))() == 0
    log = place.log("a-0-0")
    assert log.read_text().endswith(" 0\n")
    assert log.with_suffix(".1.log").read_text().endswith(" 1\n")
    engine = engines.TABLE["slurm"](place, 1, {"cluster": "local"})
    for codes, code in (([0, 0], 0), ([75, 1], 1), ([75, 0], 75), ([-9, 75], -9)):
        ended = types.SimpleNamespace(results=lambda codes=codes: codes, done=lambda: True)
        assert engine.poll(ended) == code


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("slurm", {}, "Could not detect"),
        ("slurm", {"cluster": "local", "memory": "4"}, "memory"),
        ("ray", {"num_gpus": "many"}, "many"),
        ("ray", {"num_gpus": "1"}, "takes 1 GPU"),
        ("ray", {"num_cpus": "0"}, "takes no resource"),
        ("ray", {"address": "nowhere:6379"}, "nowhere"),
    ],
)
def test_engine_refuses_what_it_cannot_use(name, options, message, stand_ins, place):
    with pytest.raises(ConfigError, match=message):
        engines.TABLE[name](place, 0, options)


def test_slurm_says_why_it_takes_no_job(stand_ins, place, monkeypatch):
    def refuse(*_: Any) -> None:
        raise clusters.FailedJobError("sbatch: error: invalid partition\nsbatch: error: failed")

    monkeypatch.setattr(clusters.AutoExecutor, "submit_array", refuse)
    engine = engines.TABLE["slurm"](place, 0, {"cluster": "local"})
    with pytest.raises(ConfigError, match="invalid partition sbatch: error: failed") as caught:
        list(engine.start(["a-0-0"]))
    assert caught.value.hint.endswith("; the same command goes on")


def test_ray_runs_as_many_as_fit(stand_ins, place, monkeypatch):
    """Those that share a GPU share its memory."""
    for jobs, options, most in (0, {}, 2), (1, {}, 1), (0, {"num_cpus": "2"}, 1):
        assert engines.TABLE["ray"](place, jobs, options).most == most
    monkeypatch.setattr(clusters.Ray, "cluster_resources", lambda _: {"CPU": 2.0, "GPU": 1.0})
    for amount, share in ("0.5", "0.450"), ("1", None), ("0", None):
        variables = engines.TABLE["ray"](place, 0, {"num_gpus": amount})._variables
        assert variables.get(local.FRACTION) == share
