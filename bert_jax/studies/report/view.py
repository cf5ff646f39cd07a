"""A study in its present state, and what tables and figures ask of it: points, families, means."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bert_jax.reporting.metric_names import is_share
from bert_jax.studies.folder import StudyFolder
from bert_jax.studies.report import collect, compare, intervals
from bert_jax.studies.report.collect import Axis, Family, Result
from bert_jax.studies.spec import Claimed

Value = Callable[[Result], float | None]
COLOURS = 6  # of a figure, one for each line
LINES = 5  # of a figure, at most, where several axes can divide them
MAIN = ("mlm_loss", "accuracy", "f1")  # metrics compared by a study that names none


@dataclass(frozen=True)
class View:
    """Study in its present state: its folder, its study.json and the results of its cells."""

    place: StudyFolder
    study: Mapping[str, Any]
    results: Sequence[Result]

    @property
    def name(self) -> str:
        """Return the name of the study; the name of its folder if it has none."""
        return str(self.study.get("name") or self.place.workdir.resolve().name)

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
            panels = _divide(panels, other)
        return panels

    def points(self) -> list[tuple[str, list[Result]]]:
        """Group cells that differ in the seed only, under the labels of all axes."""
        points: dict[str, list[Result]] = {}
        for result in self.results:
            points.setdefault(", ".join(result.entry.labels.values()) or "all", []).append(result)
        return list(points.items())

    def is_percent(self, metric: str) -> bool:
        """Return whether to write a metric in per cent.

        It is a share by its name and by its values; SQuAD's scores are in per cent already.
        """
        within = (abs(result.metrics.get(metric, 0.0)) <= 1 for result in self.results)
        return is_share(metric) and all(within)

    def span(self) -> tuple[str, str]:
        """Return when the first attempt began and when the last note was made."""
        begun = [result.begun for result in self.results if result.begun]
        ended = [result.ended for result in self.results if result.ended]
        return min(begun, default=""), max(ended, default="")


def _divide(panels: Mapping[str, Sequence[Family]], axis: Axis) -> dict[str, list[Family]]:
    """Divide each panel by the points of an axis."""
    divided: dict[str, list[Family]] = {}
    for name, families in panels.items():
        for family in families:
            runs = next(iter(family.runs.values()))
            point = axis.qualified(runs[0].entry.labels[axis.name])
            part = ", ".join(filter(None, [name, point]))
            divided.setdefault(part, []).append(family)
    return divided


def get_metric(metric: str) -> Value:
    """Make the function that takes a metric from a result."""
    return lambda result: result.metrics.get(metric)


def find_values(runs: Sequence[Result], value: Value) -> list[float]:
    """Return the finite values of runs, without runs that have none."""
    known = map(value, runs)
    return [number for number in known if number is not None and math.isfinite(number)]


def is_left_out(runs: Sequence[Result], value: Value) -> bool:
    """Return whether the plan leaves a value out: its runs are done, and none of them has it."""
    done = all(run.state.name == "done" and not run.errors for run in runs)
    return done and not find_values(runs, value)


def summarize(runs: Sequence[Result], value: Value) -> intervals.Summary | None:
    """Return the mean and its interval over the seeds that have a value; None without any."""
    known = find_values(runs, value)
    return intervals.summarize_values(known) if known else None
