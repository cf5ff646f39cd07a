"""Figures over an axis: means with intervals, and paired differences from the baseline."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from bert_jax.reporting.figures import Chart, Figure, Series
from bert_jax.reporting.formats import SPACE
from bert_jax.reporting.metric_names import axis_title, lower_is_better, pretty
from bert_jax.studies.report.baselines import draw_levels
from bert_jax.studies.report.collect import Axis, Family
from bert_jax.studies.report.compare import Difference
from bert_jax.studies.report.view import (
    COLOURS,
    Value,
    View,
    find_values,
    get_metric,
    is_left_out,
    summarize,
)
from bert_jax.studies.report.wording import join_names, name_file

WIDE = 30.0  # an axis whose numbers are so many times apart is logarithmic
TONES = 10  # of the page's sequence of colours


def draw_means(view: View, comparison: Mapping[str, Any], metric: str) -> dict[str, Figure]:
    """Describe the figures of a metric over the axis of a comparison."""
    axis, panels = view.axis(comparison["axis"]), view.panels(comparison["axis"])
    value = get_metric(metric)
    return {
        name_file(axis.name, metric, part): chart_over(
            axis,
            join_names(pretty(metric), part),
            strip_names(part, list_means(axis, families, value)),
            percent=view.is_percent(metric),
            baselines=draw_levels(view, metric),
            y=axis_title(metric),
            note=note_seeds(families, value),
        )
        for part, families in panels.items()
    }


def draw_gaps(
    view: View, comparison: Mapping[str, Any], differences: Sequence[Difference]
) -> dict[str, Figure]:
    """Describe figures of paired differences from the baseline for every metric."""
    axis, panels = view.axis(comparison["axis"]), view.panels(comparison["axis"])
    figures: dict[str, Figure] = {}
    for metric, (part, families) in itertools.product(comparison["metrics"], panels.items()):
        names = {family.name for family in families}
        chosen = [gap for gap in differences if gap.metric == metric and gap.family in names]
        pairs = sorted({gap.pairs for gap in chosen if gap.pairs})
        if not pairs:
            continue
        count = f"{pairs[0]} to {pairs[-1]}" if len(pairs) > 1 else str(pairs[0])
        count += " pairs" if pairs[-1] > 1 else " pair"
        tested = any(gap.tested for gap in chosen)
        intervals = f", simultaneous 95{SPACE}% intervals" if tested else "; without intervals"
        better = "Below" if lower_is_better(metric) else "Above"
        baseline, share = comparison["baseline"], view.is_percent(metric)
        figures[name_file(axis.name, metric, part, "difference")] = chart_over(
            axis,
            join_names(pretty(metric), part, f"minus {baseline}"),
            strip_names(part, list_gaps(axis, families, chosen)),
            baselines=[("", 0.0)],
            y="difference (percentage points)" if share else axis_title(metric, "difference"),
            percent=share,
            note=f"Minus {baseline}, in {count}{intervals}. {better} zero is better.",
        )
    return figures


def place_points(axis: Axis) -> dict[str, float]:
    """Place each point at its number, at the logarithm of far-apart numbers, or in its row."""
    if not axis.numeric:
        return {label: float(row) for row, label in enumerate(axis.labels)}
    return {
        label: math.log10(value) if _is_logarithmic(axis) else float(value)
        for label, value in zip(axis.labels, axis.values, strict=True)
    }


def _is_logarithmic(axis: Axis) -> bool:
    """Return whether the numbers of an axis are placed by their logarithms."""
    return axis.numeric and 0 < min(axis.values) < max(axis.values) / WIDE


def find_tone(index: int, count: int) -> str:
    """Return the colour of a point in the page's sequence for `count` ordered points."""
    return f"q{round(index * (TONES - 1) / max(count - 1, 1))}"


def chart_over(axis: Axis, title: str, series: Sequence[Series], **options: Any) -> Chart:
    """Describe a figure of series over an axis: a line chart of numbers, else a dot plot."""
    at = place_points(axis)
    if axis.numeric:
        options["ticks"] = [(at[label], label) for label in axis.labels]
    else:
        options["rows"] = axis.labels
    x = f"{axis.title}, logarithmic" if _is_logarithmic(axis) else axis.title
    return Chart(title, series, last=False, x=x, edge=True, **options)


def strip_names(part: str, series: Sequence[Series]) -> list[Series]:
    """Take what all lines of a figure share, which its title says, from their names."""
    prefix = f"{part}, " if part else ""
    return [
        replace(line, name="" if line.name == part else line.name.removeprefix(prefix))
        for line in series
    ]


def list_means(axis: Axis, families: Sequence[Family], value: Value) -> list[Series]:
    """Make a line for every family: means over seeds, 95 % intervals, and every seed."""
    at = place_points(axis)
    lines = []
    for i, family in enumerate(families):
        points, whiskers, dots = [], [], []
        for label, runs in family.runs.items():
            mean = summarize(runs, value)
            if mean is None:
                continue
            points.append((at[label], mean.mean))
            if math.isfinite(mean.high):
                whiskers.append((at[label], mean.low, mean.high))
            if mean.n > 1:
                dots += [(at[label], single) for single in find_values(runs, value)]
        lines.append(Series(family.name, points, 1 + i % COLOURS, whiskers=whiskers, dots=dots))
    return lines


def list_gaps(
    axis: Axis, families: Sequence[Family], differences: Sequence[Difference]
) -> list[Series]:
    """Make a line for every family: paired differences from the baseline, with intervals."""
    at = place_points(axis)
    lines = []
    for i, family in enumerate(families):
        known = [d for d in differences if d.family == family.name and d.pairs]
        baseline = [(at[d.baseline], 0.0) for d in known[:1]]
        points = sorted([*baseline, *((at[d.point], d.mean) for d in known)])
        whiskers = [(at[d.point], d.low, d.high) for d in known if math.isfinite(d.high)]
        lines.append(Series(family.name, points, 1 + i % COLOURS, whiskers=whiskers))
    return lines


def note_seeds(families: Sequence[Family], value: Value) -> str:
    """Write how many seeds the means of a figure are over, and where there are fewer."""
    counts = {
        (family.name, label): (len(find_values(runs, value)), len(runs))
        for family in families
        for label, runs in family.runs.items()
        if not is_left_out(runs, value)
    }
    most = max((have for have, _ in counts.values()), default=0)
    planned = max((seeds for _, seeds in counts.values()), default=0)
    fewer: dict[tuple[str, int, int], list[str]] = {}
    for (family, label), (have, seeds) in counts.items():
        if have < seeds:
            fewer.setdefault((family, have, seeds), []).append(label)
    points = {family.name: len(family.runs) for family in families}
    lacks = []
    for (family, have, seeds), labels in fewer.items():
        where = "all points" if len(labels) == points[family] > 1 else ", ".join(labels)
        lacks.append(f"{f'{family}: ' if family else ''}{where} ({have} of {seeds})")
    text = "One seed: no interval."
    if most > 1:
        text = f"Means of {planned} seeds with 95{SPACE}% t intervals."
    return f"{text} Fewer: {'; '.join(lacks)}." if lacks else text
