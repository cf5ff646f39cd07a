"""Arms at equal budgets: held-out loss as it falls, over steps, tokens, predictions or FLOPs, and read where all are.

The budget that arms have in common is the least that any of them was given. An arm that was given more is read where
it had spent as much, between two of its evaluations; its learning rate was not yet down there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bert_jax.reporting.charts import SPACE, Chart, Series
from bert_jax.reporting.metric_names import pretty
from bert_jax.studies.report import aggregate, intervals
from bert_jax.studies.report.aggregate import View
from bert_jax.studies.report.collect import Axis, Family, Result

POINTS = 120  # of a curve that are drawn, at most
KINDS = {"steps": "steps", "tokens": "tokens", "predictions": "predictions", "flops": "FLOPs"}
WANTED = ("validation/mlm_loss", "validation/loss")


@dataclass(frozen=True)
class Panel:
    """What one kind of budget shows."""

    kind: str
    curves: list[Chart]  # for each family
    reading: Chart
    said: str


def panels(view: View, axis: str) -> list[Panel]:
    """One panel for every kind of budget; none where nothing was evaluated while training."""
    name, families = metric(view.results), view.families(axis)
    return [_panel(view.axis(axis), families, name, kind) for kind in KINDS] if name else []


def metric(results: Sequence[Result]) -> str:
    """The loss that is drawn: of the pre-training evaluation, where there is one."""
    found = dict.fromkeys(name for one in results for name in one.history.evaluations)
    return next((name for name in (*WANTED, *found) if name in found and name.endswith("loss")), "")


def common(family: Family, kind: str) -> float:
    """The least that any arm was given."""
    return min(
        one.spent(kind, one.entry.config.steps) for arm in family.arms.values() for one in arm
    )


def curve(one: Result, name: str, kind: str) -> list[tuple[float, float]]:
    """A metric over what was spent."""
    spent = one.clock(kind)
    return [(spent(step), value) for step, value in one.history.evaluations.get(name, [])]


def read(points: Sequence[tuple[float, float]], at: float) -> float | None:
    """A curve's value, on the line between two neighbours; nothing before the first point or after the last."""
    if not points or not points[0][0] <= at * (1 + 1e-9) or not at <= points[-1][0] * (1 + 1e-9):
        return None
    return float(np.interp(at, [x for x, _ in points], [y for _, y in points]))


def _panel(axis: Axis, families: Sequence[Family], name: str, kind: str) -> Panel:
    budgets = {family.name: common(family, kind) for family in families}
    by_cell = {
        one.entry.id: read(curve(one, name, kind), budgets[family.name])
        for family in families
        for arm in family.arms.values()
        for one in arm
    }

    def value(one: Result) -> float | None:
        return by_cell[one.entry.id]

    unread = _unread(families, name, kind, budgets)
    amounts = sorted({aggregate.short_amount(amount) for amount in budgets.values()})
    each = f"{' and '.join(amounts)} {KINDS[kind]}"
    cut = [
        label
        for label in axis.labels
        if any(
            one.spent(kind, one.entry.config.steps) > budgets[family.name] * (1 + 1e-6)
            for family in families
            for one in family.arms.get(label, [])
        )
    ]
    said = f"Read after {each}, the least that an arm was given."
    if cut:
        said += f" The learning-rate schedule was not over there in {_listed(cut, axis)}."
    if unread:
        said += f" Not read, because spent before the first evaluation: {'; '.join(unread)}."
    series = aggregate.means(axis, families, value)
    note = aggregate.seeds_said(families, value)
    reading = aggregate.over(
        axis, f"{pretty(name.partition('/')[2])} after equal {KINDS[kind]}", series, note=note
    )
    curves = [
        _curves(axis, family, name, kind, budgets[family.name] if cut else None)
        for family in families
    ]
    return Panel(kind, curves, reading, said)


def _listed(labels: Sequence[str], axis: Axis) -> str:
    if len(labels) == len(axis.labels) - 1:
        return f"all arms but {next(label for label in axis.labels if label not in labels)}"
    return ", ".join(labels)


def _unread(
    families: Sequence[Family], name: str, kind: str, budgets: dict[str, float]
) -> list[str]:
    """Arms that had spent more than the common budget when they were first evaluated, family by family."""
    found = []
    for family in families:
        late = []
        for label, arm in family.arms.items():
            firsts = [
                curve(one, name, kind)[0][0] for one in arm if one.history.evaluations.get(name)
            ]
            late += [label] if firsts and min(firsts) > budgets[family.name] * (1 + 1e-9) else []
        found += [f"{f'{family.name}: ' if family.name else ''}{', '.join(late)}"] if late else []
    return found


def _curves(axis: Axis, family: Family, name: str, kind: str, mark: float | None) -> Chart:
    """Means with 95 % bands over the seeds that are furthest."""
    lines, fewer = [], []
    for number, label in enumerate(axis.labels):
        arm = family.arms.get(label, [])
        found = [dict(points) for one in arm if (points := one.history.evaluations.get(name))]
        furthest = max((max(one) for one in found), default=0)
        found = [
            one for one in found if max(one) == furthest
        ]  # a seed less from some step on would be a kink
        if not found:
            continue
        shared = sorted(set.intersection(*(set(one) for one in found)))
        shared = sorted({*shared[:: -(-len(shared) // POINTS)], *shared[-1:]})
        fewer += [f"{label} ({len(found)} of {len(arm)})"] if len(found) < len(arm) else []
        spent = arm[0].clock(kind)
        at = {step: spent(step) for step in shared}
        sums = {step: intervals.summary([one[step] for one in found]) for step in shared}
        band = [
            (at[step], each.low, each.high)
            for step, each in sums.items()
            if math.isfinite(each.high)
        ]
        drawn: list[tuple[float, float]] = [(at[step], each.mean) for step, each in sums.items()]
        lines.append(Series(label, drawn, aggregate.tone(number, len(axis.labels)), band=band))
    head = ", ".join(filter(None, [pretty(name.partition("/")[2]), family.name]))
    most = max(len(arm) for arm in family.arms.values())
    note = f"On held-out text, while training. {f'Means of {most} seeds, 95{SPACE}% bands.' if most > 1 else 'One seed.'}"
    note += f" Fewer: {', '.join(fewer)}." if fewer else ""
    note += "" if mark is None else " Dashed: the budget all have."
    return Chart(head, lines, x=KINDS[kind] if kind != "steps" else "step", mark=mark, note=note)
