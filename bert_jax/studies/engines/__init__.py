"""The engines that run the workers of a study, behind one interface.

An engine takes tasks and reports which have ended, with their exit codes. The results of a task are
in the folders of its cells, never in an engine: a study begun on one engine may continue on
another. To add an engine, write its class in a file of this folder, and its row in TABLE.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

from bert_jax.errors import ConfigError
from bert_jax.studies.engines.base import (
    FAILED,
    FULL,
    KILLED,
    LOST,
    STOPPED,
    Engine,
    Room,
    Task,
    need,
    refuse,
)

__all__ = [
    "FAILED",
    "FULL",
    "KILLED",
    "LOST",
    "STOPPED",
    "TABLE",
    "Engine",
    "Room",
    "Task",
    "check",
    "make",
    "need",
    "refuse",
]

TABLE = {  # name -> class, in the module of that name
    "local": "Local",
    "slurm": "Slurm",
    "ray": "Ray",
}


def check(name: str, options: Mapping[str, str] | None = None) -> None:
    """Refuse an unknown engine, or options that its cluster cannot satisfy."""
    if name not in TABLE:
        raise ConfigError(f"no engine {name!r}", f"one of: {', '.join(TABLE)}")
    if check_options := getattr(_module(name), "check", None):
        check_options(options or {})


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
    check(name)
    engine = getattr(_module(name), TABLE[name])
    return engine(folder, jobs, dict(options or {}))


def _module(name: str) -> ModuleType:
    """Import the module of an engine."""
    return importlib.import_module(f"{__name__}.{name}")
