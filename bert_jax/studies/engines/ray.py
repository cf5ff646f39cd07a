"""Tasks of a Ray cluster. Options, as `--engine-option KEY=VALUE`: `address` (of a running cluster; else RAY_ADDRESS,
else a cluster of this machine alone), `num_gpus` and `num_cpus` of each worker, and any other `resources` by its name.

By default a worker takes one GPU where there are any, and else one core. `--jobs` limits how many run at a time. The
workdir and the environment must be the same on all nodes.
"""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bert_jax.errors import ConfigError
from bert_jax.studies.engines import FAILED, KILLED, STOPPED, Room, Task, local, need


class Ray:
    """One remote call a task."""

    pause = 0.5

    def __init__(
        self, folder: Path, jobs: int = 0, options: Mapping[str, str] | None = None
    ) -> None:
        self._ray = need("ray", "ray")
        given = dict(options or {})
        address = given.pop("address", None)
        try:
            amounts = {name: float(text) for name, text in given.items()}
        except ValueError as error:
            raise ConfigError(
                f"engine ray: {error}", "an option but address is an amount"
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
        wanted = {"GPU": gpus, "CPU": cpus, **amounts}
        for name, amount in wanted.items():
            if amount > self._has.get(name, 0.0):
                has = f"and the cluster has {self._has.get(name, 0.0):g}"
                raise ConfigError(
                    f"a worker takes {amount:g} {name}, {has}", "ask for less, as with num_gpus=0"
                )
        room = min(int(self._has[name] // amount) for name, amount in wanted.items() if amount)
        jobs = min(jobs or room, room)
        # By default Ray calls 70 % of a machine's memory its own.
        memory = math.inf if gpus else self._has.get("memory", math.inf) / jobs
        self.room = Room(jobs, max(cpus, 1.0), gpus, memory)
        settings = {
            "num_cpus": cpus,
            "num_gpus": gpus,
            "resources": amounts or None,
            "max_retries": 0,
        }
        self._remote = self._ray.remote(**settings)(run)
        self._threads = max(1, int(cpus)) if not gpus else 0
        self._waiting: deque[Task] = deque()
        self._dropped: list[tuple[Task, int]] = []
        self._running: dict[Any, Task] = {}

    def submit(self, tasks: Sequence[Task]) -> None:
        """Ray sees no more of them than may run: those that wait here can be dropped at once."""
        self._waiting.extend(tasks)

    def poll(self) -> list[tuple[Task, int]]:
        """Starts as many as have ended."""
        ended, self._dropped = self._dropped, []
        if self._running:
            ready, _ = self._ray.wait(
                list(self._running), num_returns=len(self._running), timeout=0
            )
            ended += [
                (task, self._code(task, call))
                for call in ready
                for task in [self._running.pop(call)]
            ]
        while self._waiting and len(self._running) < self.room.parallel:
            task = self._waiting.popleft()
            self._running[self._remote.remote(task, os.getcwd(), self._threads)] = task
        return ended

    def stop(self) -> None:
        """Calls that run are interrupted, and pass it on."""
        self._dropped += [(task, STOPPED) for task in self._waiting]
        self._waiting.clear()
        for call in self._running:
            self._ray.cancel(call, force=False)

    def describe(self) -> str:
        """What the cluster has."""
        nodes = len([node for node in self._ray.nodes() if node["Alive"]])
        has = ", ".join(f"{self._has.get(name, 0.0):g} {name}" for name in ("CPU", "GPU"))
        return f"a Ray cluster of {nodes} node{'s' if nodes > 1 else ''} ({has}), {self.room.parallel} workers at a time"

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
    """What a call does; Ray counts cores but gives none, so that the worker is told how many threads are its own."""
    os.chdir(folder)
    return local.attend(task, {"NPROC": str(threads)} if threads else {})
