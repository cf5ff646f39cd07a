"""What a stop signal asks for: the rule that a run and its supervisor share.

The first signal asks a run to save after the step and stop. Equal signals within a second are one: schedulers signal
every process of a job, and parents pass signals on. The same signal again, later, asks to stop at once. A signal of
another kind adds nothing to the request that stands and is ignored on purpose: schedulers give notice with SIGUSR1 or
SIGUSR2 and end the time with SIGTERM, while a checkpoint may still be being written.
"""

from __future__ import annotations

import signal
import time

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)
SAME = 1.0  # seconds within which equal signals are one


class Requests:
    """The signals that came so far."""

    def __init__(self) -> None:
        self.since: dict[int, float] = {}  # signal -> when it came first

    def again(self, number: int) -> bool | None:
        """Note a signal: whether it came a second time, later than a moment ago; None if it says nothing new."""
        now = time.monotonic()
        first = self.since.setdefault(number, now)
        if now == first:
            return False
        return True if now - first >= SAME else None
