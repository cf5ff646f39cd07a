"""Simultaneous intervals of differences from a baseline, for the values of one metric.

    compare_points(values)  # [points, seeds], the baseline first, NaN where a run is missing

Each value is a point's mean plus a seed's effect plus noise. All points share one estimate of the
noise (the pooled spread), so three seeds of six points give ten degrees of freedom and not two. The
quantile is that of the largest of correlated t values (Dunnett, 1955): all intervals of a family
hold together. With several families the level is divided among them (Bonferroni).

Unequal spreads have two remedies. A difference whose own pairs lie further apart than the pooled
spread says has its own spread. In a family whose spreads differ more than chance allows (tests of
Bartlett and Cochran), each difference has the t interval of its own pairs.

In simulations of 2 to 8 points and 2 to 8 seeds, all intervals of a family hold in 94 of 100
studies for equal spreads. If the largest spread is four times the smallest, 90 hold, with two seeds
and more than five points 88 to 90. A baseline that alone has four times the spread of all others is
hardly noticed with few seeds: with two or three of them and more than four points, 82 to 90 hold.
All intervals of many families hold together as often only if spreads are alike, as the tails of a
small sample show little of its spread: of 48 families of six points and three seeds in 98 of 100
studies for equal spreads, in 76 if spreads differ four times and the largest is the baseline's.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

LEVEL = 0.05  # of all intervals of a study together
SMALLEST = 1e-12  # level that is looked for
UNEVEN = 10_000  # draws of the distributions of both tests of equal spreads
ESTIMATES = 4_000  # draws of a spread, over which power is a mean
POWER = 0.9  # of the seeds that are called needed
MOST = 1_000  # seeds that are looked for


@dataclasses.dataclass(frozen=True)
class Gap:
    """A point minus the baseline, with its simultaneous interval."""

    pairs: int  # seeds that have both
    mean: float  # over these pairs
    half: float  # of the interval; infinite where there is none
    half_at: Callable[[float], float]  # half of the interval of one family at a level
    families: int
    own: bool  # whether the spread of its own pairs counts
    spread: float  # standard deviation of one value by which the interval is made

    @property
    def p(self) -> float:
        """The level of all intervals of the study at which this one just reaches zero."""
        from scipy import optimize

        if not math.isfinite(self.half):
            return math.nan
        if not self.half:
            return float(self.mean == 0)
        ends = math.log(SMALLEST), 0.0

        def above(log_level: float) -> float:
            return self.half_at(math.exp(log_level)) - abs(self.mean)

        if above(ends[0]) <= 0:
            return min(1.0, self.families * SMALLEST)
        if above(ends[1]) >= 0:
            return 1.0
        return float(min(1.0, self.families * math.exp(optimize.brentq(above, *ends))))


class Compared(NamedTuple):
    """Differences of a family, and the noise they are judged by."""

    gaps: tuple[Gap, ...]  # of all points but the baseline
    spread: float  # standard deviation of one value; NaN with too few runs
    freedom: int
    uneven: bool  # whether the spreads of the points differ more than chance allows


def compare_points(
    values: np.ndarray, families: int = 1, examples: Sequence[float] = ()
) -> Compared:
    """Compare each point with the baseline, which is the first row.

    Args:
      values: [points, seeds], NaN where a run is missing.
      families: of the study, among which the level is divided.
      examples: standard error of each difference over evaluation examples; 0 where it is unknown.
    """
    known = np.isfinite(values)
    maker, freedom, correlation = _fit(known.tobytes(), known.shape)
    residuals = maker @ values[known]
    spread = math.sqrt(residuals @ residuals / freedom) if freedom else math.nan
    uneven = bool(freedom) and _differ(known, residuals)
    gaps = []
    for row in range(1, len(values)):
        both = known[0] & known[row]
        pairs = values[row, both] - values[0, both]
        error = examples[row - 1] if len(examples) else 0.0
        noise = _Noise(len(values) - 1, freedom, correlation, spread, uneven, error)
        gaps.append(noise.gap(pairs, families))
    return Compared(tuple(gaps), spread, freedom, uneven)


def find_quantile(
    points: int, freedom: float, level: float = LEVEL, correlation: float = 0.5
) -> float:
    """Return the quantile of the largest absolute value of correlated t values.

    Args:
      points: number of t values, one for each point besides the baseline.
      freedom: degrees of freedom of their common spread; infinite for a known one.
      level: probability that the largest is above the quantile.
      correlation: of each two; 0.5 where all share a baseline and have equally many runs.
    """
    from scipy import special

    if points == 1:
        return float(special.stdtrit(freedom, 1 - level / 2))
    return float(np.exp(_inverse_tail(points, freedom, correlation)(math.log(level))))


@functools.cache
def _inverse_tail(points: int, freedom: float, correlation: float) -> Any:
    """Return the function from a log level to the log quantile.

    Given the spread s and the baseline's noise z, the t values are independent. Their tail is
    integrated over both at a grid of quantiles, and the grid is interpolated.
    """
    from scipy import interpolate, special

    quantiles = np.geomspace(0.02, 1e5, 300)
    nodes, weights = np.polynomial.hermite_e.hermegauss(48)
    weights = weights / weights.sum()
    spreads, shares = np.ones(1), np.ones(1)
    if math.isfinite(freedom):
        logs = np.linspace(math.log(1e-7), math.log(1 + 9 / math.sqrt(freedom)), 500)
        spreads = np.exp(logs)
        # The density of log s, for freedom * s^2 with a chi-square distribution.
        density = freedom * logs - freedom * spreads**2 / 2
        shares = np.exp(density - np.max(density))
        shares /= shares.sum()
    shift = math.sqrt(correlation) * nodes[:, None]  # [nodes, 1]
    tails = []
    for value in quantiles:
        edge = value * spreads
        scale = math.sqrt(1 - correlation)
        outside = special.ndtr((shift - edge) / scale) + special.ndtr((-shift - edge) / scale)
        any_outside = -np.expm1(points * np.log1p(-np.minimum(outside, 1 - 1e-16)))
        tails.append(float(weights @ any_outside @ shares))
    logs = np.log(np.maximum(tails, 1e-300))
    falling = np.flatnonzero(np.diff(logs, prepend=math.inf) < 0)
    falling = falling[logs[falling] > math.log(SMALLEST) - 5]
    order = falling[::-1]
    return interpolate.PchipInterpolator(logs[order], np.log(quantiles[order]))


# --- one family -----------------------------------------------------------------------------------


class _Noise(NamedTuple):
    """What the interval of a difference is made from."""

    points: int  # besides the baseline
    freedom: int
    correlation: float  # of two differences
    spread: float  # of one value, pooled
    uneven: bool
    examples_error: float

    def gap(self, pairs: np.ndarray, families: int) -> Gap:
        """Return the difference that pairs of runs show."""
        count = len(pairs)
        mean = float(pairs.mean()) if count else math.nan
        if not self.freedom or not count or (self.uneven and count < 2):
            return Gap(count, mean, math.inf, lambda _: math.inf, families, False, self.spread)
        pooled = math.sqrt(2 / count) * self.spread
        alone = float(pairs.std(ddof=1)) / math.sqrt(count) if count > 1 else 0.0

        def half_at(level: float) -> float:
            if self.uneven:
                # The pairs of this difference alone; the level is divided among the points.
                seeds = find_quantile(1, count - 1, level / self.points) * alone
            else:
                common = find_quantile(self.points, self.freedom, level, self.correlation)
                seeds = common * max(pooled, alone)
            examples = 0.0
            if self.examples_error:
                examples = find_quantile(self.points, math.inf, level, 0.0) * self.examples_error
            return math.hypot(seeds, examples)

        own = self.uneven or alone > pooled * (1 + 1e-9)
        spread = alone * math.sqrt(count / 2) if own else self.spread
        return Gap(count, mean, half_at(LEVEL / families), half_at, families, own, spread)


@functools.lru_cache(maxsize=64)
def _fit(known: bytes, shape: tuple[int, int]) -> tuple[np.ndarray, int, float]:
    """Return (matrix from known values to residuals, degrees of freedom, correlation)."""
    cells = np.frombuffer(known, bool).reshape(shape)
    maker = _residual_maker(cells)
    return maker, round(np.trace(maker)), _correlation(cells)


def _residual_maker(known: np.ndarray) -> np.ndarray:
    """Return the matrix that takes the known values to their residuals: [runs, runs]."""
    rows, columns = np.nonzero(known)
    points = rows[:, None] == np.arange(known.shape[0])
    seeds = columns[:, None] == np.arange(known.shape[1])
    design = np.concatenate([points, seeds], axis=1).astype(float)
    return np.eye(len(rows)) - design @ np.linalg.pinv(design)


def _correlation(known: np.ndarray) -> float:
    """Return the smallest correlation of two differences: a half unless runs are missing.

    With a smaller correlation than the true one intervals are too wide, not too narrow.
    """
    both = (known[1:] & known[0]).astype(float)  # [points - 1, seeds]
    both = both[both.any(axis=1)]
    shared = both @ both.T
    sizes = np.diag(shared)
    correlations = shared / np.sqrt(np.outer(sizes, sizes)) / 2
    return round(float(correlations.min(initial=0.5)), 6)


def _differ(known: np.ndarray, residuals: np.ndarray) -> bool:
    """Return whether the spreads of the points differ more than chance allows.

    Bartlett's test looks at all spreads, Cochran's at the largest alone, as of a point whose runs
    fail now and then. Each has half of the level.
    """
    weights, critical = _critical_unevenness(known.tobytes(), known.shape)
    return bool((_unevenness(residuals[None] ** 2, weights)[:, 0] > critical).any())


@functools.cache
def _critical_unevenness(known: bytes, shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Return the weights [points, runs] of the residuals' squares, and the critical values [2]."""
    cells = np.frombuffer(known, bool).reshape(shape)
    maker = _residual_maker(cells)
    rows = np.nonzero(cells)[0]
    of_point = (np.arange(shape[0])[:, None] == rows).astype(float)
    expected = of_point @ np.diag(maker)
    weights = of_point[expected > 1e-9] / expected[expected > 1e-9, None]
    noise = np.random.default_rng(0).standard_normal((UNEVEN, len(rows))) @ maker
    drawn = _unevenness(noise**2, weights)
    # Between two points the squares are equal; rounding must not tell them apart.
    return weights, np.quantile(drawn, 1 - LEVEL / 2, axis=1) + 1e-9


def _unevenness(squares: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the statistics of Bartlett and of Cochran for each draw: [2, draws]."""
    variances = squares @ weights.T  # [draws, points]
    mean = np.maximum(variances.mean(axis=1, keepdims=True), 1e-300)
    relative = np.maximum(variances / mean, 1e-12)
    return np.stack([-np.log(relative).mean(axis=1), relative.max(axis=1)])


# --- power ----------------------------------------------------------------------------------------


class Wanted(NamedTuple):
    """A true difference that a study is to find."""

    room: float  # from the end that its interval must clear
    other: float = math.inf  # from the other end, of a claim that nothing differs
    examples_error: float = 0.0  # standard error over evaluation examples, whatever the seeds
    families: int = 1  # of the study


def find_power(seeds: int, points: int, spread: float, wanted: Wanted) -> float:
    """Return the probability that a true difference is found, for equal spreads.

    Args:
      seeds: of each point.
      points: of the family, the baseline among them.
      spread: standard deviation of one value.
      wanted: the difference.
    """
    from scipy import special

    if seeds < 2 or wanted.room <= 0:
        return 0.0
    level = LEVEL / wanted.families
    examples = find_quantile(points - 1, math.inf, level, 0.0) * wanted.examples_error
    error = spread * math.sqrt(2 / seeds)
    if not error:
        return float(min(wanted.room, wanted.other) > examples)
    common = find_quantile(points - 1, (points - 1) * (seeds - 1), level)
    half = np.hypot(common * error * _estimates(points, seeds), examples)
    above = special.ndtr((wanted.room - half) / error)
    below = special.ndtr((wanted.other - half) / error)
    return float(np.maximum(above + below - 1, 0).mean())


@functools.cache
def _estimates(points: int, seeds: int) -> np.ndarray:
    """Return draws of the larger of pooled and own spread, where the true one is 1."""
    rng = np.random.default_rng(0)
    own = rng.chisquare(seeds - 1, ESTIMATES)
    rest = np.zeros(ESTIMATES)
    if points > 2:
        rest = rng.chisquare((points - 2) * (seeds - 1), ESTIMATES)
    pooled = (own + rest) / ((points - 1) * (seeds - 1))
    return np.sqrt(np.maximum(pooled, own / (seeds - 1)))


def count_seeds(points: int, spread: float, wanted: Wanted) -> int | None:
    """Return the fewest seeds that find a difference with power 0.9; None if beyond MOST."""
    if wanted.room <= 0 or find_power(MOST, points, spread, wanted) < POWER:
        return None
    low, high = 1, MOST  # enough at `high`, not at `low`: power grows with the seeds
    while high - low > 1:
        middle = (low + high) // 2
        if find_power(middle, points, spread, wanted) >= POWER:
            high = middle
        else:
            low = middle
    return high
