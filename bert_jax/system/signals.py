"""The rules by which stop signals are read.

The first signal asks a run to save after the step and stop. Equal signals within a second count as
one, because schedulers signal every process of a job, and parents pass signals on. The same signal
again, later, asks to stop at once. A signal of another kind is ignored on purpose. Schedulers give
notice with SIGUSR1 or SIGUSR2, and end the time with SIGTERM while a checkpoint may still be
written.
"""

import signal
import time
from collections.abc import Iterable
from types import FrameType
from typing import Any, Self

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)
SAME = 1.0  # seconds within which equal signals count as one


class Handler:
    """Handles signals inside a `with` block, and remembers when each first came."""

    def __init__(self, numbers: Iterable[int]):
        self.since: dict[int, float] = {}
        self._numbers = list(numbers)
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Self:
        self._previous = {number: signal.signal(number, self.handle) for number in self._numbers}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def handle(self, number: int, _: FrameType | None) -> None:
        """Act on a signal; subclasses implement this."""
        raise NotImplementedError

    def again(self, number: int) -> bool | None:
        """Record a signal, and tell whether it repeats an earlier one.

        Returns:
          False for the first signal of its kind, None within SAME seconds of it, and True later.
        """
        now = time.monotonic()
        first = self.since.setdefault(number, now)
        if now == first:
            return False
        return True if now - first >= SAME else None
