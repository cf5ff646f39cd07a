"""What a study was made for: means over an axis, and paired differences from the baseline."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from bert_jax.reporting.charts import SPACE, number
from bert_jax.reporting.metric_names import BASELINES, lower_is_better
from bert_jax.reporting.page import table
from bert_jax.reporting.plots import HOLE
from bert_jax.studies.report import aggregate
from bert_jax.studies.report.aggregate import Figures, View, of, plain, plus_minus, slug
from bert_jax.studies.report.collect import Axis, Family
from bert_jax.studies.report.compare import Difference

# --- means ----------------------------------------------------------------------------------------------------------


def headline(view: View, comparison: Mapping[str, Any]) -> Figures:
    """Every metric of a comparison over its axis."""
    axis, families = view.axis(comparison["axis"]), view.families(comparison["axis"])
    out: Figures = {}
    for metric in comparison["metrics"]:
        share, value = aggregate.percent(metric, view.results), of(metric)
        series = aggregate.means(axis, families, value)
        shown = [y for line in series for _, y in line.points]
        note, lines = aggregate.seeds_said(families, value), []
        for name, level in _references(view, metric):
            if shown and min(shown) <= level <= max(shown):
                lines.append((name, level))
            else:
                note += f" {name[:1].upper()}{name[1:]}: {number(level, share)}."
        out[slug(axis.name, metric)] = aggregate.over(
            axis, aggregate.title(metric), series, percent=share, baselines=lines, note=note
        )
    return out


def _references(view: View, metric: str) -> list[tuple[str, float]]:
    """What an evaluation says can be had without reading the context."""
    evaluation, _, name = metric.partition("/")
    reference, label = BASELINES.get(name, ("", ""))
    found = aggregate.values(view.results, of(f"{evaluation}/{reference}"))
    return (
        [(label.removeprefix("the "), found[0])] if found and max(found) - min(found) < 1e-6 else []
    )


def best(view: View, comparison: Mapping[str, Any], found: Sequence[Difference]) -> str:
    """The best point of each family and metric, beside the baseline."""
    lines = []
    for metric in comparison["metrics"]:
        share = aggregate.percent(metric, view.results)
        for family in view.families(comparison["axis"]):
            sums = {label: aggregate.summary(arm, of(metric)) for label, arm in family.arms.items()}
            known = {label: s for label, s in sums.items() if s is not None}
            if not known:
                continue
            choose = min if lower_is_better(metric) else max
            top = choose(known, key=lambda label: known[label].mean)
            one = next(
                (
                    d
                    for d in found
                    if (d.metric, d.family, d.point) == (metric, family.name, top) and d.pairs
                ),
                None,
            )
            gap = "is the baseline" if top == comparison["baseline"] else HOLE
            if one is not None:
                within = (
                    aggregate.interval(one.low, one.high, share) if one.pairs > 1 else "one pair"
                )
                gap = f"{plain(one.mean, share, True)} ({within}{f'; {told}' if (told := verdict(one)) else ''})"
            name = ", ".join(filter(None, [aggregate.title(metric), family.name]))
            lines.append([name, top, plus_minus(known[top], len(family.arms[top]), share), gap])
    head = [
        "metric",
        "best point",
        "mean",
        f"less {comparison['baseline'] or 'baseline'}, in pairs",
    ]
    return table(lines, head, True) if lines else ""


def mean_table(view: View, axis: Axis, families: Sequence[Family], metrics: Sequence[str]) -> str:
    """Means with half their intervals: a row a point, a column for each metric of each family."""
    columns = [(metric, family) for metric in metrics for family in families]
    head = [axis.name, *(", ".join(filter(None, [aggregate.title(m), f.name])) for m, f in columns)]
    lines = []
    for label in axis.labels:
        row = [label]
        for metric, family in columns:
            arm = family.arms.get(label)
            share = aggregate.percent(metric, view.results)
            row.append(
                plus_minus(aggregate.summary(arm, of(metric)), len(arm), share) if arm else ""
            )
        lines.append(row)
    return table(lines, head, True)


# --- differences ----------------------------------------------------------------------------------------------------


def gaps(view: View, comparison: Mapping[str, Any], found: Sequence[Difference]) -> Figures:
    """Paired differences from the baseline, for every metric of a comparison."""
    axis, families = view.axis(comparison["axis"]), view.families(comparison["axis"])
    out: Figures = {}
    for metric in comparison["metrics"]:
        mine = [one for one in found if one.metric == metric]
        series = aggregate.gaps(axis, families, mine)
        if not any(one.pairs for one in mine):
            continue
        pairs = sorted({one.pairs for one in mine if one.pairs})
        count = f"{pairs[0]} to {pairs[-1]}" if len(pairs) > 1 else str(pairs[0])
        intervals = f", 95{SPACE}% t intervals" if pairs[-1] > 1 else "; one pair has no interval"
        intervals += ", each by itself" if pairs[-1] > 1 and len(mine) > 1 else ""
        way = "Below" if lower_is_better(metric) else "Above"
        note = f"Less {comparison['baseline']}, in {count} pairs{intervals}. {way} zero is better."
        out[slug(axis.name, metric, "difference")] = aggregate.over(
            axis,
            f"{aggregate.title(metric)}, less {comparison['baseline']}",
            series,
            baselines=[("", 0.0)],
            percent=aggregate.percent(metric, view.results),
            note=note,
        )
    return out


def gap_table(view: View, axis: str, found: Sequence[Difference]) -> str:
    """Tabulate the differences in one metric: both intervals, the verdict, both standard errors."""
    others = [one.name for one in view.axes if one.name != axis]
    head = [
        ", ".join([*others, axis]),
        "difference",
        f"95{SPACE}% over seeds",
        f"95{SPACE}% seeds, examples",
        "p, Holm",
        "verdict",
        "pairs",
        "missing",
    ]
    head += ["examples", "SE paired", "SE unpaired", "ratio"]
    lines = []
    for one in found:
        share = aggregate.percent(one.metric, view.results)
        lines.append(
            [
                ", ".join(filter(None, [one.family, one.point])),
                plain(one.mean, share, True),
                aggregate.interval(one.low, one.high, share),
                aggregate.interval(one.both_low, one.both_high, share),
                probability(one.corrected),
                HOLE if math.isnan(one.corrected) else "differs" if one.resolved else "open",
                str(one.pairs),
                str(one.holes) if one.holes else "",
                f"{one.examples:,}" if one.examples else HOLE,
                _small(one.error, share),
                _small(one.unpaired, share),
                f"{one.ratio:.2f}" if math.isfinite(one.ratio) else HOLE,
            ]
        )
    return table(lines, head, True) if lines else ""


def probability(value: float) -> str:
    """Write a p value with two digits; a small one as a bound."""
    if math.isnan(value):
        return HOLE
    return (
        f"<{SPACE}0.0001" if value < 1e-4 else f"{value:.1g}" if value < 0.001 else f"{value:.2g}"
    )


def verdict(one: Difference) -> str:
    """Write the corrected p value, and whether the difference is more than chance by it; empty of one pair."""
    if math.isnan(one.corrected):
        return ""
    at = probability(one.corrected)
    text = f"p {at}" if at.startswith("<") else f"p{SPACE}={SPACE}{at}"
    return f"{text}, {'differs' if one.resolved else 'open'}"


def _small(value: float, share: bool) -> str:
    return (
        number(100 * value)
        if share and math.isfinite(value)
        else number(value)
        if math.isfinite(value)
        else HOLE
    )


def pairing(found: Sequence[Difference], share: bool) -> str:
    """What pairing was worth in one metric, in sentences: pairs of a seed, and of an example."""
    seeds = [(one.error, one.unpaired) for one in found]
    examples = [(one.examples_error, one.examples_unpaired) for one in found]
    unit, said = " (in points)" if share else "", []
    if mine := _root_mean_squares(seeds):
        said.append(
            f"Standard error over seeds {_small(mine[0], share)} paired and {_small(mine[1], share)} unpaired{unit}, "
            f"root mean squares of {mine[2]} differences: a ratio of {mine[0] / mine[1]:.2f}. Without pairs, as narrow "
            f"an interval would take {(mine[1] / mine[0]) ** 2:.2g} times the seeds."
        )
    if mine := _root_mean_squares(examples):
        said.append(
            f"Standard error over examples {_small(mine[0], share)} with the same ones for both arms and "
            f"{_small(mine[1], share)} with others for each{unit}: a ratio of {mine[0] / mine[1]:.2f}, worth "
            f"{(mine[1] / mine[0]) ** 2:.2g} times the examples."
        )
    return " ".join(said)


def _root_mean_squares(pairs: Sequence[tuple[float, float]]) -> tuple[float, float, int] | None:
    """Of both columns, where both are known, and of how many rows."""
    known = [pair for pair in pairs if all(math.isfinite(one) and one > 0 for one in pair)]
    if not known:
        return None
    first, second = (
        math.sqrt(_average([one**2 for one in column])) for column in zip(*known, strict=True)
    )
    return first, second, len(known)


def _average(found: Sequence[float]) -> float:
    return math.fsum(found) / len(found)
