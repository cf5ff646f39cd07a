"""Differences of points from a baseline: same other axes, same seed, same evaluation examples.

A family is one metric of all points that share the other axes. Its intervals are simultaneous over
seeds (`simultaneous.py`), and the level is divided among all families of the study. Where single
examples have recorded values, the interval also covers what other examples would give: all cells
are evaluated on the same examples, so a bootstrap draws the same examples for both sides.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from bert_jax.evaluation.metrics import EXAMPLES
from bert_jax.studies import tables
from bert_jax.studies.folder import StudyFolder
from bert_jax.studies.report import simultaneous
from bert_jax.studies.report.collect import Family, Result
from bert_jax.studies.spec import Claimed

DRAWS = 5_000
POOLED = 10_000  # more examples than these are resampled in groups of neighbours
CHUNK = 2_000_000  # weights held at once

Arrays = tuple[np.ndarray, np.ndarray, bytes]  # sums and counts of N examples, and their identity


class Replicates(NamedTuple):
    """Metric of one cell on each resample of the examples; cells of a group share examples."""

    group: int
    examples: int
    values: np.ndarray  # [draws]


@dataclass(frozen=True)
class Difference:
    """Metric at a point of an axis minus the baseline's, at the other axes that `family` names."""

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
    p: float = math.nan  # level of all intervals of the study at which this one reaches zero
    own: bool = False  # whether the spread of its own pairs widens the interval
    examples_error: float = 0.0  # standard error over examples, the same ones on both sides
    spread: float = math.nan  # of one run, by which the interval is made
    points: int = 0  # of the family that have the metric, with the baseline
    uneven: bool = False  # whether the spreads of the family differ more than chance allows

    @property
    def tested(self) -> bool:
        """Return whether the difference has an interval."""
        return math.isfinite(self.high)

    @property
    def negated(self) -> Difference:
        """Return the baseline minus the point."""
        return replace(self, mean=-self.mean, low=-self.high, high=-self.low)

    @property
    def significant(self) -> bool:
        """Return whether the simultaneous interval excludes zero."""
        return self.tested and (self.low > 0 or self.high < 0)


Point = tuple[dict[str, str], Collection[str]]  # labels of the axes, names of evaluations


def count_families(
    comparisons: Iterable[Mapping[str, Any]], claims: Iterable[Claimed], points: Sequence[Point]
) -> int:
    """Count the families that a study compares or claims something of, one at least.

    Args:
      comparisons: of the study.
      claims: of the study.
      points: of the study, all axes crossed.
    """
    families: set[tuple[Any, ...]] = set()
    for comparison in comparisons:
        axis, baseline = comparison["axis"], comparison["baseline"]
        for metric in comparison["metrics"]:
            places = [
                frozenset((labels | {axis: baseline}).items())
                for labels, evaluations in points
                if labels.get(axis, baseline) != baseline
                and _has(points, labels | {axis: baseline}, metric)
                and metric.partition("/")[0] in evaluations
            ]
            families |= {(metric, axis, place, ()) for place in places}
    for claimed in claims:
        for place in claimed_places(claimed, points):
            labels = frozenset(place.items())
            families.add((claimed.metric, claimed.axis, labels, claimed.more_at or ()))
    return max(1, len(families))


def claimed_places(claimed: Claimed, points: Sequence[Point]) -> list[dict[str, str]]:
    """Return the labels of each baseline that a claim is about and whose runs are all planned."""
    places = []
    for labels, _ in points:
        if not claimed.place <= set(labels.items()):
            continue
        corners = [dict(labels), labels | {claimed.axis: claimed.baseline}]
        if claimed.more_at is not None:
            axis, _, elsewhere = claimed.more_at
            corners += [corner | {axis: elsewhere} for corner in corners]
        if all(_has(points, corner, claimed.metric) for corner in corners):
            places.append(corners[1])
    return places


def _has(points: Sequence[Point], labels: Mapping[str, str], metric: str) -> bool:
    evaluation = metric.partition("/")[0]
    return any(known == labels and evaluation in evaluations for known, evaluations in points)


def compare_families(
    place: StudyFolder,
    families: Sequence[Family],
    baseline: str,
    metrics: Sequence[str],
    count: int = 1,
    draws: int | None = None,
) -> list[Difference]:
    """Compare every point of every family with the baseline.

    Args:
      place: the folder of the study.
      families: of runs.
      baseline: label of the point that the others are compared with.
      metrics: to compare by.
      count: families of the study, among which the level is divided.
      draws: of the bootstrap over examples.
    """
    listed = []
    for metric in metrics:
        known = _replicates(place, families, metric, draws or DRAWS)
        for family in families:
            if baseline in family.runs:
                table = _tabulate(family, baseline, metric, known)
                listed += _compare(metric, family.name, baseline, table, count)
    return listed


def compare_gains(
    place: StudyFolder, sides: tuple[Family, Family], baseline: str, metric: str, count: int = 1
) -> list[Difference]:
    """Compare what each point gains over the baseline in one family with its gain in another.

    The values are those of the first family minus those of the second, seed by seed, so that their
    spread is that of such pairs. Errors over examples are added as if they were independent, which
    is a little too much for the same examples.
    """
    known = _replicates(place, sides, metric, DRAWS)
    points = [point for point in sides[0].runs if point in sides[1].runs]
    first, second = (
        _tabulate(Family(side.name, {p: side.runs[p] for p in points}), baseline, metric, known)
        for side in sides
    )
    seeds = sorted(set(first.seeds) & set(second.seeds))
    table = _Table(
        first.points,
        seeds,
        first.of(seeds) - second.of(seeds),
        [
            math.hypot(a, b) if a and b else 0.0
            for a, b in zip(first.errors, second.errors, strict=True)
        ],
        first.examples,
    )
    return _compare(metric, sides[0].name, baseline, table, count)


class _Table(NamedTuple):
    """Values of one metric in one family; the baseline is the first point."""

    points: list[str]
    seeds: list[int]
    values: np.ndarray  # [points, seeds], NaN where there is none
    errors: list[float]  # of the difference of each further point, over examples; 0 if unknown
    examples: list[int]  # number of these examples

    def of(self, seeds: Sequence[int]) -> np.ndarray:
        """Return the values of some of the seeds."""
        return self.values[:, [self.seeds.index(seed) for seed in seeds]]


def _tabulate(
    family: Family, baseline: str, metric: str, known: Mapping[str, Replicates]
) -> _Table:
    points = [baseline, *(point for point in family.runs if point != baseline)]
    seeds = sorted({run.entry.seed for runs in family.runs.values() for run in runs})
    by_point = [{run.entry.seed: run for run in family.runs[point]} for point in points]
    values = np.full((len(points), len(seeds)), np.nan)
    for row, by_seed in enumerate(by_point):
        for column, seed in enumerate(seeds):
            if seed in by_seed:
                values[row, column] = by_seed[seed].metrics.get(metric, np.nan)
    errors = []
    examples = []
    for row, by_seed in enumerate(by_point[1:], 1):
        both = np.isfinite(values[0]) & np.isfinite(values[row])
        pairs = [(by_seed[s], by_point[0][s]) for s, has in zip(seeds, both, strict=True) if has]
        number, error = _examples_error(pairs, known)
        errors.append(error)
        examples.append(number)
    return _Table(points, seeds, values, errors, examples)


def _compare(
    metric: str, family: str, baseline: str, table: _Table, count: int
) -> list[Difference]:
    """Compare the points of a table with its first; those without a pair have no numbers."""
    compared = simultaneous.compare_points(table.values, count, table.errors)
    listed = []
    for row, gap in enumerate(compared.gaps):
        holes = len(table.seeds) - gap.pairs
        empty = Difference(metric, family, table.points[row + 1], baseline, gap.pairs, holes)
        if not gap.pairs:
            listed.append(empty)
            continue
        listed.append(
            replace(
                empty,
                examples=table.examples[row],
                mean=gap.mean,
                low=gap.mean - gap.half,
                high=gap.mean + gap.half,
                p=gap.p,
                own=gap.own,
                examples_error=table.errors[row],
                spread=gap.spread,
                points=int(np.isfinite(table.values).any(axis=1).sum()),
                uneven=compared.uneven,
            )
        )
    return listed


def _examples_error(
    pairs: Sequence[tuple[Result, Result]], known: Mapping[str, Replicates]
) -> tuple[int, float]:
    """Return the number of examples and the standard error over them; zeros if unknown."""
    drawn = [(known.get(a.entry.id), known.get(b.entry.id)) for a, b in pairs]
    both = [(a, b) for a, b in drawn if a and b and a.group == b.group]
    if not both or len(both) < len(pairs) or len({a.group for a, _ in both}) > 1:
        return 0, 0.0
    gaps = np.stack([a.values - b.values for a, b in both])  # [seeds, draws]
    return both[0][0].examples, float(np.nanstd(gaps.mean(axis=0)))


# --- resampling --------------------------------------------------------------------------------


def resample_examples(
    arrays: Mapping[str, Arrays], draws: int = DRAWS, seed: int = 0
) -> dict[str, Replicates]:
    """Compute each cell's metric on resamples, the same ones for all cells that share examples."""
    groups: dict[tuple[bytes, bytes], list[str]] = defaultdict(list)
    for cell, (_, counts, examples) in arrays.items():
        groups[examples, counts.tobytes()].append(cell)
    by_cell: dict[str, Replicates] = {}
    for group, cells in enumerate(groups.values()):
        sums, counts = np.stack([arrays[cell][0] for cell in cells]), arrays[cells[0]][1]
        size = len(counts)
        if size > POOLED:
            edges = np.linspace(0, size, POOLED, endpoint=False).astype(int)
            sums, counts = np.add.reduceat(sums, edges, axis=1), np.add.reduceat(counts, edges)
        columns = np.concatenate([sums, counts[None]]).T  # [N, cells + 1]
        chunks = [weights @ columns for weights in _weights(len(counts), draws, seed)]
        drawn = np.concatenate(chunks)  # [draws, cells + 1]
        with np.errstate(invalid="ignore"):  # a resample of examples without a single count
            values = (drawn[:, :-1] / drawn[:, -1:]).T
        by_cell |= {
            cell: Replicates(group, size, row) for cell, row in zip(cells, values, strict=True)
        }
    return by_cell


def _weights(examples: int, draws: int, seed: int) -> Iterator[np.ndarray]:
    """Yield how often each example is drawn: float64 [rows, examples], `draws` rows in all."""
    rng = np.random.default_rng(seed)
    most = max(1, CHUNK // examples)
    for begin in range(0, draws, most):
        rows = min(most, draws - begin)
        drawn = rng.integers(examples, size=(rows, examples)) + examples * np.arange(rows)[:, None]
        counts = np.bincount(drawn.ravel(), minlength=rows * examples)
        yield counts.reshape(rows, examples).astype(np.float64)


def _replicates(
    place: StudyFolder, families: Sequence[Family], metric: str, draws: int
) -> dict[str, Replicates]:
    """Resample the examples of all cells of some families."""
    cells = [cell for family in families for runs in family.runs.values() for cell in runs]
    return resample_examples(_arrays(place, cells, metric), draws)


def _arrays(place: StudyFolder, cells: Sequence[Result], metric: str) -> dict[str, Arrays]:
    """Read sums, counts and identity of the examples of all cells that recorded them."""
    evaluation, _, name = metric.partition("/")
    by_cell = {}
    examples = tables.Examples(place.workdir)
    for cell in cells:
        if metric in cell.metrics:
            arrays = examples.read(cell.entry.id, evaluation)
            if {f"{name}.sum", f"{name}.count", EXAMPLES} <= arrays.keys():
                identity = arrays[EXAMPLES].tobytes()
                sums, counts = arrays[f"{name}.sum"], arrays[f"{name}.count"]
                by_cell[cell.entry.id] = sums, counts, identity
    return by_cell
