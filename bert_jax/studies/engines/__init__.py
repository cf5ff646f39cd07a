"""The engines that run the workers of a study, behind one interface.

An engine takes tasks and reports which have ended, with their exit codes. The results of a task are
in the folders of its cells, never in an engine: a study begun on one engine may continue on
another. To add an engine, write its class in a file of this folder, and its row in TABLE.
"""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Protocol

from bert_jax.errors import ConfigError

TABLE = {  # name -> class, in the module of that name
    "local": "Local",
    "slurm": "Slurm",
    "ray": "Ray",
}

WORKER = (sys.executable, "-m", "bert_jax.study", "work")  # the program of a study's tasks
# Exit codes as those of processes; a negative one is the signal that killed the process.
STOPPED, FAILED, KILLED = 75, 1, -9
FULL = 28  # a worker whose disk has no room (ENOSPC)
# A job that ended without an exit code: for an unknown reason, or for the one its cluster names.
LOST, CANCELLED, OUT_OF_TIME, OUT_OF_MEMORY = range(-(2**31), -(2**31) + 4)
ENDINGS = {
    STOPPED: "was stopped",
    LOST: "ended without an exit code",
    CANCELLED: "was cancelled",
    OUT_OF_TIME: "was killed (out of time)",
    OUT_OF_MEMORY: "was killed (out of memory)",
}


@dataclass(frozen=True)
class Task:
    """A program to run."""

    name: str
    command: tuple[str, ...]
    log: Path  # output is appended there
    seconds: float = 0.0  # estimated; 0: not known


@dataclass(frozen=True)
class Capacity:
    """The resources for tasks, as far as is known before they run."""

    parallel: int = 1  # tasks at the same time
    cores: float = 1.0  # of each task
    devices: float = 0.0  # accelerators of each task
    memory: float = math.inf  # bytes of each task, on the device that trains
    processes: int = 1  # of each task; each has its number in JAX_PROCESS_ID


def ending(code: int) -> str:
    """Return how a task ended whose program returned no error of its own."""
    return ENDINGS.get(code, f"was killed (signal {-code})")


class Engine(Protocol):
    """The interface of an engine; `poll` returns every submitted task once."""

    room: Capacity
    pause: float  # seconds between two calls of `poll`

    def submit(self, tasks: Sequence[Task]) -> None:
        """Queue tasks, and start each as soon as there is room for it."""

    def poll(self) -> list[tuple[Task, int]]:
        """Return the tasks that have ended since the last call, with their exit codes."""

    def stop(self) -> None:
        """Ask running tasks to save and end; drop the others. A second call ends all at once."""

    def describe(self) -> str:
        """Return where tasks run, and how many at a time, for the log."""


def check(name: str, options: Mapping[str, str] | None = None) -> None:
    """Refuse an unknown engine, or options that its cluster cannot satisfy."""
    if name not in TABLE:
        raise ConfigError(f"no engine {name!r}", f"one of: {', '.join(TABLE)}")
    if check_options := getattr(_module(name), "check", None):
        check_options(options or {})


def processes(name: str, options: Mapping[str, str] | None = None) -> int:
    """Return how many processes an engine starts for each task."""
    count = getattr(_module(name), "processes", None)
    return count(options or {}) if count else 1


def make(
    name: str, folder: Path, jobs: int = 0, options: Mapping[str, str] | None = None
) -> Engine:
    """Make an engine by name.

    Args:
      name: a row of TABLE.
      folder: the workdir, where the engine may keep notes of its own.
      jobs: tasks to run at the same time; 0: as many as suit the engine.
      options: settings of the engine, from `--engine-option`.
    """
    check(name, options)
    engine = getattr(_module(name), TABLE[name])
    return engine(folder, jobs, dict(options or {}))


def _module(name: str) -> ModuleType:
    """Import the module of an engine."""
    return importlib.import_module(f"{__name__}.{name}")
