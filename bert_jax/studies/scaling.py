"""The best value of a knob between 0 and 1, such as the masking rate, by budget and model size.

    fitted = fit([ScaledRun(size=4e5, budget=3e6, value=0.3, seed=0, loss=5.1), …])
    fitted.optima[0].value, fitted.over_budget.estimate

For each size and budget, a parabola is fitted to the loss over the logit of the value. All seeds
share the parabola except for its intercept. Its vertex is the best value; a parabola without a
minimum has no best value. The trend of the best value is a line: the logit of the best value over
the logarithms of budget and size. So the odds of the best value are a product of powers of budget
and size.

Intervals (95 %) come from a parametric bootstrap. Noise with the residuals' pooled variance is
added to the fitted curves, which are then fitted again. Because that variance is itself an
estimate, the spread of the draws is multiplied by Student's quantile. Runs of one size, value and
seed at several budgets may share updates. The correlation of their noise is estimated from their
residuals, and reduces the degrees of freedom.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import special

from bert_jax.errors import ConfigError
from bert_jax.studies.report.simultaneous import find_quantile

DRAWS = 2_000
FAR = 8.0  # standard errors at which a drawn vertex is cut: a flat parabola's may lie anywhere
ONE_SIGMA = (15.865525, 84.134475)  # percentiles, one standard deviation from the median


class ScaledRun(NamedTuple):
    """A run: its size, budget, value of the knob and seed, and its loss."""

    size: float
    budget: float
    value: float
    seed: int
    loss: float


class Estimate(NamedTuple):
    """An estimate with its 95 % interval; NaN if there is no estimate."""

    estimate: float = math.nan
    low: float = math.nan
    high: float = math.nan


class Optimum(NamedTuple):
    """The best value at one size and budget, with its interval."""

    size: float
    budget: float
    value: float  # NaN where the curve has no minimum
    low: float
    high: float
    tried: tuple[float, float]  # the lowest and the highest value of its curve

    @property
    def inside(self) -> bool:
        """True if the best value lies between the values that were tried."""
        return self.tried[0] <= self.value <= self.tried[1]


class Fitted(NamedTuple):
    """The best value of the knob at each size and budget; its trends over budget and size."""

    optima: list[Optimum]
    over_budget: Estimate  # exponent of the odds of the best value over the budget
    over_size: Estimate


def fit(runs: Sequence[ScaledRun], draws: int = DRAWS, seed: int = 0) -> Fitted:
    """Fit the best value of the knob at each size and budget; its trends over budget and size."""
    curves = _fit_curves(runs)
    return _fit_trend(curves, *_draw_noise(runs, curves, draws, seed))


def fit_at_equal(
    runs: Sequence[ScaledRun], costs: Sequence[float], draws: int = DRAWS, seed: int = 0
) -> Fitted:
    """Fit the best values at equal costs, such as FLOPs, and their trend over that cost.

    Losses at a cost are interpolated between the budgets (`read_at_equal`). Their noise follows
    from the noise of the runs, which is estimated as in `fit`.

    Args:
      runs: runs at several budgets for each value.
      costs: the cost of each run.
      draws: the number of draws of the bootstrap.
      seed: the seed of its noise.
    """
    read, weights = read_at_equal(runs, costs)
    if not read:
        raise ConfigError("no cost that all values have in common", "several budgets of each")
    freedom, noise = _draw_noise(runs, _fit_curves(runs), draws, seed)
    return _fit_trend(_fit_curves(read), freedom, noise @ weights.T)


def read_at_equal(
    runs: Sequence[ScaledRun], costs: Sequence[float]
) -> tuple[list[ScaledRun], np.ndarray]:
    """Interpolate the losses of each size at costs that the runs of all its values cover.

    For each size there are as many such costs as budgets, spread evenly in the logarithm. Runs are
    left out if their value and seed lack a budget of the size. A size is left out if it has no
    common cost, or if the runs that it keeps determine no parabola.

    Returns:
      Interpolated runs, whose budget is the cost, and weights [interpolated, runs]. Each
      interpolated loss is the sum of the losses of `runs` with these weights.
    """
    read: list[ScaledRun] = []
    weights: list[np.ndarray] = []
    for rows in _group_rows(runs, "size"):
        budgets = {runs[i].budget for i in rows}
        paths: dict[tuple[float, int], list[int]] = defaultdict(list)
        for i in sorted(rows, key=lambda i: runs[i].budget):
            paths[runs[i].value, runs[i].seed].append(i)
        paths = {place: path for place, path in paths.items() if len(path) == len(budgets)}
        low = max((costs[path[0]] for path in paths.values()), default=1.0)
        high = min((costs[path[-1]] for path in paths.values()), default=0.0)
        if low >= high or not has_parabola([runs[path[0]] for path in paths.values()]):
            continue
        for cost in map(float, np.geomspace(low, high, len(budgets))):
            for (value, seed), path in paths.items():
                weight = np.zeros(len(runs))
                weight[path] = weigh_between([costs[i] for i in path], cost)
                loss = float(weight[path] @ [runs[i].loss for i in path])
                read.append(ScaledRun(runs[rows[0]].size, cost, value, seed, loss))
                weights.append(weight)
    return read, np.array(weights).reshape(len(read), len(runs))


def weigh_between(costs: Sequence[float], at: float) -> np.ndarray:
    """Return weights of losses at rising costs that interpolate the loss at the cost `at`.

    The interpolation is linear in the logarithm of the cost.
    """
    return np.array([np.interp(math.log(at), np.log(costs), unit) for unit in np.eye(len(costs))])


# --- the curves -----------------------------------------------------------------------------------


class _Curve(NamedTuple):
    """The parabola that is fitted to the runs of one size and budget."""

    size: float
    budget: float
    rows: np.ndarray  # indices of its runs
    solve: np.ndarray  # [2, n], takes losses to the slope and curvature
    slope: float
    curvature: float
    residuals: np.ndarray  # [n]
    freedom: int
    range: tuple[float, float]  # of the logits that were tried

    @property
    def vertex(self) -> float:
        """The logit of the best value; NaN if the curve has no minimum."""
        return -self.slope / (2 * self.curvature) if self.curvature > 0 else math.nan

    def move_vertex(self, noise: np.ndarray) -> np.ndarray:
        """Return the vertices [draws] of the curve with drawn noise [draws, n] added to its losses.

        If a drawn curve has no minimum, its vertex is infinite, with the sign of the side where the
        curve is lower.
        """
        slope, curvature = (noise @ self.solve.T + (self.slope, self.curvature)).T
        middle = sum(self.range) / 2
        downhill = np.where(slope + 2 * curvature * middle < 0, np.inf, -np.inf)
        with np.errstate(divide="ignore"):
            return np.where(curvature > 0, -slope / (2 * np.abs(curvature)), downhill)


def _group_rows(runs: Sequence[ScaledRun], *names: str) -> list[np.ndarray]:
    """Group the indices of runs that are equal in the fields `names`.

    The groups are sorted by these fields.
    """
    groups = defaultdict(list)
    for index, run in enumerate(runs):
        groups[tuple(getattr(run, name) for name in names)].append(index)
    return [np.array(rows) for _, rows in sorted(groups.items())]


def has_parabola(runs: Sequence[ScaledRun]) -> bool:
    """Tell whether the values of runs determine a parabola with an intercept for each seed.

    The runs are of one size and budget. Three values of one seed are enough.
    """
    x = special.logit([run.value for run in runs])
    powers = _center_seeds(runs) @ np.stack([x, x**2], axis=1)
    return bool(np.linalg.matrix_rank(powers) == 2)


def _center_seeds(runs: Sequence[ScaledRun]) -> np.ndarray:
    """Make the matrix [n, n] that subtracts from a number of each run the mean of its seed."""
    seeds = np.array([run.seed for run in runs])
    same = seeds[:, None] == seeds
    return np.eye(len(runs)) - same / same.sum(1, keepdims=True)


def _fit_curves(runs: Sequence[ScaledRun]) -> list[_Curve]:
    return [_fit_curve(runs, rows) for rows in _group_rows(runs, "size", "budget")]


def _fit_curve(runs: Sequence[ScaledRun], rows: np.ndarray) -> _Curve:
    """Fit a parabola to the runs `rows` by least squares, with an intercept for each seed."""
    own = [runs[i] for i in rows]
    tried = sorted({run.value for run in own})
    if not (tried[0] > 0 and tried[-1] < 1 and has_parabola(own)):
        wanted = "three values or more of a seed, all above 0 and below 1"
        raise ConfigError(f"a parabola through values {tried}", wanted)
    within = _center_seeds(own)
    x = special.logit([run.value for run in own])
    solve = np.linalg.pinv(within @ np.stack([x, x**2], axis=1)) @ within
    losses = np.array([run.loss for run in own])
    slope, curvature = solve @ losses
    residuals = within @ (losses - slope * x - curvature * x**2)
    return _Curve(
        size=own[0].size,
        budget=own[0].budget,
        rows=rows,
        solve=solve,
        slope=slope,
        curvature=curvature,
        residuals=residuals,
        freedom=len(own) - len({run.seed for run in own}) - 2,
        range=(x.min(), x.max()),
    )


# --- the noise ------------------------------------------------------------------------------------


def _draw_noise(
    runs: Sequence[ScaledRun], curves: Sequence[_Curve], draws: int, seed: int
) -> tuple[float, np.ndarray]:
    """Estimate the noise of runs from the residuals of all curves, and draw noise of this kind.

    Runs that differ only in budget share a part of their noise.

    Returns:
      The degrees of freedom of the noise's standard deviation, and noise [draws, runs].
    """
    freedom = sum(curve.freedom for curve in curves)
    if freedom < 1:
        raise ConfigError(
            f"{len(runs)} runs are no more than the curves through them have parameters",
            "four values of the knob or more, or several seeds",
        )
    residuals = np.zeros(len(runs))
    for curve in curves:
        residuals[curve.rows] = curve.residuals
    trunks = _group_rows(runs, "size", "value", "seed")
    products = squares = 0.0
    for rows in trunks:
        for a, b in itertools.combinations(residuals[rows], 2):
            products += a * b
            squares += (a * a + b * b) / 2
    correlation = min(max(products / squares, 0.0), 0.99) if squares else 0.0
    # The variance of a sum of squares grows with the squared correlation of each pair.
    paired = sum(len(rows) * (len(rows) - 1) for rows in trunks) * correlation**2
    worth = len(runs) / (len(runs) + paired)  # of a degree of freedom
    rng = np.random.default_rng(seed)
    noise = math.sqrt(1 - correlation) * rng.standard_normal((draws, len(runs)))
    for rows in trunks:
        noise[:, rows] += math.sqrt(correlation) * rng.standard_normal((draws, 1))
    return worth * freedom, math.sqrt(residuals @ residuals / freedom) * noise


# --- the trend ------------------------------------------------------------------------------------


def _fit_trend(curves: Sequence[_Curve], freedom: float, drawn: np.ndarray) -> Fitted:
    """Compute the vertices of curves and their trend, with intervals.

    The intervals come from `drawn`, draws of the noise of all runs [draws, n].
    """
    vertices = np.array([curve.vertex for curve in curves])
    moved = np.stack([curve.move_vertex(drawn[:, curve.rows]) for curve in curves])  # [G, draws]
    errors = np.array([_measure_spread(row) for row in moved])
    quantile = find_quantile(1, freedom)
    optima = []
    for curve, vertex, error in zip(curves, vertices, errors, strict=True):
        low, high = (special.expit(vertex + sign * quantile * error) for sign in (-1, 1))
        value, first, last = special.expit((vertex, *curve.range))
        optima.append(Optimum(curve.size, curve.budget, value, low, high, (first, last)))
    known = np.isfinite(vertices) & np.isfinite(errors) & (errors > 0)
    ends = np.nan_to_num(vertices + FAR * np.outer((-1, 1), errors))[..., None]  # [2, G, 1]
    moved = np.clip(moved, *ends)
    # A line over the logarithms of budget and size, by weighted least squares; a logarithm that
    # does not vary has no column.
    columns = [np.ones(int(known.sum()))]
    places = {}
    for name in ("budget", "size"):
        logs = np.log([getattr(curve, name) for curve in curves])[known]
        if len(set(logs)) > 1:
            places[name] = len(columns)
            columns.append(logs)
    design = np.stack(columns, axis=1)
    found = dict.fromkeys(("budget", "size"), Estimate())
    if np.linalg.matrix_rank(design) == design.shape[1]:
        weights = 1 / errors[known]
        solve = np.linalg.pinv(design * weights[:, None]) * weights
        estimates = solve @ vertices[known]
        of_draws = solve @ moved[known]
        for name, i in places.items():
            half = quantile * _measure_spread(of_draws[i])
            found[name] = Estimate(estimates[i], estimates[i] - half, estimates[i] + half)
    return Fitted(optima, found["budget"], found["size"])


def _measure_spread(drawn: np.ndarray) -> float:
    """Measure the standard deviation of draws by percentiles, which outliers do not change."""
    low, high = np.percentile(drawn, ONE_SIGMA, method="nearest")
    return float(high - low) / 2 if np.isfinite(low) and np.isfinite(high) else math.inf
