"""The best value of an axis of shares, such as masking rates, for each budget and size."""

import contextlib
import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from bert_jax.config.table import generalize, list_knobs
from bert_jax.errors import ConfigError
from bert_jax.reporting import palette
from bert_jax.reporting.figures import Chart, Figure, Series
from bert_jax.reporting.formats import HOLE, SPACE
from bert_jax.reporting.metric_names import find_direction, find_title
from bert_jax.studies import scaling
from bert_jax.studies.report.blocks import Block, Bold, Figures, Paragraph, Section, Table, Text
from bert_jax.studies.report.intervals import summarize_values
from bert_jax.studies.report.view import View
from bert_jax.studies.report.wording import format_large, name_file
from bert_jax.studies.scaling import Estimate, Fitted, Optimum, ScaledRun
from bert_jax.studies.spec import BUDGET, Axis, Comparison

KINDS = {"steps": "steps", "tokens": "tokens", "predictions": "predictions", "flops": "FLOPs"}
TICKS = 4
VALUES = 4  # of an axis at least: a parabola goes through any three


@dataclasses.dataclass(frozen=True)
class Best:
    """The fitted best values of an axis by one metric, and how they are reported."""

    axis: Axis
    metric: str
    kind: str  # of the budget
    read_between: bool  # whether losses are read between the budgets that were trained
    names: Mapping[float, str]  # of the sizes
    fitted: Fitted
    without: Mapping[str, Fitted]  # fitted without the lowest or the highest value
    alone: Sequence[Fitted]  # fitted to each seed alone

    @property
    def spent(self) -> str:
        """The word for what the budget counts, such as "tokens"."""
        return KINDS[self.kind]

    def answer(self) -> str:
        """Write a sentence with the best values after the largest and the smallest budget."""
        lines = list(self._divide(self.fitted).values())
        said = []
        for place in (-1, 0):
            optima = [line[place] for line in lines]
            amounts = sorted({optimum.budget for optimum in optima})
            after = " to ".join(map(format_large, dict.fromkeys((amounts[0], amounts[-1]))))
            said.append(f"{_format_range(optima)} after {after} {self.spent}")
        return f"The best {self.axis.words} is {' and '.join(dict.fromkeys(said))}."

    def describe(self) -> list[Block]:
        """Return the blocks that report the best values and their trend.

        If losses are read between the trained budgets (`read_between`), the blocks are a sentence
        and a figure. Otherwise they are tables of best values and trend, and a section of details.
        """
        if self.read_between:
            answer = self.answer()
            said = Paragraph(f"At equal {self.spent}, {answer[:1].lower()}{answer[1:]}")
            title = f"Best values at equal {self.spent}"
            return [said, Section(title, [Figures(self.draw())], detail=True)]
        detail: list[Block] = [Figures(self.draw())]
        detail += [self._tabulate(f" without {end}", fit) for end, fit in self.without.items()]
        title = "Best values without the lowest and the highest value"
        trend = self._tabulate_trend()
        return [self._tabulate("", self.fitted), *trend, Section(title, detail, detail=True)]

    def draw(self) -> dict[str, Figure]:
        """Make a chart of the best value by budget, with intervals and a line for each size.

        The result is {} if there is only one budget.
        """
        amounts = sorted({optimum.budget for optimum in self.fitted.optima})
        if len(amounts) < 2:
            return {}
        if self.read_between:  # those of one size are not those of another
            amounts = [float(a) for a in np.geomspace(amounts[0], amounts[-1], TICKS)]
        series = []
        for i, (name, line) in enumerate(self._divide(self.fitted).items()):
            known = [optimum for optimum in line if optimum.inside]
            points = [(math.log10(o.budget), o.value) for o in known]
            whiskers = [(math.log10(o.budget), o.low, o.high) for o in known]
            series.append(Series(name, points, f"c{1 + i % palette.HUES}", whiskers=whiskers))
        chart = Chart(
            f"Best {self.axis.words} by {find_title(self.metric)}",
            series,
            percent=True,
            x=f"{self.spent}, logarithmic",
            y=f"best {self.axis.words}",
            ticks=[(math.log10(amount), format_large(amount)) for amount in amounts],
            note=f"Vertices of parabolas over the logit, with 95{SPACE}% intervals. Nothing is "
            "drawn where the vertex lies beyond the values that were tried.",
        )
        apart = f"best_{self.kind}" if self.read_between else "best"
        return {name_file(self.axis.name, self.metric, apart): chart}

    def _divide(self, fitted: Fitted) -> dict[str, list[Optimum]]:
        """Group the best values by model size, as {name of the size: best values}."""
        lines: dict[str, list[Optimum]] = {}
        for optimum in fitted.optima:
            lines.setdefault(self.names[optimum.size], []).append(optimum)
        return lines

    def _tabulate(self, title: str, fitted: Fitted) -> Table:
        """Make a table of best values with intervals: a row for a size, a column for a budget."""
        amounts = sorted({optimum.budget for optimum in fitted.optima})
        columns = [format_large(amount) for amount in amounts]
        columns[-1] += f" {self.spent}"
        rows = []
        for name, line in self._divide(fitted).items():
            known = {optimum.budget: _format_optimum(optimum) for optimum in line}
            rows.append([name or "all", *(known.get(amount, HOLE) for amount in amounts)])
        return Table([f"best {self.axis.words}{title} after", *columns], rows)

    def _tabulate_trend(self) -> list[Block]:
        """Make a table of the factors by which the odds of the best value change.

        There is a factor for each doubling of the budget, and of the number of parameters.
        """
        ways: tuple[tuple[str, Callable[[Fitted], Estimate]], ...] = (
            (self.spent, lambda fitted: fitted.over_budget),
            ("parameters", lambda fitted: fitted.over_size),
        )
        rows: list[list[Text]] = []
        for what, choose in ways:
            if not math.isfinite(choose(self.fitted).estimate):
                continue
            each = [choose(fitted).estimate for fitted in self.alone]
            known = [value for value in each if math.isfinite(value)]
            over_seeds = Estimate()
            if len(known) > 1:
                mean = summarize_values(known)
                over_seeds = Estimate(mean.mean, mean.low, mean.high)
            found = [choose(self.fitted), over_seeds, *map(choose, self.without.values())]
            rows.append([what, *map(_format_factor, found)])
        if not rows:
            return []
        odds = f"odds of the best {self.axis.words}, each doubling of"
        head = [odds, f"factor (95{SPACE}%)", "seed by seed"]
        return [Table([*head, *(f"without {end}" for end in self.without)], rows)]


def fit_best_values(view: View, comparison: Comparison) -> list[Best]:
    """Fit the best values of a comparison's axis: once by the study's budget, once at equal FLOPs.

    The list is empty if the axis is no knob whose values are shares, or has too few values. It is
    also empty if lower values of the first metric are not better, or if runs of one size differ in
    another axis. The fit at equal FLOPs needs several budgets of another kind.
    """
    axis, metrics = view.axis(comparison.axis), comparison.metrics
    if not _may_have_best(axis, metrics):
        return []
    try:
        costs, names = _find_runs(view, axis, metrics[0])
    except ConfigError:  # `explain_absence` reports it
        return []
    kind = view.study.budget.kind if view.study.budget else "steps"
    found = []
    for each in dict.fromkeys((kind, "flops")):
        try:
            fitted = _fit_runs(costs, each != kind)
        except ConfigError:
            break
        without = {}
        for end in (min(axis.values), max(axis.values)) if len(axis.values) > VALUES else ():
            with contextlib.suppress(ConfigError):  # too few are left
                kept = {run: cost for run, cost in costs.items() if run.value != end}
                without[axis.labels[axis.values.index(end)]] = _fit_runs(kept, each != kind)
        alone = []
        for seed in sorted({run.seed for run in costs}):
            with contextlib.suppress(ConfigError):
                own = {run: cost for run, cost in costs.items() if run.seed == seed}
                alone.append(_fit_runs(own, each != kind))
        found.append(Best(axis, metrics[0], each, each != kind, names, fitted, without, alone))
    return found


def explain_absence(view: View, comparison: Comparison) -> list[Block]:
    """Say that a comparison has no best values if runs of one size differ in another axis."""
    axis, metrics = view.axis(comparison.axis), comparison.metrics
    if _may_have_best(axis, metrics):
        try:
            _find_runs(view, axis, metrics[0])
        except ConfigError as error:
            return [Paragraph(f"No best {axis.words} is fitted: {error}.")]
    return []


def _may_have_best(axis: Axis, metrics: Sequence[str]) -> bool:
    """Tell whether an axis has enough shares as values, and a metric of which less is better.

    A learning rate is no share, although it is below 1.
    """
    knob = list_knobs().get(generalize(axis.name))
    shares = knob is not None and knob.is_share and axis.numeric
    inside = shares and all(0 < value < 1 for value in axis.values)
    return inside and len(axis.values) >= VALUES and find_direction(next(iter(metrics), "")) < 0


def _fit_runs(costs: Mapping[ScaledRun, float], read_between: bool) -> Fitted:
    """Fit best values to runs; leave out each size and budget whose runs determine no parabola.

    `costs` maps each run to its FLOPs. With `read_between`, the fit is at equal FLOPs.
    """
    together: dict[tuple[float, float], list[ScaledRun]] = {}
    for run in costs:
        together.setdefault((run.size, run.budget), []).append(run)
    fitted = {place for place, alike in together.items() if scaling.has_parabola(alike)}
    runs = [run for run in costs if (run.size, run.budget) in fitted]
    if read_between:
        return scaling.fit_at_equal(runs, [costs[run] for run in runs])
    return scaling.fit(runs)


def _find_runs(
    view: View, axis: Axis, metric: str
) -> tuple[dict[ScaledRun, float], dict[float, str]]:
    """Return {run: FLOPs} of the runs that have the loss `metric`, and {size: name of the size}.

    Runs of one size may differ only in `axis`, the budget and the seed.
    """
    costs: dict[ScaledRun, float] = {}
    names: dict[float, str] = {}
    for result in view.results:
        loss, size = result.metrics.get(metric), result.parameters
        if loss is None or not size or result.spent("flops") <= 0:
            continue
        labels = result.entry.labels.items()
        name = ", ".join(label for key, label in labels if key not in (axis.name, BUDGET))
        if names.setdefault(float(size), name) != name:
            alike = f"{names[size]} and {name} have equally many parameters"
            raise ConfigError(alike, "a study for each of them")
        values = result.entry.values
        budget: Any = result.state.steps
        if view.study.budget:
            budget = values.get(BUDGET, view.study.budget.amounts[0])
        value = float(values[axis.name] or 0)
        run = ScaledRun(float(size), float(budget), value, result.entry.seed, loss)
        costs[run] = result.spent("flops")
    return costs, names


# --- words --------------------------------------------------------------------------------------


def _format_range(optima: Sequence[Optimum]) -> str:
    """Format the range of those best values that lie among the values that were tried."""
    inside = [round(100 * optimum.value) for optimum in optima if optimum.inside]
    beyond = len(optima) - len(inside)
    if not inside:
        return "not among the values that were tried"
    ends = " to ".join(map(str, dict.fromkeys((min(inside), max(inside)))))
    outside = f" (for {beyond} of {len(optima)} outside what was tried)" if beyond else ""
    return f"{ends}{SPACE}%{outside}"


def _format_optimum(optimum: Optimum) -> str:
    """Format a best value with its interval, or that it lies beyond the values that were tried."""
    if math.isnan(optimum.value):
        return "nowhere between the values that were tried: the loss has no minimum"
    if optimum.inside:
        low, high = 100 * optimum.low, 100 * optimum.high
        return f"{100 * optimum.value:.0f}{SPACE}% ({low:.0f} to {high:.0f})"
    lowest, highest = (f"{100 * value:g}{SPACE}%" for value in optimum.tried)
    side = f"below the {lowest}" if optimum.value < optimum.tried[0] else f"above the {highest}"
    return f"{side} that was tried"


def _format_factor(exponent: Estimate) -> Text:
    """Format the factor by which a doubling changes the odds; bold if its interval excludes 1."""
    if not math.isfinite(exponent.estimate):
        return HOLE
    factor, low, high = (2.0**value for value in exponent)
    text = f"{factor:.2f}"
    shown = Bold(text) if exponent.low > 0 or exponent.high < 0 else text
    return shown, f" ({low:.2f} to {high:.2f})"
