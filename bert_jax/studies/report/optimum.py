"""The best value of a share, such as the masking rate, over budgets and sizes: figure and words."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bert_jax.errors import ConfigError
from bert_jax.reporting.figures import Chart, Series
from bert_jax.reporting.formats import HOLE, SPACE
from bert_jax.reporting.metric_names import lower_is_better, pretty
from bert_jax.studies import scaling
from bert_jax.studies.report import aggregate, budgets, intervals
from bert_jax.studies.report.aggregate import Figures, View, slug
from bert_jax.studies.report.collect import Axis
from bert_jax.studies.report.simultaneous import LEVEL
from bert_jax.studies.scaling import Estimate, Fitted, Optimum, Run
from bert_jax.studies.spec import BUDGET

FLOPS = "flops"
TICKS = 4
LEAST = 3  # values at a size and budget that a parabola goes through
VALUES = 4  # of an axis at least: a parabola goes through any three
Lines = dict[str, list[Optimum]]  # by the labels of the axes other than the value and the budget


@dataclasses.dataclass(frozen=True)
class Best:
    """The best values of an axis by one metric, over budgets and sizes."""

    axis: Axis
    metric: str
    kind: str  # of the budget
    read_between: bool  # whether losses are read between the budgets that were trained
    fitted: Fitted
    lines: Lines  # those of a figure over budgets
    without: dict[str, tuple[Fitted, Lines]]  # fitted without the lowest or the highest value
    alone: list[Fitted]  # fitted to each seed alone

    def figures(self) -> Figures:
        """Describe the best value with its interval over several budgets, a line for each size."""
        series = []
        for i, (name, line) in enumerate(self.lines.items()):
            known = [optimum for optimum in line if optimum.inside]
            points = [(math.log10(o.budget), o.value) for o in known]
            whiskers = [(math.log10(o.budget), o.low, o.high) for o in known]
            series.append(Series(name, points, 1 + i % 5, whiskers=whiskers))
        amounts = sorted({optimum.budget for line in self.lines.values() for optimum in line})
        if len(amounts) < 2:
            return {}
        if self.read_between:  # those of one size are not those of another
            amounts = [float(a) for a in np.geomspace(amounts[0], amounts[-1], TICKS)]
        chart = Chart(
            f"Best {self.axis.words} by {pretty(self.metric)}",
            series,
            percent=True,
            log=False,
            x=f"{budgets.SPENT[self.kind]}, logarithmic",
            y=f"best {self.axis.words}",
            ticks=[(math.log10(amount), aggregate.short_amount(amount)) for amount in amounts],
            last=False,
            note=f"Vertices of parabolas over the logit, with 95{SPACE}% intervals of a parametric "
            "bootstrap. Where the vertex lies beyond the values that were tried, nothing is drawn.",
        )
        apart = f"best_{self.kind}" if self.read_between else "best"
        return {slug(self.axis.name, self.metric, apart): chart}

    def sentences(self) -> list[str]:
        """Say the best values, their trend, and how far the runs support them."""
        axis, kind, said = self.axis, budgets.KINDS[self.kind], []
        if self.read_between:
            said.append(f"At equal {kind}, losses are interpolated between the trained budgets.")
        for name, line in self.lines.items():
            values = "; ".join(
                f"{_value(o, axis)} after {aggregate.short_amount(o.budget)} {kind}" for o in line
            )
            said.append(f"{f'{name}: the' if name else 'The'} best {axis.words} is {values}.")
        return [*said, *self.trend(), *self._robustness()]

    def rows(self) -> list[list[str]]:
        """Tabulate the best values with their intervals: a row for each line, under a head."""
        amounts = sorted({optimum.budget for line in self.lines.values() for optimum in line})
        kind = budgets.KINDS[self.kind]
        head = [f"best {self.axis.words} after", *(aggregate.short_amount(a) for a in amounts)]
        rows = [[*head[:-1], f"{head[-1]} {kind}"]]
        for name, line in self.lines.items():
            known = {optimum.budget: _value(optimum, self.axis) for optimum in line}
            rows.append([name or "all", *(known.get(amount, HOLE) for amount in amounts)])
        return rows

    def trend(self) -> list[str]:
        """Say how the best value changes with budget and size, and what limits the statement."""
        fitted = self.fitted
        said = [
            _describe_trend(estimate, self.axis, what) for estimate, what in self._exponents(fitted)
        ]
        said += self._by_seeds()
        if fitted.bent <= LEVEL:
            said.append(
                f"The loss is not a parabola over the logit{_p(fitted.bent)}. The best values "
                "therefore depend on which values were tried."
            )
        if fitted.misfit <= LEVEL:
            said.append(
                f"The trend is not a straight line in the logarithms{_p(fitted.misfit)}. It "
                "describes only these budgets and sizes."
            )
        return said

    def _robustness(self) -> list[str]:
        """Say how the trend predicts each best value, and what is left without the end points."""
        axis, said = self.axis, []
        checked = [o for o in self.fitted.optima if o.agrees is not None]
        if checked:
            agreed = sum(bool(o.agrees) for o in checked)
            said.append(
                "Each best value was also predicted by the trend of all other best values. "
                f"{agreed} of {len(checked)} predictions agree, within chance, with the best value "
                "that the runs themselves give."
            )
        for label, (refitted, lines) in self.without.items():
            last = ", ".join(
                f"{_value(line[-1], axis)}{f' for {name}' if name else ''} after "
                f"{aggregate.short_amount(line[-1].budget)}"
                for name, line in lines.items()
            )
            texts = [
                f"Without the runs at {label}, the best {axis.words} is {last} "
                f"{budgets.KINDS[self.kind]}."
            ]
            if few := [name for name in self.lines if name not in lines]:
                texts.append(f"Too few values are left for {', '.join(few)}.")
            optima = [optimum for line in lines.values() for optimum in line]
            if beyond := sum(not optimum.inside for optimum in optima):
                texts.append(
                    f"{beyond} of {len(optima)} best values lie outside the values that are left."
                )
            texts += [
                f"Each doubling of the {what} multiplies the odds by {_factor(estimate)}."
                for estimate, what in self._exponents(refitted)
            ]
            said.append(" ".join(texts))
        return said

    def answer(self) -> str:
        """Say the best values after the largest and after the smallest budget."""
        lines = [line for line in self.lines.values() if line]
        if not lines:
            return ""
        kind = budgets.KINDS[self.kind]
        said = []
        for place in (-1, 0):
            optima = [line[place] for line in lines]
            amounts = sorted({optimum.budget for optimum in optima})
            after = " to ".join(
                map(aggregate.short_amount, dict.fromkeys((amounts[0], amounts[-1])))
            )
            said.append(f"{self._range(optima)} after {after} {kind}")
        return f"The best {self.axis.words} is {' and '.join(dict.fromkeys(said))}."

    def _range(self, optima: Sequence[Optimum]) -> str:
        """Write the range of the best values that lie among the values that were tried."""
        inside = [round(100 * optimum.value) for optimum in optima if optimum.inside]
        beyond = len(optima) - len(inside)
        if not inside:
            return "not among the values that were tried"
        ends = " to ".join(map(str, dict.fromkeys((min(inside), max(inside)))))
        outside = f" (for {beyond} of {len(optima)} outside what was tried)" if beyond else ""
        return f"{ends}{SPACE}%{outside}"

    def _by_seeds(self) -> list[str]:
        """Say the trend with its intervals over seeds, each seed fitted separately."""
        said = []
        for place, (_, what) in enumerate(self._places()):
            each = [(fitted.over_budget, fitted.over_size)[place].estimate for fitted in self.alone]
            known = [value for value in each if math.isfinite(value)]
            if len(known) > 1:
                mean = intervals.summary(known)
                factor = _factor(Estimate(mean.mean, mean.low, mean.high))
                said.append(f"{factor} for the {what}")
        if not said:
            return []
        return [
            "These intervals assume a parabola and use the noise of the runs around it. If each "
            f"seed is fitted separately, the factors over seeds are {' and '.join(said)}."
        ]

    def _exponents(self, fitted: Fitted) -> list[tuple[Estimate, str]]:
        """Return the exponents that could be estimated, and of what."""
        both = self._places(fitted)
        return [(estimate, what) for estimate, what in both if math.isfinite(estimate.estimate)]

    def _places(self, fitted: Fitted | None = None) -> tuple[tuple[Estimate, str], ...]:
        """Return both exponents, and of what."""
        fitted = fitted or self.fitted
        return (
            (fitted.over_budget, budgets.KINDS[self.kind]),
            (fitted.over_size, "parameters"),
        )


def find(view: View, comparison: Mapping[str, Any]) -> list[Best]:
    """Fit the best values of a comparison's axis: by the study's budget, and at equal FLOPs.

    It can where the axis has shares, and the first metric is a loss at known budgets and sizes; at
    equal FLOPs where there are several budgets of another kind.
    """
    axis, metrics = view.axis(comparison["axis"]), comparison["metrics"]
    if not (axis.numeric and all(0 < value < 1 for value in axis.values) and metrics):
        return []
    if len(axis.values) < VALUES or not lower_is_better(metrics[0]):
        return []
    runs: list[Run] = []
    costs: list[float] = []
    names: dict[float, str] = {}
    for result in view.results:
        loss, size = result.metrics.get(metrics[0]), result.parameters
        if loss is None or not size:
            continue
        budget = _budget(view, result.entry.values)
        labels = result.entry.labels.items()
        name = ", ".join(label for key, label in labels if key not in (axis.name, BUDGET))
        if names.setdefault(float(size), name) != name:
            return []  # sizes are alike and something else is not
        value = float(result.entry.values[axis.name] or 0)
        runs.append(Run(float(size), budget, value, result.entry.seed, loss))
        costs.append(result.spent(FLOPS))
    kind = str((view.study.get("budget") or {}).get("kind", "steps"))
    whole = [i for i, run in enumerate(runs) if _values(runs, run) >= LEAST and costs[i] > 0]
    runs, costs = [runs[i] for i in whole], [costs[i] for i in whole]
    ends = {axis.labels[i]: axis.values[i] for i in _ends(axis.values)}
    found = []
    for each in dict.fromkeys((kind, FLOPS)):
        try:
            fitted = _fit(runs, costs, names, each != kind)
        except ConfigError:
            break
        without = {}
        for label, end in ends.items():
            inner = [i for i, run in enumerate(runs) if run.value != end]
            few = [runs[i] for i in inner]
            inner = [i for i in inner if _values(few, runs[i]) >= LEAST]
            with contextlib.suppress(ConfigError):  # too few are left
                without[label] = _fit(
                    [runs[i] for i in inner], [costs[i] for i in inner], names, each != kind
                )
        alone = []
        for seed in sorted({run.seed for run in runs}):
            inner = [i for i, run in enumerate(runs) if run.seed == seed]
            with contextlib.suppress(ConfigError):
                own = [runs[i] for i in inner], [costs[i] for i in inner]
                alone.append(_fit(*own, names, each != kind)[0])
        found.append(Best(axis, metrics[0], each, each != kind, *fitted, without, alone))
    return found


def _ends(values: Sequence[Any]) -> list[int]:
    """Return the places of the lowest and the highest value, where enough are left without one."""
    if len(values) <= VALUES:
        return []
    return [values.index(min(values)), values.index(max(values))]


def _fit(
    runs: Sequence[Run], costs: Sequence[float], names: Mapping[float, str], read_between: bool
) -> tuple[Fitted, Lines]:
    """Fit the best values, and sort them into lines by size and, within it, by budget."""
    fitted = scaling.fit_at_equal(runs, costs) if read_between else scaling.fit(runs)
    lines: Lines = {}
    for optimum in fitted.optima:
        lines.setdefault(names[optimum.size], []).append(optimum)
    return fitted, lines


def _values(runs: Sequence[Run], run: Run) -> int:
    """Count the values that have been tried at the size and budget of a run."""
    place = run.size, run.budget
    return len({other.value for other in runs if (other.size, other.budget) == place})


def _p(value: float) -> str:
    p = aggregate.probability(value)
    return f" (p{'' if p.startswith('<') else f'{SPACE}='}{SPACE}{p})"


def _budget(view: View, values: Mapping[str, Any]) -> float:
    """Return the budget of a cell, of the axis of budgets or of the whole study."""
    stated = values.get(BUDGET) or (view.study.get("budget") or {}).get("amount") or 1
    return float(stated[0] if isinstance(stated, (list, tuple)) else stated)


def _value(optimum: Optimum, axis: Axis) -> str:
    """Write a best value with its interval, or on which side of the tried values it lies."""
    if math.isnan(optimum.value):
        return "nowhere between the values that were tried: the loss has no minimum"
    if optimum.inside:
        low, high = (f"{100 * end:.0f}" for end in (optimum.low, optimum.high))
        return f"{100 * optimum.value:.0f}{SPACE}% ({low} to {high})"
    above = optimum.value > max(axis.values)
    edge = (max if above else min)(axis.values)
    return f"{'above' if above else 'below'} the {100 * edge:g}{SPACE}% that was tried"


def _describe_trend(exponent: Estimate, axis: Axis, what: str) -> str:
    """Say by which factor the odds of the best value change, and whether significantly."""
    way = "does not change significantly"
    if exponent.low > 0 or exponent.high < 0:
        way = "rises" if exponent.low > 0 else "falls"
    return (
        f"The best {axis.words} {way} with the {what}. Each doubling of the {what} multiplies its "
        f"odds by {_factor(exponent)}."
    )


def _factor(exponent: Estimate) -> str:
    """Write the factor of the odds with each doubling."""
    factor, low, high = (2.0**value for value in exponent)
    return f"{factor:.2f} (95{SPACE}% interval {low:.2f} to {high:.2f})"
