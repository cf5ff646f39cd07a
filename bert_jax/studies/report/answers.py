"""Answer of a study in sentences, and the warnings to read it with."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from bert_jax.reporting.formats import SPACE, number
from bert_jax.reporting.metric_names import CHANCE, baselines, lower_is_better, pretty, unit
from bert_jax.studies.report import aggregate, intervals
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
    """List the points that are not shown to be better than the baseline, and whether all are.

    Each run is held against the baseline of its own evaluation. An interval over seeds and, if the
    metric has one, over examples decides. With neither, the sign decides.
    """
    sign, worse, known = 1 if lower_is_better(metric) else -1, [], 0
    for label, runs in family.runs.items():
        held = [run for run in runs if run.entry.id in levels]
        known += bool(held) or bool(aggregate.values(runs, getter(metric)))
        if not held:
            continue
        away = [sign * (run.metrics[metric] - levels[run.entry.id]) for run in held]
        mean = intervals.summary(away)
        seeds = mean.high - mean.mean if mean.n > 1 else 0.0
        # The same examples are read with each seed, so that more seeds do not narrow this part.
        examples = [
            run.metrics[metric] - run.metrics.get(f"{metric}_low", run.metrics[metric])
            for run in held
        ]
        highest = mean.mean + math.hypot(seeds, math.fsum(examples) / len(examples))
        worse += [label] if highest >= 0 else []
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


CLAUSES = 2  # families that a sentence names one by one
WORDS = 60  # of an answer at most


def lead(
    view: View, comparison: Mapping[str, Any], differences: Sequence[Difference], best: str = ""
) -> str:
    """Answer a comparison by its first metric, in at most 60 words.

    With the best value of the axis, the differences are left out where there is no room for both.

    Args:
      view: the study.
      comparison: of the study.
      differences: of the comparison.
      best: what is known of the best value of the axis, in a sentence.
    """
    if not comparison["metrics"]:
        return best
    said = sentence(view, comparison, comparison["metrics"][0], differences, bool(best))
    text = f"{best} {said}".strip()
    return best if best and len(text.split()) > WORDS else text


def sentence(
    view: View,
    comparison: Mapping[str, Any],
    metric: str,
    differences: Sequence[Difference],
    counted: bool = False,
) -> str:
    """Answer a comparison by one metric: differences with their simultaneous intervals.

    Several families are counted together. Two are with `counted`, or where their clauses are too
    long. Without intervals the first clause then stands alone.
    """
    families, clauses = view.families(comparison["axis"]), []
    families = [family for family in families if len(family.runs) > 1] or families
    tested = [gap for gap in differences if gap.metric == metric and gap.tested]
    if tested and (counted or len(families) > CLAUSES):
        return count_significant(view, comparison, metric, differences)
    # If nothing is tested, the last of many stands for all, such as the largest budget.
    for family in families[-1:] if len(families) > CLAUSES else families:
        clause = _Clause(view, comparison, family, metric, differences).text()
        clauses.append(f"for {family.name}, {clause}" if len(families) > 1 else clause)
    sentences = [f"{clause[:1].upper()}{clause[1:]}." for clause in clauses]
    if len(" ".join(sentences).split()) > WORDS:
        if tested:
            return count_significant(view, comparison, metric, differences)
        return sentences[0]
    return " ".join(sentences)


def count_significant(
    view: View, comparison: Mapping[str, Any], metric: str, differences: Sequence[Difference]
) -> str:
    """Count the significant differences either way, and give the range of the gains.

    The text is empty if no difference of the metric has an interval.
    """
    tested = [gap for gap in differences if gap.metric == metric and gap.tested]
    if not tested:
        return ""
    sign = -1 if lower_is_better(metric) else 1
    better = [gap for gap in tested if gap.significant and sign * gap.mean > 0]
    worse = [gap for gap in tested if gap.significant and sign * gap.mean < 0]
    base = _label(view.axis(comparison["axis"]), comparison["baseline"])
    head = f"By {measure_name(metric)}, "
    if not better and not worse:
        return f"{head}none of {len(tested)} differences from {base} is significant."
    gains = "is a significant gain" if len(better) == 1 else "are significant gains"
    losses = f"{len(worse)} are significant losses"
    if len(worse) < 2:
        losses = f"{len(worse) or 'none'} is a significant loss"
    text = f"{head}{len(better)} of {len(tested)} differences from {base} {gains} and {losses}."
    if better:
        share = aggregate.percent(metric, view.results)
        sizes = sorted(abs(gap.mean) for gap in better)
        ends = dict.fromkeys(plain(size, share) for size in (sizes[0], sizes[-1]))
        amount = " to ".join(ends).replace(f"{SPACE}%", "")
        amount += f" {'percentage points' if share else unit(metric)}"
        verb = "gain is" if len(better) == 1 else "gains are"
        text += f" The {verb} {amount.rstrip()}."
    return text


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
        self.measure = measure_name(metric)

    def text(self) -> str:
        if self.best is None:
            return f"there is no {self.measure}"
        if behind(self.family, self.metric, self.levels)[1]:
            return self._all_behind()
        if not self.gaps:
            return self._untested()
        if self.best == self.base:
            return self._baseline_leads()
        best = next(gap for gap in self.gaps if gap.point == self.best)
        found = [
            gap
            for gap in self.gaps
            if gap.significant and (gap.mean < 0) == self.lower and gap.mean
        ]
        if not found:
            return self._not_significant(best)
        shown = (min if self.lower else max)(found, key=lambda gap: gap.mean)
        text = (
            f"{_point(self.axis, shown.point)} has a {self.less} {self.measure} than "
            f"{_label(self.axis, self.base)}, by {self._amount(shown)}"
        )
        if shown is best:
            return text
        name = _label(self.axis, best.point)
        return f"{text}. The {self.least}, at {name}, is not significantly different"

    def _not_significant(self, best: Difference) -> str:
        base = _label(self.axis, self.base)
        if not any(gap.tested for gap in self.gaps):
            return (
                f"nothing is tested yet: {_point(self.axis, best.point)} has the {self.least} "
                f"{self.measure}, ahead of {base} by {self._amount(best)}"
            )
        return (
            f"no {self.axis.words} has a significantly {self.less} {self.measure} than {base}: the "
            f"{self.least}, at {_label(self.axis, best.point)}, is ahead by {self._amount(best)}"
        )

    def _baseline_leads(self) -> str:
        more = "higher" if self.lower else "lower"
        nearest = (min if self.lower else max)(self.gaps, key=lambda gap: gap.mean)
        more = f"significantly {more}" if nearest.significant else more
        text = (
            f"the baseline, {_point(self.axis, self.base)}, has the {self.least} {self.measure}. "
            f"The nearest, {_label(self.axis, nearest.point)}, is {more} by "
            f"{self._amount(nearest)}"
        )
        unproven = nearest.tested and not nearest.significant
        return f"{text}, which is not significant" if unproven else text

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
            return f"nothing is compared: only {name} has a {self.measure}, {value}"
        why = "the study names no baseline"
        if self.base:
            why = f"the baseline, {_label(self.axis, self.base)}, has no results to pair with"
            why = "no seed has both" if self.base in has else why
        name = _point(self.axis, self.best or "")
        return (
            f"nothing is tested, because {why}: {name} has the {self.least} {self.measure}, {value}"
        )

    def _all_behind(self) -> str:
        runs = self.family.runs[self.best or ""]
        mean = aggregate.summary(runs, getter(self.metric))
        assert mean is not None
        known = [run.entry.id for run in runs if run.entry.id in self.levels]
        own = {name: self.levels[name] for name in known}
        away = plain(abs(mean.mean - math.fsum(own.values()) / len(own)), self.share)
        return (
            f"no point is shown to be better than {self.words} ({level_text(own, self.share)}) by "
            f"{self.measure}. The nearest, {_point(self.axis, self.best or '')}, is "
            f"{self._with_unit(away)} from it"
        )

    def _amount(self, gap: Difference) -> str:
        """Write the size of a difference and its interval the same way round."""
        sign = -1 if gap.mean < 0 else 1
        size = self._with_unit(plain(abs(gap.mean), self.share))
        if not gap.tested:
            return f"{size} (no interval)"
        low, high = sorted((sign * gap.low, sign * gap.high))
        ends = [end.removesuffix(f"{SPACE}%") for end in aggregate.ends(low, high, self.share)]
        return f"{size} ({' to '.join(ends)})"

    def _with_unit(self, size: str) -> str:
        if self.share:
            return f"{size.removesuffix(f'{SPACE}%')} percentage points"
        return f"{size} {unit(self.metric)}".rstrip()


def measure_name(metric: str) -> str:
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
    """Warn of points that are not shown to be better than reading no context."""
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
            which = "every point" if everything else "; ".join(listed)
            found.append(
                f"Not shown to be better than {words} ({level}) by {measure_name(metric)}: {which}."
            )
    return found
