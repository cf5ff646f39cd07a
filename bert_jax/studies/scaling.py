"""The best value of a knob between 0 and 1, such as the masking rate, over budgets and model sizes.

    fitted = fit([Run(size=4e5, budget=3e6, value=0.3, seed=0, loss=5.1), …])
    fitted.optima[0].value, fitted.over_budget.estimate

For each size and budget the loss is a parabola in the logit of the value, one curve for all seeds
and an intercept for each; its vertex is the best value. The trend of the best value is a line: its
logit over the logarithms of budget and size, so that the odds of the best value are a power of
both. Where the curve has no minimum there is no best value.

Intervals (95 %) come from a parametric bootstrap: noise of the residuals' pooled variance is drawn
onto the fitted curves, which are fitted again. As that variance is itself an estimate, the spread
of the draws is multiplied by Student's quantile. Runs of one size, value and seed at several
budgets may share a trunk: their noise is as correlated as the residuals, and has less freedom.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from bert_jax.errors import ConfigError
from bert_jax.studies.report import simultaneous

DRAWS = 2_000
FAR = 8.0  # standard errors at which a drawn vertex is cut: a flat parabola's may lie anywhere
ONE_SIGMA = (15.865525, 84.134475)  # percentiles, one standard deviation from the median


class Run(NamedTuple):
    """A run's place in the study, and its loss."""

    size: float
    budget: float
    value: float
    seed: int
    loss: float


class Estimate(NamedTuple):
    """An estimate with its 95 % interval; NaN where there is none."""

    estimate: float = math.nan
    low: float = math.nan
    high: float = math.nan


@dataclasses.dataclass(frozen=True)
class Optimum:
    """The best value at one size and budget."""

    size: float
    budget: float
    value: float  # NaN where the curve has no minimum
    low: float
    high: float
    inside: bool  # whether it lies between the values that were tried


@dataclasses.dataclass(frozen=True)
class Fitted:
    """The best values of a study and their trend."""

    optima: tuple[Optimum, ...]
    over_budget: Estimate  # exponent of the odds of the best value over the budget
    over_size: Estimate
    deviation: float  # standard deviation of one loss about its curve
    correlation: float  # of the noise of a run at two budgets
    freedom: float  # degrees of freedom of that deviation, by the correlation
    misfit: float  # p of vertices as far from the trend as these; NaN where the trend fits all
    bent: float  # p of losses as far from parabolas as these; NaN without runs to judge it by


class _Curve(NamedTuple):
    """The parabola of one size and budget."""

    size: float
    budget: float
    rows: np.ndarray  # indices of its runs
    solve: np.ndarray  # [2, n], takes losses to the slope and curvature
    slope: float
    curvature: float
    residuals: np.ndarray  # [n]
    freedom: int
    pure: tuple[float, int]  # squares and freedom of the noise, whatever the curve's shape
    range: tuple[float, float]  # of the logits that were tried


def fit(runs: Sequence[Run], draws: int = DRAWS, seed: int = 0) -> Fitted:
    """Fit the best value at every size and budget, and its trend over both."""
    curves = _curves(runs)
    noise = _Noise.of(runs, curves)
    return _fitted(curves, noise, noise.draw(draws, seed), _bent(curves, noise.share))


def fit_at_equal(
    runs: Sequence[Run], costs: Sequence[float], draws: int = DRAWS, seed: int = 0
) -> Fitted:
    """Fit the best values where all values have cost the same, and their trend over that cost.

    Losses are read between budgets (`at_equal`). Their noise is that of the runs they are read
    from, as the fit by budget finds it; whether they are parabolas is not tested.

    Args:
      runs: at several budgets each.
      costs: of the runs, such as FLOPs.
      draws: of the bootstrap.
      seed: of its noise.
    """
    read, weights = at_equal(runs, costs)
    if not read:
        raise ConfigError("no cost that all values have in common", "several budgets of each")
    noise = _Noise.of(runs, _curves(runs))
    return _fitted(_curves(read), noise, noise.draw(draws, seed) @ weights.T, math.nan)


def _curves(runs: Sequence[Run]) -> list[_Curve]:
    return [_curve(runs, rows) for rows in _groups(runs, lambda run: (run.size, run.budget))]


def _fitted(curves: Sequence[_Curve], noise: _Noise, drawn: np.ndarray, bent: float) -> Fitted:
    """Find the vertices and their trend; `drawn` is the noise of the curves' runs [draws, n]."""
    vertices = np.array([_vertex(curve.slope, curve.curvature) for curve in curves])
    moved = np.stack([_drawn(curve, drawn[:, curve.rows]) for curve in curves])  # [G, draws]
    errors = np.array([_spread(row) for row in moved])
    quantile = simultaneous.find_quantile(1, noise.freedom)
    known = np.isfinite(vertices) & np.isfinite(errors) & (errors > 0)
    moved = np.clip(moved, *(np.nan_to_num(vertices + s * FAR * errors)[:, None] for s in (-1, 1)))
    trend = _Trend(curves, vertices, errors, moved, known)
    exponents, misfit = trend.exponents(quantile), trend.misfit(noise.freedom)
    optima = tuple(
        _optimum(curve, vertices[i], quantile * errors[i]) for i, curve in enumerate(curves)
    )
    return Fitted(
        optima, *exponents, noise.deviation, noise.correlation, noise.freedom, misfit, bent
    )


def at_equal(runs: Sequence[Run], costs: Sequence[float]) -> tuple[list[Run], np.ndarray]:
    """Read the losses of each size where all values have cost the same, between their budgets.

    There are as many such costs as budgets, spread evenly in the logarithm over what all values of
    the size reach. Runs that lack a budget of their size are left out, and sizes with no such cost.

    Returns:
      Runs whose budget is the cost, and weights [read, runs] that take the runs' losses to theirs.
    """
    read: list[Run] = []
    weights: list[np.ndarray] = []
    for rows in _groups(runs, lambda run: (run.size,)):
        budgets = {runs[i].budget for i in rows}
        paths: dict[tuple[float, int], list[int]] = defaultdict(list)
        for i in sorted(rows, key=lambda i: runs[i].budget):
            paths[runs[i].value, runs[i].seed].append(i)
        paths = {place: path for place, path in paths.items() if len(path) == len(budgets)}
        low = max((costs[path[0]] for path in paths.values()), default=1.0)
        high = min((costs[path[-1]] for path in paths.values()), default=0.0)
        if low >= high:
            continue
        for cost in map(float, np.geomspace(low, high, len(budgets))):
            for (value, seed), path in paths.items():
                weight = np.zeros(len(runs))
                weight[path] = between([costs[i] for i in path], cost)
                loss = float(weight[path] @ [runs[i].loss for i in path])
                read.append(Run(runs[rows[0]].size, cost, value, seed, loss))
                weights.append(weight)
    return read, np.array(weights).reshape(len(read), len(runs))


def between(costs: Sequence[float], at: float) -> np.ndarray:
    """Return the weights of losses at rising costs in the loss at `at`, linear in log cost."""
    return np.array([np.interp(math.log(at), np.log(costs), unit) for unit in np.eye(len(costs))])


def logit(value: float) -> float:
    """Return the logarithm of the odds of a value between 0 and 1."""
    return math.log(value / (1 - value))


def inverse(logit: float) -> float:
    """Return the value of a logit; 0 and 1 of the infinite ones."""
    return math.exp(min(logit, 0)) / (1 + math.exp(-abs(logit)))  # no exponent is above 0


# --- the curves ---------------------------------------------------------------------------------


def _groups(runs: Sequence[Run], key: Callable[[Run], tuple[float, ...]]) -> list[np.ndarray]:
    groups = defaultdict(list)
    for index, run in enumerate(runs):
        groups[key(run)].append(index)
    return [np.array(rows) for _, rows in sorted(groups.items())]


def _curve(runs: Sequence[Run], rows: np.ndarray) -> _Curve:
    """Fit a parabola with an intercept for each seed, to what differs within seeds."""
    own = [runs[i] for i in rows]
    wrong = [run.value for run in own if not 0 < run.value < 1]
    if wrong or len({run.value for run in own}) < 3:
        raise ConfigError(
            f"a parabola through values {sorted({run.value for run in own})}",
            "three values or more, all above 0 and below 1",
        )
    seeds = np.unique([run.seed for run in own], return_inverse=True)[1]
    same = seeds[:, None] == seeds
    within = np.eye(len(own)) - same / same.sum(1, keepdims=True)
    x = np.array([logit(run.value) for run in own])
    solve = np.linalg.pinv(within @ np.stack([x, x**2], axis=1)) @ within
    losses = np.array([run.loss for run in own])
    slope, curvature = solve @ losses
    residuals = within @ (losses - slope * x - curvature * x**2)
    intercepts = int(np.max(seeds)) + 1
    kinds = x[:, None] == np.unique(x)
    noise = within @ losses
    noise -= (each := within @ kinds) @ (np.linalg.pinv(each) @ noise)
    pure = float(noise @ noise), len(own) - intercepts - kinds.shape[1] + 1
    return _Curve(
        *(own[0].size, own[0].budget, rows, solve, slope, curvature, residuals),
        *(len(own) - intercepts - 2, pure, (x.min(), x.max())),
    )


def _bent(curves: Sequence[_Curve], share: float) -> float:
    """Return the p of an F test of the parabolas against a mean for every value.

    Each degree of freedom counts as `share` of one.
    """
    from scipy import special  # scipy.stats has it too, but takes a second to load

    squares = sum(float(curve.residuals @ curve.residuals) for curve in curves)
    noise, within = (sum(curve.pure[i] for curve in curves) for i in (0, 1))
    spare = sum(curve.freedom for curve in curves) - int(within)
    if spare < 1 or within < 1:
        return math.nan
    ratio = (squares - noise) / spare / (noise / within)
    return float(special.fdtrc(share * spare, share * within, ratio))


def _vertex(slope: float, curvature: float) -> float:
    return -slope / (2 * curvature) if curvature > 0 else math.nan


def _drawn(curve: _Curve, noise: np.ndarray) -> np.ndarray:
    """Return the vertices of the curve under each draw of noise [draws, n]: [draws].

    A drawn curve without a minimum has its vertex infinitely far, on the side where it is lower.
    """
    slope, curvature = (noise @ curve.solve.T + (curve.slope, curve.curvature)).T
    middle = sum(curve.range) / 2
    downhill = np.where(slope + 2 * curvature * middle < 0, np.inf, -np.inf)
    with np.errstate(divide="ignore"):
        return np.where(curvature > 0, -slope / (2 * np.abs(curvature)), downhill)


class _Noise(NamedTuple):
    """The noise of runs about their curves; those that differ in budget alone share some of it."""

    deviation: float
    correlation: float
    freedom: float  # of the deviation
    share: float  # of a degree of freedom that one is worth
    trunks: list[np.ndarray]  # indices of runs of one size, value and seed

    @classmethod
    def of(cls, runs: Sequence[Run], curves: Sequence[_Curve]) -> _Noise:
        """Estimate the noise from the residuals of the curves of all sizes and budgets."""
        freedom = sum(curve.freedom for curve in curves)
        if freedom < 1:
            raise ConfigError(
                f"{len(runs)} runs are no more than the curves through them have parameters",
                "four values of the knob or more, or several seeds",
            )
        residuals = np.zeros(len(runs))
        for curve in curves:
            residuals[curve.rows] = curve.residuals
        trunks = _groups(runs, lambda run: (run.size, run.value, run.seed))
        products = squares = 0.0
        for rows in trunks:
            for a, b in itertools.combinations(residuals[rows], 2):
                products, squares = products + a * b, squares + (a * a + b * b) / 2
        correlation = min(max(products / squares, 0.0), 0.99) if squares else 0.0
        # The variance of a sum of squares grows with the squared correlation of each pair.
        paired = sum(len(rows) * (len(rows) - 1) for rows in trunks) * correlation**2
        share, deviation = len(runs) / (len(runs) + paired), residuals @ residuals / freedom
        return cls(math.sqrt(deviation), correlation, share * freedom, share, trunks)

    def draw(self, draws: int, seed: int) -> np.ndarray:
        """Return draws of the noise [draws, runs]."""
        rng = np.random.default_rng(seed)
        runs = sum(map(len, self.trunks))
        noise = math.sqrt(1 - self.correlation) * rng.standard_normal((draws, runs))
        for rows in self.trunks:
            noise[:, rows] += math.sqrt(self.correlation) * rng.standard_normal((draws, 1))
        return self.deviation * noise


def _spread(drawn: np.ndarray) -> float:
    """Return the standard deviation of draws by their percentiles, which outliers do not move."""
    low, high = np.percentile(drawn, ONE_SIGMA, method="nearest")
    return float(high - low) / 2 if np.isfinite(low) and np.isfinite(high) else math.inf


def _optimum(curve: _Curve, vertex: float, half: float) -> Optimum:
    low, high = (inverse(vertex + sign * half) for sign in (-1, 1))
    inside = curve.range[0] <= vertex <= curve.range[1]
    return Optimum(curve.size, curve.budget, inverse(vertex), low, high, inside)


# --- the trend ----------------------------------------------------------------------------------


class _Trend(NamedTuple):
    """The vertices of the curves, to be fitted by a line over log budget and log size."""

    curves: Sequence[_Curve]
    vertices: np.ndarray  # logits [G]
    errors: np.ndarray  # [G]
    drawn: np.ndarray  # [G, draws]
    known: np.ndarray  # whether a curve has a vertex [G]

    def exponents(self, quantile: float) -> tuple[Estimate, Estimate]:
        """Return the exponents over budget and size, by weighted least squares."""
        design, places = self._design()
        if np.linalg.matrix_rank(design) < design.shape[1]:
            return Estimate(), Estimate()
        weights = 1 / self.errors[self.known]
        solve = np.linalg.pinv(design * weights[:, None]) * weights
        estimate, drawn = solve @ self.vertices[self.known], solve @ self.drawn[self.known]
        found = []
        for place in places:
            if place is None:
                found.append(Estimate())
                continue
            half = quantile * _spread(drawn[place])
            found.append(Estimate(estimate[place], estimate[place] - half, estimate[place] + half))
        return found[0], found[1]

    def misfit(self, freedom: float) -> float:
        """Return the p of an F test of the vertices' distances from the trend.

        The trend here is that of generalised least squares, because vertices whose runs share a
        trunk err together.
        """
        from scipy import special

        design, _ = self._design()
        spare = len(design) - design.shape[1]
        if np.linalg.matrix_rank(design) < design.shape[1] or spare < 1:
            return math.nan
        errors = self.errors[self.known]
        covariance = np.corrcoef(self.drawn[self.known]) * np.outer(errors, errors)
        weights = np.linalg.pinv(covariance, hermitian=True)
        solve = np.linalg.pinv(design.T @ weights @ design) @ design.T @ weights
        away = self.vertices[self.known]
        away = away - design @ (solve @ away)
        return float(special.fdtrc(spare, freedom, float(away @ weights @ away) / spare))

    def _design(self) -> tuple[np.ndarray, list[int | None]]:
        """Return the design [known, 1 to 3], and the columns of log budget and log size in it.

        A logarithm that does not vary has no column.
        """
        columns = [np.ones(len(self.curves))]
        places: list[int | None] = []
        for name in ("budget", "size"):
            logs = np.log([getattr(curve, name) for curve in self.curves])
            varies = len(set(logs[self.known])) > 1
            places.append(len(columns) if varies else None)
            columns += [logs] if varies else []
        return np.stack(columns, axis=1)[self.known], places
