"""Heat maps of a study: what an arm trained at one masking rate does at others, and two axes that were crossed."""

from __future__ import annotations

import math
from collections.abc import Sequence

from bert_jax.reporting.charts import SPACE
from bert_jax.reporting.metric_names import lower_is_better
from bert_jax.reporting.plots import Heat
from bert_jax.studies.report import aggregate
from bert_jax.studies.report.aggregate import Figures, View, of, slug
from bert_jax.studies.report.collect import Result


def cross_rate(view: View) -> Figures:
    """Trained with, by evaluated at: what a rate is good for. Shades go by the distance to the best of the column."""
    out: Figures = {}
    comparison = view.comparisons[0]
    axis = view.axis(comparison["axis"])
    names = [
        name
        for name, one in view.study.get("evaluations", {}).items()
        if one.get("name") == "cross_rate"
    ]
    for name in names:
        for family in view.families(axis.name):
            rates = {
                key.split("/")[1]
                for arm in family.arms.values()
                for one in arm
                for key in one.metrics
                if key.startswith(f"{name}/") and key.endswith("/mlm_loss")
            }
            columns = sorted(rates, key=float)
            grid = [
                [_mean(family.arms.get(label, []), f"{name}/{rate}/mlm_loss") for rate in columns]
                for label in axis.labels
            ]
            counts = [_count(family.arms.get(label, []), f"{name}/") for label in axis.labels]
            shades, marks = _by_column(grid, [have == asked for have, asked in counts])
            out[slug(name, family.name)] = Heat(
                ", ".join(filter(None, ["MLM loss by rate of evaluation", family.name])),
                axis.name,
                [
                    label if have == asked else f"{label} ({have} of {asked})"
                    for label, (have, asked) in zip(axis.labels, counts, strict=True)
                ],
                [f"{100 * float(rate):g}{SPACE}%" for rate in columns],
                grid,
                shades,
                marks,
                note="Rows: what arms were trained with. Columns: the rate they are evaluated at, on one set of nested "
                "masks. Means over seeds, of fewer where it says so; bold: the best of its column among arms with all "
                "of theirs; the darker, the nearer to it.",
            )
    return out


def crossed(view: View) -> Figures:
    """Two crossed axes of masking, such as rate by split, as a heat map of each metric."""
    axes = [one for one in view.axes if one.name.startswith("masking.") and len(one.labels) > 1]
    if len(axes) < 2:
        return {}
    first, second = axes[:2]
    others = [one.name for one in view.axes if one not in (first, second)]
    rest = dict.fromkeys(
        ", ".join(one.entry.labels[other] for other in others) for one in view.results
    )
    out: Figures = {}
    for metric in dict.fromkeys(metric for one in view.comparisons for metric in one["metrics"]):
        for name in rest:
            mine = [
                one
                for one in view.results
                if ", ".join(one.entry.labels[other] for other in others) == name
            ]
            grid = [
                [
                    _whole_mean(
                        [
                            one
                            for one in mine
                            if (one.entry.labels[first.name], one.entry.labels[second.name])
                            == (a, b)
                        ],
                        metric,
                    )
                    for b in second.labels
                ]
                for a in first.labels
            ]
            shades, marks = _by_all(grid, lower_is_better(metric))
            out[slug(first.name, second.name, metric, name)] = Heat(
                ", ".join(filter(None, [aggregate.title(metric), name])),
                f"{first.name}, by {second.name}",
                first.labels,
                second.labels,
                grid,
                shades,
                marks,
                aggregate.percent(metric, view.results),
                note="Means over seeds; empty where one is missing. Bold: the best; the darker, the nearer to it.",
            )
    return out


def _mean(arm: Sequence[Result], metric: str) -> float:
    found = aggregate.summary(arm, of(metric))
    return found.mean if found else math.nan


def _whole_mean(arm: Sequence[Result], metric: str) -> float:
    """Of an arm whose every seed has the metric: the mean of a few would be read as that of all."""
    return _mean(arm, metric) if all(metric in one.metrics for one in arm) else math.nan


def _count(arm: Sequence[Result], prefix: str) -> tuple[int, int]:
    """Cells of an arm that have an evaluation, and how many there are."""
    return sum(any(key.startswith(prefix) for key in one.metrics) for one in arm), len(arm)


def _by_column(
    grid: Sequence[Sequence[float]], whole: Sequence[bool]
) -> tuple[list[list[float]], set[tuple[int, int]]]:
    """Shades that fall with the root of the distance from the column's least, so that small distances show.

    The least is that of the rows that are whole.
    """
    rows = [row for row, complete in zip(grid, whole, strict=True) if complete] or grid
    tops = [
        min((v for v in column if math.isfinite(v)), default=math.nan)
        for column in zip(*rows, strict=True)
    ]
    away = [[max(value - top, 0.0) for value, top in zip(row, tops, strict=True)] for row in grid]
    most = max((v for row in away for v in row if math.isfinite(v)), default=0.0) or 1.0
    shades = [[1 - math.sqrt(v / most) if math.isfinite(v) else 0.0 for v in row] for row in away]
    best = [i for i, complete in enumerate(whole) if complete]
    return shades, {(i, j) for i in best for j, v in enumerate(away[i]) if v == 0}


def _by_all(
    grid: Sequence[Sequence[float]], lower: bool
) -> tuple[list[list[float]], set[tuple[int, int]]]:
    known = [v for row in grid for v in row if math.isfinite(v)]
    if not known:
        return [[0.0] * len(row) for row in grid], set()
    top, bottom = (min(known), max(known)) if lower else (max(known), min(known))
    width = (bottom - top) or 1.0
    shades = [[1 - (v - top) / width if math.isfinite(v) else 0.0 for v in row] for row in grid]
    return shades, {(i, j) for i, row in enumerate(grid) for j, v in enumerate(row) if v == top}
