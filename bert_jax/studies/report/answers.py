"""The findings of a study, its answer in at most 60 words, and the warnings to read it with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from bert_jax.reporting.formats import HOLE, SPACE
from bert_jax.reporting.metric_names import lower_is_better, unit
from bert_jax.studies.report import best_value, compare, verdicts
from bert_jax.studies.report.baselines import (
    find_baseline,
    find_behind,
    name_label,
    name_measure,
)
from bert_jax.studies.report.best_value import Best
from bert_jax.studies.report.blocks import Table, render_text
from bert_jax.studies.report.collect import Family, Result
from bert_jax.studies.report.compare import Difference
from bert_jax.studies.report.intervals import Summary
from bert_jax.studies.report.verdicts import Judged
from bert_jax.studies.report.view import View, get_metric, summarize
from bert_jax.studies.report.wording import format_ends, format_mean, format_number

WORDS = 60  # of an answer at most
ENOUGH = 3  # seeds; with fewer an interval says little or does not exist


class Findings(NamedTuple):
    """Differences and best values by the number of the comparison, and verdicts on claims."""

    gaps: Mapping[int, Sequence[Difference]]
    best: Mapping[int, Sequence[Best]]  # by the study's budget, and at equal FLOPs
    claims: Sequence[Judged]


def compute_findings(view: View) -> Findings:
    """Compare, fit and judge all that a study states."""
    gaps: dict[int, Sequence[Difference]] = {}
    best: dict[int, Sequence[Best]] = {}
    count = view.family_count
    for i, comparison in enumerate(view.comparisons):
        families = view.families(comparison["axis"])
        gaps[i] = compare.compare_families(
            view.place, families, comparison["baseline"], comparison["metrics"], count
        )
        best[i] = best_value.fit_best_values(view, comparison)
    return Findings(gaps, best, verdicts.judge_claims(view))


def write_answer(view: View, found: Findings) -> str:
    """Answer a study as the terminal shows it: a line for each comparison, then warnings."""
    grid = tabulate_grid(view)
    lines = [name_best_cell(view), render_text(grid) if grid else ""]
    lines += [write_lead(view, found, number) for number in range(len(view.comparisons))]
    return "\n".join(filter(None, [*lines, *list_warnings(view)]))


def write_lead(view: View, found: Findings, number: int) -> str:
    """Answer a comparison by its first metric, in at most 60 words.

    With the best value of the axis, the differences are left out where there is no room for both.
    """
    comparison = view.comparisons[number]
    best = found.best[number][0].answer() if found.best[number] else ""
    if not comparison["metrics"]:
        return best
    metric = comparison["metrics"][0]
    gaps = [gap for gap in found.gaps[number] if gap.metric == metric]
    families = view.families(comparison["axis"])
    families = [family for family in families if len(family.runs) > 1] or families
    said = count_significant(view, comparison, metric, gaps)
    if not said or (not best and len(families) == 1):
        # Without intervals the last family stands for all, such as that of the largest budget.
        said = _name_leader(view, comparison, families[-1], metric, gaps)
    text = f"{best} {said}".strip()
    return best if best and len(text.split()) > WORDS else text


def find_leader(
    family: Family, metric: str, baseline: str, gaps: Sequence[Difference]
) -> str | None:
    """Return the best point: by its difference from the baseline in pairs, else by its mean.

    A mean over other seeds than those of other points is shifted by them; a paired difference is
    not.
    """
    own = [gap for gap in gaps if (gap.metric, gap.family) == (metric, family.name)]
    known = {gap.point: gap.mean for gap in own if gap.pairs}
    values = {baseline: 0.0} | known  # of equals the baseline leads
    if not known:
        means = {label: summarize(runs, get_metric(metric)) for label, runs in family.runs.items()}
        values = {label: mean.mean for label, mean in means.items() if mean}
    choose = min if lower_is_better(metric) else max
    return choose(values, key=lambda label: values[label]) if values else None


def _name_leader(
    view: View,
    comparison: Mapping[str, Any],
    family: Family,
    metric: str,
    gaps: Sequence[Difference],
) -> str:
    """Say the best point of a family and how far it is ahead of the baseline."""
    axis, base = view.axis(comparison["axis"]), comparison["baseline"]
    share, measure = view.is_percent(metric), name_measure(metric)
    best = find_leader(family, metric, base, gaps)
    where = f"For {family.name}: " if family.name else ""
    if best is None:
        return f"{where}There is no {measure}."
    words, levels = find_baseline(view, metric)
    if find_behind(family, metric, levels)[1]:
        return f"{where}No point is shown to be better than {words} by {measure}."
    runs = family.runs[best]
    value = format_mean(summarize(runs, get_metric(metric)), len(runs), share)
    value = value if share else f"{value} {unit(metric)}".rstrip()
    if len(family.runs) == 1:
        return f"{where}The {measure} is {value}."
    pairs = {gap.point: gap for gap in gaps if gap.pairs and gap.family == family.name}
    if best in pairs:
        value = f"ahead of {name_label(axis, base)} by {_format_size(pairs[best], share)}"
    elif pairs:
        choose = min if lower_is_better(metric) else max
        nearest = choose(pairs.values(), key=lambda gap: gap.mean)
        size = _format_size(nearest, share)
        value = f"{value}; the nearest, {name_label(axis, nearest.point)}, is behind by {size}"
    least = "lowest" if lower_is_better(metric) else "highest"
    which = f"{axis.words} {name_label(axis, best)}" if axis.numeric else name_label(axis, best)
    which += ", the baseline" if best == base else ""
    return f"{where}The {least} {measure} is that of {which}, {value}."


def _format_size(gap: Difference, share: bool) -> str:
    """Write the size of a difference, its interval the same way round, and its significance."""
    sign = -1 if gap.mean < 0 else 1
    size = _add_unit(format_number(abs(gap.mean), share), gap.metric, share)
    if not gap.tested:
        return f"{size} (no interval)"
    low, high = sorted((sign * gap.low, sign * gap.high))
    ends = " to ".join(end.removesuffix(f"{SPACE}%") for end in format_ends(low, high, share))
    return f"{size} ({ends}), which is {'' if gap.significant else 'not '}significant"


def _add_unit(size: str, metric: str, share: bool) -> str:
    if share:
        return f"{size.removesuffix(f'{SPACE}%')} percentage points"
    return f"{size} {unit(metric)}".rstrip()


def count_significant(
    view: View, comparison: Mapping[str, Any], metric: str, gaps: Sequence[Difference]
) -> str:
    """Count the significant differences either way, and give the range of the gains.

    The text is empty if no difference of the metric has an interval.
    """
    tested = [gap for gap in gaps if gap.metric == metric and gap.tested]
    if not tested:
        return ""
    sign = -1 if lower_is_better(metric) else 1
    better = [gap for gap in tested if gap.significant and sign * gap.mean > 0]
    worse = [gap for gap in tested if gap.significant and sign * gap.mean < 0]
    base = name_label(view.axis(comparison["axis"]), comparison["baseline"])
    head = f"By {name_measure(metric)}, "
    if not better and not worse:
        return f"{head}none of {len(tested)} differences from {base} is significant."
    gains = "is a significant gain" if len(better) == 1 else "are significant gains"
    losses = f"{len(worse)} are significant losses"
    if len(worse) < 2:
        losses = f"{len(worse) or 'none'} is a significant loss"
    text = f"{head}{len(better)} of {len(tested)} differences from {base} {gains} and {losses}."
    if better:
        share = view.is_percent(metric)
        sizes = sorted(abs(gap.mean) for gap in better)
        ends = dict.fromkeys(format_number(size, share) for size in (sizes[0], sizes[-1]))
        amount = _add_unit(" to ".join(ends).replace(f"{SPACE}%", ""), metric, share)
        text += f" The {'gain is' if len(better) == 1 else 'gains are'} {amount}."
    return text


# --- two axes -----------------------------------------------------------------------------------


def name_best_cell(view: View) -> str:
    """Name the best point of two crossed axes by the first metric; empty for other studies.

    Where no point is shown to be better than the baseline, none is called best.
    """
    grid = _find_means(view)
    if not grid:
        return ""
    metric, means = grid
    known = {place: mean.mean for place, mean in means.items() if mean}
    levels = find_baseline(view, metric)[1]
    families = view.families(view.comparisons[0]["axis"])
    if not known or all(find_behind(family, metric, levels)[1] for family in families):
        return ""
    choose = min if lower_is_better(metric) else max
    best = choose(known, key=lambda place: known[place])
    first, second = view.axes
    share = view.is_percent(metric)
    value = format_number(known[best], share)
    if not share:
        value = f"{value} {unit(metric)}".rstrip()
    point = f"{first.qualified(best[0])}, {second.qualified(best[1])}"
    return f"Best by {name_measure(metric)}: {point} ({value})."


def tabulate_grid(view: View) -> Table | None:
    """Tabulate the means of two crossed axes by the first metric; None for other studies."""
    grid = _find_means(view)
    if not grid:
        return None
    metric, means = grid
    first, second = view.axes
    share = view.is_percent(metric)
    rows = []
    for label in first.labels:
        row = [means.get((label, other)) for other in second.labels]
        rows.append([label, *(format_number(mean.mean, share) if mean else HOLE for mean in row)])
    return Table([f"{first.words}, {second.words}", *second.labels], rows)


def _find_means(view: View) -> tuple[str, dict[tuple[str, str], Summary | None]] | None:
    """Return the first metric and its mean at each point of a study of two compared axes.

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
    return metric, {at: summarize(runs, get_metric(metric)) for at, runs in whole.items()}


# --- warnings -----------------------------------------------------------------------------------


def list_warnings(view: View) -> list[str]:
    """Say what keeps the whole study from being an answer: missing cells, too few seeds."""
    found = []
    states = Counter(
        "evaluation failed" if result.state.name == "done" else result.state.name
        for result in view.results
        if result.state.name != "done" or result.errors
    )
    if states:
        counts = ", ".join(f"{count} {name}" for name, count in states.items())
        found.append(
            f"{sum(states.values())} of {len(view.results)} cells lack results ({counts}): means "
            "are over fewer seeds there, or missing. The end of the report lists these cells."
        )
    planned = {result.entry.seed for result in view.results}
    seeds = len({result.entry.seed for result in view.results if result.metrics})
    so_far = " so far" if seeds < len(planned) else ""
    if seeds == 1:
        found.append(
            f"One seed{so_far}: there is no interval and no p, and any difference may be chance."
        )
    elif 0 < seeds < ENOUGH:
        found.append(
            f"{seeds} seeds{so_far}, fewer than {ENOUGH}: their spread is hardly known, and "
            "intervals are very wide."
        )
    return found
