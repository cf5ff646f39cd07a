"""What engines have in common: their interface, exit codes, and the process of a worker."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from bert_jax.system import disk, signals

WORKER = (sys.executable, "-m", "bert_jax.study", "work")  # the program of a worker
# Exit codes of workers; a negative one is the signal that killed the process.
STOPPED, FAILED = 75, 1
FULL = 28  # the disk has no room (ENOSPC)
LOST = -(2**31)  # a job of a cluster that ended without a result
PAUSE = 0.1  # seconds between two looks at a worker
# Asks a worker to stop, but does not hurry one that is stopping already.
NOTICE = signal.SIGUSR2


@dataclass(frozen=True)
class Capacity:
    """The resources for groups, as far as is known before they run."""

    parallel: int = 1  # groups at the same time
    devices: float = 0.0  # accelerators of each group
    memory: float = math.inf  # bytes of each group, on the device that trains
    processes: int = 1  # of each group; each has its number in JAX_PROCESS_ID


class Engine(Protocol):
    """The interface of an engine: it starts workers, and handles of its own stand for them."""

    capacity: Capacity
    most: float  # groups that may be started before another one has ended

    def start(self, groups: Sequence[str]) -> list[Any]:
        """Start a worker for each group and return their handles."""

    def poll(self, worker: Any) -> int | None:
        """Return the exit code of a worker; None while it runs."""

    def stop(self, workers: Sequence[Any]) -> None:
        """Ask workers to save and end. A second call ends them at once."""

    def describe(self) -> str:
        """Describe where workers run, and how many at a time, for the log."""


def describe_ending(code: int) -> str:
    """Describe how a worker ended that left no error in its cells."""
    if code == LOST:
        return "its job ended without a result"
    return f"killed (signal {-code})" if code < 0 else f"ended with exit code {code}"


# --- the process of a worker ----------------------------------------------------------------------


def start_worker(
    workdir: Path,
    group: str,
    log: Path,
    environment: Mapping[str, str],
    prefix: Sequence[str] = (),
) -> subprocess.Popen[bytes]:
    """Start a worker in a session of its own: Ctrl-C reaches only the launcher, which decides."""
    command = [*prefix, *WORKER, f"--workdir={workdir.resolve()}", f"--group={group}"]
    with disk.reporting_full_disk(log):
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            return subprocess.Popen(
                command,
                env={**os.environ, "PYTHONUNBUFFERED": "1", **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )


class Attendant(signals.Handler):
    """A handler that passes the signals of a job of a cluster on to the job's worker.

    A scheduler gives notice before the time is over, and ends it with SIGTERM.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        super().__init__((signal.SIGTERM, signal.SIGINT, signal.SIGUSR1))
        self._process = process

    def handle(self, number: int, _: Any) -> None:
        """Pass a signal on."""
        notice = number == signal.SIGUSR1
        self._process.send_signal(NOTICE if notice else signal.SIGTERM)

    def wait(self) -> int:
        """Wait for the worker and return its exit code."""
        with self:
            while (code := self._process.poll()) is None:
                time.sleep(PAUSE)
        return code
