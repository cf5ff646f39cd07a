"""A metric's baseline, which is reached without context, and the points that do not beat it."""

import math
from collections.abc import Mapping, Sequence

from bert_jax.reporting.formats import SPACE, number
from bert_jax.reporting.metric_names import CHANCE, CORRECTED, list_baselines, need_direction
from bert_jax.studies.cell_result import Result
from bert_jax.studies.report.families import Family
from bert_jax.studies.report.intervals import summarize_values
from bert_jax.studies.report.view import View, find_values, get_metric
from bert_jax.studies.report.wording import join_names, name_measure
from bert_jax.studies.spec import Comparison

LISTED = 6  # points of a warning, at most; more are counted


def find_baseline(view: View, metric: str) -> tuple[str, dict[str, float]]:
    """Find a metric's baseline: its name, such as "the unigram", and its value in each cell.

    The values are {cell: value}, without cells whose baseline is unknown.
    """
    evaluation, _, name = metric.partition("/")
    keys, words = list_baselines(name)
    with_metric = [result for result in view.results if metric in result.metrics]
    levels = {}
    for result in with_metric:
        for key in (f"{evaluation}/{key}" for key in reversed(keys)):
            if key in result.metrics:
                levels[result.entry.id] = result.metrics[key]
    suite = view.study.evaluations.get(evaluation, {}).get("name", "")
    plain = name.removesuffix(CORRECTED)
    chance = CHANCE.get(f"{suite}/{plain}", CHANCE.get(plain))
    if not levels and chance is not None:
        return "chance", {result.entry.id: chance for result in with_metric}
    return words, levels


def list_levels(view: View, metric: str) -> list[tuple[str, float]]:
    """List (name, value) of each line that a chart draws for a metric's baseline.

    There is one line. If the baseline differs between cells, there are two, at its lowest and
    highest value, and the second has no name.
    """
    words, levels = find_baseline(view, metric)
    ends = sorted({round(level, 6) for level in levels.values()})
    if not ends:
        return []
    return [(words.removeprefix("the "), ends[0]), *(("", end) for end in ends[1:][-1:])]


def find_behind(family: Family, metric: str, levels: Mapping[str, float]) -> tuple[list[str], bool]:
    """Return the points that are not shown to beat the baseline, and whether these are all points.

    `levels` maps the id of each cell to the baseline's value in the evaluation of this cell.
    A point beats the baseline if the interval of its gain lies above 0. The interval covers
    seeds, and also examples if the metric has an interval over examples. Without an interval,
    the sign of the gain decides.
    """
    behind = []
    known = 0
    for label, runs in family.runs.items():
        held = [run for run in runs if run.entry.id in levels]
        known += bool(held) or bool(find_values(runs, get_metric(metric)))
        if held and _includes_baseline(held, metric, levels):
            behind.append(label)
    return behind, bool(behind) and len(behind) == known


def _includes_baseline(runs: Sequence[Result], metric: str, levels: Mapping[str, float]) -> bool:
    """Tell whether the interval of the runs' gain over the baseline includes 0 or less."""
    sign = -need_direction(metric)
    gaps = [sign * (run.metrics[metric] - levels[run.entry.id]) for run in runs]
    mean = summarize_values(gaps)
    seeds = mean.high - mean.mean if mean.n > 1 else 0.0
    # The same examples are read with each seed, so that more seeds do not narrow this part.
    examples = [
        run.metrics[metric] - run.metrics.get(f"{metric}_low", run.metrics[metric]) for run in runs
    ]
    return mean.mean + math.hypot(seeds, math.fsum(examples) / len(examples)) >= 0


def warn_of_behind(view: View, comparison: Comparison) -> list[str]:
    """Warn of points that are not shown to be better than the baseline."""
    warned = []
    families = view.families(comparison.axis)
    for metric in comparison.metrics:
        words, levels = find_baseline(view, metric)
        found = {family.name: find_behind(family, metric, levels) for family in families}
        count = sum(len(labels) for labels, _ in found.values())
        if not count:
            continue
        listed = [
            f"{f'{name}: ' if name else ''}{join_names(*labels)}"
            for name, (labels, _) in found.items()
            if labels
        ]
        which = "; ".join(listed)
        if all(whole for _, whole in found.values()):
            which = "every point"
        elif count > LISTED:
            runs = (runs for family in families for runs in family.runs.values())
            known = sum(bool(find_values(one, get_metric(metric))) for one in runs)
            which = f"{count} of {known} points"
        share = view.is_percent(metric)
        ends = dict.fromkeys(number(end(levels.values()), share) for end in (min, max))
        level = " to ".join(ends).replace(f"{SPACE}% to", " to")
        warned.append(
            f"Not shown to be better than {words} ({level}) by {name_measure(metric)}: {which}."
        )
    return warned
