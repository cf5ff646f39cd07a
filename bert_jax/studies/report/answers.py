"""Answer of a study in sentences, and the warnings to read it with."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from bert_jax.reporting.formats import SPACE, number
from bert_jax.reporting.metric_names import CHANCE, baselines, lower_is_better, pretty, unit
from bert_jax.studies.report import aggregate
from bert_jax.studies.report.aggregate import View, getter, plain
from bert_jax.studies.report.collect import Axis, Family
from bert_jax.studies.report.compare import Difference

ENOUGH = 3  # seeds; with fewer an interval says little or does not exist
EVEN = 0.5  # accuracy of guessing which of two sentences is right


# --- baselines ---------------------------------------------------------------------------------


def reference(view: View, metric: str) -> tuple[str, dict[str, float]]:
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


def level_text(levels: Mapping[str, float], share: bool) -> str:
    """Write a baseline's level, or its range where cells differ in it."""
    ends = dict.fromkeys(number(end(levels.values()), share) for end in (min, max))
    return " to ".join(ends)


def behind(family: Family, metric: str, levels: Mapping[str, float]) -> tuple[list[str], bool]:
    """List the points that are on average no better than the baseline, and whether these are all.

    Each run is held against the baseline of its own evaluation.
    """
    sign, worse, known = 1 if lower_is_better(metric) else -1, [], 0
    for label, runs in family.runs.items():
        away = [
            sign * (run.metrics[metric] - levels[run.entry.id])
            for run in runs
            if run.entry.id in levels
        ]
        known += bool(away) or bool(aggregate.values(runs, getter(metric)))
        worse += [label] if away and math.fsum(away) >= 0 else []
    return worse, bool(worse) and len(worse) == known


# --- the answer --------------------------------------------------------------------------------


def leader(
    family: Family, metric: str, baseline: str, differences: Sequence[Difference]
) -> str | None:
    """Return the best point: by its difference from the baseline in pairs, else by its mean.

    A mean over other seeds than those of the others is shifted by them; a paired difference is not.
    """
    known = {gap.point: gap.mean for gap in _of(differences, metric, family) if gap.pairs}
    values = {baseline: 0.0} | known  # of equals the baseline leads
    if not known:
        means = {
            label: aggregate.summary(runs, getter(metric)) for label, runs in family.runs.items()
        }
        values = {label: mean.mean for label, mean in means.items() if mean}
    choose = min if lower_is_better(metric) else max
    return choose(values, key=lambda label: values[label]) if values else None


def sentence(
    view: View, comparison: Mapping[str, Any], metric: str, differences: Sequence[Difference]
) -> str:
    """Answer a comparison by one metric in one sentence: difference, interval and corrected p."""
    families, clauses = view.families(comparison["axis"]), []
    families = [family for family in families if len(family.runs) > 1] or families
    for family in families:
        clause = _Clause(view, comparison, family, metric, differences).text()
        clauses.append(f"for {family.name}, {clause}" if len(families) > 1 else clause)
    text = "; ".join(clauses)
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def _of(differences: Sequence[Difference], metric: str, family: Family) -> list[Difference]:
    return [d for d in differences if (d.metric, d.family) == (metric, family.name)]


class _Clause:
    """What one family says by one metric, as a part of a sentence."""

    def __init__(
        self,
        view: View,
        comparison: Mapping[str, Any],
        family: Family,
        metric: str,
        differences: Sequence[Difference],
    ):
        self.axis, self.base = view.axis(comparison["axis"]), comparison["baseline"]
        self.family, self.metric = family, metric
        self.words, self.levels = reference(view, metric)
        self.share = aggregate.percent(metric, view.results)
        self.gaps = [gap for gap in _of(differences, metric, family) if gap.pairs]
        self.best = leader(family, metric, self.base, differences)
        self.lower = lower_is_better(metric)
        self.less, self.least = ("lower", "lowest") if self.lower else ("higher", "highest")
        self.measure = _measure(metric)

    def text(self) -> str:
        if self.best is None:
            return f"nothing is known yet of the {self.measure}"
        if behind(self.family, self.metric, self.levels)[1]:
            return self._all_behind()
        if not self.gaps:
            return self._untested()
        if self.best == self.base:
            return self._baseline_leads()
        best = next(gap for gap in self.gaps if gap.point == self.best)
        resolved = [
            gap for gap in self.gaps if gap.resolved and (gap.mean < 0) == self.lower and gap.mean
        ]
        if not resolved:
            return self._open(best)
        shown = (min if self.lower else max)(resolved, key=lambda gap: gap.mean)
        text = (
            f"{_point(self.axis, shown.point)} has a {self.less} {self.measure} than "
            f"{_label(self.axis, self.base)}, by {self._amount(shown)}"
        )
        if shown is best:
            return text
        name = _label(self.axis, best.point)
        return f"{text}, while the {self.least}, at {name}, is open, by {self._amount(best)}"

    def _open(self, best: Difference) -> str:
        base = _label(self.axis, self.base)
        if all(math.isnan(gap.p) for gap in self.gaps):
            return (
                f"nothing is tested yet: {_point(self.axis, best.point)} has the {self.least} "
                f"{self.measure}, ahead of {base} by {self._amount(best)}"
            )
        return (
            f"no {self.axis.words} is shown to have a {self.less} {self.measure} than {base}: the "
            f"{self.least}, at {_label(self.axis, best.point)}, is open, ahead by "
            f"{self._amount(best)}"
        )

    def _baseline_leads(self) -> str:
        more = "higher" if self.lower else "lower"
        nearest = (min if self.lower else max)(self.gaps, key=lambda gap: gap.mean)
        known = (
            "" if math.isnan(nearest.p) else " and differs" if nearest.resolved else " and is open"
        )
        return (
            f"{_point(self.axis, self.base)}, the baseline, has the {self.least} {self.measure}; "
            f"the nearest, {_label(self.axis, nearest.point)}, is {more} by "
            f"{self._amount(nearest)}{known}"
        )

    def _untested(self) -> str:
        runs = self.family.runs[self.best or ""]
        value = aggregate.plus_minus(
            aggregate.summary(runs, getter(self.metric)), len(runs), self.share
        )
        value += "" if self.share else f" {unit(self.metric)}".rstrip()
        if len(self.family.runs) == 1:
            return f"the {self.measure} is {value}"
        has = [
            label
            for label, of in self.family.runs.items()
            if aggregate.summary(of, getter(self.metric))
        ]
        if has == [self.base]:
            name = _point(self.axis, self.base)
            return f"nothing is compared: {name} alone has a {self.measure}, {value}"
        why = "the study names no baseline"
        if self.base:
            why = f"the baseline, {_label(self.axis, self.base)}, has no results to pair with"
            why = "no seed has both" if self.base in has else why
        name = _point(self.axis, self.best or "")
        return f"nothing is tested, as {why}: {name} has the {self.least} {self.measure}, {value}"

    def _all_behind(self) -> str:
        runs = self.family.runs[self.best or ""]
        mean = aggregate.summary(runs, getter(self.metric))
        assert mean is not None
        known = [run.entry.id for run in runs if run.entry.id in self.levels]
        own = {name: self.levels[name] for name in known}
        away = plain(abs(mean.mean - math.fsum(own.values()) / len(own)), self.share)
        return (
            f"no run is better than {self.words} by {self.measure}, so none is called best: the "
            f"nearest, {_point(self.axis, self.best or '')}, is {self._with_unit(away)} worse than "
            f"{self.words} ({level_text(own, self.share)})"
        )

    def _amount(self, gap: Difference) -> str:
        """Write the size of a difference, its interval the same way round, and its p value."""
        sign, (low, high) = (-1 if gap.mean < 0 else 1), gap.widest
        size = self._with_unit(plain(abs(gap.mean), self.share))
        if math.isnan(gap.p):
            return f"{size} (one pair of runs: no interval, no p)"
        ends = sorted((sign * low, sign * high))
        low_text, high_text = (plain(end, self.share).removesuffix(f"{SPACE}%") for end in ends)
        p = aggregate.probability(gap.corrected)
        equals = "" if p.startswith("<") else f"={SPACE}"
        return (
            f"{size} (95{SPACE}% interval {low_text} to {high_text}, Holm-corrected "
            f"p{SPACE}{equals}{p})"
        )

    def _with_unit(self, size: str) -> str:
        if self.share:
            return f"{size.removesuffix(f'{SPACE}%')} percentage points"
        return f"{size} {unit(self.metric)}".rstrip()


def _measure(metric: str) -> str:
    """Write a metric's name inside a sentence."""
    text = pretty(metric)
    return text if text[:2].isupper() else f"{text[:1].lower()}{text[1:]}"


def _label(axis: Axis, label: str) -> str:
    """Write the label of a point; one that is no number stands in quotation marks."""
    label = label.replace(" %", f"{SPACE}%")
    return label if axis.numeric else f"“{label}”"


def _point(axis: Axis, label: str) -> str:
    """Write a point to begin a clause with: a number says of what it is."""
    return f"{axis.words} {_label(axis, label)}" if axis.numeric else _label(axis, label)


# --- warnings ----------------------------------------------------------------------------------


def warnings(view: View) -> list[str]:
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


def behind_baseline(view: View, comparison: Mapping[str, Any]) -> list[str]:
    """Warn of points that are no better than what reading no context reaches."""
    found = []
    axis, families = view.axis(comparison["axis"]), view.families(comparison["axis"])
    for metric in comparison["metrics"]:
        words, levels = reference(view, metric)
        listed, everything = [], bool(levels)
        for family in families:
            worse, whole = behind(family, metric, levels)
            everything &= whole
            where = f"{family.name}: " if family.name and len(families) > 1 else ""
            listed += [f"{where}{', '.join(_label(axis, label) for label in worse)}"] * bool(worse)
        if listed:
            level = level_text(levels, aggregate.percent(metric, view.results))
            which = "every run" if everything else "; ".join(listed)
            found.append(f"No better than {words} ({level}) by {_measure(metric)}: {which}.")
    return found
