"""What all engines share: their interface, exit codes of workers, and starting a worker."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from bert_jax.system import disk, signals

WORKER = (sys.executable, "-m", "bert_jax.study", "work")  # the program of a worker
# Exit codes of workers; a negative one is the signal that killed the process.
STOPPED, FAILED = 75, 1
FULL = 28  # the disk has no room (ENOSPC)
HELD = 16  # another worker holds the cells (EBUSY)
LOST = -(2**31)  # a job of a cluster that ended without a result
# Asks a worker to stop, but does not hurry one that is stopping already.
NOTICE = signal.SIGUSR2


class Engine(Protocol):
    """The interface of an engine, which starts workers and returns a handle for each."""

    parallel: int  # workers at the same time, as far as is known
    most: int  # workers that may be started before another one has ended
    processes: int  # of each group; each has its number in JAX_PROCESS_ID

    def start(self, groups: Sequence[str]) -> Iterator[Any]:
        """Start a worker for each group; yield the handle of each worker when it has started."""

    def poll(self, worker: Any) -> int | None:
        """Return the exit code of a worker; None while it runs."""

    def stop(self, workers: Sequence[Any]) -> None:
        """Ask workers to save and end; a second call ends them at once."""

    def describe(self) -> str:
        """Say where workers run and how many at a time, for the log."""


def start_process(
    command: Sequence[str], variables: Mapping[str, str], **settings: Any
) -> subprocess.Popen[bytes]:
    """Start a process that is asked to save and end when this process dies."""
    if shutil.which("setpriv"):
        command = ["setpriv", "--pdeathsig", NOTICE.name.removeprefix("SIG"), *command]
    return subprocess.Popen(command, env={**os.environ, **variables}, **settings)


def start_worker(
    workdir: Path, group: str, log: Path, variables: Mapping[str, str], cores: Sequence[int] = ()
) -> subprocess.Popen[bytes]:
    """Start a worker in its own session, so that Ctrl-C reaches only the launcher.

    Args:
      workdir: the workdir of the study.
      group: the group to work on.
      log: the file to which the worker's output is appended.
      variables: environment variables of the worker, added to those of this process.
      cores: the cores that the worker may use; if empty, all cores.
    """
    command = [*WORKER, f"--workdir={workdir.resolve()}", f"--group={group}"]
    if cores and shutil.which("taskset"):
        command = ["taskset", "--cpu-list", ",".join(map(str, cores)), *command]
    with disk.reporting_full_disk(log):
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            return start_process(
                command,
                {"PYTHONUNBUFFERED": "1", **variables},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )


class Relay(signals.Handler):
    """A signal handler that passes stop signals on to a process.

    A warning (SIGUSR1 or SIGUSR2) is passed on as SIGUSR2, and any other signal as SIGTERM.
    """

    def __init__(self, process: subprocess.Popen[bytes], numbers: Iterable[int]) -> None:
        super().__init__(numbers)
        self._process = process

    def handle(self, number: int, _: Any) -> None:
        """Pass a signal on to the process."""
        notice = number in (signal.SIGUSR1, signal.SIGUSR2)
        self._process.send_signal(NOTICE if notice else signal.SIGTERM)


def wait_for(process: subprocess.Popen[bytes], numbers: Iterable[int] = signals.SIGNALS) -> int:
    """Wait for a process to end, pass the signals `numbers` on to it, and return its exit code.

    Ray simulates a signal inside Python, which no system call notices: so waits are short.
    """
    with Relay(process, numbers):
        while process.poll() is None:
            time.sleep(0.05)
        return process.returncode
