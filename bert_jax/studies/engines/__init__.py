"""Where the groups of a study are trained: a table of engines behind one small interface.

An engine is given tasks and says which have ended, with their exit codes. What a task has done stands in the folders of
its cells, never in an engine: a study begun on one may go on with another. To add one, write its class in a file of
this folder, and its row here.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Protocol

from bert_jax.errors import ConfigError

STOPPED, FAILED, KILLED = (
    75,
    1,
    -9,
)  # exit codes as of processes; a negative one is the signal it died of
LOST = -(2**31)  # of a job that ended without a result, and nobody knows how
FULL = 28  # of a worker whose disk has no room (ENOSPC)


@dataclass(frozen=True)
class Task:
    """One program to run."""

    name: str
    command: tuple[str, ...]
    log: Path  # what it prints is added there
    seconds: float = 0.0  # what it is expected to take; 0: not known


@dataclass(frozen=True)
class Room:
    """What there is for tasks, as far as is known before they run."""

    parallel: int = 1  # tasks at the same time
    cores: float = 1.0  # of each
    devices: float = 0.0  # accelerators of each
    memory: float = math.inf  # bytes of each, where it trains


class Engine(Protocol):
    """What an engine can do; every task given to it is handed back by `poll` once."""

    room: Room
    pause: float  # seconds between two calls of `poll`

    def submit(self, tasks: Sequence[Task]) -> None:
        """Takes tasks, and starts each as soon as there is room for it."""

    def poll(self) -> list[tuple[Task, int]]:
        """Those that have ended since the last call, with their exit codes."""

    def stop(self) -> None:
        """Asks the running ones to save and end, and drops the others; a second time they end at once."""

    def describe(self) -> str:
        """For the log: where tasks run, and how many at a time."""


TABLE = {  # name -> class, in the module of that name
    "local": "Local",
    "slurm": "Slurm",
    "ray": "Ray",
}


def check(name: str, options: Mapping[str, str] | None = None) -> None:
    """Ends with an error unless the table has such an engine, and what it is asked for may be had."""
    if name not in TABLE:
        raise ConfigError(f"no engine {name!r}", f"one of: {', '.join(TABLE)}")
    if name == "slurm":
        from bert_jax.studies.engines import slurm

        slurm.check(options or {})


def make(
    name: str, folder: Path, jobs: int = 0, options: Mapping[str, str] | None = None
) -> Engine:
    """An engine by name; `folder` is for what it notes, jobs 0 is as many as suit it."""
    check(name)
    return getattr(importlib.import_module(f"{__name__}.{name}"), TABLE[name])(
        folder, jobs, dict(options or {})
    )


def need(package: str, extra: str) -> ModuleType:
    """An optional package, or the error that says how to get it."""
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"engine {extra} needs the package {package}",
            f"install it: pip install 'bert-jax[{extra}]', or {package}",
        ) from error


def refuse(options: Mapping[str, str], engine: str, known: Sequence[str] = ()) -> None:
    """Ends with an error if an option is left that the engine does not know."""
    for name in options:
        there = f"it has {', '.join(known)}" if known else "it has none"
        raise ConfigError(f"engine {engine} has no option {name!r}", there)
