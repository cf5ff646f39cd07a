"""Locks that reserve a workdir for one run, and the flag that stop signals raise."""

import contextlib
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

import jax
import numpy as np
from jax.experimental import multihost_utils

from bert_jax.errors import ConfigError, Stopped
from bert_jax.system import folder_locks, signals


@contextlib.contextmanager
def hold_run_lock(workdir: Path, name: str = folder_locks.NAME) -> Iterator[None]:
    """Lock a workdir for this run until the block ends; process 0 holds the lock.

    The system frees the lock however the process ends.
    """
    with contextlib.ExitStack() as locks:
        refused: ConfigError | None = None
        if jax.process_index() == 0:
            try:
                locks.enter_context(folder_locks.hold_lock(Path(workdir), name))
            except ConfigError as error:
                refused = error
        if jax.process_count() > 1 and not multihost_utils.broadcast_one_to_all(
            np.int32(refused is None)
        ):
            # All learn of it, or the others would wait for process 0 until the network times out.
            raise refused or ConfigError(f"process 0 may not use {workdir}", "its message says why")
        if refused is not None:
            raise refused
        yield


@contextlib.contextmanager
def hold_run_locks(workdirs: Sequence[Path]) -> Iterator[None]:
    """Check that all workdirs are writable, then lock them until the block ends."""
    for workdir in workdirs:
        folder_locks.check_writable(workdir)
    with contextlib.ExitStack() as locks:
        for workdir in workdirs:
            locks.enter_context(hold_run_lock(workdir))
        yield


class Interrupted(Exception):
    """A stop signal has ended an evaluation early."""


class StopFlag(signals.Handler):
    """A flag that stop signals raise and that the training loop reads after each step.

    The same signal again ends the process at once. The module `signals` says which signals count.
    Preparing or compiling may take hours. So before the loop first reads the flag a signal
    interrupts, as Ctrl-C does, except in an evaluation that an earlier attempt left out.

    In a run of several processes, SIGTERM belongs to the preemption service of jax. After every
    step, and after every batch of an evaluation, each process asks the service whether to stop.
    These questions are numbered. Once a process has been signalled, the service chooses a number
    that no process has reached yet. It answers this question with yes in every process, so all stop
    at the same place. Other signals are passed on to the service as SIGTERM.
    """

    def __init__(self) -> None:
        self.signal: int | None = None
        self._in_loop = self._interrupts = False
        self._distributed = jax.process_count() > 1
        self._questions = 0  # asked of the preemption service, by each process as many
        kept = {signal.SIGTERM} if self._distributed else set()
        super().__init__(number for number in signals.SIGNALS if number not in kept)

    def should_stop(self) -> bool:
        """Tell whether to save now and stop.

        If there are several processes, each must call this equally often.
        """
        self._in_loop = True
        if self._distributed:
            self._questions += 1
            return multihost_utils.reached_preemption_sync_point(self._questions)
        return self.signal is not None

    def check_batch(self, done: int, total: int) -> None:
        """Raise Interrupted after a batch of an evaluation, if all processes are to stop there."""
        if self._distributed and self.should_stop():
            raise Interrupted

    @contextlib.contextmanager
    def interrupting(self) -> Iterator[None]:
        """Let a stop signal raise Interrupted inside the block.

        If there is a single process, the signal interrupts at once. Several processes must stop at
        the same place: see `check_batch`.
        """
        self._interrupts = not self._distributed
        try:
            if self.signal is not None and self._interrupts:
                raise Interrupted
            yield
        finally:
            self._interrupts = False

    def handle(self, number: int, _: FrameType | None) -> None:
        """Raise the flag; if the same signal comes again, end the process."""
        name = signal.Signals(number).name
        again = self.again(number)
        if again is None or (self.signal is not None and not again):
            return
        if again:
            _print(f"second {name}: stopping without saving")
            for stream in (sys.stdout, sys.stderr):
                # RuntimeError: the handler interrupted a write to this very stream.
                with contextlib.suppress(RuntimeError, OSError):
                    stream.flush()
            os._exit(Stopped.code)
        if not (self._in_loop or self._interrupts or self._distributed):
            raise KeyboardInterrupt(name)
        self.signal = number
        ends = "saving, then stopping" if self._in_loop else "stopping"
        _print(f"{name}: {ends}; {name} once more stops at once")
        if self._distributed:
            os.kill(os.getpid(), signal.SIGTERM)
        if self._interrupts:
            raise Interrupted


def _print(text: str) -> None:
    """Write to standard error without its buffer, because the handler may interrupt a print.

    Ctrl-C ends `tee` first, and then nobody reads: that must not keep a run from saving.
    """
    with contextlib.suppress(OSError):
        os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, f"\n{text}\n".encode())
