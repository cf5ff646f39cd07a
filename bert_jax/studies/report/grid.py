"""The best point and the means of a study of two axes that are both compared."""

from __future__ import annotations

from bert_jax.reporting import text_table
from bert_jax.reporting.formats import HOLE
from bert_jax.reporting.metric_names import lower_is_better, unit
from bert_jax.studies.report import aggregate, answers, intervals
from bert_jax.studies.report.aggregate import View, getter, plain
from bert_jax.studies.report.collect import Result


def best_cell(view: View) -> str:
    """Name the best point of two crossed axes by the first metric; empty for other studies.

    Where no point is shown to be better than the baseline, none is called best.
    """
    grid = _means(view)
    if not grid:
        return ""
    metric, means = grid
    known = {place: mean.mean for place, mean in means.items() if mean}
    levels = answers.reference(view, metric)[1]
    families = view.families(view.comparisons[0]["axis"])
    if not known or all(answers.behind(family, metric, levels)[1] for family in families):
        return ""
    choose = min if lower_is_better(metric) else max
    best = choose(known, key=lambda place: known[place])
    first, second = view.axes
    share = aggregate.percent(metric, view.results)
    value = plain(known[best], share)
    if not share:
        value = f"{value} {unit(metric)}".rstrip()
    point = f"{first.qualified(best[0])}, {second.qualified(best[1])}"
    return f"Best by {answers.measure_name(metric)}: {point} ({value})."


def table(view: View) -> str:
    """Tabulate the means of two crossed axes by the first metric; empty for other studies."""
    found = _means(view)
    if not found:
        return ""
    metric, means = found
    first, second = view.axes
    share = aggregate.percent(metric, view.results)
    rows = [[f"{first.words}, {second.words}", *second.labels]]
    for label in first.labels:
        values = [means.get((label, other)) for other in second.labels]
        rows.append([label, *(plain(mean.mean, share) if mean else HOLE for mean in values)])
    return text_table.table(rows)


def _means(view: View) -> tuple[str, dict[tuple[str, str], intervals.Summary | None]] | None:
    """Return the first metric and its mean at each point of a study of two axes.

    A point that lacks a seed has no mean: over other seeds it would not compare.
    """
    axes = view.axes
    if len(axes) != 2 or min(len(axis.labels) for axis in axes) < 2:
        return None
    if len(view.comparisons) < 2 or not view.comparisons[0]["metrics"]:
        return None
    metric = view.comparisons[0]["metrics"][0]
    first, second = (axis.name for axis in axes)
    points: dict[tuple[str, str], list[Result]] = {}
    for result in view.results:
        labels = result.entry.labels
        points.setdefault((labels[first], labels[second]), []).append(result)
    whole = {at: runs for at, runs in points.items() if all(metric in r.metrics for r in runs)}
    return metric, {at: aggregate.summary(runs, getter(metric)) for at, runs in whole.items()}
