"""The meaning of stop signals, which a run and its supervisor share.

The first signal asks a run to save after the step and stop. Equal signals within a second count as
one: schedulers signal every process of a job, and parents pass signals on. The same signal again,
later, asks to stop at once. A signal of another kind is ignored on purpose: schedulers give notice
with SIGUSR1 or SIGUSR2 and end the time with SIGTERM, while a checkpoint may still be written.
"""

from __future__ import annotations

import signal
import time

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)
SAME = 1.0  # seconds within which equal signals count as one


class Requests:
    """The signals received so far."""

    def __init__(self) -> None:
        self.since: dict[int, float] = {}  # signal -> when it came first

    def again(self, number: int) -> bool | None:
        """Record a signal: return False for the first of its kind, None within SAME, else True."""
        now = time.monotonic()
        first = self.since.setdefault(number, now)
        if now == first:
            return False
        return True if now - first >= SAME else None
