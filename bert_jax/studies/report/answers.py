"""What a study found: its findings, an answer in at most 60 words, and warnings."""

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bert_jax.reporting import text_table
from bert_jax.reporting.metric_names import find_direction
from bert_jax.studies.report import best_value, compare, figures, verdicts
from bert_jax.studies.report.baselines import find_baseline, find_behind, warn_of_behind
from bert_jax.studies.report.best_value import Best
from bert_jax.studies.report.blocks import Code, Link
from bert_jax.studies.report.compare import Difference
from bert_jax.studies.report.families import Family, name_place
from bert_jax.studies.report.verdicts import Judged
from bert_jax.studies.report.view import View, get_metric, summarize
from bert_jax.studies.report.wording import format_amount, format_number, name_measure
from bert_jax.studies.spec import Comparison
from bert_jax.system.counts import format_count

ENOUGH = 3  # seeds; with fewer an interval says little or does not exist
WORDS = 60  # of the answer, with the line on brackets and the name of the page on methods
BRACKETS = "Brackets are simultaneous 95 % intervals, bold is significant: "
METHODS = "docs/statistics.md"


class Findings(NamedTuple):
    """Differences and best values for each comparison, and verdicts on claims."""

    gaps: Sequence[Sequence[Difference]]
    best: Sequence[Sequence[Best]]  # by the study's budget, and at equal FLOPs
    claims: Sequence[Judged]


def compute_findings(view: View) -> Findings:
    """Compute all differences, best values and verdicts of a study."""
    gaps: list[list[Difference]] = []
    for comparison in view.comparisons:
        families = view.families(comparison.axis)
        gaps.append([])
        for metric in comparison.metrics:
            gaps[-1] += compare.compare_families(
                view.resample(metric), families, comparison.baseline, metric, view.family_count
            )
    best = [best_value.fit_best_values(view, comparison) for comparison in view.comparisons]
    return Findings(gaps, best, verdicts.judge_claims(view))


def list_leads(view: View, found: Findings) -> list[str]:
    """List the sentences of a study's answer, from the first metric of each comparison.

    They name the best value of an axis, or the best point, and count the significant differences.
    If the sentences exceed 60 words, the last of them are replaced by their number.
    """
    best = [several[0].answer() for several in found.best if several]
    leads = best or [_name_best_point(view)]
    for comparison, gaps in zip(view.comparisons, found.gaps, strict=True):
        leads += [count_significant(comparison, m, gaps) for m in comparison.metrics[:1]]
    leads = list(filter(None, leads))
    room = WORDS - count_words([BRACKETS, METHODS])
    kept = leads
    for left_out in range(1, len(leads) + 1):
        if count_words(kept) <= room:
            break
        kept = [*leads[:-left_out], f"{format_count(left_out, 'more finding')} below."]
    return kept


def count_words(sentences: Sequence[str]) -> int:
    """Count the words of all sentences together."""
    return sum(len(sentence.split()) for sentence in sentences)


def link_methods(workdir: Path) -> str:
    """Return a link from the report in `workdir` to docs/statistics.md, or else only its name.

    There is no link if no folder above `workdir` has the page.
    """
    place = workdir.resolve()
    for folder in place.parents:
        if (folder / METHODS).is_file() and (folder / "bert_jax").is_dir():
            return Link(METHODS, os.path.relpath(folder / METHODS, place))
    return Code(METHODS)


def format_answer(view: View, found: Findings) -> str:
    """Format the answer for the terminal: its sentences, a matrix of two axes, and warnings."""
    lines = list_leads(view, found)
    if len(view.study.axes) == 2 and (crossed := figures.draw_crossed(view)):
        heat = next(iter(crossed.values()))
        rows = [[f"{heat.y} by {heat.x}", *heat.columns]]
        for label, values in zip(heat.rows, heat.values, strict=True):
            rows.append([label, *(format_number(value, heat.percent) for value in values)])
        lines.append(text_table.format_table(rows))
    return "\n".join([*lines, *list_warnings(view)])


def find_leader(
    family: Family, metric: str, baseline: str, gaps: Sequence[Difference]
) -> str | None:
    """Find the label of the best point of a family (runs that differ in one axis only).

    Points are compared by their paired difference from the baseline if there are pairs, else by
    their means. Means of points with different seeds also differ by the effects of the seeds;
    paired differences do not. The result is None for a metric without a direction.
    """
    direction = find_direction(metric)
    own = [gap for gap in gaps if (gap.metric, gap.family) == (metric, family.name)]
    known = {gap.point: gap.mean for gap in own if gap.pairs}
    values = {baseline: 0.0} | known  # of equals the baseline leads
    if not known:
        means = {label: summarize(runs, get_metric(metric)) for label, runs in family.runs.items()}
        values = {label: mean.mean for label, mean in means.items() if mean}
    if not values or not direction:
        return None
    return max(values, key=lambda label: direction * values[label])


def _name_best_point(view: View) -> str:
    """Write a sentence on the best point of a study, among those that have every seed.

    If no point is shown to be better than the metric's baseline, the sentence says that instead.
    """
    comparison = view.comparisons[0]
    metric = next((m for m in comparison.metrics if m in view.metrics), "")
    direction = find_direction(metric)
    if not direction:
        return ""
    measure = name_measure(metric)
    words, levels = find_baseline(view, metric)
    families = view.families(comparison.axis)
    if all(find_behind(family, metric, levels)[1] for family in families):
        return f"No point is shown to be better than {words} by {measure}."
    known = {}
    for runs in view.points().values():
        mean = figures.find_whole_mean(runs, metric)
        if mean == mean:
            known[name_place(view.study.axes, runs[0].entry.labels)] = mean
    if not known:
        return ""
    best = max(known, key=lambda place: direction * known[place])
    value = format_amount(known[best], metric, view.is_percent(metric))
    if not best:
        return f"The {measure} is {value}."
    least = "lowest" if direction < 0 else "highest"
    return f"The {least} {measure}, {value}, is that of {best}."


def count_significant(comparison: Comparison, metric: str, gaps: Sequence[Difference]) -> str:
    """Write a sentence that counts the significant gains and losses among differences of a metric.

    The result is "" if no difference has an interval.
    """
    tested = [gap for gap in gaps if gap.metric == metric and gap.tested]
    if not tested:
        return ""
    significant = [gap.mean for gap in tested if gap.significant]
    direction = find_direction(metric)
    gains = sum(direction * mean > 0 for mean in significant)
    counts = [
        format_count(gains, "significant gain"),
        format_count(len(significant) - gains, "significant loss", "significant losses"),
    ]
    if not direction:
        counts = [f"{len(significant)} significant"]
    differences = format_count(len(tested), "difference")
    measure = f"{comparison.baseline} by {name_measure(metric)}"
    return f"Of {differences} from {measure}: {', '.join(counts)}."


def list_warnings(view: View) -> list[str]:
    """List the warnings of a study: cells without results, few seeds, points behind baselines."""
    warned = []
    states = Counter(
        "evaluation failed" if result.state.name == "done" else result.state.name
        for result in view.results
        if result.state.name != "done" or result.errors
    )
    if states:
        counts = ", ".join(f"{count} {name}" for name, count in states.items())
        warned.append(
            f"{sum(states.values())} of {len(view.results)} cells lack results ({counts}): means "
            "are over fewer seeds there, or missing. The end of the report lists these cells."
        )
    planned = {result.entry.seed for result in view.results}
    seeds = len({result.entry.seed for result in view.results if result.metrics})
    so_far = " so far" if seeds < len(planned) else ""
    if seeds == 1:
        warned.append(f"One seed{so_far}: there is no interval, and any difference may be chance.")
    elif 0 < seeds < ENOUGH:
        warned.append(
            f"{seeds} seeds{so_far}, fewer than {ENOUGH}: their spread is hardly known, and "
            "intervals are very wide."
        )
    for comparison in view.comparisons:
        warned += warn_of_behind(view, comparison)
    return list(dict.fromkeys(warned))
