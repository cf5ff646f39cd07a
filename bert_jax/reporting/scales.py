"""Scales of figures: from values to places in the picture, and round numbers between."""

from __future__ import annotations

import math
from collections.abc import Sequence

LARGEST = 1e300  # of the values of a scale; differences of larger ones overflow
DECADES = 2  # values so many powers of ten apart stand on a logarithmic scale
NARROW = 0.5  # of a power of ten; on such a logarithmic scale ticks have equal distances
CLOSE = 1e-9  # values whose relative distance is less count as one


def finite(value: float) -> bool:
    """Return whether a value has a place on a scale."""
    return abs(value) <= LARGEST  # which is false of NaN


def wide(values: Sequence[float]) -> bool:
    """Return whether values are so far apart that a logarithmic scale suits them."""
    known = [value for value in values if finite(value)]
    return bool(known) and min(known) > 0 and max(known) / 10**DECADES > min(known)


class Scale:
    """Linear or logarithmic map from values to the places between `start` and `stop`.

    Args:
      values: what the scale must hold; those that are not finite do not count.
      pad: room on either side, as a share of the whole.
    """

    def __init__(
        self,
        values: Sequence[float],
        start: float,
        stop: float,
        *,
        pad: float = 0.0,
        log: bool = False,
    ):
        self.log, self.start, self.stop = log, start, stop
        known = [float(value) for value in values if finite(value)] or [0.0, 1.0]
        low, high = self._linear(min(known)), self._linear(max(known))
        if high - low <= max(CLOSE * max(abs(low), abs(high)), 1 / LARGEST):  # a single value
            low, high = low - (abs(low) * 0.1 or 0.5), high + (abs(high) * 0.1 or 0.5)
        self.low, self.high = low - pad * (high - low), high + pad * (high - low)
        if not log and min(known) >= 0:
            self.low = max(self.low, 0.0)
        if log:
            limit = math.log10(LARGEST)
            self.low, self.high = max(self.low, -limit), min(self.high, limit)
        self.even = not log or self.high - self.low < NARROW

    def _linear(self, value: float) -> float:
        return math.log10(value) if self.log else value

    def at(self, value: float) -> float:
        """Return the place of a value; infinite values and those of no logarithm are at an end."""
        if self.log and value <= 0:
            return self.start
        if math.isinf(value):
            return self.stop if value > 0 else self.start
        share = (self._linear(value) - self.low) / (self.high - self.low)
        return self.start + share * (self.stop - self.start)

    def inside(self, value: float) -> float:
        """Return the place of a value, or the end of the scale that it lies beyond."""
        first, last = sorted((self.start, self.stop))
        return min(max(self.at(value), first), last)

    def ticks(self, count: int) -> list[float]:
        """Return about `count` round values inside the scale."""
        if not self.even:
            powers = range(math.floor(self.low), math.ceil(self.high) + 1)
            parts = (1, 2, 5) if self.high - self.low < DECADES else (1,)
            known = [part * 10.0**power for power in powers for part in parts]
            known = [v for v in known if self.low <= math.log10(v) <= self.high]
            return known[:: max(1, math.ceil(len(known) / count))]
        low, high = (10**end if self.log else end for end in (self.low, self.high))
        raw = (high - low) / count
        base = 10.0 ** math.floor(math.log10(raw))
        step = base * next(m for m in (1, 2, 2.5, 5, 10) if m * base >= raw * 0.999)
        first = math.ceil(low / step - 1e-9)
        return [i * step for i in range(first, math.floor(high / step + 1e-9) + 1)]
