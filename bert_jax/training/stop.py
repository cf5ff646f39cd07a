"""One run per workdir, and an orderly stop: the workdir check, the run lock, and the stop signals."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from bert_jax.errors import ConfigError
from bert_jax.system import signals
from bert_jax.system.folder_locks import check_place, check_writable, hold

__all__ = ["STOPPED", "StopFlag", "check_place", "check_writable", "run_lock"]

STOPPED = 75


@contextlib.contextmanager
def run_lock(workdir: Path) -> Iterator[None]:
    """Holds the workdir for this run (its process 0); the system frees it however the run ends."""
    with contextlib.ExitStack() as closing:
        refused: ConfigError | None = None
        if jax.process_index() == 0:
            try:
                closing.enter_context(hold(Path(workdir)))
            except ConfigError as error:
                refused = error
        if jax.process_count() > 1 and not multihost_utils.broadcast_one_to_all(
            np.int32(refused is None)
        ):
            # All are told, or the others would wait for process 0 and end in an error of the network's.
            raise refused or ConfigError(f"process 0 may not use {workdir}", "its message says why")
        if refused is not None:
            raise refused
        yield


@contextlib.contextmanager
def run_locks(workdirs: Sequence[Path]) -> Iterator[None]:
    """Hold the workdirs of runs that train together, once each is known to be writable."""
    for workdir in workdirs:
        check_writable(workdir)
    with contextlib.ExitStack() as closing:
        for workdir in workdirs:
            closing.enter_context(run_lock(workdir))
        yield


class StopFlag:
    """Turns stop signals into a flag that the loop asks for after each step; the same one again ends at once.

    Which of them count is said in `signals`.

    Before the loop first asks there is nothing to save, and preparing or compiling may take hours: a signal then
    interrupts, as Ctrl-C does.

    With several processes jax's preemption service must keep SIGTERM: it makes all of them stop at the same step. The
    others are passed on to it.
    """

    def __init__(self) -> None:
        self.signal: int | None = None
        self._requests = signals.Requests()
        self._asked = False
        self._several = jax.process_count() > 1
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> StopFlag:
        for number in signals.SIGNALS:
            if self._several and number == signal.SIGTERM:
                continue
            self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def should_stop(self, step: int) -> bool:
        """Whether to save now and stop; every process asks at every step, with the same numbers."""
        self._asked = True
        if self._several:
            return multihost_utils.reached_preemption_sync_point(step)
        return self.signal is not None

    def _handle(self, number: int, _: FrameType | None) -> None:
        name = signal.Signals(number).name
        again = self._requests.again(number)
        if again is None or (self.signal is not None and not again):
            return
        if again:
            _say(f"second {name}: stopping without saving")
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(
                    RuntimeError
                ):  # the handler interrupted a write to this very stream
                    stream.flush()
            os._exit(STOPPED)
        if not self._asked and not self._several:
            raise KeyboardInterrupt(name)
        self.signal = number
        _say(f"{name}: saving after this step, then stopping; {name} once more stops at once")
        if self._several:
            os.kill(os.getpid(), signal.SIGTERM)


def _say(text: str) -> None:
    """Writes past Python's buffers: a handler may interrupt a print, whose buffer must not be entered again."""
    os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, f"\n{text}\n".encode())
