"""What several seeds say: means and differences with intervals, and verdicts on many of them; the best of n apart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np


class Summary(NamedTuple):
    """Of n runs. `best` is what a search over them reports: it grows with n, and says nothing of the next run."""

    n: int
    mean: float
    deviation: float  # standard deviation of one run, by n - 1
    low: float  # the t interval of the mean
    high: float
    best: float


class Difference(NamedTuple):
    """The mean of a less the mean of b, with Welch's interval, which does not ask for equal variances."""

    mean: float
    low: float
    high: float
    freedom: float  # degrees of it, by Welch and Satterthwaite


class Pairing(NamedTuple):
    """The mean of a less b over pairs, and what pairing them was worth."""

    n: int
    mean: float
    low: float  # the t interval over pairs
    high: float
    error: float  # standard error of the mean difference; NaN of one pair
    unpaired: float  # the same of two independent means, by Welch


def summary(
    values: Sequence[float], *, confidence: float = 0.95, higher_is_better: bool = True
) -> Summary:
    """Mean, spread and best; of a single value the spread is unknown, NaN, and the interval infinite."""
    sample = _sample(values)
    mean, error = float(sample.mean()), _squared_error(sample) ** 0.5
    half = half_width(error, len(sample) - 1, confidence)
    best = float(sample.max() if higher_is_better else sample.min())
    return Summary(len(sample), mean, error * len(sample) ** 0.5, mean - half, mean + half, best)


def welch(a: Sequence[float], b: Sequence[float], *, confidence: float = 0.95) -> Difference:
    """mean(a) - mean(b) and its interval; infinite where a side has one value."""
    first, second = _sample(a), _sample(b)
    parts = [_squared_error(first), _squared_error(second)]
    mean = float(first.mean() - second.mean())
    if not math.isfinite(sum(parts)):
        return Difference(mean, -math.inf, math.inf, 0.0)
    below = sum(
        part**2 / (len(sample) - 1) for part, sample in zip(parts, (first, second), strict=True)
    )
    freedom = sum(parts) ** 2 / below if below else math.inf
    half = half_width(sum(parts) ** 0.5, freedom, confidence)
    return Difference(mean, mean - half, mean + half, freedom)


def paired(a: Sequence[float], b: Sequence[float], *, confidence: float = 0.95) -> Pairing:
    """The mean of a[i] - b[i] and its interval; infinite of one pair."""
    first, second = _sample(a), _sample(b)
    if len(first) != len(second):
        raise ValueError(f"{len(first)} and {len(second)} values are no pairs")
    found = summary(first - second, confidence=confidence)
    error = found.deviation / math.sqrt(found.n)
    unpaired = math.sqrt(_squared_error(first) + _squared_error(second))
    return Pairing(found.n, found.mean, found.low, found.high, error, unpaired)


def _sample(values: Sequence[float]) -> np.ndarray:
    sample = np.asarray(values, np.float64)
    if sample.ndim != 1 or not sample.size or not np.isfinite(sample).all():
        raise ValueError(f"no finite numbers to sum up: {values!r}")
    return sample


def _squared_error(sample: np.ndarray) -> float:
    """Of the mean; NaN for a single value."""
    return float(sample.var(ddof=1) / len(sample)) if len(sample) > 1 else math.nan


def half_width(error: float, freedom: float, confidence: float = 0.95) -> float:
    """Half of a t interval around an estimate with this standard error; infinite where that is unknown, NaN."""
    from scipy import special  # scipy.stats has it too, and takes a second to load

    if math.isnan(error):
        return math.inf
    return float(error * special.stdtrit(freedom, 0.5 + confidence / 2))


# --- seeds and examples ---------------------------------------------------------------------------------------------

SMALLEST = 1e-300  # a p value below it is given as it


def with_examples(seeds_half: Any, examples_error: Any) -> Any:
    """Return half of a 95 % interval over seeds and examples, of numbers or of arrays.

    Each of the two parts of the error keeps a quantile of its own, Student's for the seeds and the normal one for the
    examples. One quantile for both, by the degrees of freedom of their sum (Satterthwaite), covers too little of two
    or three seeds: where these happen to lie close together, the sum is taken for the error of examples alone.
    """
    return np.hypot(seeds_half, half_width(1.0, math.inf) * examples_error)


def p_value(seeds: Pairing, examples_error: float = 0.0) -> float:
    """Return the level at which the interval over seeds and examples just reaches zero; NaN of a single pair."""
    from scipy import special

    if math.isnan(seeds.error):
        return math.nan
    if not seeds.error and not examples_error:
        return 1.0 if seeds.mean == 0 else 0.0
    low, high = math.log(SMALLEST), 0.0
    for _ in range(60):  # halvings: more than a float's digits need
        middle = (low + high) / 2
        tail = math.exp(middle) / 2
        parts = (
            seeds.error * special.stdtrit(seeds.n - 1, tail),
            examples_error * special.ndtri(tail),
        )
        low, high = (low, middle) if math.hypot(*parts) < abs(seeds.mean) else (middle, high)
    return math.exp(high)


def holm(values: Sequence[float]) -> list[float]:
    """Correct p values for being several (Holm, 1979); NaN stays NaN, and is not counted among them.

    Calling those that are at most 0.05 different, one or more is called so wrongly in at most 5 % of such families.
    """
    known = sorted((value, at) for at, value in enumerate(values) if not math.isnan(value))
    found, least = [math.nan] * len(values), 0.0
    for rank, (value, at) in enumerate(known):
        found[at] = least = max(least, min(1.0, (len(known) - rank) * value))
    return found
