"""Views of a study's results for tables and figures: points of axes, means, intervals, series."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bert_jax.reporting.figures import Chart, Figure, Series
from bert_jax.reporting.formats import HOLE, SIZES, SPACE, number, rounded
from bert_jax.reporting.metric_names import is_share
from bert_jax.studies.folder import StudyFolder
from bert_jax.studies.report import collect, compare, intervals
from bert_jax.studies.report.collect import Axis, Family, Result
from bert_jax.studies.report.compare import Difference
from bert_jax.studies.spec import Claimed

Figures = dict[str, Figure]  # by the names of their files
Value = Callable[[Result], float | None]
WIDE = 30.0  # an axis whose numbers are so many times apart is logarithmic
COLOURS = 6  # of the page's palette, one for each line of a figure
LINES = 5  # of a figure, at most, where several axes can divide them
TONES = 10  # of the page's sequence of colours
MAIN = ("mlm_loss", "accuracy", "f1")  # metrics compared by a study that names none


@dataclass(frozen=True)
class View:
    """Study in its present state: its folder, its study.json and the results of its cells."""

    place: StudyFolder
    study: Mapping[str, Any]
    results: Sequence[Result]

    @property
    def axes(self) -> list[Axis]:
        return collect.axes(self.study)

    def axis(self, name: str) -> Axis:
        """Return an axis by its name; a study without axes has one point."""
        return next((axis for axis in self.axes if axis.name == name), Axis(name, ("",), (None,)))

    @property
    def comparisons(self) -> list[dict[str, Any]]:
        """Return the study's comparisons; by default its main metrics over its last axis."""
        if self.study.get("comparisons"):
            return list(self.study["comparisons"])
        axis = self.axes[-1].name if self.axes else ""
        known = dict.fromkeys(key for result in self.results for key in result.metrics)
        metrics = [m for m in known if m.count("/") == 1 and m.partition("/")[2] in MAIN]
        return [{"axis": axis, "baseline": "", "metrics": metrics}]

    @property
    def names(self) -> str:
        """Return the names of all axes."""
        return ", ".join(axis.name for axis in self.axes)

    @property
    def claims(self) -> list[Claimed]:
        """Return the claims that the study states."""
        recorded = [Claimed(**claim) for claim in self.study.get("claims", [])]
        # JSON has lists for tuples.
        return [replace(c, more_at=c.more_at and (*c.more_at,)) for c in recorded]

    @property
    def family_count(self) -> int:
        """Count the families of the study, among which the level of its intervals is divided."""
        points: dict[tuple[str, ...], tuple[dict[str, str], set[str]]] = {}
        for result in self.results:
            labels = result.entry.labels
            _, evaluations = points.setdefault(tuple(labels.values()), (labels, set()))
            evaluations |= {metric.partition("/")[0] for metric in result.metrics}
            evaluations |= set(result.entry.evaluations)
        return compare.count_families(self.comparisons, self.claims, list(points.values()))

    def families(self, axis: str) -> list[Family]:
        return collect.families(self.study, self.results, axis)

    def panels(self, axis: str) -> dict[str, list[Family]]:
        """Divide the families of an axis among figures that have a colour for each.

        Where one figure has too few, each point of the first other axis has its own, and so on.
        """
        panels = {"": self.families(axis)}
        others = [one for one in self.axes if one.name != axis and len(one.labels) > 1]
        for other in others:
            if max(map(len, panels.values())) <= (LINES if len(others) > 1 else COLOURS):
                break
            panels = _divided(panels, other)
        return panels

    def points(self) -> list[tuple[str, list[Result]]]:
        """Group cells that differ in the seed alone, under the labels of all axes."""
        points: dict[str, list[Result]] = {}
        for result in self.results:
            points.setdefault(", ".join(result.entry.labels.values()) or "all", []).append(result)
        return list(points.items())


def _divided(panels: Mapping[str, Sequence[Family]], axis: Axis) -> dict[str, list[Family]]:
    """Divide each panel by the points of an axis."""
    divided: dict[str, list[Family]] = {}
    for name, families in panels.items():
        for family in families:
            runs = next(iter(family.runs.values()))
            point = axis.qualified(runs[0].entry.labels[axis.name])
            part = ", ".join(filter(None, [name, point]))
            divided.setdefault(part, []).append(family)
    return divided


def getter(metric: str) -> Value:
    """Return a function that takes a metric from a result."""
    return lambda result: result.metrics.get(metric)


def values(runs: Sequence[Result], value: Value) -> list[float]:
    """Return the finite values of runs, without those of runs that have none."""
    known = map(value, runs)
    return [number_ for number_ in known if number_ is not None and math.isfinite(number_)]


def left_out(runs: Sequence[Result], value: Value) -> bool:
    """Return whether the plan leaves a value out: its runs are done, and none of them has it."""
    done = all(run.state.name == "done" and not run.errors for run in runs)
    return done and not values(runs, value)


def summary(runs: Sequence[Result], value: Value) -> intervals.Summary | None:
    """Return the mean and its interval over the seeds that have a value; None without any."""
    known = values(runs, value)
    return intervals.summary(known) if known else None


def percent(metric: str, results: Sequence[Result]) -> bool:
    """Return whether to write a metric in per cent.

    It is a share by its name and by its values; SQuAD's scores are in per cent already.
    """
    return is_share(metric) and all(abs(r.metrics.get(metric, 0.0)) <= 1 for r in results)


def span(view: View) -> tuple[str, str]:
    """Return when the first attempt began and when the last note was made."""
    begun = [result.begun for result in view.results if result.begun]
    ended = [result.ended for result in view.results if result.ended]
    return min(begun, default=""), max(ended, default="")


# --- numbers as text ---------------------------------------------------------------------------


def plus_minus(mean: intervals.Summary | None, seeds: int, share: bool) -> str:
    """Format a mean with half its interval, and the number of its seeds if some are missing."""
    if mean is None:
        return f"{HOLE} (0 of {seeds})"
    text = plain(mean.mean, share)
    if math.isfinite(mean.high):
        half = plain(mean.high - mean.mean, share)
        text = f"{text.removesuffix(f'{SPACE}%')} ± {half}"
    return text if mean.n == seeds else f"{text} ({mean.n} of {seeds})"


def plain(value: float, share: bool = False, signed: bool = False, zero: bool = True) -> str:
    """Format a number of a table: two decimals for shares, else three; a dash if not finite.

    Without `zero` a number next to it has as many decimals as it takes to tell.
    """
    if not math.isfinite(value):
        return HOLE
    decimals, value = 2 if share or abs(value) >= 10 else 3, 100 * value if share else value
    if not zero and value and not round(value, decimals):
        decimals = -math.floor(math.log10(abs(value)))
    sign = "+" if signed and round(value, decimals) else "z"  # z: no minus before zero
    text = f"{value:{sign}.{decimals}f}{f'{SPACE}%' if share else ''}"
    return text.replace("-", "\N{MINUS SIGN}")


def interval(low: float, high: float, share: bool = False) -> str:
    """Format an interval of a table."""
    if not math.isfinite(low + high):
        return HOLE
    if share and high - low > 2:
        return f"wider than ±100{SPACE}%"
    first, last = ends(low, high, share, True)
    return f"{first.removesuffix(f'{SPACE}%')} to {last}"


def ends(low: float, high: float, share: bool = False, signed: bool = False) -> list[str]:
    """Format both ends of an interval; if it excludes zero, neither end is written as zero."""
    return [plain(end, share, signed, zero=low * high <= 0) for end in (low, high)]


def probability(value: float) -> str:
    """Format a p value with two digits; a small one as a bound."""
    if math.isnan(value):
        return HOLE
    if value < 1e-4:
        return f"<{SPACE}0.0001"
    return f"{value:.1g}" if value < 0.001 else f"{value:.2g}"


def short_amount(value: float) -> str:
    """Format a large number for people: 1.25 M."""
    if value < 1e6:
        return number(value)
    nearest = float(f"{value:.3g}")
    size, mark = next(pair for pair in SIZES if nearest >= pair[0])
    return f"{rounded(nearest / size)}{SPACE}{mark}"


def slug(*names: str) -> str:
    """Make the name of a figure's file from the names of what it shows."""
    text = "_".join(filter(None, names)).replace(" ", "").replace("/", "_").replace("%", "")
    return "".join(c if c.isalnum() or c in "._-" else "_" for c in text)


# --- figures over an axis ----------------------------------------------------------------------


def places(axis: Axis) -> dict[str, float]:
    """Place each point at its number, at the logarithm of far-apart numbers, or in its row."""
    if not axis.numeric:
        return {label: float(row) for row, label in enumerate(axis.labels)}
    return {
        label: math.log10(value) if _logarithmic(axis) else float(value)
        for label, value in zip(axis.labels, axis.values, strict=True)
    }


def _logarithmic(axis: Axis) -> bool:
    """Return whether the numbers of an axis are placed by their logarithms."""
    return axis.numeric and 0 < min(axis.values) < max(axis.values) / WIDE


def tone(index: int, count: int) -> str:
    """Return the colour of a point in the page's sequence for `count` ordered points."""
    return f"q{round(index * (TONES - 1) / max(count - 1, 1))}"


def chart_over(axis: Axis, title: str, series: Sequence[Series], **options: Any) -> Chart:
    """Describe a figure of series over an axis: a line chart of numbers, else a dot plot."""
    at = places(axis)
    if axis.numeric:
        options["ticks"] = [(at[label], label) for label in axis.labels]
    else:
        options["rows"] = axis.labels
    x = f"{axis.title}, logarithmic" if _logarithmic(axis) else axis.title
    return Chart(title, series, last=False, x=x, edge=True, **options)


def named(part: str, series: Sequence[Series]) -> list[Series]:
    """Take what all lines of a figure share, which its title says, from their names."""
    names = [
        line.name.removeprefix(part).removeprefix(", ") if part else line.name for line in series
    ]
    return [replace(line, name=name) for line, name in zip(series, names, strict=True)]


def means(axis: Axis, families: Sequence[Family], value: Value) -> list[Series]:
    """Make a line for every family: means over seeds, 95 % intervals, and every seed."""
    at, lines = places(axis), []
    for i, family in enumerate(families):
        points, whiskers, dots = [], [], []
        for label, runs in family.runs.items():
            mean = summary(runs, value)
            if mean is None:
                continue
            points.append((at[label], mean.mean))
            if math.isfinite(mean.high):
                whiskers.append((at[label], mean.low, mean.high))
            if mean.n > 1:
                dots += [(at[label], single) for single in values(runs, value)]
        lines.append(Series(family.name, points, 1 + i % COLOURS, whiskers=whiskers, dots=dots))
    return lines


def gaps(axis: Axis, families: Sequence[Family], differences: Sequence[Difference]) -> list[Series]:
    """Make a line for every family: paired differences from the baseline, with intervals."""
    at, lines = places(axis), []
    for i, family in enumerate(families):
        known = [d for d in differences if d.family == family.name and d.pairs]
        baseline = [(at[d.baseline], 0.0) for d in known[:1]]
        points = sorted([*baseline, *((at[d.point], d.mean) for d in known)])
        whiskers = [(at[d.point], d.low, d.high) for d in known if math.isfinite(d.high)]
        lines.append(Series(family.name, points, 1 + i % COLOURS, whiskers=whiskers))
    return lines


def seeds_note(families: Sequence[Family], value: Value) -> str:
    """Write how many seeds the means of a figure are over, and where there are fewer."""
    counts = {
        (family.name, label): (len(values(runs, value)), len(runs))
        for family in families
        for label, runs in family.runs.items()
        if not left_out(runs, value)
    }
    most = max((have for have, _ in counts.values()), default=0)
    planned = max((seeds for _, seeds in counts.values()), default=0)
    fewer: dict[tuple[str, int, int], list[str]] = {}
    for (family, label), (have, seeds) in counts.items():
        if have < seeds:
            fewer.setdefault((family, have, seeds), []).append(label)
    points = {family.name: len(family.runs) for family in families}
    lacks = []
    for (family, have, seeds), labels in fewer.items():
        where = "all points" if len(labels) == points[family] > 1 else ", ".join(labels)
        lacks.append(f"{f'{family}: ' if family else ''}{where} ({have} of {seeds})")
    text = "One seed: no interval."
    if most > 1:
        text = f"Means of {planned} seeds with 95{SPACE}% t intervals."
    return f"{text} Fewer: {'; '.join(lacks)}." if lacks else text
