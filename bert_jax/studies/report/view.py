"""A study in its present state, with the points, families and means that a report asks for."""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bert_jax.reporting import palette
from bert_jax.reporting.metric_names import are_shares
from bert_jax.studies.cell_result import Result
from bert_jax.studies.folder import StudyFolder
from bert_jax.studies.report import compare
from bert_jax.studies.report.families import Family, group_families
from bert_jax.studies.report.intervals import Summary, summarize_values
from bert_jax.studies.spec import Axis, Comparison, Point, StudyRecord
from bert_jax.studies.tables import Examples

Value = Callable[[Result], float | None]
LINES = 5  # of a figure at most, if another axis can divide them
MAIN = ("mlm_loss", "accuracy", "f1")  # metrics compared by a study that names none


@dataclass(frozen=True)
class View:
    """A study in its present state: its folder, its study.json and the results of its cells."""

    place: StudyFolder
    study: StudyRecord
    results: Sequence[Result]

    def axis(self, name: str) -> Axis:
        """Return the axis called `name`; in a study without axes, an axis with one point."""
        alone = Axis(name, (Point("", None),))
        return next((axis for axis in self.study.axes if axis.name == name), alone)

    @functools.cached_property
    def metrics(self) -> list[str]:
        """The names of the metrics that some cell has."""
        return list(dict.fromkeys(key for result in self.results for key in result.metrics))

    @property
    def comparisons(self) -> Sequence[Comparison]:
        """The comparisons that the study states; by default its main metrics over its last axis."""
        if self.study.comparisons:
            return self.study.comparisons
        axis = self.study.axes[-1].name if self.study.axes else ""
        main = [m for m in self.metrics if m.count("/") == 1 and m.partition("/")[2] in MAIN]
        return [Comparison(axis, "", tuple(main))]

    @functools.cached_property
    def family_count(self) -> int:
        """The number of families of the study, among which the significance level is divided."""
        points = []
        for result in self.results:
            found = {metric.partition("/")[0] for metric in result.metrics}
            points.append((result.entry.labels, found | {*result.entry.evaluations}))
        return compare.count_families(self.comparisons, self.study.claims, points)

    @functools.cached_property
    def _examples(self) -> Examples:
        """The recorded values of single examples of all cells, opened only once."""
        return Examples(self.place.workdir)

    @functools.cached_property
    def _resampled(self) -> dict[str, dict[str, compare.Resampled]]:
        """The results of `resample` so far, by metric."""
        return {}

    def resample(self, metric: str) -> dict[str, compare.Resampled]:
        """Compute a metric on resamples of the examples of each cell, once for all families."""
        if metric not in self._resampled:
            found = compare.resample_cells(self._examples, self.results, metric)
            self._resampled[metric] = found
        return self._resampled[metric]

    def families(self, axis: str) -> list[Family]:
        """Divide the results into families, within which only one axis and the seed vary."""
        return group_families(self.study.axes, self.results, axis)

    def panels(self, axis: str) -> dict[str, list[Family]]:
        """Divide the families of an axis among figures, as {name of the figure: families}.

        A figure has a colour for each family. If one figure is not enough, there is a figure for
        each point of the first other axis, and so on with further axes. These points name the
        figure; a single figure is named "".
        """
        panels = {"": self.families(axis)}
        others = [one for one in self.study.axes if one.name != axis and len(one.labels) > 1]
        most = LINES if len(others) > 1 else palette.HUES
        for other in others:
            if max(map(len, panels.values())) <= most:
                break
            divided: dict[str, list[Family]] = {}
            for name, families in panels.items():
                for family in families:
                    point = other.qualify(find_point_labels(family)[other.name])
                    part = f"{name}, {point}" if name else point
                    divided.setdefault(part, []).append(family)
            panels = divided
        return panels

    def points(self) -> dict[str, list[Result]]:
        """Group the results that differ only in the seed, as {labels on all axes: results}."""
        points: dict[str, list[Result]] = {}
        for result in self.results:
            points.setdefault(", ".join(result.entry.labels.values()) or "all", []).append(result)
        return points

    def is_percent(self, metric: str) -> bool:
        """Tell whether to write a metric in per cent."""
        return are_shares(metric, [result.metrics.get(metric) for result in self.results])


def find_point_labels(family: Family) -> dict[str, str]:
    """Return the labels of a family's first run, as {axis: label}."""
    return next(iter(family.runs.values()))[0].entry.labels


def get_metric(metric: str) -> Value:
    """Make a function that returns the value of a metric in a result."""
    return lambda result: result.metrics.get(metric)


def find_values(runs: Sequence[Result], value: Value) -> list[float]:
    """List the values of runs; leave out runs without a finite value."""
    known = map(value, runs)
    return [number for number in known if number is not None and math.isfinite(number)]


def summarize(runs: Sequence[Result], value: Value) -> Summary | None:
    """Compute the mean of the runs' values and its interval; None if no run has a value."""
    known = find_values(runs, value)
    return summarize_values(known) if known else None
