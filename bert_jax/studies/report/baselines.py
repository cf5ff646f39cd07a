"""What a metric reaches without reading any context, and which points are not shown to beat it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from bert_jax.reporting.formats import SPACE, number
from bert_jax.reporting.metric_names import CHANCE, baselines, lower_is_better, pretty
from bert_jax.studies.report import intervals
from bert_jax.studies.report.collect import Axis, Family, Result
from bert_jax.studies.report.view import View, find_values, get_metric

EVEN = 0.5  # accuracy of guessing which of two sentences is right


def find_baseline(view: View, metric: str) -> tuple[str, dict[str, float]]:
    """Return the words of a metric's baseline, and its level for every cell that has both."""
    evaluation, _, name = metric.partition("/")
    keys, words = baselines(name)
    with_metric = [result for result in view.results if metric in result.metrics]
    levels = {}
    for result in with_metric:
        known = [result.metrics.get(f"{evaluation}/{key}") for key in keys]
        if (level := next((value for value in known if value is not None), None)) is not None:
            levels[result.entry.id] = level
    pairs = view.study.get("evaluations", {}).get(evaluation, {}).get("name") == "blimp"
    chance = EVEN if pairs and name == "accuracy" else CHANCE.get(name)
    if not levels and chance is not None:
        return "chance", {result.entry.id: chance for result in with_metric}
    return words, levels


def format_levels(levels: Mapping[str, float], share: bool) -> str:
    """Format a baseline's level, or its range where cells differ in it."""
    ends = dict.fromkeys(number(end(levels.values()), share) for end in (min, max))
    return " to ".join(ends)


def draw_levels(view: View, metric: str) -> list[tuple[str, float]]:
    """Return name and level of a metric's baseline; both ends of the range if cells differ."""
    words, levels = find_baseline(view, metric)
    ends = sorted({round(level, 6) for level in levels.values()})
    if not ends:
        return []
    return [(words.removeprefix("the "), ends[0]), *(("", end) for end in ends[1:][-1:])]


def find_behind(family: Family, metric: str, levels: Mapping[str, float]) -> tuple[list[str], bool]:
    """List the points that are not shown to be better than the baseline, and whether all are.

    Each run is held against the baseline of its own evaluation. An interval over seeds and, if the
    metric has one, over examples decides. With neither, the sign decides.
    """
    behind = []
    known = 0
    for label, runs in family.runs.items():
        held = [run for run in runs if run.entry.id in levels]
        known += bool(held) or bool(find_values(runs, get_metric(metric)))
        if held and _reaches(held, metric, levels):
            behind.append(label)
    return behind, bool(behind) and len(behind) == known


def _reaches(runs: Sequence[Result], metric: str, levels: Mapping[str, float]) -> bool:
    """Return whether the interval of some runs includes the baseline, or lies behind it."""
    sign = 1 if lower_is_better(metric) else -1
    mean = intervals.summarize_values(
        [sign * (run.metrics[metric] - levels[run.entry.id]) for run in runs]
    )
    seeds = mean.high - mean.mean if mean.n > 1 else 0.0
    # The same examples are read with each seed, so that more seeds do not narrow this part.
    examples = [
        run.metrics[metric] - run.metrics.get(f"{metric}_low", run.metrics[metric]) for run in runs
    ]
    return mean.mean + math.hypot(seeds, math.fsum(examples) / len(examples)) >= 0


def warn_of_behind(view: View, comparison: Mapping[str, Any]) -> list[str]:
    """Warn of points that are not shown to be better than reading no context."""
    found = []
    axis = view.axis(comparison["axis"])
    families = view.families(comparison["axis"])
    for metric in comparison["metrics"]:
        words, levels = find_baseline(view, metric)
        listed = []
        all_are = bool(levels)
        for family in families:
            behind, whole = find_behind(family, metric, levels)
            all_are &= whole
            if behind:
                where = f"{family.name}: " if family.name and len(families) > 1 else ""
                listed.append(where + ", ".join(name_label(axis, label) for label in behind))
        if listed:
            level = format_levels(levels, view.is_percent(metric))
            which = "every point" if all_are else "; ".join(listed)
            measure = name_measure(metric)
            found.append(f"Not shown to be better than {words} ({level}) by {measure}: {which}.")
    return found


def name_measure(metric: str) -> str:
    """Write a metric's name inside a sentence."""
    text = pretty(metric)
    return text if text[:2].isupper() else f"{text[:1].lower()}{text[1:]}"


def name_label(axis: Axis, label: str) -> str:
    """Write the label of a point; one that is no number stands in quotation marks."""
    label = label.replace(" %", f"{SPACE}%")
    return label if axis.numeric else f"“{label}”"
