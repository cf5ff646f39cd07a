"""Differences of points of an axis from a baseline point, paired by seed.

A family is one metric at all points of an axis, for cells that share the points of all other axes.
The intervals of a family are simultaneous over seeds (`simultaneous.py`), and the significance
level is divided among all families of the study. All cells are evaluated on the same examples. If
values of single examples were recorded, the interval also covers the choice of examples: a
bootstrap draws the same examples for both sides of a difference.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from bert_jax.evaluation.metrics import EXAMPLES
from bert_jax.studies.cell_result import Result
from bert_jax.studies.report import simultaneous
from bert_jax.studies.report.families import Family
from bert_jax.studies.spec import Claimed, Comparison
from bert_jax.studies.tables import Examples

DRAWS = 5_000
POOLED = 10_000  # more examples than these are resampled in groups of neighbours
CHUNK = 2_000_000  # weights held at once

Point = tuple[dict[str, str], Collection[str]]  # labels of the axes, names of evaluations
Place = frozenset[tuple[str, str]]  # labels of the axes
Arrays = tuple[np.ndarray, np.ndarray, bytes]  # sums and counts of N examples, and their identity


@dataclass(frozen=True)
class Difference:
    """A metric at a point of an axis minus the metric at the baseline, within a family."""

    metric: str
    family: str
    point: str
    baseline: str
    pairs: int
    holes: int  # pairs that lack a side
    examples: int = 0  # 0: single examples have no recorded values, and nothing is resampled
    mean: float = math.nan
    low: float = math.nan  # simultaneous interval, 95 %; infinite where there is none
    high: float = math.nan
    examples_error: float = 0.0  # standard error over examples, the same ones on both sides
    spread: float = math.nan  # of one run, by which the interval is made
    points: int = 0  # of the family that have the metric, with the baseline
    uneven: bool = False  # whether the spreads of the family differ more than chance allows

    @property
    def tested(self) -> bool:
        """True if the difference has an interval."""
        return math.isfinite(self.high)

    @property
    def significant(self) -> bool:
        """True if the simultaneous interval excludes 0."""
        return self.tested and (self.low > 0 or self.high < 0)

    def negate(self) -> "Difference":
        """Return the difference with its sign changed: the baseline minus the point."""
        return replace(self, mean=-self.mean, low=-self.high, high=-self.low)


def compare_families(
    resampled: "Mapping[str, Resampled]",
    families: Sequence[Family],
    baseline: str,
    metric: str,
    count: int = 1,
) -> list[Difference]:
    """Compare every point of every family with the baseline; skip families without the baseline.

    Args:
      resampled: the metric on resamples of the examples of each cell, from `resample_cells`.
      families: the families of runs to compare.
      baseline: the label of the point that the others are compared with.
      metric: the metric to compare by.
      count: the number of families of the study, among which the significance level is divided.
    """
    listed: list[Difference] = []
    for family in families:
        if baseline in family.runs:
            found = _gather_values(family, baseline, metric, resampled)
            listed += _compare_values(metric, family.name, found, count)
    return listed


def compare_gains(
    resampled: "Mapping[str, Resampled]",
    sides: tuple[Family, Family],
    baseline: str,
    metric: str,
    count: int,
) -> list[Difference]:
    """Compare the gain of each point over the baseline in one family with its gain in another.

    The values of the second family are subtracted from the values of the first, seed by seed. So
    the spread is the spread of these pairs. Errors over examples are added as if they were
    independent. This overstates the error a little if the examples are the same.
    """
    points = [point for point in sides[0].runs if point in sides[1].runs]
    first, second = (
        _gather_values(
            Family(side.name, {point: side.runs[point] for point in points}),
            baseline,
            metric,
            resampled,
        )
        for side in sides
    )
    seeds = [seed for seed in first.seeds if seed in second.seeds]
    of_first, of_second = (
        side.values[:, [side.seeds.index(seed) for seed in seeds]] for side in (first, second)
    )
    errors = [
        math.hypot(a, b) if a and b else 0.0
        for a, b in zip(first.errors, second.errors, strict=True)
    ]
    both = _Values(first.points, seeds, of_first - of_second, errors, first.examples)
    return _compare_values(metric, sides[0].name, both, count)


class _Values(NamedTuple):
    """The values of one metric in one family; the first point is the baseline."""

    points: list[str]
    seeds: list[int]
    values: np.ndarray  # [points, seeds], NaN where there is none
    errors: list[float]  # of the difference of each further point, over examples; 0 if unknown
    examples: list[int]  # number of these examples


def _gather_values(
    family: Family, baseline: str, metric: str, resampled: "Mapping[str, Resampled]"
) -> _Values:
    points = [baseline, *(point for point in family.runs if point != baseline)]
    seeds = sorted({run.entry.seed for runs in family.runs.values() for run in runs})
    runs = {(point, run.entry.seed): run for point in points for run in family.runs[point]}
    values = np.full((len(points), len(seeds)), np.nan)
    for row, point in enumerate(points):
        for column, seed in enumerate(seeds):
            if (run := runs.get((point, seed))) is not None:
                values[row, column] = run.metrics.get(metric, np.nan)
    found = _Values(points, seeds, values, [], [])
    for row, point in enumerate(points[1:], 1):
        both = np.isfinite(values[0]) & np.isfinite(values[row])
        paired = [seed for seed, has in zip(seeds, both, strict=True) if has]
        pairs = [(runs[point, seed], runs[baseline, seed]) for seed in paired]
        examples, error = _find_examples_error(pairs, resampled)
        found.examples.append(examples)
        found.errors.append(error)
    return found


def _compare_values(metric: str, family: str, found: _Values, count: int) -> list[Difference]:
    """Compare all points with the first point; a point that shares no seed with it gets NaN."""
    compared = simultaneous.compare_points(found.values, count, found.errors)
    known = int(np.isfinite(found.values).any(axis=1).sum())
    return [
        Difference(
            metric,
            family,
            point,
            found.points[0],
            gap.pairs,
            holes=len(found.seeds) - gap.pairs,
            examples=found.examples[row],
            mean=gap.mean,
            low=gap.mean - gap.half,
            high=gap.mean + gap.half,
            examples_error=found.errors[row],
            spread=gap.spread,
            points=known,
            uneven=compared.uneven,
        )
        for row, (point, gap) in enumerate(zip(found.points[1:], compared.gaps, strict=True))
    ]


# --- the bootstrap over examples ------------------------------------------------------------------


class Resampled(NamedTuple):
    """The metric of one cell on each resample of its examples; cells of a group share examples."""

    group: int
    examples: int
    values: np.ndarray  # [draws]


def _find_examples_error(
    pairs: Sequence[tuple[Result, Result]], resampled: Mapping[str, Resampled]
) -> tuple[int, float]:
    """Return the number of examples, and the standard error over examples of the mean difference.

    The difference is between the two runs of each of `pairs`. Both numbers are 0 if the pairs have
    no recorded examples in common.
    """
    drawn = [(resampled.get(a.entry.id), resampled.get(b.entry.id)) for a, b in pairs]
    both = [(a, b) for a, b in drawn if a and b and a.group == b.group]
    if not both or len(both) < len(pairs) or len({a.group for a, _ in both}) > 1:
        return 0, 0.0
    gaps = np.stack([a.values - b.values for a, b in both])  # [seeds, draws]
    return both[0][0].examples, float(np.nanstd(gaps.mean(axis=0)))


def resample_cells(
    examples: Examples, results: Iterable[Result], metric: str
) -> dict[str, Resampled]:
    """Compute a metric on resamples of the examples of each cell, as {cell: Resampled}.

    Cells that did not record the metric of each example are left out.
    """
    evaluation, _, name = metric.partition("/")
    needed = (f"{name}.sum", f"{name}.count", EXAMPLES)
    arrays: dict[str, Arrays] = {}
    for result in results:
        cell = result.entry.id
        found = examples.read(cell, evaluation, needed) if metric in result.metrics else {}
        if len(found) == len(needed):
            sums, counts, identity = (found[key] for key in needed)
            arrays[cell] = sums, counts, identity.tobytes()
    return resample_examples(arrays)


def resample_examples(arrays: Mapping[str, Arrays]) -> dict[str, Resampled]:
    """Compute the metric of each cell on random resamples of its examples.

    `arrays` has (sums, counts, digest of the examples) of each cell. The result has a `Resampled`
    for each cell. Cells that share examples get the same resamples.
    """
    groups: dict[tuple[bytes, bytes], list[str]] = defaultdict(list)
    for cell, (_, counts, examples) in arrays.items():
        groups[examples, counts.tobytes()].append(cell)
    found = {}
    for group, cells in enumerate(groups.values()):
        counts = arrays[cells[0]][1]
        columns = np.stack([*(arrays[cell][0] for cell in cells), counts])  # [cells + 1, N]
        if len(counts) > POOLED:
            edges = np.linspace(0, len(counts), POOLED, endpoint=False).astype(int)
            columns = np.add.reduceat(columns, edges, axis=1)
        drawn = np.concatenate([weights @ columns.T for weights in _draw_weights(columns.shape[1])])
        with np.errstate(invalid="ignore"):  # a resample of examples without a single count
            values = (drawn[:, :-1] / drawn[:, -1:]).T
        for cell, row in zip(cells, values, strict=True):
            found[cell] = Resampled(group, len(counts), row)
    return found


def _draw_weights(examples: int) -> Iterator[np.ndarray]:
    """Yield how often each resample draws each example, in arrays float64 [resamples, examples].

    The arrays have DRAWS resamples together.
    """
    rng = np.random.default_rng(0)
    most = max(1, CHUNK // examples)
    for begin in range(0, DRAWS, most):
        rows = min(most, DRAWS - begin)
        drawn = rng.integers(examples, size=(rows, examples)) + examples * np.arange(rows)[:, None]
        counts = np.bincount(drawn.ravel(), minlength=rows * examples)
        yield counts.reshape(rows, examples).astype(np.float64)


# --- the families of a study ----------------------------------------------------------------------


def count_families(
    comparisons: Iterable[Comparison], claims: Iterable[Claimed], points: Sequence[Point]
) -> int:
    """Count the families that the comparisons and claims of a study refer to; at least 1.

    Args:
      comparisons: the comparisons of the study.
      claims: the claims of the study.
      points: for each cell, its labels on all axes, and the names of its evaluations.
    """
    planned = _list_planned(points)
    families: set[tuple[Any, ...]] = set()
    for comparison in comparisons:
        axis, baseline = comparison.axis, comparison.baseline
        for metric in comparison.metrics:
            evaluation = metric.partition("/")[0]
            for labels, evaluations in points:
                base = frozenset((labels | {axis: baseline}).items())
                compared = labels.get(axis, baseline) != baseline and evaluation in evaluations
                if compared and (base, evaluation) in planned:
                    families.add((metric, axis, base, ()))
    for claimed in claims:
        for place in find_claimed_places(claimed, points):
            families.add((claimed.metric, claimed.axis, place, claimed.more_at or ()))
    return max(1, len(families))


def find_claimed_places(claimed: Claimed, points: Sequence[Point]) -> set[Place]:
    """Find the families that contain all points of a claim.

    Each family is returned as the labels of its baseline point, a set of (axis, label) pairs.
    """
    planned = _list_planned(points)
    evaluation = claimed.metric.partition("/")[0]
    places = set()
    for labels, _ in points:
        if not claimed.place <= set(labels.items()):
            continue
        corners = [dict(labels), labels | {claimed.axis: claimed.baseline}]
        if claimed.more_at is not None:
            axis, _, elsewhere = claimed.more_at
            corners += [corner | {axis: elsewhere} for corner in corners]
        if all((frozenset(corner.items()), evaluation) in planned for corner in corners):
            places.add(frozenset(corners[1].items()))
    return places


def _list_planned(points: Sequence[Point]) -> set[tuple[Place, str]]:
    return {(frozenset(labels.items()), name) for labels, names in points for name in names}
