"""Verdicts on published claims: what the runs of a study say of a difference stated beforehand.

A claim is replicated where the simultaneous 95 % interval of the difference lies on the claimed
side, not replicated where the interval excludes that side, and else the study is underpowered for
it. Simultaneous means that all intervals of a study hold together in 95 of 100 studies
(Bonferroni). A claim that nothing differs is replicated where the interval lies within the margin,
and not where it lies outside.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bert_jax.studies.report import intervals

LEVEL = 0.05  # of all intervals of a study together
POWER = 0.9  # that the seeds which would be needed give
MOST = 1_000  # seeds that are looked for
# Of the distribution that a power is a mean over, which is then right to 0.0001 (to 0.001 for two
# seeds and 200 claims).
SLICES = 500
REPLICATED, NOT_REPLICATED, UNDERPOWERED = "replicated", "not replicated", "underpowered"


class Verdict(NamedTuple):
    """What the pairs of runs say of a claim."""

    word: str
    mean: float  # of the differences, on the claimed side above 0
    low: float  # the simultaneous interval
    high: float
    seeds: int
    needed: int | None  # seeds for a verdict with power 0.9; None if known already, or beyond MOST


def judge(
    differences: Sequence[float],
    examples_error: float = 0.0,
    *,
    claims: int = 1,
    least: float = 0.0,
    within: float | None = None,
) -> Verdict:
    """Judge a claim by the differences of pairs of runs, one for each seed.

    Args:
      differences: on the claimed side above 0.
      examples_error: standard error of their mean over evaluation examples.
      claims: how many intervals the study has.
      least: the difference must be above this to count.
      within: the margin, of a claim that nothing differs.
    """
    gap = intervals.summary(differences)
    if gap.n < 2:
        return Verdict(UNDERPOWERED, gap.mean, -math.inf, math.inf, gap.n, None)
    spread = gap.deviation
    half = math.hypot(
        intervals.quantile(gap.n - 1, LEVEL / claims) * spread / math.sqrt(gap.n),
        intervals.quantile(math.inf, LEVEL / claims) * examples_error,
    )
    low, high, other = gap.mean - half, gap.mean + half, math.inf
    if within is None:
        inside, outside, room = low > least, high < least, abs(gap.mean - least)
    else:
        inside, outside = max(-low, high) < within, low > within or high < -within
        room = abs(within - abs(gap.mean))
        if abs(gap.mean) < within:  # an interval inside the margin is clear of both its ends
            other = within + abs(gap.mean)
    if inside or outside:
        word = REPLICATED if inside else NOT_REPLICATED
        return Verdict(word, gap.mean, low, high, gap.n, None)
    needed = seeds_needed(spread, room, other, examples_error, claims=claims)
    return Verdict(UNDERPOWERED, gap.mean, low, high, gap.n, needed)


def power(
    seeds: int,
    spread: float,
    difference: float,
    other: float = math.inf,
    examples_error: float = 0.0,
    *,
    claims: int = 1,
) -> float:
    """Return the probability that a true difference is found on its side.

    Args:
      seeds: pairs of runs.
      spread: standard deviation of the difference of one pair.
      difference: above the least one that counts.
      other: of a claim that nothing differs, how far the other end of the margin is.
      examples_error: standard error of the mean over evaluation examples, whatever the seeds.
      claims: how many intervals the study has.
    """
    from scipy import special  # scipy.stats has it too, but takes a second to load

    if seeds < 2 or not difference:
        return 0.0
    tested = intervals.quantile(math.inf, LEVEL / claims) * examples_error
    if not spread:
        return float(min(difference, other) > tested)
    error = spread / math.sqrt(seeds)
    # The probability that a normal variable is within its room less half of the interval, a mean
    # over the estimated deviations which that half is made of: scipy's nctdtr is NaN far from 0.
    quantile = intervals.quantile(seeds - 1, LEVEL / claims)
    half = np.hypot(quantile * error * _estimated(seeds - 1), tested)
    found = special.ndtr((difference - half) / error) + special.ndtr((other - half) / error) - 1
    return float(np.maximum(found, 0).mean())


@functools.cache
def _estimated(freedom: int) -> np.ndarray:
    """Return estimates of a standard deviation of 1, each as likely as the others."""
    from scipy import special

    shares = (np.arange(SLICES) + 0.5) / SLICES
    return np.sqrt(special.chdtri(freedom, shares) / freedom)


def seeds_needed(
    spread: float,
    difference: float,
    other: float = math.inf,
    examples_error: float = 0.0,
    *,
    claims: int = 1,
) -> int | None:
    """Return the fewest seeds that find a difference with power 0.9; None if beyond MOST."""

    def enough(seeds: int) -> bool:
        return power(seeds, spread, difference, other, examples_error, claims=claims) >= POWER

    if not difference or not enough(MOST):
        return None
    low, high = 1, MOST  # enough at `high`, not at `low`: power grows with the seeds
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
