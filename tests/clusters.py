"""Clusters on this machine: SLURM itself where it is installed, and stand-ins for submitit and ray.

The stand-ins do as much as the engines use; their calls run in processes of this machine. They know
what the packages promise, and nothing of the engines; where a package is installed the same tests
use it.
"""

import contextlib
import fcntl
import functools
import os
import pickle
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CALL = """
import os, pickle, signal, sys
sys.path[:0] = {path!r}
sys.modules.update(__import__("tests.clusters").clusters.modules())
from pathlib import Path
function, arguments = pickle.loads(Path({place!r}, "call").read_bytes())
def queue_again(*_):  # submitit installs such a handler before it calls the function of a job
    Path({place!r}, "call").write_bytes(pickle.dumps((function.checkpoint(), ())))
    os.execv(sys.executable, sys.orig_argv)
if hasattr(function, "checkpoint"):
    signal.signal(signal.SIGUSR2, queue_again)
try:
    answer = "success", function(*arguments)
except Exception as error:  # of any kind: a scheduler reports it, and the caller decides
    answer = "error", repr(error)
Path({place!r}, "draft").write_bytes(pickle.dumps(answer))
Path({place!r}, "draft").rename(Path({place!r}, "result"))
"""


class Call:
    """A function called in another process, in a folder below FAKE_CLUSTER."""

    def __init__(self, function: Any, *arguments: Any):
        place = Path(tempfile.mkdtemp(dir=os.environ["FAKE_CLUSTER"]))
        (place / "call").write_bytes(pickle.dumps((function, arguments)))
        program = CALL.format(path=[str(Path(__file__).parents[1])], place=str(place))
        self._result = place / "result"
        with (place / "errors").open("wb") as errors:
            self.process = subprocess.Popen([sys.executable, "-c", program], stderr=errors)

    def done(self) -> bool:
        return self.process.poll() is not None

    def take(self, error: type[Exception]) -> Any:
        """What the function returns; an error if it raised one."""
        outcome, value = pickle.loads(self._result.read_bytes())
        if outcome == "error":
            raise error(value)
        return value


class FailedJobError(RuntimeError):
    """As submitit raises it if the function of a job failed."""


class Job(Call):
    """As submitit.Job, of one process."""

    def results(self) -> list:
        return [self.take(FailedJobError)]

    def cancel(self, check: bool = True) -> None:
        self.process.send_signal(signal.SIGTERM)


class AutoExecutor:
    """As submitit.AutoExecutor with cluster="local"."""

    KNOWN = ("name", "timeout_min", "mem_gb", "slurm_partition", "slurm_array_parallelism")

    def __init__(self, folder: Path, cluster: str):
        if cluster == "slurm":
            raise RuntimeError('Could not detect "srun", are you indeed on a slurm cluster?')

    def update_parameters(self, **given: Any) -> None:
        for name in given:
            if name not in self.KNOWN:
                raise NameError(f"Unknown argument {name!r}")

    def submit_array(self, functions: list[Any]) -> list[Job]:
        return [Job(function) for function in functions]


class RayError(Exception):
    """As ray raises it if the process of a call died."""


class TaskCancelledError(RayError):
    """As ray raises it of a call that was cancelled."""


class RayTaskError(RayError):
    """As ray raises it if the function of a call failed."""


class Ray:
    """As the module ray: a cluster of one node with 2 CPUs."""

    exceptions = types.SimpleNamespace(
        RayError=RayError, RayTaskError=RayTaskError, TaskCancelledError=TaskCancelledError
    )

    def is_initialized(self) -> bool:
        return False

    def init(self, address: str | None, **_: Any) -> None:
        if address:
            raise ConnectionError(f"Could not find any running Ray instance at {address}")

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 2.0, "memory": 1e9}

    def remote(self, **settings: Any) -> Any:
        return lambda function: types.SimpleNamespace(remote=functools.partial(Call, function))

    def wait(self, calls: list[Call], timeout: float) -> tuple[list[Call], list[Call]]:
        return [call for call in calls if call.done()], [call for call in calls if not call.done()]

    def get(self, call: Call) -> Any:
        if call.process.wait() < 0:
            is_cancelled = call.process.returncode == -signal.SIGINT
            raise TaskCancelledError if is_cancelled else RayError
        return call.take(RayTaskError)

    def cancel(self, call: Call, force: bool) -> None:
        assert not force
        call.process.send_signal(signal.SIGINT)


def modules() -> dict[str, Any]:
    """The stand-ins by the name of what they stand for."""
    submitit: Any = types.ModuleType("submitit")
    submitit.AutoExecutor = AutoExecutor
    submitit.JobEnvironment = lambda: types.SimpleNamespace(global_rank=0, num_tasks=1)
    utils = types.SimpleNamespace(FailedJobError=FailedJobError)
    submitit.core = types.SimpleNamespace(utils=utils)
    helpers: Any = types.ModuleType("submitit.helpers")
    helpers.DelayedSubmission = lambda function: function
    return {"submitit": submitit, "submitit.helpers": helpers, "ray": Ray()}


SLURM = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
AuthType=auth/none
CredType=cred/none
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def free_ports(count: int) -> list[int]:
    """Ports that nobody uses now."""
    with contextlib.ExitStack() as closing:
        sockets = [closing.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


@contextlib.contextmanager
def slurm(folder: Path, settings: str = "") -> Iterator[dict[str, str]]:
    """Starts a SLURM cluster of two nodes, both this machine, and yields the variables with which
    its commands find it.

    The second node is called localhost: processes of a run find one another by names of nodes.
    `settings` are more lines of slurm.conf. One cluster is up at a time: two of them number their
    jobs alike, and then jobs of both were seen to hang.
    """
    import pytest  # not above: each job of a stand-in imports this module

    commands = ("slurmctld", "slurmd", "srun", "sbatch", "scancel")
    if missing := [tool for tool in commands if shutil.which(tool) is None]:
        pytest.skip(f"no command {missing[0]}")
    if os.geteuid():
        pytest.skip("the daemons of SLURM are started by root")
    host = socket.gethostname().partition(".")[0]
    names, ports = [host, "localhost"], free_ports(3)
    for name in ("state", *(f"spool.{name}" for name in names)):
        (folder / name).mkdir(parents=True)
    lines = [
        f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=4 State=UNKNOWN"
        for name, port in zip(names, ports[1:], strict=True)
    ]
    text = SLURM.format(host=host, port=ports[0], folder=folder, nodes="\n".join(lines))
    config = folder / "slurm.conf"
    config.write_text(f"{text}{settings}\n")
    found = {"SLURM_CONF": str(config)}
    environment = os.environ | found
    try_nodes = ["srun", "--nodes=2", "--immediate=5", "true"]
    daemons = [["slurmctld", "-D", "-c"], *(["slurmd", "-D", "-c", "-N", name] for name in names)]
    with contextlib.ExitStack() as closing:
        path = Path(tempfile.gettempdir()) / "bert_jax_slurm.lock"
        lock = closing.enter_context(path.open("w"))
        fcntl.flock(lock, fcntl.LOCK_EX)
        for daemon in daemons:
            log = closing.enter_context((folder / f"{daemon[0]}.{daemon[-1]}.log").open("w"))
            process = subprocess.Popen(daemon, env=environment, stdout=log, stderr=log)
            closing.callback(process.wait)
            closing.callback(process.terminate)
        deadline = time.monotonic() + 60
        while subprocess.run(try_nodes, env=environment, capture_output=True).returncode:
            if time.monotonic() > deadline:
                log_of_controller = (folder / "slurmctld.-c.log").read_text()
                pytest.skip(f"SLURM does not start here: {log_of_controller[-300:]}")
            time.sleep(0.5)
        yield found
