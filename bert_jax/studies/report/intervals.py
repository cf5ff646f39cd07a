"""Statistics over seeds: means and differences with intervals, p values and their correction."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np


class Summary(NamedTuple):
    """Mean and spread of n runs."""

    n: int
    mean: float
    deviation: float  # standard deviation of one run, by n - 1
    low: float  # the t interval of the mean
    high: float


class Pairing(NamedTuple):
    """Mean of a minus b over pairs, with the standard errors with and without pairing."""

    n: int
    mean: float
    low: float  # the t interval over pairs
    high: float
    error: float  # standard error of the mean difference; NaN for one pair
    unpaired: float  # the same for two independent means, by Welch


def summary(values: Sequence[float]) -> Summary:
    """Compute mean and spread; a single value has spread NaN and an infinite interval."""
    sample = _sample(values)
    mean, error = float(sample.mean()), _squared_error(sample) ** 0.5
    half = half_width(error, len(sample) - 1)
    return Summary(len(sample), mean, error * len(sample) ** 0.5, mean - half, mean + half)


def paired(a: Sequence[float], b: Sequence[float]) -> Pairing:
    """Compute the mean of a[i] - b[i] and its interval, which is infinite for one pair."""
    first, second = _sample(a), _sample(b)
    if len(first) != len(second):
        raise ValueError(f"{len(first)} and {len(second)} values are no pairs")
    gap = summary(first - second)
    error = gap.deviation / math.sqrt(gap.n)
    unpaired = math.sqrt(_squared_error(first) + _squared_error(second))
    return Pairing(gap.n, gap.mean, gap.low, gap.high, error, unpaired)


def _sample(values: Sequence[float]) -> np.ndarray:
    sample = np.asarray(values, np.float64)
    if sample.ndim != 1 or not sample.size or not np.isfinite(sample).all():
        raise ValueError(f"no finite numbers to sum up: {values!r}")
    return sample


def _squared_error(sample: np.ndarray) -> float:
    """Return the squared standard error of the mean; NaN for a single value."""
    return float(sample.var(ddof=1) / len(sample)) if len(sample) > 1 else math.nan


def half_width(error: float, freedom: float) -> float:
    """Return half of a 95 % t interval for a standard error; infinite if the error is NaN."""
    return math.inf if math.isnan(error) else error * quantile(freedom)


def quantile(freedom: float, level: float = 0.05) -> float:
    """Return Student's quantile of a two-sided interval that misses with probability `level`."""
    from scipy import special  # scipy.stats has it too, but takes a second to load

    return float(special.stdtrit(freedom, 1 - level / 2))


# --- seeds and examples ------------------------------------------------------------------------

SMALLEST = 1e-300  # lower bound of p values


def with_examples(seeds_half: Any, examples_error: Any) -> Any:
    """Return half of a 95 % interval over seeds and examples, for numbers or arrays.

    Each part of the error keeps its own quantile, Student's for the seeds and the normal one for
    the examples. One quantile for both, by the degrees of freedom of their sum (Satterthwaite),
    covers too little for two or three seeds: if these happen to lie close together, the sum is
    treated as the error of examples alone.
    """
    return np.hypot(seeds_half, half_width(1.0, math.inf) * examples_error)


def p_value(seeds: Pairing, examples_error: float = 0.0) -> float:
    """Return the level at which the interval over seeds and examples just reaches zero.

    A single pair gives NaN.
    """
    from scipy import special

    if math.isnan(seeds.error):
        return math.nan
    if not seeds.error and not examples_error:
        return 1.0 if seeds.mean == 0 else 0.0
    low, high = math.log(SMALLEST), 0.0
    for _ in range(60):  # more halvings than the digits of a float need
        middle = (low + high) / 2
        tail = math.exp(middle) / 2
        parts = (
            seeds.error * special.stdtrit(seeds.n - 1, tail),
            examples_error * special.ndtri(tail),
        )
        low, high = (low, middle) if math.hypot(*parts) < abs(seeds.mean) else (middle, high)
    return math.exp(high)


def holm(values: Sequence[float]) -> list[float]:
    """Correct p values for multiple tests (Holm, 1979); NaN stays NaN and does not count.

    If corrected values up to 0.05 are called different, at most 5 % of families have one or more
    wrong calls.
    """
    known = sorted((value, at) for at, value in enumerate(values) if not math.isnan(value))
    corrected, least = [math.nan] * len(values), 0.0
    for rank, (value, at) in enumerate(known):
        corrected[at] = least = max(least, min(1.0, (len(known) - rank) * value))
    return corrected
