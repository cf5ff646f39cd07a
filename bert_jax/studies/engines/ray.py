"""The Ray engine: workers as remote calls of a Ray cluster.

Options, each as `--engine-option KEY=VALUE`: `address` (of a running cluster; else RAY_ADDRESS,
else a cluster of this machine alone), `num_gpus` and `num_cpus` of each worker, and any other
`resources` by its name. By default a worker takes one GPU if the cluster has any, else one core.
`--jobs` limits how many run at a time. The workdir and the environment must be the same on all
nodes.
"""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bert_jax.errors import ConfigError
from bert_jax.studies.engines import FAILED, KILLED, STOPPED, Capacity, Task, local
from bert_jax.system import extras


class Ray:
    """Runs each task as a remote call."""

    pause = 0.5

    def __init__(self, folder: Path, jobs: int, options: Mapping[str, str]) -> None:
        self._ray = extras.need("ray", "ray", "engine ray")
        settings = dict(options)
        address = settings.pop("address", None)
        try:
            amounts = {name: float(text) for name, text in settings.items()}
        except ValueError as error:
            raise ConfigError(
                f"engine ray: {error}", "every option except address is an amount"
            ) from error
        try:
            if not self._ray.is_initialized():
                self._ray.init(
                    address=address,
                    log_to_driver=False,
                    include_dashboard=False if address is None else None,
                )
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise ConfigError(
                f"ray: {error}", "start a cluster with `ray start --head`, or leave address out"
            ) from error
        self._has = self._ray.cluster_resources()
        gpus = amounts.pop("num_gpus", 1.0 if self._has.get("GPU", 0) else 0.0)
        cpus = amounts.pop("num_cpus", 1.0)
        needs = {"GPU": gpus, "CPU": cpus, **amounts}
        for name, amount in needs.items():
            if amount > self._has.get(name, 0.0):
                has = f"and the cluster has {self._has.get(name, 0.0):g}"
                raise ConfigError(
                    f"a worker takes {amount:g} {name}, {has}", "ask for less, as with num_gpus=0"
                )
        most = min(int(self._has[name] // amount) for name, amount in needs.items() if amount)
        jobs = min(jobs or most, most)
        # By default, the memory that Ray manages is 70 % of the machine's.
        memory = math.inf if gpus else self._has.get("memory", math.inf) / jobs
        self.room = Capacity(jobs, max(cpus, 1.0), gpus, memory)
        self._remote = self._ray.remote(
            num_cpus=cpus, num_gpus=gpus, resources=amounts or None, max_retries=0
        )(run)
        self._threads = max(1, int(cpus)) if not gpus else 0
        self._waiting: deque[Task] = deque()
        self._dropped: list[tuple[Task, int]] = []
        self._running: dict[Any, Task] = {}

    def submit(self, tasks: Sequence[Task]) -> None:
        """Queue tasks here, not in Ray, so that those which wait can be dropped at once."""
        self._waiting.extend(tasks)

    def poll(self) -> list[tuple[Task, int]]:
        """Return the tasks that have ended, and start as many waiting ones."""
        ended, self._dropped = self._dropped, []
        if self._running:
            calls = list(self._running)
            ready, _ = self._ray.wait(calls, num_returns=len(calls), timeout=0)
            for call in ready:
                task = self._running.pop(call)
                ended.append((task, self._code(task, call)))
        while self._waiting and len(self._running) < self.room.parallel:
            task = self._waiting.popleft()
            self._running[self._remote.remote(task, os.getcwd(), self._threads)] = task
        return ended

    def stop(self) -> None:
        """Drop waiting tasks and cancel running calls, which pass the interrupt on."""
        self._dropped += [(task, STOPPED) for task in self._waiting]
        self._waiting.clear()
        for call in self._running:
            self._ray.cancel(call, force=False)

    def describe(self) -> str:
        """Return the size of the cluster."""
        count = sum(node["Alive"] for node in self._ray.nodes())
        nodes = f"{count} node{'s' if count > 1 else ''}"
        has = ", ".join(f"{self._has.get(name, 0.0):g} {name}" for name in ("CPU", "GPU"))
        return f"a Ray cluster of {nodes} ({has}), {self.room.parallel} workers at a time"

    def _code(self, task: Task, call: Any) -> int:
        errors = self._ray.exceptions
        try:
            return self._ray.get(call)
        except errors.TaskCancelledError:
            return STOPPED
        except (
            errors.WorkerCrashedError,
            errors.OutOfMemoryError,
            errors.NodeDiedError,
            errors.LocalRayletDiedError,
        ):
            return KILLED
        except errors.RayError as error:
            with task.log.open("a") as log:
                log.write(f"{error}\n")
            return FAILED


def run(task: Task, folder: str, threads: int) -> int:
    """Run a task in a remote call.

    Ray counts cores but assigns none, so the worker is told how many threads it may use.
    """
    os.chdir(folder)
    return local.attend(task, {"NPROC": str(threads)} if threads else {})
