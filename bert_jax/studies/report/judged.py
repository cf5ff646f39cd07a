"""The claims of a study: their verdicts in its report, and its power to reach them beforehand."""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bert_jax.reporting.formats import SPACE
from bert_jax.reporting.metric_names import is_share, lower_is_better, pretty, unit
from bert_jax.studies.report import aggregate, collect, compare, verdicts
from bert_jax.studies.report.aggregate import View, plain
from bert_jax.studies.report.claims import CLAIMS
from bert_jax.studies.report.collect import Family
from bert_jax.studies.report.verdicts import UNDERPOWERED, Verdict
from bert_jax.studies.spec import BUDGET, Claimed

HEAD = ["claim", "published", "here", "difference, simultaneous 95\N{NO-BREAK SPACE}%", "verdict"]


class Judged(NamedTuple):
    """A claim and what one family of the study says of it."""

    claimed: Claimed
    family: str
    verdict: Verdict | None  # None before there are pairs
    share: bool = False  # whether the metric is written in per cent


class Gains(NamedTuple):
    """What the runs of one place gain over their baselines."""

    place: dict[str, str]  # labels of the other axes
    by_seed: dict[int, float]
    error: float  # of their mean, over examples


def judge(view: View) -> list[Judged]:
    """Judge every claim of the study in every family, by intervals that hold together."""
    found = []
    for claimed in (Claimed(**claim) for claim in view.study.get("claims", [])):
        gains = _gains(view, claimed)
        if claimed.more_at is not None:
            gains = _more(gains, *claimed.more_at)
        found += [(claimed, gain) for gain in gains]
    return [
        Judged(
            claimed,
            collect.placed(view.study, gain.place),
            verdicts.judge(
                list(gain.by_seed.values()),
                gain.error,
                claims=len(found),
                least=claimed.least,
                within=claimed.within,
            )
            if gain.by_seed
            else None,
            aggregate.percent(claimed.metric, view.results),
        )
        for claimed, gain in found
    ]


def _gains(view: View, claimed: Claimed) -> list[Gains]:
    """Return the gains of the claimed point over the baseline, wherever there is the point."""
    metric, sign = claimed.metric, -1 if lower_is_better(claimed.metric) else 1
    sides = (claimed.point, claimed.baseline)
    families = [
        Family(family.name, {side: family.runs.get(side, []) for side in sides})
        for family in view.families(claimed.axis)
        if claimed.point in family.runs
    ]
    compared = compare.differences(view.place, families, claimed.baseline, [metric])
    known = {gap.family: gap for gap in compared}
    found = []
    for family in families:
        runs, base = (family.runs[side] for side in sides)
        gains = {
            a.entry.seed: sign * (a.metrics[metric] - b.metrics[metric])
            for a, b in compare.by_seed(runs, base)
            if metric in a.metrics and metric in b.metrics
        }
        gap, place = known.get(family.name), dict(runs[0].entry.labels)
        del place[claimed.axis]
        found.append(Gains(place, gains, gap.examples_error if gap and gap.examples else 0.0))
    return found


def _more(gains: Sequence[Gains], axis: str, point: str, baseline: str) -> list[Gains]:
    """Return how much larger the gains are at a point of another axis than at its baseline.

    The error over examples is that of independent ones: too large, as a rule, for both gains are of
    the same examples. Where it is known of one gain alone, seeds alone count.
    """
    found = []
    for gain in (gain for gain in gains if gain.place.get(axis) == point):
        across = next((g for g in gains if g.place == gain.place | {axis: baseline}), None)
        known = across.by_seed if across else {}
        more = {seed: gain.by_seed[seed] - known[seed] for seed in gain.by_seed if seed in known}
        errors = (gain.error, across.error if across else 0.0)
        place = {name: label for name, label in gain.place.items() if name != axis}
        found.append(Gains(place, more, math.hypot(*errors) if all(errors) else 0.0))
    return found


def rows(judged: Sequence[Judged]) -> list[list[str]]:
    """Return the cells of a table of claims, under HEAD."""
    lines = []
    for claimed, family, verdict, share in judged:
        claim = CLAIMS[claimed.claim]
        here = f"{_stated(claimed)} by {pretty(claimed.metric)}"
        lines.append(
            [
                f"{claimed.claim}: {claim.text}",
                f"{claim.numbers} ({claim.setting}; {claim.source}); accepted: {claim.accepted}",
                ", ".join(filter(None, [here, _bar(claimed, share), family])),
                _difference(verdict, claimed.metric, share),
                _word(verdict),
            ]
        )
    return lines


def sentences(judged: Sequence[Judged]) -> list[str]:
    """Say each verdict in a sentence."""
    said = []
    for claimed, family, verdict, share in judged:
        where = f", {family}" if family else ""
        gain = f"{claimed.point} minus {claimed.baseline} by {pretty(claimed.metric)}, a gain "
        gain += "counted above 0"
        if claimed.more_at is not None:
            _, point, baseline = claimed.more_at
            gain = f"the gain of {claimed.point} over {claimed.baseline} by "
            gain += f"{pretty(claimed.metric)}, that at {point} minus that at {baseline}"
        said.append(
            f"{claimed.claim} ({CLAIMS[claimed.claim].text}){where}: {_word(verdict)}; {gain}: "
            f"{_difference(verdict, claimed.metric, share)}."
        )
    return said


def _stated(claimed: Claimed) -> str:
    """Write what is claimed here, without its metric."""
    if claimed.more_at is not None:
        _, point, baseline = claimed.more_at
        return f"{claimed.point} gains more over {claimed.baseline} at {point} than at {baseline},"
    against = "better than" if claimed.within is None else "no different from"
    return f"{claimed.point} {against} {claimed.baseline}"


def _bar(claimed: Claimed, share: bool) -> str:
    if claimed.within is not None:
        return f"within {_amount(claimed.within, claimed.metric, share)}"
    return f"by more than {_amount(claimed.least, claimed.metric, share)}" if claimed.least else ""


def _amount(value: float, metric: str, share: bool, signed: bool = False) -> str:
    text = plain(value, share, signed)
    return text if share else f"{text} {unit(metric)}".rstrip()


def _difference(verdict: Verdict | None, metric: str, share: bool) -> str:
    if verdict is None:
        return "no pairs yet"
    mean = _amount(verdict.mean, metric, share, signed=True)
    if not math.isfinite(verdict.high):
        return f"{mean} (one pair: no interval)"
    low, high = (_amount(end, metric, share, signed=True) for end in (verdict.low, verdict.high))
    return f"{mean} ({low} to {high})"


def _word(verdict: Verdict | None) -> str:
    if verdict is None:
        return UNDERPOWERED
    if verdict.word != UNDERPOWERED or verdict.seeds < 2:
        return verdict.word
    more = f"more than {verdicts.MOST:,}" if verdict.needed is None else f"{verdict.needed:,}"
    return f"{verdict.word}: {more} seeds would be needed"


# --- before a launch ----------------------------------------------------------------------------


def power(claims: Sequence[Claimed], seeds: int, count: int, tables: Sequence[Path]) -> list[str]:
    """Say the power of a study for the differences it looks for, by the spread of earlier runs.

    Args:
      claims: that the study has cells for.
      seeds: of the study.
      count: of intervals that the study has, one for each claim and family.
      tables: results.csv of studies that have run; the first that knows a metric counts, one that
        varies the axis of the claim before others.
    """
    lines = []
    for claimed in claims:
        alike = sorted(tables, key=lambda table: claimed.axis not in _columns(table))
        known = ((table, spread(table, claimed.metric, claimed.axis)) for table in alike)
        table, deviation = next(((t, s) for t, s in known if s), (None, 0.0))
        share = is_share(claimed.metric) and claimed.effect <= 1  # SQuAD's are in per cent already
        effect = _amount(claimed.effect, claimed.metric, share)
        head = f"{claimed.claim}, a difference of {effect} by {pretty(claimed.metric)}"
        if table is None:
            lines.append(f"{head}: no earlier run says how far seeds lie apart")
            continue
        if claimed.more_at is not None:
            deviation *= math.sqrt(2)  # of a difference of two such differences
        margin = claimed.within
        # Of a claim that nothing differs: that it is found if it is so, both ends being as far.
        room = (claimed.effect - claimed.least,) if margin is None else (margin, margin)
        chance = verdicts.power(seeds, deviation, *room, claims=count)
        needed = verdicts.seeds_needed(deviation, *room, claims=count)
        more = f"more than {verdicts.MOST:,}" if needed is None else f"{needed:,}"
        apart = _amount(deviation, claimed.metric, share)
        lines.append(
            f"{head}: power {100 * chance:.0f}{SPACE}% with {seeds} "
            f"{'seed' if seeds == 1 else 'seeds'}, 90{SPACE}% with {more} "
            f"({f'{count} intervals hold together; ' if count > 1 else ''}"
            f"pairs have a standard deviation of {apart} in {os.path.relpath(table)})"
        )
    return lines


def _columns(table: Path) -> list[str]:
    """Return the names of a table's columns; none where it cannot be read."""
    try:
        with table.open(encoding="utf-8", newline="") as file:
            return next(csv.reader(file), [])
    except (OSError, UnicodeDecodeError, csv.Error):
        return []


def spread(table: Path, metric: str, axis: str) -> float:
    """Return the standard deviation of a difference between two cells of one seed; 0 if unknown.

    The cells differ in `axis` alone; in a table without it, in the last axis but the budget. It is
    sqrt(2) times that of a cell, once the means of its point and of its seed are taken off.
    """
    try:
        lines = list(csv.DictReader(io.StringIO(table.read_text(encoding="utf-8"))))
    except (OSError, UnicodeDecodeError, csv.Error):
        return 0.0
    if not lines or not {metric, "seed", "state"} <= lines[0].keys():
        return 0.0
    names = list(lines[0])
    axes = names[names.index("state") + 1 : names.index("seed")]
    known = [name for name in axes if name != BUDGET and not name.endswith(".value")]
    own = axis if axis in axes else (known or [""])[-1]
    families: dict[tuple[str, ...], list[tuple[str, str, float]]] = {}
    for line in lines:
        if line[metric]:
            place = tuple(line[name] for name in axes if name not in (own, f"{own}.value"))
            run = line.get(own, ""), line["seed"], float(line[metric])
            families.setdefault(place, []).append(run)
    squares, freedom = 0.0, 0
    for runs in families.values():
        points, seeds, values = map(np.array, zip(*runs, strict=True))
        levels = [column[:, None] == np.unique(column) for column in (points, seeds)]
        design = np.concatenate(levels, axis=1).astype(float)
        residuals = values - design @ (np.linalg.pinv(design) @ values)
        squares += float(residuals @ residuals)
        freedom += len(runs) - int(np.linalg.matrix_rank(design))
    return math.sqrt(2 * squares / freedom) if freedom else 0.0
