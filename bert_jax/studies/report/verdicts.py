"""Verdicts on published claims: what the runs of a study say of a difference stated beforehand.

A claim is replicated if the simultaneous interval of its difference lies on the claimed side. It is
not replicated if the interval excludes that side. Otherwise the study is underpowered for it. A
claim that nothing differs is replicated if the interval lies within the margin, and not replicated
if it lies outside.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from bert_jax.studies.report import simultaneous
from bert_jax.studies.report.compare import Difference

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
    gain: Difference, families: int = 1, least: float = 0.0, within: float | None = None
) -> Verdict:
    """Judge a claim by a difference that has pairs.

    Args:
      gain: on the claimed side above 0.
      families: of the study.
      least: the difference must be above this to count.
      within: the margin, of a claim that nothing differs.
    """
    if not gain.tested:
        return Verdict(UNDERPOWERED, gain.mean, -math.inf, math.inf, gain.pairs, None)
    if within is None:
        inside = gain.low > least
        outside = gain.high < least
        room = abs(gain.mean - least)
        other = math.inf
    else:
        inside = max(-gain.low, gain.high) < within
        outside = gain.low > within or gain.high < -within
        room = abs(within - abs(gain.mean))
        # An interval inside the margin is clear of both its ends, one outside of one end.
        other = within + abs(gain.mean) if abs(gain.mean) < within else math.inf
    word, needed = UNDERPOWERED, None
    if inside:
        word = REPLICATED
    elif outside:
        word = NOT_REPLICATED
    else:
        wanted = simultaneous.Wanted(room, other, gain.examples_error, families)
        needed = simultaneous.seeds_needed(gain.points, gain.spread, wanted)
    return Verdict(word, gain.mean, gain.low, gain.high, gain.pairs, needed)
