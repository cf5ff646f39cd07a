"""Simultaneous intervals of differences from a baseline, for the values of one metric.

    compare_points(values)  # [points, seeds], the baseline first, NaN where a run is missing

Each value is the mean of its point plus the effect of its seed plus noise. All points share one
estimate of the noise's standard deviation (the pooled spread). So three seeds of six points give
ten degrees of freedom, not two. All intervals of a family hold together, because they are made with
the quantile of the largest of correlated t values (Dunnett, 1955). With several families the
significance level is divided among them (Bonferroni).

Unequal spreads have two remedies. If the pairs of a difference vary more than the pooled spread
says, the difference uses the spread of its own pairs. If the spreads of a family differ more than
chance allows (tests of Bartlett and Cochran), each difference has the t interval of its own pairs.

docs/statistics.md says how often the intervals hold in simulations. The tests repeat the first
two rows of its table.
"""

import bisect
import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import optimize, special

LEVEL = 0.05  # of all intervals of a study together
SMALLEST = 1e-300  # probability whose logarithm is taken
ROUNDING = 1e-9  # share of the largest value; a spread below it is rounding, and not uneven
UNEVEN = 10_000  # draws of the distributions of both tests of equal spreads
ESTIMATES = 4_000  # draws of a spread, over which power is a mean
POWER = 0.9  # of the seeds that are called needed
MOST = 1_000  # seeds that are looked for
LARGE = 100  # degrees of freedom, of a spread whose logarithm is nearly normal
NOISE = np.polynomial.hermite_e.hermegauss(48)  # points of standard normal noise, their weights


class Gap(NamedTuple):
    """A point's difference from the baseline, with half the width of its simultaneous interval."""

    pairs: int  # seeds that have both
    mean: float  # over these pairs; NaN without any
    half: float  # of the interval; infinite where there is none
    spread: float  # standard deviation of one value by which the interval is made


class Compared(NamedTuple):
    """The differences of a family's points from the baseline, and the spread between seeds.

    The spread and its degrees of freedom decide how wide the intervals are.
    """

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
      families: the number of families of the study, among which the significance level is divided.
      examples: the standard error of each difference over evaluation examples; 0 if it is unknown.
    """
    known = np.isfinite(values)
    layout = _make_layout(known.tobytes(), known.shape)
    residuals = layout.maker @ values[known]
    spread = math.sqrt(residuals @ residuals / layout.freedom) if layout.freedom else math.nan
    rounding = ROUNDING * np.abs(values[known]).max(initial=0.0)
    uneven = spread > rounding and layout.is_uneven(residuals)
    level = LEVEL / families
    points = int((known[1:] & known[0]).any(axis=1).sum())  # those that have a difference
    gaps = []
    for row in range(1, len(values)):
        both = known[0] & known[row]
        pairs = values[row, both] - values[0, both]
        count = len(pairs)
        if not count:
            gaps.append(Gap(0, math.nan, math.inf, math.nan))
            continue
        mean = float(pairs.mean())
        if not layout.freedom or (uneven and count < 2):
            gaps.append(Gap(count, mean, math.inf, spread))
            continue
        pooled = math.sqrt(2 / count) * spread
        alone = float(pairs.std(ddof=1)) / math.sqrt(count) if count > 1 else 0.0
        if uneven:
            # The pairs of this difference alone; the level is divided among the points.
            half = find_quantile(1, count - 1, level / points) * alone
        else:
            common = find_quantile(points, layout.freedom, level, layout.correlation)
            half = common * max(pooled, alone)
        if len(examples) and examples[row - 1]:
            half = math.hypot(half, find_quantile(points, math.inf, level, 0.0) * examples[row - 1])
        own = uneven or alone > pooled * (1 + 1e-9)
        gaps.append(Gap(count, mean, half, alone * math.sqrt(count / 2) if own else spread))
    return Compared(tuple(gaps), spread, layout.freedom, uneven)


# --- the quantile ---------------------------------------------------------------------------------


@functools.cache
def find_quantile(
    points: int, freedom: float, level: float = LEVEL, correlation: float = 0.5
) -> float:
    """Return the quantile of the largest absolute value of several correlated t values.

    scipy has this distribution for one-way layouts only, and computes it by random draws.

    Args:
      points: the number of t values, one for each point with a difference from the baseline.
      freedom: degrees of freedom of their common spread; infinite for a known spread.
      level: the probability that the largest is above the quantile.
      correlation: the correlation of each two t values. It is 0.5 if all differences share a
        baseline and have equally many runs.
    """
    if points == 1:
        return float(special.stdtrit(freedom, 1 - level / 2))

    def excess(log_quantile: float) -> float:
        tail = _integrate_tail(math.exp(log_quantile), points, freedom, correlation)
        return math.log(max(tail, SMALLEST)) - math.log(level)

    return math.exp(optimize.brentq(excess, math.log(0.02), math.log(1e5)))


def _integrate_tail(quantile: float, points: int, freedom: float, correlation: float) -> float:
    """Compute the probability that any of the t values lies beyond a quantile.

    Given the common spread and the noise of the baseline, the t values are independent.
    """
    noise, weights = NOISE
    spreads, shares = _divide_spread(freedom)
    shift = math.sqrt(correlation) * noise[:, None]  # [48, 1]
    edge = quantile * spreads
    scale = math.sqrt(1 - correlation)
    outside = special.ndtr((shift - edge) / scale) + special.ndtr((-shift - edge) / scale)
    any_outside = -np.expm1(points * np.log1p(-np.minimum(outside, 1 - 1e-16)))
    return float(weights / weights.sum() @ any_outside @ shares)


@functools.cache
def _divide_spread(freedom: float) -> tuple[np.ndarray, np.ndarray]:
    """Divide the distribution of an estimated spread, whose true value is 1, into a grid.

    The result is the estimates of the grid, and the probability of each.
    """
    if math.isinf(freedom):
        return np.ones(1), np.ones(1)
    low = math.log(1e-7)
    if freedom > LARGE:
        low = -12 / math.sqrt(2 * freedom)  # 12 standard deviations of the log
    logs = np.linspace(low, math.log(1 + 9 / math.sqrt(freedom)), 500)
    # The density of the log, for freedom * spread^2 with a chi-square distribution.
    density = freedom * logs - freedom * np.exp(2 * logs) / 2
    shares = np.exp(density - np.max(density))
    return np.exp(logs), shares / shares.sum()


# --- the two-way layout ---------------------------------------------------------------------------


class _Layout(NamedTuple):
    """Constants of the least-squares fit, which depend only on which runs of a family exist."""

    maker: np.ndarray  # [runs, runs], takes the known values to their residuals
    freedom: int  # of the pooled spread
    correlation: float  # the smallest of two differences: a half unless runs are missing
    weights: np.ndarray  # [points, runs], take squared residuals to the variance of each point
    critical: np.ndarray  # [2], of both statistics of uneven spreads

    def is_uneven(self, residuals: np.ndarray) -> bool:
        """Tell whether the spreads of the points differ more than chance allows, from residuals."""
        found = _measure_unevenness(residuals[None] ** 2, self.weights)
        return self.freedom > 0 and bool((found[:, 0] > self.critical).any())


@functools.lru_cache(maxsize=64)
def _make_layout(packed: bytes, shape: tuple[int, int]) -> _Layout:
    known = np.frombuffer(packed, bool).reshape(shape)  # [points, seeds]
    points, seeds = np.nonzero(known)
    of_point = (np.arange(shape[0])[:, None] == points).astype(float)  # [points, runs]
    of_seed = (np.arange(shape[1])[:, None] == seeds).astype(float)
    design = np.concatenate([of_point, of_seed]).T
    maker = np.eye(len(points)) - design @ np.linalg.pinv(design)
    # With a smaller correlation than the true one intervals are too wide, not too narrow.
    both = (known[1:] & known[0]).astype(float)
    both = both[both.any(axis=1)]
    shared = both @ both.T
    sizes = np.diag(shared)
    correlations = shared / np.sqrt(np.outer(sizes, sizes)) / 2
    correlation = round(float(correlations.min(initial=0.5)), 6)
    expected = of_point @ np.diag(maker)
    weights = of_point[expected > 1e-9] / expected[expected > 1e-9, None]
    critical = np.full(2, np.inf)
    if len(weights):
        noise = np.random.default_rng(0).standard_normal((UNEVEN, len(points))) @ maker
        drawn = _measure_unevenness(noise**2, weights)
        # Each test has half of the level. Between two points the squares are equal; rounding must
        # not tell them apart.
        critical = np.quantile(drawn, 1 - LEVEL / 2, axis=1) + 1e-9
    return _Layout(maker, round(np.trace(maker)), correlation, weights, critical)


def _measure_unevenness(squares: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Compute Bartlett's and Cochran's test statistics [2, draws] from squared residuals.

    Bartlett's test looks at all spreads. Cochran's looks only at the largest, which finds a point
    whose runs fail now and then.
    """
    if not len(weights):
        return np.zeros((2, len(squares)))
    variances = squares @ weights.T  # [draws, points]
    mean = np.maximum(variances.mean(axis=1, keepdims=True), 1e-300)
    relative = np.maximum(variances / mean, 1e-12)
    return np.stack([-np.log(relative).mean(axis=1), relative.max(axis=1)])


# --- power ----------------------------------------------------------------------------------------


class Wanted(NamedTuple):
    """A true difference that a study should be able to find."""

    room: float  # from the end that its interval must clear
    other: float = math.inf  # from the other end, of a claim that nothing differs
    examples_error: float = 0.0  # standard error over evaluation examples, whatever the seeds
    families: int = 1  # of the study


def find_power(seeds: int, points: int, spread: float, wanted: Wanted) -> float:
    """Return the probability that a study finds a true difference, if all spreads are equal.

    Args:
      seeds: the number of seeds of each point.
      points: the number of points of the family, including the baseline.
      spread: the standard deviation of one value.
      wanted: the difference to find.
    """
    if seeds < 2 or wanted.room <= 0:
        return 0.0
    level = LEVEL / wanted.families
    examples = find_quantile(points - 1, math.inf, level, 0.0) * wanted.examples_error
    error = spread * math.sqrt(2 / seeds)
    if not error:
        return float(min(wanted.room, wanted.other) > examples)
    common = find_quantile(points - 1, (points - 1) * (seeds - 1), level)
    half = np.hypot(common * error * _draw_spreads(points, seeds), examples)
    above = special.ndtr((wanted.room - half) / error)
    below = special.ndtr((wanted.other - half) / error)
    return float(np.maximum(above + below - 1, 0).mean())


@functools.cache
def _draw_spreads(points: int, seeds: int) -> np.ndarray:
    """Draw estimates of a spread whose true value is 1.

    Each is the larger of the pooled estimate and the estimate from a difference's own pairs.
    """
    rng = np.random.default_rng(0)
    own = rng.chisquare(seeds - 1, ESTIMATES)
    rest = np.zeros(ESTIMATES)
    if points > 2:
        rest = rng.chisquare((points - 2) * (seeds - 1), ESTIMATES)
    pooled = (own + rest) / ((points - 1) * (seeds - 1))
    return np.sqrt(np.maximum(pooled, own / (seeds - 1)))


def count_seeds(points: int, spread: float, wanted: Wanted) -> int | None:
    """Return the fewest seeds that find a difference with power 0.9; None if more than MOST."""
    seeds = 1 + bisect.bisect_left(
        range(1, MOST + 1), POWER, key=lambda seeds: find_power(seeds, points, spread, wanted)
    )
    return seeds if seeds <= MOST else None
