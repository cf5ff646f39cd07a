"""Processes of this machine: each has its share of the cores, or of the devices, and ends with the one who started it.

On two cores, two one-core processes make 1.28 times the updates of one two-core process (tiny models, measured).
"""

from __future__ import annotations

import ctypes
import importlib.util
import math
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from bert_jax.studies.engines import FULL, STOPPED, Room, Task, refuse
from bert_jax.system import disk

PAUSE = 0.1
PR_SET_PDEATHSIG = 1  # <sys/prctl.h>
NOTICE = (
    signal.SIGUSR2
)  # asks a worker to stop, as when its parent dies; does not urge one that was asked before
ASKING = {
    signal.SIGTERM: signal.SIGTERM,
    signal.SIGINT: signal.SIGTERM,
    signal.SIGUSR1: NOTICE,
    signal.SIGUSR2: NOTICE,
}
GPU_PLUGINS = ("jax_cuda12_plugin", "jax_cuda13_plugin")
DEVICE_FILES = ("nvidia[0-9]*", "accel[0-9]*", "vfio/[0-9]*")
PLANNED = 0.75  # share of the memory that may be planned for: of a GPU, what XLA takes
MEMORY = 0.9  # share of a GPU that processes which have it together may take


class Local:
    """At most `jobs` processes at a time: without accelerators one a core, with them one in all."""

    pause = PAUSE

    def __init__(
        self, folder: Path, jobs: int = 0, options: Mapping[str, str] | None = None
    ) -> None:
        from bert_jax.system import machine  # here, for `become` is waited for by every task

        refuse(options or {}, "local")
        self._devices, self._cores = accelerators(), cores()
        jobs = jobs or (1 if self._devices else len(self._cores))
        each = len(self._devices) / jobs
        memory = PLANNED * (gpu_memory() * each if self._devices else machine.memory() / jobs)
        self.room = Room(jobs, len(self._cores) / jobs, each, memory)
        self._free = list(range(jobs))
        self._waiting: deque[Task] = deque()
        self._dropped: list[tuple[Task, int]] = []
        self._running: dict[int, tuple[Task, subprocess.Popen[bytes]]] = {}

    def submit(self, tasks: Sequence[Task]) -> None:
        """Starts them in the order given."""
        self._waiting.extend(tasks)

    def poll(self) -> list[tuple[Task, int]]:
        """Fills the places of those that have ended."""
        ended, self._dropped = self._dropped, []
        for place, (task, process) in list(self._running.items()):
            if (code := process.poll()) is not None:
                del self._running[place]
                self._free.append(place)
                ended.append((task, code))
        while self._free and self._waiting:
            place, task = self._free.pop(0), self._waiting.popleft()
            pinned = share(self._cores, self.room.parallel, place) if self.room.parallel > 1 else []
            try:
                self._running[place] = task, start(task, pinned, self._environment(place))
            except OSError as error:  # of its log
                if not disk.is_full(error):
                    raise
                self._free.append(place)
                ended.append((task, FULL))
        return ended

    def stop(self) -> None:
        """Those that wait come back as stopped."""
        self._dropped += [(task, STOPPED) for task in self._waiting]
        self._waiting.clear()
        for _, process in self._running.values():
            process.send_signal(signal.SIGTERM)

    def describe(self) -> str:
        """How the machine is shared."""
        what, count = (
            ("device", len(self._devices)) if self._devices else ("core", len(self._cores))
        )
        jobs = (
            "one process"
            if self.room.parallel == 1
            else f"{self.room.parallel} processes at a time"
        )
        return f"{jobs} on {count} {what}{'s' if count > 1 else ''}"

    def _environment(self, place: int) -> dict[str, str]:
        """Of several processes on GPUs, each sees its own, or has its part of the memory of one."""
        if self.room.parallel == 1 or not gpus():
            return {}
        mine = {"CUDA_VISIBLE_DEVICES": ",".join(share(self._devices, self.room.parallel, place))}
        together = -(-self.room.parallel // len(self._devices))
        if together > 1 and "XLA_PYTHON_CLIENT_MEM_FRACTION" not in os.environ:
            mine["XLA_PYTHON_CLIENT_MEM_FRACTION"] = f"{MEMORY / together:.3f}"
        return mine


def cores() -> list[int]:
    """Those this process may use."""
    return (
        sorted(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else list(range(os.cpu_count() or 1))
    )


def accelerators() -> list[str]:
    """What jax would use before the cores, without the seconds that asking jax takes."""
    if os.environ.get("JAX_PLATFORMS", "").startswith("cpu"):
        return []
    if importlib.util.find_spec("libtpu"):
        return sorted(str(p) for pattern in DEVICE_FILES[1:] for p in Path("/dev").glob(pattern))
    return gpus()


def gpus() -> list[str]:
    """Indices of the GPUs of this machine that jax can use."""
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
    """Bytes of the smallest GPU; infinite where nothing says how many."""
    try:
        ask = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
        answer = subprocess.run(
            ask, capture_output=True, text=True, timeout=10, check=True
        ).stdout.split()
        return min(float(mebibytes) for mebibytes in answer) * 2**20
    except (OSError, ValueError, subprocess.SubprocessError):
        return math.inf


def share(items: Sequence[Any], jobs: int, place: int) -> list[Any]:
    """The part of one of several jobs: neighbours, as many as the others get to within one; jobs beyond them share.

    share([0, 1, 2, 3, 4], 2, 0) == [0, 1]; share([0, 1, 2, 3, 4], 2, 1) == [2, 3, 4]; share([0, 1], 3, 2) == [0]
    """
    if jobs >= len(items):
        return [items[place % len(items)]]
    return list(items[place * len(items) // jobs : (place + 1) * len(items) // jobs])


# --- one process ----------------------------------------------------------------------------------


def start(
    task: Task, cores: Sequence[int] = (), environment: Mapping[str, str] | None = None
) -> subprocess.Popen:
    """Starts a task in a session of its own: Ctrl-C reaches who started it, who says what comes of it."""
    task.log.parent.mkdir(parents=True, exist_ok=True)
    # The process sets itself up before it becomes the task: code that runs between fork and exec may deadlock.
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
    """Replaces this process by a command that is pinned to cores, and told when its parent dies, from kill -9 too."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, NOTICE, 0, 0, 0)
        if os.getppid() != parent:  # it died before that
            sys.exit(STOPPED)
        if cores:
            os.sched_setaffinity(0, cores)
    for number in ASKING:  # Ray's processes ignore Ctrl-C, and so would theirs
        signal.signal(number, signal.SIG_DFL)
    os.execvp(command[0], list(command))


def attend(task: Task, environment: Mapping[str, str] | None = None) -> int:
    """Runs a task to its end inside a job of a cluster, and passes on to it what the job is told; its exit code."""
    told: list[signal.Signals] = []
    before = {
        number: signal.signal(number, lambda sent, _: told.append(ASKING[signal.Signals(sent)]))
        for number in ASKING
    }
    try:
        process = start(task, environment=environment)
        while (code := process.poll()) is None:
            while told:
                process.send_signal(told.pop(0))
            time.sleep(PAUSE)
        return code
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
