"""Answer of a study: means over an axis and paired differences from the baseline."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from bert_jax.reporting.formats import HOLE, SPACE
from bert_jax.reporting.metric_names import axis_title, lower_is_better, pretty
from bert_jax.reporting.page import table
from bert_jax.studies.report import aggregate, answers
from bert_jax.studies.report.aggregate import Figures, View, getter, plain, plus_minus, slug
from bert_jax.studies.report.collect import Axis, Family
from bert_jax.studies.report.compare import Difference

# --- means -------------------------------------------------------------------------------------


def headline(view: View, comparison: Mapping[str, Any]) -> Figures:
    """Describe figures of every metric of a comparison over its axis."""
    axis, panels = view.axis(comparison["axis"]), view.panels(comparison["axis"])
    figures: Figures = {}
    for metric, (part, families) in itertools.product(comparison["metrics"], panels.items()):
        value = getter(metric)
        figures[slug(axis.name, metric, part)] = aggregate.chart_over(
            axis,
            ", ".join(filter(None, [pretty(metric), part])),
            aggregate.named(part, aggregate.means(axis, families, value)),
            percent=aggregate.percent(metric, view.results),
            baselines=baseline_lines(view, metric),
            y=axis_title(metric),
            note=aggregate.seeds_note(families, value),
        )
    return figures


def baseline_lines(view: View, metric: str) -> list[tuple[str, float]]:
    """Return name and level of a metric's baseline; both ends of the range if cells differ."""
    words, levels = answers.reference(view, metric)
    name = words.removeprefix("the ")
    ends = sorted({round(level, 6) for level in levels.values()})
    return [(name, ends[0]), *(("", end) for end in ends[1:][-1:])] if ends else []


def best(view: View, comparison: Mapping[str, Any], differences: Sequence[Difference]) -> str:
    """Tabulate the best point of each family and metric and its difference from the baseline."""
    known = {(gap.metric, gap.family, gap.point): gap for gap in differences if gap.pairs}
    lines, base = [], comparison["baseline"]
    for metric in comparison["metrics"]:
        share = aggregate.percent(metric, view.results)
        words, levels = answers.reference(view, metric)
        for family in view.families(comparison["axis"]):
            top = answers.leader(family, metric, base, differences)
            if top is None:
                continue
            gap, text = known.get((metric, family.name, top)), HOLE
            if top == base:
                text = "is the baseline"
            if gap is not None:
                text = f"{plain(gap.mean, share, True)} ({verdict(gap, share)})"
            name = ", ".join(filter(None, [pretty(metric), family.name]))
            mean = aggregate.summary(family.runs[top], getter(metric))
            shown = plus_minus(mean, len(family.runs[top]), share)
            if answers.behind(family, metric, levels)[1]:
                top, text = f"none; nearest {top}", f"no point is shown to be better than {words}"
            lines.append([name, top, shown, text])
    less = f"minus {comparison['baseline'] or 'baseline'}, in pairs"
    return table(lines, ["metric", "best point", "mean", less], True) if lines else ""


def mean_table(view: View, axis: Axis, families: Sequence[Family], metrics: Sequence[str]) -> str:
    """Tabulate means with half their intervals: points by metrics of families, or these by points.

    The longer of the two goes down.
    """
    columns = [(metric, family) for metric in metrics for family in families]
    head = [axis.name, *(", ".join(filter(None, [pretty(m), f.name])) for m, f in columns)]
    lines = [head]
    for label in axis.labels:
        line = [label]
        for metric, family in columns:
            runs, share = family.runs.get(label), aggregate.percent(metric, view.results)
            mean = aggregate.summary(runs or [], getter(metric))
            line.append(plus_minus(mean, len(runs), share) if runs else "")
        lines.append(line)
    if len(columns) > len(axis.labels):
        lines = [["metric", *lines[0][1:]], *lines[1:]]
        lines = [list(column) for column in zip(*lines, strict=True)]
    return table(lines[1:], lines[0], True)


# --- differences -------------------------------------------------------------------------------


def gaps(view: View, comparison: Mapping[str, Any], differences: Sequence[Difference]) -> Figures:
    """Describe figures of paired differences from the baseline for every metric."""
    axis, panels = view.axis(comparison["axis"]), view.panels(comparison["axis"])
    figures: Figures = {}
    for metric, (part, families) in itertools.product(comparison["metrics"], panels.items()):
        names = {family.name for family in families}
        chosen = [gap for gap in differences if gap.metric == metric and gap.family in names]
        pairs = sorted({gap.pairs for gap in chosen if gap.pairs})
        if not pairs:
            continue
        count = f"{pairs[0]} to {pairs[-1]}" if len(pairs) > 1 else str(pairs[0])
        count += " pairs" if pairs[-1] > 1 else " pair"
        intervals = "; without intervals"
        if any(gap.tested for gap in chosen):
            intervals = f", simultaneous 95{SPACE}% intervals"
        better = "Below" if lower_is_better(metric) else "Above"
        baseline, share = comparison["baseline"], aggregate.percent(metric, view.results)
        figures[slug(axis.name, metric, part, "difference")] = aggregate.chart_over(
            axis,
            ", ".join(filter(None, [pretty(metric), part, f"minus {baseline}"])),
            aggregate.named(part, aggregate.gaps(axis, families, chosen)),
            baselines=[("", 0.0)],
            y="difference (percentage points)" if share else axis_title(metric, "difference"),
            percent=share,
            note=f"Minus {baseline}, in {count}{intervals}. {better} zero is better.",
        )
    return figures


def gap_table(view: View, axis: str, differences: Sequence[Difference]) -> str:
    """Tabulate the differences in one metric with their simultaneous intervals."""
    others = [other.name for other in view.axes if other.name != axis]
    head = [", ".join([*others, axis]), "difference", f"simultaneous 95{SPACE}%", "p", ""]
    head += ["spread", "pairs", "missing", "examples"]
    lines = []
    for gap in differences:
        share = aggregate.percent(gap.metric, view.results)
        lines.append(
            [
                ", ".join(filter(None, [gap.family, gap.point])),
                plain(gap.mean, share, True),
                aggregate.interval(gap.low, gap.high, share),
                aggregate.probability(gap.p),
                _word(gap) if gap.tested else HOLE,
                f"{plain(gap.spread, share)}{', own' if gap.own else ''}",
                str(gap.pairs),
                str(gap.holes) if gap.holes else "",
                f"{gap.examples:,}" if gap.examples else HOLE,
            ]
        )
    kept = [i for i in range(len(head)) if {line[i] for line in lines} - {"", HOLE}]
    lines = [[line[i] for i in kept] for line in lines]  # without columns that are not known
    return table(lines, [head[i] for i in kept], True) if lines else ""


def verdict(gap: Difference, share: bool) -> str:
    """Write the simultaneous interval of a difference and what it says."""
    if not gap.tested:
        return "no interval"
    return f"{aggregate.interval(gap.low, gap.high, share)}; {_word(gap)}"


def _word(gap: Difference) -> str:
    return "significant" if gap.significant else "not significant"


def uneven(differences: Sequence[Difference]) -> str:
    """Say in which families the spreads of the points differ; empty if in none."""
    names = dict.fromkeys(
        ", ".join(filter(None, [pretty(gap.metric), gap.family]))
        for gap in differences
        if gap.uneven
    )
    if not names:
        return ""
    return (
        "Seeds scatter more at some points than at others, beyond chance. There, each interval "
        f"rests on its own pairs only: {'; '.join(names)}."
    )
