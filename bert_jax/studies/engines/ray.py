"""The Ray engine: workers as remote calls on a Ray cluster.

Each option is given as `--engine-option KEY=VALUE`. `address` is the address of a running cluster;
by default it is RAY_ADDRESS, or else a cluster is started on this machine. `num_gpus`, `num_cpus`
and the name of any other resource say how much of it a worker takes. By default a worker takes one
GPU if the cluster has GPUs, else one core. `--jobs` limits how many workers run at a time. The
workdir and the environment must be the same on all nodes.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bert_jax.errors import ConfigError, need
from bert_jax.studies.engines.base import FAILED, LOST, STOPPED, start_worker, wait_for
from bert_jax.studies.engines.local import FRACTION, MEMORY
from bert_jax.studies.folder import StudyFolder
from bert_jax.system import extras


class Ray:
    """Runs the worker of each group as a remote call."""

    processes = 1

    def __init__(self, place: StudyFolder, jobs: int, options: Mapping[str, str]) -> None:
        self._ray = ray = extras.need_extra("ray", "ray", "engine ray")
        self._place = place
        settings = dict(options)
        address = settings.pop("address", None)
        try:
            amounts = {name: float(text) for name, text in settings.items()}
            if not ray.is_initialized():
                dashboard = False if address is None else None
                ray.init(address=address, log_to_driver=False, include_dashboard=dashboard)
        except (ConnectionError, ValueError, RuntimeError) as error:
            hint = "start a cluster with `ray start --head`; options but address are amounts"
            raise ConfigError(f"engine ray: {error}", hint) from error
        has = ray.cluster_resources()
        gpus = amounts.pop("num_gpus", 1.0 if has.get("GPU", 0) else 0.0)
        cpus = amounts.pop("num_cpus", 1.0)
        needs = {"GPU": gpus, "CPU": cpus, **amounts}
        for name, amount in needs.items():
            owned = has.get(name, 0.0)
            problem = f"a worker takes {amount:g} {name}, and the cluster has {owned:g}"
            need(amount <= owned, problem, "ask for less, as with num_gpus=0")
        need(max(needs.values()) > 0, "a worker takes no resource", "ask for one, as num_cpus=1")
        room = min(int(has[name] // amount) for name, amount in needs.items() if amount > 0)
        self.most = self.parallel = min(jobs or room, room)
        self._call = ray.remote(
            num_cpus=cpus, num_gpus=gpus, resources=amounts or None, max_retries=0
        )(run_worker)
        # Ray counts cores but assigns none, so a worker is told how many threads it may use.
        self._variables = {} if gpus else {"NPROC": str(max(1, int(cpus)))}
        if 0 < gpus < 1 and FRACTION not in os.environ:
            self._variables[FRACTION] = f"{MEMORY * gpus:.3f}"

    def start(self, groups: Sequence[str]) -> Iterator[Any]:
        """Make a remote call for each group."""
        for group in groups:
            yield self._call.remote(self._place.workdir, group, os.getcwd(), self._variables)

    def poll(self, worker: Any) -> int | None:
        """Return the exit code of a call; None while it runs."""
        errors = self._ray.exceptions
        ready, _ = self._ray.wait([worker], timeout=0)
        if not ready:
            return None
        try:
            code: int = self._ray.get(worker)
        except errors.TaskCancelledError:
            return STOPPED
        except errors.RayTaskError:  # raised by `run_worker`
            return FAILED
        except errors.RayError:  # its node, or the process of the call, died
            return LOST
        return code

    def stop(self, workers: Sequence[Any]) -> None:
        """Cancel remote calls, which pass the interrupt on to their workers."""
        for call in workers:
            self._ray.cancel(call, force=False)

    def describe(self) -> str:
        """Say how many nodes the cluster has, and how many workers run at a time."""
        count = sum(node["Alive"] for node in self._ray.nodes())
        nodes = f"{count} node{'s' if count > 1 else ''}"
        return f"a Ray cluster of {nodes}, {self.most} workers at a time"


def run_worker(workdir: Path, group: str, folder: str, variables: dict[str, str]) -> int:
    """Run a worker in a remote call and return its exit code."""
    os.chdir(folder)
    log = StudyFolder(workdir).log(group)
    return wait_for(start_worker(workdir, group, log, variables))
