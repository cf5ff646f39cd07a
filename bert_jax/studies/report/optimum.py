"""The best value of a share, such as the masking rate, over budgets and sizes: figure and words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from bert_jax.errors import ConfigError
from bert_jax.reporting.figures import Chart, Series
from bert_jax.reporting.formats import SPACE
from bert_jax.reporting.metric_names import lower_is_better, pretty
from bert_jax.studies import scaling
from bert_jax.studies.report import aggregate, budgets
from bert_jax.studies.report.aggregate import Figures, View, slug
from bert_jax.studies.report.collect import Axis
from bert_jax.studies.report.compare import LEVEL
from bert_jax.studies.scaling import Estimate, Fitted, Optimum, Run
from bert_jax.studies.spec import BUDGET

VALUES = 4  # of an axis at least: a parabola goes through any three
Lines = dict[str, list[Optimum]]  # by the labels of the axes other than the value and the budget


def find(view: View, comparison: Mapping[str, Any]) -> tuple[Fitted, Lines] | None:
    """Fit the best values of a comparison's axis; None where the study cannot say them.

    It can where the axis has shares, and the first metric is a loss at known budgets and sizes. The
    lines are those of a figure over budgets.
    """
    axis, metric = view.axis(comparison["axis"]), comparison["metrics"][:1]
    if not (axis.numeric and all(0 < value < 1 for value in axis.values) and metric):
        return None
    if len(axis.values) < VALUES or not lower_is_better(metric[0]):
        return None
    runs: list[Run] = []
    names: dict[float, str] = {}
    for result in view.results:
        loss, size = result.metrics.get(metric[0]), result.parameters
        if loss is None or not size:
            continue
        budget = _budget(view, result.entry.values)
        labels = result.entry.labels.items()
        name = ", ".join(label for key, label in labels if key not in (axis.name, BUDGET))
        if names.setdefault(float(size), name) != name:
            return None  # sizes are alike and something else is not
        value = float(result.entry.values[axis.name] or 0)
        runs.append(Run(float(size), budget, value, result.entry.seed, loss))
    try:
        fitted = scaling.fit(runs)
    except ConfigError:
        return None
    lines: Lines = {}
    for optimum in fitted.optima:
        lines.setdefault(names[optimum.size], []).append(optimum)
    return fitted, {
        name: sorted(line, key=lambda optimum: optimum.budget) for name, line in lines.items()
    }


def figures(view: View, comparison: Mapping[str, Any]) -> Figures:
    """Describe the best value with its interval over several budgets, a line for each size."""
    found = find(view, comparison)
    if found is None:
        return {}
    _, lines = found
    axis, (metric, *_) = view.axis(comparison["axis"]), comparison["metrics"]
    kind, series = _kind(view), []
    for i, (name, line) in enumerate(lines.items()):
        known = [optimum for optimum in line if optimum.inside]
        points = [(math.log10(o.budget), o.value) for o in known]
        whiskers = [(math.log10(o.budget), o.low, o.high) for o in known]
        series.append(Series(name, points, 1 + i % 5, whiskers=whiskers))
    amounts = sorted({optimum.budget for line in lines.values() for optimum in line})
    if len(amounts) < 2:
        return {}
    chart = Chart(
        f"Best {axis.words} by {pretty(metric)}",
        series,
        percent=True,
        log=False,
        x=f"{budgets.SPENT[kind]}, logarithmic",
        y=f"best {axis.words}",
        ticks=[(math.log10(amount), aggregate.short_amount(amount)) for amount in amounts],
        last=False,
        note=f"Vertices of parabolas over the logit, with 95{SPACE}% intervals of a parametric "
        "bootstrap. Where the vertex lies beyond the values that were tried, nothing is drawn.",
    )
    return {slug(axis.name, metric, "best"): chart}


def sentences(view: View, comparison: Mapping[str, Any]) -> list[str]:
    """Say the best values, their course, and what cannot be said; nothing without a fit."""
    found = find(view, comparison)
    if found is None:
        return []
    fitted, lines = found
    axis, kind, said = view.axis(comparison["axis"]), budgets.KINDS[_kind(view)], []
    for name, line in lines.items():
        values = "; ".join(
            f"{_value(o, axis)} after {aggregate.short_amount(o.budget)} {kind}" for o in line
        )
        said.append(f"{f'{name}: ' if name else ''}the best {axis.words} is {values}.")
    said += _courses(view, axis, fitted)
    checked = [o for o in fitted.optima if o.agrees is not None]
    if checked:
        agreed = sum(bool(o.agrees) for o in checked)
        said.append(
            f"Predicted by the course of the others, {agreed} of {len(checked)} best values lie "
            "where their own runs have them, within chance."
        )
    if fitted.bent <= LEVEL:
        said.append(
            f"The loss is no parabola over the logit{_p(fitted.bent)}: where its lowest point is "
            "said to be depends on the values that were tried."
        )
    if fitted.misfit <= LEVEL:
        said.append(
            f"The course is no straight line in the logarithms{_p(fitted.misfit)}: its exponents "
            "describe these budgets and sizes and no others."
        )
    return [f"{text[:1].upper()}{text[1:]}" for text in said]


def answer(view: View, comparison: Mapping[str, Any]) -> str:
    """Say how the best value moves with the budget and size; nothing where there is one budget."""
    found = find(view, comparison)
    if found is None or math.isnan(found[0].over_budget.estimate):
        return ""
    courses = _courses(view, view.axis(comparison["axis"]), found[0])
    return " ".join(f"{text[:1].upper()}{text[1:]}" for text in courses)


def _courses(view: View, axis: Axis, fitted: Fitted) -> list[str]:
    kinds = (fitted.over_budget, budgets.KINDS[_kind(view)]), (fitted.over_size, "parameters")
    return [
        _course(estimate, axis, f"doubling of the {what}")
        for estimate, what in kinds
        if math.isfinite(estimate.estimate)
    ]


def _p(value: float) -> str:
    p = aggregate.probability(value)
    return f" (p{'' if p.startswith('<') else f'{SPACE}='}{SPACE}{p})"


def _kind(view: View) -> str:
    return str((view.study.get("budget") or {}).get("kind", "steps"))


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


def _course(exponent: Estimate, axis: Axis, doubling: str) -> str:
    """Write by which factor the odds of the best value change, and whether that is shown."""
    factor, low, high = (2.0**value for value in exponent)
    text = f"{factor:.2f} (95{SPACE}% interval {low:.2f} to {high:.2f})"
    if low > 1 or high < 1:
        way = "rises" if low > 1 else "falls"
        return f"the best {axis.words} {way}: with each {doubling} its odds change by {text}."
    return (
        f"whether the best {axis.words} falls or rises with each {doubling} is open: its odds "
        f"change by {text}."
    )
