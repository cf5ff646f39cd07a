"""The local engine: processes that share the cores or devices of this machine.

A process ends when the launcher that started it dies. On two cores, two one-core processes make
1.28 times the updates of one two-core process (tiny models, measured).
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import math
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from bert_jax.errors import ConfigError
from bert_jax.studies.engines import FULL, STOPPED, Capacity, Task
from bert_jax.system import disk

PAUSE = 0.1
PR_SET_PDEATHSIG = 1  # <sys/prctl.h>
# Asks a worker to stop, as when its parent dies, but does not hurry one that is stopping already.
NOTICE = signal.SIGUSR2
ASKING = {  # signal received by a job -> signal passed on to its worker
    signal.SIGTERM: signal.SIGTERM,
    signal.SIGINT: signal.SIGTERM,
    signal.SIGUSR1: NOTICE,
    signal.SIGUSR2: NOTICE,
}
GPU_PLUGINS = ("jax_cuda12_plugin", "jax_cuda13_plugin")
DEVICE_FILES = ("nvidia[0-9]*", "accel[0-9]*", "vfio/[0-9]*")
PLANNED = 0.75  # share of the memory that may be planned for: of a GPU, the share XLA takes
MEMORY = 0.9  # share of a GPU's memory that processes which share the GPU may take together


class Local:
    """Runs at most `jobs` processes at a time: by default one a core, or one for all devices."""

    pause = PAUSE

    def __init__(self, folder: Path, jobs: int, options: Mapping[str, str]) -> None:
        # Imported late: every task imports this module for `become`, and waits for its imports.
        from bert_jax.system import machine

        for name in options:
            raise ConfigError(f"engine local has no option {name!r}", "it has none")
        self._devices, self._cores = accelerators(), cores()
        jobs = jobs or (1 if self._devices else len(self._cores))
        devices = len(self._devices) / jobs
        memory = PLANNED * (gpu_memory() * devices if self._devices else machine.memory() / jobs)
        self.room = Capacity(jobs, len(self._cores) / jobs, devices, memory)
        self._free = list(range(jobs))
        self._waiting: deque[Task] = deque()
        self._dropped: list[tuple[Task, int]] = []
        self._running: dict[int, tuple[Task, subprocess.Popen[bytes]]] = {}

    def submit(self, tasks: Sequence[Task]) -> None:
        """Queue tasks, in the order given."""
        self._waiting.extend(tasks)

    def poll(self) -> list[tuple[Task, int]]:
        """Return the tasks that have ended, and start waiting ones in their slots."""
        ended, self._dropped = self._dropped, []
        for slot, (task, process) in list(self._running.items()):
            if (code := process.poll()) is not None:
                del self._running[slot]
                self._free.append(slot)
                ended.append((task, code))
        while self._free and self._waiting:
            slot, task = self._free.pop(0), self._waiting.popleft()
            pinned = share(self._cores, self.room.parallel, slot) if self.room.parallel > 1 else []
            try:
                self._running[slot] = task, start(task, pinned, self._environment(slot))
            except OSError as error:  # raised by opening the log
                if not disk.is_full(error):
                    raise
                self._free.append(slot)
                ended.append((task, FULL))
        return ended

    def stop(self) -> None:
        """Ask running processes to stop; `poll` returns the waiting tasks as stopped."""
        self._dropped += [(task, STOPPED) for task in self._waiting]
        self._waiting.clear()
        for _, process in self._running.values():
            process.send_signal(signal.SIGTERM)

    def describe(self) -> str:
        """Return how the machine is shared."""
        unit, count = "core", len(self._cores)
        if self._devices:
            unit, count = "device", len(self._devices)
        jobs = "one process"
        if self.room.parallel > 1:
            jobs = f"{self.room.parallel} processes at a time"
        return f"{jobs} on {count} {unit}{'s' if count > 1 else ''}"

    def _environment(self, slot: int) -> dict[str, str]:
        """Return variables that give a process its own GPUs, or its part of the memory of one."""
        if self.room.parallel == 1 or not gpus():
            return {}
        visible = ",".join(share(self._devices, self.room.parallel, slot))
        variables = {"CUDA_VISIBLE_DEVICES": visible}
        together = -(-self.room.parallel // len(self._devices))
        if together > 1 and "XLA_PYTHON_CLIENT_MEM_FRACTION" not in os.environ:
            variables["XLA_PYTHON_CLIENT_MEM_FRACTION"] = f"{MEMORY / together:.3f}"
        return variables


def cores() -> list[int]:
    """Return the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def accelerators() -> list[str]:
    """Return the accelerators jax would use, without the seconds that importing jax takes."""
    if os.environ.get("JAX_PLATFORMS", "").startswith("cpu"):
        return []
    if importlib.util.find_spec("libtpu"):
        return sorted(str(p) for pattern in DEVICE_FILES[1:] for p in Path("/dev").glob(pattern))
    return gpus()


def gpus() -> list[str]:
    """Return the indices of the GPUs of this machine that jax can use."""
    if os.environ.get("JAX_PLATFORMS", "").startswith("cpu") or not any(
        map(importlib.util.find_spec, GPU_PLUGINS)
    ):
        return []
    if (visible := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return [name for name in visible.split(",") if name.strip()]
    return sorted(
        (p.name.removeprefix("nvidia") for p in Path("/dev").glob(DEVICE_FILES[0])), key=int
    )


def gpu_memory() -> float:
    """Return the bytes of the smallest GPU; infinity if nvidia-smi does not tell."""
    command = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
        return min(float(mebibytes) for mebibytes in answer.stdout.split()) * 2**20
    except (OSError, ValueError, subprocess.SubprocessError):
        return math.inf


def share(items: Sequence[Any], jobs: int, slot: int) -> list[Any]:
    """Return the items of one of several jobs: neighbours, in parts whose sizes differ by one.

    share([0, 1, 2, 3, 4], 2, 0) == [0, 1] and share([0, 1, 2, 3, 4], 2, 1) == [2, 3, 4]; jobs share
    items where there are too few: share([0, 1], 3, 2) == [0].
    """
    if jobs >= len(items):
        return [items[slot % len(items)]]
    return list(items[slot * len(items) // jobs : (slot + 1) * len(items) // jobs])


# --- processes ------------------------------------------------------------------------------------


def start(
    task: Task, cores: Sequence[int] = (), environment: Mapping[str, str] | None = None
) -> subprocess.Popen:
    """Start a task in a session of its own: Ctrl-C reaches only the launcher, which decides."""
    task.log.parent.mkdir(parents=True, exist_ok=True)
    # The process sets itself up in Python before it becomes the task, for code that runs between
    # fork and exec may deadlock.
    arguments = f"{os.getpid()}, {list(cores)!r}, {list(task.command)!r}"
    program = f"from bert_jax.studies.engines.local import become; become({arguments})"
    with task.log.open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONUNBUFFERED": "1", **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def become(parent: int, cores: Sequence[int], command: Sequence[str]) -> NoReturn:
    """Replace this process by a command that is pinned to cores and signalled if its parent dies.

    The kernel sends the signal, so that it also arrives when the parent is killed by SIGKILL.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, NOTICE, 0, 0, 0)
        if os.getppid() != parent:  # the parent died before the call
            sys.exit(STOPPED)
        if cores:
            os.sched_setaffinity(0, cores)
    for number in ASKING:  # Ray's processes ignore Ctrl-C, and their children inherit that
        signal.signal(number, signal.SIG_DFL)
    os.execvp(command[0], list(command))


def attend(task: Task, environment: Mapping[str, str] | None = None) -> int:
    """Run a task inside a job of a cluster, pass the job's signals on, and return the exit code."""
    with caught(ASKING) as received:
        process = start(task, environment=environment)
        while (code := process.poll()) is None:
            while received:
                process.send_signal(ASKING[signal.Signals(received.pop(0))])
            time.sleep(PAUSE)
        return code


@contextlib.contextmanager
def caught(numbers: Iterable[int]) -> Iterator[list[int]]:
    """Yield a list to which these signals are appended, instead of ending the process."""
    received: list[int] = []
    before = {number: signal.signal(number, lambda n, _: received.append(n)) for number in numbers}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
