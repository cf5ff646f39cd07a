"""Differences from a baseline, in pairs: of the same other axes, the same seed, and the same evaluation examples.

Two intervals are given. The t interval over seeds says what other seeds would give on these examples. The second says
what other examples would give besides: to the error over seeds it adds that over examples, which is of a bootstrap. All
cells are evaluated on the same examples, therefore one resample of them is taken by all seeds and both arms. Both need
two pairs or more.

A p value is the level at which the widest interval that is known just reaches zero. It is corrected by Holm's method
for the other differences of its family: all those in one metric of one comparison, at every point and for all other
axes.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from bert_jax.evaluation.metrics import EXAMPLES
from bert_jax.studies.folder import Place
from bert_jax.studies.report import intervals
from bert_jax.studies.report.collect import Family, Result

LEVEL = 0.05  # of verdicts
DRAWS = 5_000
POOLED = 10_000  # more examples than these are resampled in runs of neighbours
CHUNK = 2_000_000  # weights held at once

Arrays = tuple[np.ndarray, np.ndarray, bytes]  # sums and counts of N examples, and which these are


class Replicates(NamedTuple):
    """The metric of one cell on each resample of the examples; cells of one group have the same examples."""

    group: int
    examples: int
    values: np.ndarray  # [draws]


@dataclass(frozen=True)
class Difference:
    """A point of an axis less the baseline, in one metric, the other axes as `family` says."""

    metric: str
    family: str
    point: str
    baseline: str
    pairs: int
    holes: int  # pairs that lack a side
    examples: int = 0  # 0: the metric is not known of each, and nothing is resampled
    mean: float = math.nan
    low: float = math.nan  # t interval over seeds, 95 %
    high: float = math.nan
    error: float = math.nan  # standard error of the paired mean difference
    unpaired: float = math.nan  # of the difference of two independent means
    both_low: float = math.nan  # over seeds and examples, 95 %
    both_high: float = math.nan
    examples_error: float = math.nan  # of examples alone, the same ones for both arms
    examples_unpaired: float = math.nan  # if each arm had had its own
    p: float = math.nan  # of the difference alone
    corrected: float = math.nan  # p, by Holm's method among all differences in the metric
    tests: int = 0  # how many these are

    @property
    def ratio(self) -> float:
        """Paired standard error over unpaired: below 1, pairing helped."""
        return self.error / self.unpaired if self.unpaired > 0 else math.nan

    @property
    def widest(self) -> tuple[float, float]:
        """The interval over seeds and examples, or over seeds where examples are not known; p belongs to it."""
        return (self.both_low, self.both_high) if self.examples else (self.low, self.high)

    @property
    def resolved(self) -> bool:
        """Whether it differs from zero by the corrected p value."""
        return self.corrected <= LEVEL


def differences(
    place: Place,
    families: Sequence[Family],
    baseline: str,
    metrics: Sequence[str],
    draws: int | None = None,
) -> list[Difference]:
    """Return every point but the baseline, of every family and metric, with p values corrected in each metric."""
    found = []
    for metric in metrics:
        mine = []
        cells = [cell for family in families for arm in family.arms.values() for cell in arm]
        known = replicates(_arrays(place, cells, metric), draws or DRAWS)
        for family in families:
            base = family.arms.get(baseline, [])
            for point, arm in family.arms.items():
                if point != baseline and base:
                    one = Difference(metric, family.name, point, baseline, 0, 0)
                    mine.append(_difference(one, arm, base, known))
        tests = sum(not math.isnan(one.p) for one in mine)
        corrected = intervals.holm([one.p for one in mine])
        found += [
            replace(one, corrected=p, tests=tests) for one, p in zip(mine, corrected, strict=True)
        ]
    return found


def _difference(
    one: Difference, arm: Sequence[Result], base: Sequence[Result], known: Mapping[str, Replicates]
) -> Difference:
    others = {cell.entry.seed: cell for cell in base}
    expected = [(cell, others[cell.entry.seed]) for cell in arm if cell.entry.seed in others]
    pairs = [(a, b) for a, b in expected if one.metric in a.metrics and one.metric in b.metrics]
    one = replace(one, pairs=len(pairs), holes=len(expected) - len(pairs))
    if not pairs:
        return one
    found = intervals.paired(
        [a.metrics[one.metric] for a, _ in pairs], [b.metrics[one.metric] for _, b in pairs]
    )
    one = replace(
        one,
        mean=found.mean,
        low=found.low,
        high=found.high,
        error=found.error,
        unpaired=found.unpaired,
    )
    one = replace(one, p=intervals.p_value(found))
    drawn = [(known.get(a.entry.id), known.get(b.entry.id)) for a, b in pairs]
    both = [(a, b) for a, b in drawn if a and b and a.group == b.group]
    if len(both) < len(pairs) or len({a.group for a, _ in both}) > 1:
        return one
    sides = [
        np.stack(one) for one in zip(*((a.values, b.values) for a, b in both), strict=True)
    ]  # [seeds, draws]
    error = float(np.nanstd((sides[0] - sides[1]).mean(axis=0)))
    half = float(intervals.with_examples(found.high - found.mean, error))
    return replace(
        one,
        examples=both[0][0].examples,
        both_low=found.mean - half,
        both_high=found.mean + half,
        examples_error=error,
        examples_unpaired=math.hypot(*(float(np.nanstd(side.mean(axis=0))) for side in sides)),
        p=intervals.p_value(found, error),
    )


# --- resampling -----------------------------------------------------------------------------------------------------


def replicates(
    arrays: Mapping[str, Arrays], draws: int = DRAWS, seed: int = 0
) -> dict[str, Replicates]:
    """Compute each cell's metric on resamples of its examples, the same ones for all cells that share examples."""
    alike: dict[tuple[bytes, bytes], list[str]] = defaultdict(list)
    for cell, (_, counts, examples) in arrays.items():
        alike[examples, counts.tobytes()].append(cell)
    found: dict[str, Replicates] = {}
    for group, cells in enumerate(alike.values()):
        sums, counts = np.stack([arrays[cell][0] for cell in cells]), arrays[cells[0]][1]
        size = len(counts)
        if size > POOLED:
            edges = np.linspace(0, size, POOLED, endpoint=False).astype(int)
            sums, counts = np.add.reduceat(sums, edges, axis=1), np.add.reduceat(counts, edges)
        columns = np.concatenate([sums, counts[None]]).T  # [N, cells + 1]
        drawn = np.concatenate(
            [weights @ columns for weights in _weights(len(counts), draws, seed)]
        )
        with np.errstate(invalid="ignore"):  # a resample of examples without a single count
            values = (drawn[:, :-1] / drawn[:, -1:]).T
        found |= {
            cell: Replicates(group, size, row) for cell, row in zip(cells, values, strict=True)
        }
    return found


def _weights(examples: int, draws: int, seed: int) -> Iterator[np.ndarray]:
    """How often each example is drawn: float64 [some, examples], `draws` rows in all."""
    rng = np.random.default_rng(seed)
    rows = max(1, CHUNK // examples)
    for begin in range(0, draws, rows):
        some = min(rows, draws - begin)
        drawn = rng.integers(examples, size=(some, examples)) + examples * np.arange(some)[:, None]
        yield (
            np.bincount(drawn.ravel(), minlength=some * examples)
            .reshape(some, examples)
            .astype(np.float64)
        )


def _arrays(place: Place, cells: Sequence[Result], metric: str) -> dict[str, Arrays]:
    """Read what is known of each example, of the cells that have it and say which examples these are."""
    evaluation, _, name = metric.partition("/")
    found = {}
    for cell in cells:
        if metric in cell.metrics:
            each = place.read_each(cell.entry, evaluation)
            if {f"{name}.sum", f"{name}.count", EXAMPLES} <= each.keys():
                found[cell.entry.id] = (
                    each[f"{name}.sum"],
                    each[f"{name}.count"],
                    each[EXAMPLES].tobytes(),
                )
    return found
