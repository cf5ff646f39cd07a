"""Runs compared at equal budgets of steps, tokens, predictions or FLOPs, by held-out loss.

The common budget is the smallest that any run was given. A run that was given more is read where it
had spent as much, between two of its evaluations, on a line over the logarithm of what was spent;
its learning rate had not decayed fully there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bert_jax.reporting.figures import Chart, Series
from bert_jax.reporting.formats import SPACE
from bert_jax.reporting.metric_names import axis_title, pretty
from bert_jax.studies import scaling
from bert_jax.studies.report import aggregate, intervals, sections
from bert_jax.studies.report.aggregate import View
from bert_jax.studies.report.collect import Axis, Family, Result

POINTS = 120  # of a drawn curve, at most
LISTED = 4  # amounts in a sentence, at most
KINDS = {"steps": "steps", "tokens": "tokens", "predictions": "predictions", "flops": "FLOPs"}
SPENT = {  # titles of the axis, with their units
    "steps": "step",
    "tokens": "tokens read",
    "predictions": "tokens predicted",
    "flops": "FLOPs of matmuls",
}
Levels = Sequence[tuple[str, float]]  # names and values of baselines
PREFERRED = ("validation/mlm_loss", "validation/loss")


@dataclass(frozen=True)
class Panel:
    """Figures and explanation of one kind of budget."""

    kind: str
    curves: list[Chart]  # one for each family
    readings: dict[str, Chart]  # by the part of the families that a figure has colours for
    text: str


def panels(view: View, axis: str) -> list[Panel]:
    """Build a panel for every kind of budget; none if nothing was evaluated during training."""
    name = metric(view.results)
    levels = sections.baseline_lines(view, name)
    parts = view.panels(axis)
    return [_panel(view.axis(axis), parts, name, kind, levels) for kind in KINDS] if name else []


def metric(results: Sequence[Result]) -> str:
    """Choose the loss to draw: that of the pre-training evaluation if there is one."""
    known = dict.fromkeys(name for result in results for name in result.history.evaluations)
    losses = (n for n in (*PREFERRED, *known) if n in known and n.endswith("loss"))
    return next(losses, "")


def described(budget: Mapping[str, Any]) -> str:
    """Return the budget that study.json records as text."""
    amounts = budget["amount"] if isinstance(budget["amount"], list) else [budget["amount"]]
    listed = " or ".join(aggregate.short_amount(amount) for amount in amounts)
    return f"{listed} {KINDS.get(budget['kind'], budget['kind'])} per cell"


def given(result: Result, kind: str) -> float:
    """Return the budget of a whole run."""
    return result.spent(kind, result.state.steps)


def common(family: Family, kind: str) -> float:
    """Return the smallest budget that any run of a family was given."""
    return min(given(result, kind) for runs in family.runs.values() for result in runs)


def curve(result: Result, name: str, kind: str) -> list[tuple[float, float]]:
    """Return a metric over the budget spent."""
    spent = result.clock(kind)
    return [(spent(step), value) for step, value in result.history.evaluations.get(name, [])]


def read(points: Sequence[tuple[float, float]], at: float) -> float | None:
    """Interpolate a curve, as `scaling` does; return None before its first point or after its last.

    Args:
      points: what was spent, above 0, and the loss there.
      at: what is to be spent.
    """
    if not points or not points[0][0] <= at * (1 + 1e-9) or not at <= points[-1][0] * (1 + 1e-9):
        return None
    return float(scaling.between([x for x, _ in points], at) @ [y for _, y in points])


def _panel(
    axis: Axis, parts: Mapping[str, Sequence[Family]], name: str, kind: str, levels: Levels
) -> Panel:
    families = [family for part in parts.values() for family in part]
    budgets = {family.name: common(family, kind) for family in families}
    by_cell = {
        result.entry.id: read(curve(result, name, kind), budgets[family.name])
        for family in families
        for runs in family.runs.values()
        for result in runs
    }

    def value(result: Result) -> float | None:
        return by_cell[result.entry.id]

    longer = [
        label
        for label in axis.labels
        if any(
            given(result, kind) > budgets[family.name] * (1 + 1e-6)
            for family in families
            for result in family.runs.get(label, [])
        )
    ]
    text = f"Read after {_amounts(budgets.values())} {KINDS[kind]}, the smallest budget of any run"
    text += " of a line." if len(families) > 1 else "."
    if longer:
        text += f" The learning-rate schedule of {_listed(longer, axis)} had not ended there."
    if unread := _unread(families, name, kind, budgets):
        text += f" Not read, because spent before the first evaluation: {'; '.join(unread)}."
    title = f"{pretty(name.partition('/')[2])} after equal {KINDS[kind]}"
    readings = {
        part: aggregate.chart_over(
            axis,
            ", ".join(filter(None, [title, part])),
            aggregate.named(part, aggregate.means(axis, shown, value)),
            y=axis_title(name.partition("/")[2]),
            baselines=levels,
            note=aggregate.seeds_note(shown, value),
        )
        for part, shown in parts.items()
    }
    curves = [
        _curves(axis, family, name, kind, budgets[family.name] if longer else None, levels)
        for family in families
    ]
    return Panel(kind, curves, readings, text)


def _amounts(budgets: Iterable[float]) -> str:
    """List amounts from the least to the most; of many only these two."""
    listed = list(dict.fromkeys(map(aggregate.short_amount, sorted(budgets))))
    if len(listed) > LISTED:
        return f"{listed[0]} to {listed[-1]}"
    return " and ".join(filter(None, [", ".join(listed[:-1]), listed[-1]]))


def _listed(labels: Sequence[str], axis: Axis) -> str:
    if len(labels) == len(axis.labels) - 1:
        return f"all runs but {next(label for label in axis.labels if label not in labels)}"
    return ", ".join(labels)


def _unread(
    families: Sequence[Family], name: str, kind: str, budgets: dict[str, float]
) -> list[str]:
    """List, by family, points whose first evaluation came after the common budget was spent."""
    listed = []
    for family in families:
        late = []
        for label, runs in family.runs.items():
            curves = [curve(result, name, kind) for result in runs]
            firsts = [points[0][0] for points in curves if points]
            late += [label] if firsts and min(firsts) > budgets[family.name] * (1 + 1e-9) else []
        listed += [f"{f'{family.name}: ' if family.name else ''}{', '.join(late)}"] if late else []
    return listed


def _curves(
    axis: Axis, family: Family, name: str, kind: str, mark: float | None, levels: Levels
) -> Chart:
    """Describe means with 95 % bands over the seeds that have come furthest."""
    lines, fewer = [], []
    for i, label in enumerate(axis.labels):
        runs = family.runs.get(label, [])
        seeds = [dict(points) for r in runs if (points := r.history.evaluations.get(name))]
        furthest = max((max(seed) for seed in seeds), default=0)
        # The mean would jump at the step where a seed ends.
        seeds = [seed for seed in seeds if max(seed) == furthest]
        if not seeds:
            continue
        shared = sorted(set.intersection(*map(set, seeds)))
        shared = sorted({*shared[:: -(-len(shared) // POINTS)], *shared[-1:]})
        fewer += [f"{label} ({len(seeds)} of {len(runs)})"] if len(seeds) < len(runs) else []
        spent = runs[0].clock(kind)
        sums = [(spent(s), intervals.summary([seed[s] for seed in seeds])) for s in shared]
        band = [(x, mean.low, mean.high) for x, mean in sums if math.isfinite(mean.high)]
        drawn = [(x, mean.mean) for x, mean in sums]
        lines.append(Series(label, drawn, aggregate.tone(i, len(axis.labels)), band=band))
    title = ", ".join(filter(None, [pretty(name.partition("/")[2]), family.name]))
    most = max(len(runs) for runs in family.runs.values())
    seeds_text = f"Means of {most} seeds, 95{SPACE}% bands." if most > 1 else "One seed."
    note = f"On held-out text, during training. {seeds_text}"
    note += f" Fewer: {', '.join(fewer)}." if fewer else ""
    note += "" if mark is None else " Dashed: the budget that all runs have."
    y = axis_title(name.partition("/")[2])
    return Chart(title, lines, levels, x=SPENT[kind], y=y, mark=mark, edge=True, note=note)
