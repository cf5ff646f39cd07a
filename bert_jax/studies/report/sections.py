"""Answer of a study: means over an axis and paired differences from the baseline."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from bert_jax.reporting.formats import HOLE, SPACE, number
from bert_jax.reporting.metric_names import axis_title, lower_is_better, pretty
from bert_jax.reporting.page import table
from bert_jax.studies.report import aggregate, answers
from bert_jax.studies.report.aggregate import Figures, View, getter, plain, plus_minus, slug
from bert_jax.studies.report.collect import Axis, Family
from bert_jax.studies.report.compare import Difference

# --- means -------------------------------------------------------------------------------------


def headline(view: View, comparison: Mapping[str, Any]) -> Figures:
    """Describe figures of every metric of a comparison over its axis."""
    axis, panels = view.axis(comparison["axis"]), _panels(view, comparison["axis"])
    figures: Figures = {}
    for metric, (part, families) in itertools.product(comparison["metrics"], panels.items()):
        value = getter(metric)
        figures[slug(axis.name, metric, part)] = aggregate.chart_over(
            axis,
            ", ".join(filter(None, [pretty(metric), part])),
            aggregate.means(axis, families, value),
            percent=aggregate.percent(metric, view.results),
            baselines=baseline_lines(view, metric),
            y=axis_title(metric),
            note=aggregate.seeds_note(families, value),
        )
    return figures


def _panels(view: View, axis: str) -> dict[str, list[Family]]:
    """Divide the families of an axis among figures, where they are more than colours.

    Each point of the first of several other axes has a figure; one figure is named "".
    """
    families = view.families(axis)
    others = [other for other in view.axes if other.name != axis and len(other.labels) > 1]
    if len(families) <= aggregate.COLOURS or len(others) < 2:
        return {"": families}
    panels: dict[str, list[Family]] = {}
    for family in families:
        runs = next(iter(family.runs.values()))
        part = others[0].qualified(runs[0].entry.labels[others[0].name])
        panels.setdefault(part, []).append(family)
    return panels


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
                one_pair = gap.pairs == 1
                within = "one pair" if one_pair else aggregate.interval(*gap.widest, share)
                inside = "; ".join(filter(None, [within, verdict(gap)]))
                text = f"{plain(gap.mean, share, True)} ({inside})"
            name = ", ".join(filter(None, [pretty(metric), family.name]))
            mean = aggregate.summary(family.runs[top], getter(metric))
            shown = plus_minus(mean, len(family.runs[top]), share)
            if answers.behind(family, metric, levels)[1]:
                top, text = f"none; nearest {top}", f"no run is better than {words}"
            lines.append([name, top, shown, text])
    less = f"minus {comparison['baseline'] or 'baseline'}, in pairs"
    return table(lines, ["metric", "best point", "mean", less], True) if lines else ""


def mean_table(view: View, axis: Axis, families: Sequence[Family], metrics: Sequence[str]) -> str:
    """Tabulate means with half their intervals: points by metrics of families."""
    columns = [(metric, family) for metric in metrics for family in families]
    head = [axis.name, *(", ".join(filter(None, [pretty(m), f.name])) for m, f in columns)]
    lines = []
    for label in axis.labels:
        line = [label]
        for metric, family in columns:
            runs, share = family.runs.get(label), aggregate.percent(metric, view.results)
            mean = aggregate.summary(runs or [], getter(metric))
            line.append(plus_minus(mean, len(runs), share) if runs else "")
        lines.append(line)
    return table(lines, head, True)


# --- differences -------------------------------------------------------------------------------


def gaps(view: View, comparison: Mapping[str, Any], differences: Sequence[Difference]) -> Figures:
    """Describe figures of paired differences from the baseline for every metric."""
    axis, panels = view.axis(comparison["axis"]), _panels(view, comparison["axis"])
    figures: Figures = {}
    for metric, (part, families) in itertools.product(comparison["metrics"], panels.items()):
        names = {family.name for family in families}
        chosen = [gap for gap in differences if gap.metric == metric and gap.family in names]
        pairs = sorted({gap.pairs for gap in chosen if gap.pairs})
        if not pairs:
            continue
        count = f"{pairs[0]} to {pairs[-1]}" if len(pairs) > 1 else str(pairs[0])
        count += " pairs" if pairs[-1] > 1 else " pair"
        intervals = f", 95{SPACE}% t intervals" if pairs[-1] > 1 else "; one pair has no interval"
        intervals += ", each by itself" if pairs[-1] > 1 and len(chosen) > 1 else ""
        better = "Below" if lower_is_better(metric) else "Above"
        baseline, share = comparison["baseline"], aggregate.percent(metric, view.results)
        figures[slug(axis.name, metric, part, "difference")] = aggregate.chart_over(
            axis,
            ", ".join(filter(None, [pretty(metric), part, f"minus {baseline}"])),
            aggregate.gaps(axis, families, chosen),
            baselines=[("", 0.0)],
            y="difference (percentage points)" if share else axis_title(metric, "difference"),
            percent=share,
            note=f"Minus {baseline}, in {count}{intervals}. {better} zero is better.",
        )
    return figures


def gap_table(view: View, axis: str, differences: Sequence[Difference]) -> str:
    """Tabulate the differences in one metric: both intervals, the verdict, both standard errors."""
    others = [other.name for other in view.axes if other.name != axis]
    head = [", ".join([*others, axis]), "difference"]
    head += [f"95{SPACE}% over seeds", f"95{SPACE}% seeds, examples", "p, Holm", "verdict"]
    head += ["pairs", "missing", "examples", "SE paired", "SE unpaired", "ratio"]
    lines = []
    for gap in differences:
        share = aggregate.percent(gap.metric, view.results)
        lines.append(
            [
                ", ".join(filter(None, [gap.family, gap.point])),
                plain(gap.mean, share, True),
                aggregate.interval(gap.low, gap.high, share),
                aggregate.interval(gap.both_low, gap.both_high, share),
                aggregate.probability(gap.corrected),
                HOLE if math.isnan(gap.corrected) else "differs" if gap.resolved else "open",
                str(gap.pairs),
                str(gap.holes) if gap.holes else "",
                f"{gap.examples:,}" if gap.examples else HOLE,
                _error(gap.error, share),
                _error(gap.unpaired, share),
                f"{gap.ratio:.2f}" if math.isfinite(gap.ratio) else HOLE,
            ]
        )
    kept = [i for i in range(len(head)) if {line[i] for line in lines} - {"", HOLE}]
    lines = [[line[i] for i in kept] for line in lines]  # without columns that are not known
    return table(lines, [head[i] for i in kept], True) if lines else ""


def verdict(gap: Difference) -> str:
    """Format the corrected p value and the verdict by it; empty for one pair."""
    if math.isnan(gap.corrected):
        return ""
    p = aggregate.probability(gap.corrected)
    text = f"p {p}" if p.startswith("<") else f"p{SPACE}={SPACE}{p}"
    return f"{text}, {'differs' if gap.resolved else 'open'}"


def _error(value: float, share: bool) -> str:
    """Format a standard error; of a share in percentage points."""
    if not math.isfinite(value):
        return HOLE
    return number(100 * value if share else value)


def pairing(differences: Sequence[Difference], share: bool) -> str:
    """Write sentences on what pairing by seed and by example was worth in one metric."""
    unit, sentences = " (in percentage points)" if share else "", []
    if errors := _root_mean_squares([(gap.error, gap.unpaired) for gap in differences]):
        paired, unpaired, count = errors
        sentences.append(
            f"Standard error over seeds {_error(paired, share)} paired and "
            f"{_error(unpaired, share)} unpaired{unit}, root mean squares of {count} "
            f"difference{'s' if count > 1 else ''}: a ratio of {paired / unpaired:.2f}. Without "
            f"pairs, an interval as narrow would take {(unpaired / paired) ** 2:.2g} times the "
            "seeds."
        )
    examples = [(gap.examples_error, gap.examples_unpaired) for gap in differences]
    if errors := _root_mean_squares(examples):
        paired, unpaired, _ = errors
        sentences.append(
            f"Standard error over examples {_error(paired, share)} with the same ones on both "
            f"sides and {_error(unpaired, share)} with different ones{unit}: a ratio of "
            f"{paired / unpaired:.2f}, worth {(unpaired / paired) ** 2:.2g} times the examples."
        )
    return " ".join(sentences)


def _root_mean_squares(pairs: Sequence[tuple[float, float]]) -> tuple[float, float, int] | None:
    """Return the root mean square of both columns and the number of rows where both are known."""
    known = [pair for pair in pairs if all(math.isfinite(error) and error > 0 for error in pair)]
    if not known:
        return None
    first, second = (
        math.sqrt(math.fsum(error**2 for error in column) / len(known))
        for column in zip(*known, strict=True)
    )
    return first, second, len(known)
