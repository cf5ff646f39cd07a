"""The power of a study for its claims before it has run, from the spread of earlier runs."""

import contextlib
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bert_jax.errors import DataError
from bert_jax.reporting.formats import SPACE
from bert_jax.reporting.metric_names import are_shares, find_title
from bert_jax.studies.report import simultaneous
from bert_jax.studies.report.verdicts import format_needed
from bert_jax.studies.report.wording import format_amount
from bert_jax.studies.spec import BUDGET, Claimed
from bert_jax.studies.tables import name_columns, read_csv
from bert_jax.system.counts import format_count

Rows = list[dict[str, str]]


class Sizes(NamedTuple):
    """Numbers of seeds, families and points of a study, on which its power depends."""

    seeds: int
    families: int
    points: Mapping[str, int]  # of each axis


def describe_power(claims: Sequence[Claimed], sizes: Sizes, tables: Sequence[Path]) -> list[str]:
    """Describe, in a line for each claim, how likely the study finds the claimed difference.

    Args:
      claims: claims for which the study has cells.
      sizes: the numbers of seeds, families and points of the study.
      tables: paths of results.csv of studies that have run. The first table that has a claim's
        metric counts; tables that vary the claim's axis come before others.
    """
    read: dict[Path, Rows] = {}
    for table in tables:
        with contextlib.suppress(DataError):  # a damaged table of another study is left out
            read[table] = read_csv(table)
    return [_describe_claim(claimed, sizes, read) for claimed in claims]


def _describe_claim(claimed: Claimed, sizes: Sizes, read: Mapping[Path, Rows]) -> str:
    column = name_columns(claimed.axis)[0]
    ordered = sorted(read, key=lambda table: not (read[table] and column in read[table][0]))
    known = ((table, find_spread(read[table], claimed.metric, claimed.axis)) for table in ordered)
    table, deviation = next(((t, s) for t, s in known if s), (None, 0.0))
    texts = [row[claimed.metric] for row in read[table]] if table else []
    values = [float(text) for text in texts if text]
    share = are_shares(claimed.metric, values or [claimed.effect])
    room, other = claimed.effect, math.inf
    looked_for = f"a difference of {format_amount(claimed.effect, claimed.metric, share)}"
    if claimed.within is not None:  # found if nothing differs, both ends being as far
        room = other = claimed.within
        looked_for = f"no difference beyond {format_amount(claimed.within, claimed.metric, share)}"
    head = f"{claimed.claim}, {looked_for} by {find_title(claimed.metric)}"
    if table is None:
        return f"{head}: no earlier run says how far seeds lie apart"
    # A difference of gains has the variance of two differences.
    apart = deviation * (1 if claimed.more_at is None else math.sqrt(2))
    points = sizes.points.get(claimed.axis, 2)
    wanted = simultaneous.Wanted(room, other, families=sizes.families)
    chance = simultaneous.find_power(sizes.seeds, points, apart, wanted)
    needed = format_needed(simultaneous.count_seeds(points, apart, wanted))
    families = format_count(sizes.families, "family", "families")
    return (
        f"{head}: power {100 * chance:.0f}{SPACE}% with {format_count(sizes.seeds, 'seed')}, "
        f"90{SPACE}% with {needed} (intervals of {families} hold together; a run has a standard "
        f"deviation of {format_amount(deviation, claimed.metric, share)} in "
        f"{os.path.relpath(table)})"
    )


def find_spread(rows: Rows, metric: str, axis: str) -> float:
    """Find the standard deviation of runs after the effects of points and seeds are removed.

    It is pooled over the table. It is 0 if it is unknown, or if the table is damaged. The points
    are the points of `axis` or, if the table lacks `axis`, of its last axis other than the budget.
    """
    if not rows or not {metric, "seed", "state"} <= rows[0].keys():
        return 0.0
    names = list(rows[0])
    columns = names[names.index("state") + 1 : names.index("seed")]
    axes = [name for name in columns if not name.endswith(".value")]
    varied = [name for name in axes if name != BUDGET]
    own = name_columns(axis)[0]
    if own not in axes:
        own = (varied or [""])[-1]
    families: dict[tuple[str, ...], dict[tuple[str, str], float]] = {}
    for row in rows:
        if row[metric]:
            place = tuple(row[name] for name in axes if name != own)
            at = row.get(own, ""), row["seed"]
            try:
                families.setdefault(place, {})[at] = float(row[metric])
            except ValueError:
                return 0.0
    squares, freedom = 0.0, 0
    for runs in families.values():
        points = dict.fromkeys(point for point, _ in runs)
        seeds = dict.fromkeys(seed for _, seed in runs)
        values = np.array([[runs.get((p, s), np.nan) for s in seeds] for p in points])
        compared = simultaneous.compare_points(values)
        if compared.freedom:
            squares += compared.freedom * compared.spread**2
            freedom += compared.freedom
    return math.sqrt(squares / freedom) if freedom else 0.0
