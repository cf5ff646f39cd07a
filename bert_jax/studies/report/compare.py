"""Paired differences from a baseline: same other axes, same seed, same evaluation examples.

Two intervals are computed. The t interval over seeds estimates what other seeds would give on these
examples. The second adds what other examples would give: to the error over seeds it adds that over
examples, estimated by a bootstrap. All cells are evaluated on the same examples, therefore all
seeds and both sides of a difference share each resample. Both intervals need two pairs or more.

A p value is the level at which the widest known interval just reaches zero. Holm's method corrects
it for the other differences of its family: all those in one metric of one comparison, at every
point and for all other axes.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from bert_jax.evaluation.metrics import EXAMPLES
from bert_jax.studies.folder import StudyFolder
from bert_jax.studies.report import intervals
from bert_jax.studies.report.collect import Family, Result

LEVEL = 0.05  # p values up to it count as different
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
    low: float = math.nan  # t interval over seeds, 95 %
    high: float = math.nan
    error: float = math.nan  # standard error of the paired mean difference
    unpaired: float = math.nan  # of the difference of two independent means
    both_low: float = math.nan  # over seeds and examples, 95 %
    both_high: float = math.nan
    examples_error: float = math.nan  # of examples alone, the same ones on both sides
    examples_unpaired: float = math.nan  # with different examples on each side
    p: float = math.nan  # of the difference alone
    corrected: float = math.nan  # p by Holm's method among all differences in the metric
    tests: int = 0  # number of these differences

    @property
    def ratio(self) -> float:
        """Return the paired standard error over the unpaired one: below 1, pairing helped."""
        return self.error / self.unpaired if self.unpaired > 0 else math.nan

    @property
    def widest(self) -> tuple[float, float]:
        """Return the interval that p belongs to: over seeds, and over examples where known."""
        return (self.both_low, self.both_high) if self.examples else (self.low, self.high)

    @property
    def resolved(self) -> bool:
        """Return whether the difference is significant by its corrected p value."""
        return self.corrected <= LEVEL


def differences(
    place: StudyFolder,
    families: Sequence[Family],
    baseline: str,
    metrics: Sequence[str],
    draws: int | None = None,
) -> list[Difference]:
    """Compare every point of every family with the baseline; correct p values in each metric."""
    listed = []
    for metric in metrics:
        cells = [cell for family in families for runs in family.runs.values() for cell in runs]
        known = replicates(_arrays(place, cells, metric), draws or DRAWS)
        raw = []
        for family in families:
            base = family.runs.get(baseline, [])
            for point, runs in family.runs.items():
                if point != baseline and base:
                    empty = Difference(metric, family.name, point, baseline, 0, 0)
                    raw.append(_difference(empty, runs, base, known))
        tests = sum(not math.isnan(gap.p) for gap in raw)
        corrected = intervals.holm([gap.p for gap in raw])
        listed += [
            replace(gap, corrected=p, tests=tests) for gap, p in zip(raw, corrected, strict=True)
        ]
    return listed


def by_seed(runs: Sequence[Result], base: Sequence[Result]) -> list[tuple[Result, Result]]:
    """Pair the runs of two points that have the same seed."""
    others = {cell.entry.seed: cell for cell in base}
    return [(cell, others[cell.entry.seed]) for cell in runs if cell.entry.seed in others]


def _difference(
    empty: Difference,
    runs: Sequence[Result],
    base: Sequence[Result],
    known: Mapping[str, Replicates],
) -> Difference:
    """Fill in the numbers of a difference, as far as there are pairs and replicates."""
    metric, expected = empty.metric, by_seed(runs, base)
    pairs = [(a, b) for a, b in expected if metric in a.metrics and metric in b.metrics]
    gap = replace(empty, pairs=len(pairs), holes=len(expected) - len(pairs))
    if not pairs:
        return gap
    pairing = intervals.paired(
        [a.metrics[metric] for a, _ in pairs], [b.metrics[metric] for _, b in pairs]
    )
    over_seeds: dict[str, Any] = pairing._asdict()
    del over_seeds["n"]  # `pairs` of the difference
    gap = replace(gap, p=intervals.p_value(pairing), **over_seeds)
    drawn = [(known.get(a.entry.id), known.get(b.entry.id)) for a, b in pairs]
    both = [(a, b) for a, b in drawn if a and b and a.group == b.group]
    if len(both) < len(pairs) or len({a.group for a, _ in both}) > 1:
        return gap
    left, right = (np.stack([pair[side].values for pair in both]) for side in (0, 1))
    error = float(np.nanstd((left - right).mean(axis=0)))  # both are [seeds, draws]
    half = float(intervals.with_examples(pairing.high - pairing.mean, error))
    return replace(
        gap,
        examples=both[0][0].examples,
        both_low=pairing.mean - half,
        both_high=pairing.mean + half,
        examples_error=error,
        examples_unpaired=math.hypot(
            *(float(np.nanstd(side.mean(axis=0))) for side in (left, right))
        ),
        p=intervals.p_value(pairing, error),
    )


# --- resampling --------------------------------------------------------------------------------


def replicates(
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


def _arrays(place: StudyFolder, cells: Sequence[Result], metric: str) -> dict[str, Arrays]:
    """Read sums, counts and identity of the examples of all cells that recorded them."""
    evaluation, _, name = metric.partition("/")
    by_cell = {}
    for cell in cells:
        if metric in cell.metrics:
            arrays = place.read_each(cell.entry, evaluation)
            if {f"{name}.sum", f"{name}.count", EXAMPLES} <= arrays.keys():
                identity = arrays[EXAMPLES].tobytes()
                sums, counts = arrays[f"{name}.sum"], arrays[f"{name}.count"]
                by_cell[cell.entry.id] = sums, counts, identity
    return by_cell
