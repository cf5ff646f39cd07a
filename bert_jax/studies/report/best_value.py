"""The best value of a share, such as the masking rate, over budgets and sizes: figure and words."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bert_jax.errors import ConfigError
from bert_jax.reporting.figures import Chart, Figure, Series
from bert_jax.reporting.formats import HOLE, SPACE
from bert_jax.reporting.metric_names import lower_is_better, pretty
from bert_jax.studies import scaling
from bert_jax.studies.report import budgets, intervals
from bert_jax.studies.report.blocks import Block, Bullets, Figures, Paragraph, Table, add_detail
from bert_jax.studies.report.collect import Axis
from bert_jax.studies.report.simultaneous import LEVEL
from bert_jax.studies.report.view import View
from bert_jax.studies.report.wording import format_large, format_p, join_names, name_file
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

    @property
    def spent(self) -> str:
        """The budget's kind in words."""
        return budgets.KINDS[self.kind]

    def describe(self) -> list[Block]:
        """Describe the best values: a table and the trend; at equal FLOPs the answer only."""
        if not self.read_between:
            trend = [Paragraph(text) for text in self.trend()]
            detail: list[Block] = [Figures(self.figures()), Bullets(self._check_ends())]
            return [self._cross(), *trend, add_detail("Best values in detail", detail)]
        answer = self.answer()
        said = f"At equal {self.spent}, {answer[:1].lower()}{answer[1:]}" if answer else ""
        between = f"At equal {self.spent}, losses are interpolated between the trained budgets."
        facts = [between, *self.trend(), *self._check_ends()]
        detail = [Figures(self.figures()), self._list(), Bullets(facts)]
        return [Paragraph(said), add_detail(f"Best values at equal {self.spent}", detail)]

    def figures(self) -> dict[str, Figure]:
        """Describe the best value with its interval over several budgets, a line for each size."""
        series = []
        for i, (name, line) in enumerate(self.lines.items()):
            known = [optimum for optimum in line if optimum.inside]
            points = [(math.log10(o.budget), o.value) for o in known]
            whiskers = [(math.log10(o.budget), o.low, o.high) for o in known]
            series.append(Series(name, points, 1 + i % 5, whiskers=whiskers))
        amounts = self._amounts()
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
            ticks=[(math.log10(amount), format_large(amount)) for amount in amounts],
            last=False,
            note=f"Vertices of parabolas over the logit, with 95{SPACE}% intervals of a parametric "
            "bootstrap. Where the vertex lies beyond the values that were tried, nothing is drawn.",
        )
        apart = f"best_{self.kind}" if self.read_between else "best"
        return {name_file(self.axis.name, self.metric, apart): chart}

    def _amounts(self) -> list[float]:
        return sorted({optimum.budget for line in self.lines.values() for optimum in line})

    def _cross(self) -> Table:
        """Tabulate the best values with their intervals: a row for each size, a column a budget."""
        amounts = self._amounts()
        columns = [format_large(amount) for amount in amounts]
        columns[-1] = f"{columns[-1]} {self.spent}"
        rows = []
        for name, line in self.lines.items():
            known = {optimum.budget: _format_best(optimum, self.axis) for optimum in line}
            rows.append([name or "all", *(known.get(amount, HOLE) for amount in amounts)])
        return Table([f"best {self.axis.words} after", *columns], rows)

    def _list(self) -> Table:
        """Tabulate the best values, a row for each: the budgets of one size are not another's."""
        rows = []
        for name, line in self.lines.items():
            for one in line:
                place = join_names(name, f"{format_large(one.budget)} {self.spent}")
                rows.append([place, _format_best(one, self.axis)])
        return Table(["after", f"best {self.axis.words}"], rows)

    def trend(self) -> list[str]:
        """Say how the best value changes with budget and size, and what limits the statement."""
        said = [
            _describe_trend(estimate, self.axis, what)
            for estimate, what in self._exponents(self.fitted)
        ]
        said += self._compare_seeds()
        if self.fitted.bent <= LEVEL:
            said.append(
                f"The loss is not a parabola over the logit{_write_p(self.fitted.bent)}. The best "
                "values therefore depend on which values were tried."
            )
        if self.fitted.misfit <= LEVEL:
            said.append(
                f"The trend is not a straight line in the logarithms{_write_p(self.fitted.misfit)}."
                " It describes only these budgets and sizes."
            )
        return said

    def _check_ends(self) -> list[str]:
        """Say what the best values are without the lowest or the highest value that was tried."""
        said = []
        for label, (refitted, lines) in self.without.items():
            last = ", ".join(
                f"{_format_best(line[-1], self.axis)}{f' for {name}' if name else ''} after "
                f"{format_large(line[-1].budget)}"
                for name, line in lines.items()
            )
            texts = [
                f"Without the runs at {label}, the best {self.axis.words} is {last} {self.spent}."
            ]
            if few := [name for name in self.lines if name not in lines]:
                texts.append(f"Too few values are left for {', '.join(few)}.")
            optima = [optimum for line in lines.values() for optimum in line]
            if beyond := sum(not optimum.inside for optimum in optima):
                texts.append(
                    f"{beyond} of {len(optima)} best values lie outside the values that are left."
                )
            texts += [
                f"Each doubling of the {what} multiplies the odds by {_format_factor(estimate)}."
                for estimate, what in self._exponents(refitted)
            ]
            said.append(" ".join(texts))
        return said

    def answer(self) -> str:
        """Say the best values after the largest and after the smallest budget."""
        lines = [line for line in self.lines.values() if line]
        if not lines:
            return ""
        said = []
        for place in (-1, 0):
            optima = [line[place] for line in lines]
            amounts = sorted({optimum.budget for optimum in optima})
            after = " to ".join(map(format_large, dict.fromkeys((amounts[0], amounts[-1]))))
            said.append(f"{self._range(optima)} after {after} {self.spent}")
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

    def _compare_seeds(self) -> list[str]:
        """Say the trend with its intervals over seeds, each seed fitted separately."""
        said = []
        for place, what in enumerate((self.spent, "parameters")):
            each = [(fitted.over_budget, fitted.over_size)[place].estimate for fitted in self.alone]
            known = [value for value in each if math.isfinite(value)]
            if len(known) > 1:
                mean = intervals.summarize_values(known)
                factor = _format_factor(Estimate(mean.mean, mean.low, mean.high))
                said.append(f"{factor} for the {what}")
        if not said:
            return []
        return [
            "These intervals assume a parabola and use the noise of the runs around it. If each "
            f"seed is fitted separately, the factors over seeds are {' and '.join(said)}."
        ]

    def _exponents(self, fitted: Fitted) -> list[tuple[Estimate, str]]:
        """Return the exponents that could be estimated, and of what."""
        both = (fitted.over_budget, self.spent), (fitted.over_size, "parameters")
        return [(estimate, what) for estimate, what in both if math.isfinite(estimate.estimate)]


def fit_best_values(view: View, comparison: Mapping[str, Any]) -> list[Best]:
    """Fit the best values of a comparison's axis: by the study's budget, and at equal FLOPs.

    It can where the axis has shares, and the first metric is a loss at known budgets and sizes; at
    equal FLOPs where there are several budgets of another kind.
    """
    axis, metrics = view.axis(comparison["axis"]), comparison["metrics"]
    if not (axis.numeric and all(0 < value < 1 for value in axis.values) and metrics):
        return []
    if len(axis.values) < VALUES or not lower_is_better(metrics[0]):
        return []
    known = _find_runs(view, axis, metrics[0])
    if known is None:
        return []
    runs, costs, names = known
    kind = str((view.study.get("budget") or {}).get("kind", "steps"))
    seeds = sorted({run.seed for run in runs})
    found = []
    for each in dict.fromkeys((kind, FLOPS)):
        fit = _Fit(runs, costs, names, each != kind)
        try:
            fitted = fit([True] * len(runs))
        except ConfigError:
            break
        without = {}
        for end in _find_ends(axis.values):
            with contextlib.suppress(ConfigError):  # too few are left
                label = axis.labels[axis.values.index(end)]
                without[label] = fit([run.value != end for run in runs], LEAST)
        alone = []
        for seed in seeds:
            with contextlib.suppress(ConfigError):
                alone.append(fit([run.seed == seed for run in runs])[0])
        found.append(Best(axis, metrics[0], each, each != kind, *fitted, without, alone))
    return found


def _find_runs(
    view: View, axis: Axis, metric: str
) -> tuple[list[Run], list[float], dict[float, str]] | None:
    """Return the runs of sizes and budgets with enough values, their FLOPs, and names of sizes.

    There are none if sizes are alike and something else is not.
    """
    runs: list[Run] = []
    costs: list[float] = []
    names: dict[float, str] = {}
    for result in view.results:
        loss, size = result.metrics.get(metric), result.parameters
        if loss is None or not size:
            continue
        labels = result.entry.labels.items()
        name = ", ".join(label for key, label in labels if key not in (axis.name, BUDGET))
        if names.setdefault(float(size), name) != name:
            return None
        value = float(result.entry.values[axis.name] or 0)
        budget = _find_budget(view, result.entry.values)
        runs.append(Run(float(size), budget, value, result.entry.seed, loss))
        costs.append(result.spent(FLOPS))
    whole = [i for i, run in enumerate(runs) if _count_values(runs, run) >= LEAST and costs[i] > 0]
    return [runs[i] for i in whole], [costs[i] for i in whole], names


def _find_ends(values: Sequence[Any]) -> list[Any]:
    """Return the lowest and the highest value, where enough are left without one."""
    return [] if len(values) <= VALUES else [min(values), max(values)]


@dataclasses.dataclass(frozen=True)
class _Fit:
    """Fits the best values of some of the runs."""

    runs: Sequence[Run]
    costs: Sequence[float]
    names: Mapping[float, str]  # by size
    read_between: bool

    def __call__(self, chosen: Sequence[bool], least: int = 0) -> tuple[Fitted, Lines]:
        """Fit the chosen runs, and sort the best values into lines by size and then by budget.

        Args:
          chosen: whether a run is one of them.
          least: values that its size and budget must have among them.
        """
        kept = [run for run, is_chosen in zip(self.runs, chosen, strict=True) if is_chosen]
        places = [
            i for i, run in enumerate(self.runs) if chosen[i] and _count_values(kept, run) >= least
        ]
        runs = [self.runs[i] for i in places]
        if self.read_between:
            fitted = scaling.fit_at_equal(runs, [self.costs[i] for i in places])
        else:
            fitted = scaling.fit(runs)
        lines: Lines = {}
        for optimum in fitted.optima:
            lines.setdefault(self.names[optimum.size], []).append(optimum)
        return fitted, lines


def _count_values(runs: Sequence[Run], run: Run) -> int:
    """Count the values that have been tried at the size and budget of a run."""
    place = run.size, run.budget
    return len({other.value for other in runs if (other.size, other.budget) == place})


def _find_budget(view: View, values: Mapping[str, Any]) -> float:
    """Return the budget of a cell, of the axis of budgets or of the whole study."""
    stated = values.get(BUDGET) or (view.study.get("budget") or {}).get("amount") or 1
    return float(stated[0] if isinstance(stated, (list, tuple)) else stated)


def _write_p(value: float) -> str:
    p = format_p(value)
    return f" (p{'' if p.startswith('<') else f'{SPACE}='}{SPACE}{p})"


def _format_best(optimum: Optimum, axis: Axis) -> str:
    """Write a best value with its interval, or on which side of the tried values it lies."""
    if math.isnan(optimum.value):
        return "nowhere between the values that were tried: the loss has no minimum"
    if optimum.inside:
        low, high = (f"{100 * end:.0f}" for end in (optimum.low, optimum.high))
        return f"{100 * optimum.value:.0f}{SPACE}% ({low} to {high})"
    above = optimum.value > max(axis.values)
    edge = max(axis.values) if above else min(axis.values)
    return f"{'above' if above else 'below'} the {100 * edge:g}{SPACE}% that was tried"


def _describe_trend(exponent: Estimate, axis: Axis, what: str) -> str:
    """Say by which factor the odds of the best value change, and whether significantly."""
    way = "does not change significantly"
    if exponent.low > 0 or exponent.high < 0:
        way = "rises" if exponent.low > 0 else "falls"
    return (
        f"The best {axis.words} {way} with the {what}. Each doubling of the {what} multiplies its "
        f"odds by {_format_factor(exponent)}."
    )


def _format_factor(exponent: Estimate) -> str:
    """Write the factor of the odds with each doubling."""
    factor, low, high = (2.0**value for value in exponent)
    return f"{factor:.2f} (95{SPACE}% interval {low:.2f} to {high:.2f})"
