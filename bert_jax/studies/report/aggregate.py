"""The results of a study, arranged for the eye: arms by axis, means with intervals, figures over an axis."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bert_jax.reporting.charts import SPACE, Chart, Series, number
from bert_jax.reporting.metric_names import is_share, pretty
from bert_jax.reporting.plots import HOLE, Figure
from bert_jax.studies.folder import Place
from bert_jax.studies.report import collect, intervals
from bert_jax.studies.report.collect import Axis, Family, Result
from bert_jax.studies.report.compare import Difference

Figures = dict[str, Figure]  # by the names of their files
Value = Callable[[Result], float | None]
WIDE = 30.0  # numbers this many times apart are placed by their logarithm
TONES = 10  # of the page's sequence


@dataclass(frozen=True)
class View:
    """A study as it is now."""

    place: Place
    study: Mapping[str, Any]
    results: Sequence[Result]

    @property
    def axes(self) -> list[Axis]:
        return collect.axes(self.study)

    def axis(self, name: str) -> Axis:
        """An axis by its name; a study without axes has one point."""
        return next((one for one in self.axes if one.name == name), Axis(name, ("",), (None,)))

    @property
    def comparisons(self) -> list[dict[str, Any]]:
        """What the study compares; without a word of it, its last axis, by all its main metrics."""
        if self.study.get("comparisons"):
            return list(self.study["comparisons"])
        axis = self.axes[-1].name if self.axes else ""
        mains = ("mlm_loss", "accuracy", "f1")
        found = dict.fromkeys(
            key for one in self.results for key in one.metrics if key.count("/") == 1
        )
        return [
            {
                "axis": axis,
                "baseline": "",
                "metrics": [m for m in found if m.partition("/")[2] in mains],
            }
        ]

    @property
    def names(self) -> str:
        """Of all axes."""
        return ", ".join(one.name for one in self.axes)

    def families(self, axis: str) -> list[Family]:
        return collect.families(self.study, self.results, axis)

    def points(self) -> list[tuple[str, list[Result]]]:
        """Cells that differ in nothing but the seed, under the labels of all axes."""
        found: dict[str, list[Result]] = {}
        for one in self.results:
            found.setdefault(", ".join(one.entry.labels.values()) or "all", []).append(one)
        return list(found.items())


def of(metric: str) -> Value:
    """Takes a metric from a result."""
    return lambda one: one.metrics.get(metric)


def values(arm: Sequence[Result], value: Value) -> list[float]:
    """What the cells of an arm found, of those that did."""
    return [found for found in map(value, arm) if found is not None and math.isfinite(found)]


def summary(arm: Sequence[Result], value: Value) -> intervals.Summary | None:
    """Mean and interval over the seeds there are."""
    found = values(arm, value)
    return intervals.summary(found) if found else None


def percent(metric: str, results: Sequence[Result]) -> bool:
    """Whether to write a metric in per cent: a share by name, and by its values; SQuAD's are in per cent already."""
    return is_share(metric) and all(abs(one.metrics.get(metric, 0.0)) <= 1 for one in results)


def title(metric: str) -> str:
    """EVALUATION/METRIC in words."""
    return pretty(metric)


def plus_minus(found: intervals.Summary | None, of_seeds: int, share: bool) -> str:
    """Mean, half its interval, and of how many seeds, where that is not all."""
    if found is None:
        return f"{HOLE} (0 of {of_seeds})"
    text = plain(found.mean, share)
    if math.isfinite(found.high):
        half = found.high - found.mean
        text = f"{text.removesuffix(f'{SPACE}%')} ± {plain(half, share)}"
    return text if found.n == of_seeds else f"{text} ({found.n} of {of_seeds})"


def plain(value: float, share: bool = False, signed: bool = False) -> str:
    """A number of a table: of a share with two places, else with three; a hole where there is none."""
    if not math.isfinite(value):
        return HOLE
    places, value = 2 if share or abs(value) >= 10 else 3, 100 * value if share else value
    sign = "+" if signed and round(value, places) else "z"  # z: no minus before nothing
    text = f"{value:{sign}.{places}f}{f'{SPACE}%' if share else ''}"
    return text.replace("-", "\N{MINUS SIGN}")


def interval(low: float, high: float, share: bool = False) -> str:
    """An interval of a table."""
    if not math.isfinite(low + high):
        return HOLE
    return f"{plain(low, share, True).removesuffix(f'{SPACE}%')} to {plain(high, share, True)}"


def slug(*names: str) -> str:
    """A file's name from what it shows."""
    text = "_".join(filter(None, names)).replace(" ", "").replace("/", "_").replace("%", "")
    return "".join(c if c.isalnum() or c in "._-" else "_" for c in text)


def span(view: View) -> tuple[str, str]:
    """When the first attempt began, and when the last thing was noted."""
    begun = [one.begun for one in view.results if one.begun]
    ended = [one.ended for one in view.results if one.ended]
    return min(begun, default=""), max(ended, default="")


# --- figures over an axis -------------------------------------------------------------------------------------------


def places(axis: Axis) -> dict[str, float]:
    """Where each point is drawn: at its number, at the logarithm of far-apart ones, or in its row."""
    if not axis.numeric:
        return {label: float(row) for row, label in enumerate(axis.labels)}
    low, high = min(axis.values), max(axis.values)
    wide = low > 0 and high / low > WIDE
    return {
        label: math.log10(value) if wide else float(value)
        for label, value in zip(axis.labels, axis.values, strict=True)
    }


def tone(number_: int, count: int) -> str:
    """A colour of the page's sequence, for the points of an axis in their order."""
    return f"q{round(number_ * (TONES - 1) / max(count - 1, 1))}"


def over(axis: Axis, head: str, series: Sequence[Series], **options: Any) -> Chart:
    """A figure of series over an axis, which is lines or rows."""
    at = places(axis)
    if axis.numeric:
        shape: dict[str, Any] = {
            "ticks": [(at[label], label) for label in axis.labels],
            "x": axis.name,
        }
    else:
        shape = {"rows": axis.labels, "x": axis.name}
    return Chart(head, series, last=False, **shape, **options)


def means(axis: Axis, families: Sequence[Family], value: Value) -> list[Series]:
    """A line for every family: means over seeds, 95 % intervals, and every seed."""
    at, found = places(axis), []
    for number_, family in enumerate(families):
        arms = [(at[label], arm, summary(arm, value)) for label, arm in family.arms.items()]
        arms = [one for one in arms if one[2] is not None]
        found.append(
            Series(
                family.name,
                [(x, s.mean) for x, _, s in arms if s],
                1 + number_ % 5,
                whiskers=[(x, s.low, s.high) for x, _, s in arms if s and math.isfinite(s.high)],
                dots=[(x, v) for x, arm, s in arms if s and s.n > 1 for v in values(arm, value)],
            )
        )
    return found


def gaps(axis: Axis, families: Sequence[Family], found: Sequence[Difference]) -> list[Series]:
    """A line for every family: paired differences from the baseline, with intervals over seeds."""
    at, lines = places(axis), []
    for number_, family in enumerate(families):
        mine = [one for one in found if one.family == family.name and one.pairs]
        baseline = [(at[one.baseline], 0.0) for one in mine[:1]]
        points = sorted([*baseline, *((at[one.point], one.mean) for one in mine)])
        bars = [(at[one.point], one.low, one.high) for one in mine if math.isfinite(one.high)]
        lines.append(Series(family.name, points, 1 + number_ % 5, whiskers=bars))
    return lines


def seeds_said(families: Sequence[Family], value: Value) -> str:
    """How many seeds the means of a figure are of, and where they are fewer."""
    counts = {
        (family.name, label): (len(values(arm, value)), len(arm))
        for family in families
        for label, arm in family.arms.items()
    }
    most, asked = (max((pair[i] for pair in counts.values()), default=0) for i in (0, 1))
    fewer: dict[tuple[str, int, int], list[str]] = {}
    for (family, label), (have, of_seeds) in counts.items():
        if have < of_seeds:
            fewer.setdefault((family, have, of_seeds), []).append(label)
    arms = {family.name: len(family.arms) for family in families}
    lacks = [
        f"{f'{family}: ' if family else ''}{'all arms' if len(labels) == arms[family] > 1 else ', '.join(labels)} "
        f"({have} of {of_seeds})"
        for (family, have, of_seeds), labels in fewer.items()
    ]
    said = (
        f"Means of {asked} seeds with 95{SPACE}% t intervals."
        if most > 1
        else "One seed: no interval."
    )
    return f"{said} Fewer: {'; '.join(lacks)}." if lacks else said


def short_amount(value: float) -> str:
    """A large number as a person writes it."""
    for size, mark in ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M")):
        if value >= size:
            return f"{value / size:.3g}{SPACE}{mark}"
    return number(value)
