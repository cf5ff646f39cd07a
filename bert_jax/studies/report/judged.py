"""The claims of a study: their verdicts in its report, and its power to reach them beforehand."""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bert_jax.reporting.formats import SPACE
from bert_jax.reporting.metric_names import is_share, lower_is_better, pretty, unit
from bert_jax.studies.report import aggregate, collect, compare, simultaneous, verdicts
from bert_jax.studies.report.aggregate import View, plain
from bert_jax.studies.report.claims import CLAIMS
from bert_jax.studies.report.collect import Family
from bert_jax.studies.report.compare import Difference
from bert_jax.studies.report.verdicts import UNDERPOWERED, Verdict
from bert_jax.studies.spec import BUDGET, Claimed

HEAD = ["claim", "published", "here", "difference, simultaneous 95\N{NO-BREAK SPACE}%", "verdict"]

LEGEND = "A difference above 0 is a gain."


class Judged(NamedTuple):
    """A claim and what one family of the study says of it."""

    claimed: Claimed
    family: str
    verdict: Verdict | None  # None before there are pairs
    share: bool = False  # whether the metric is written in per cent


def judge(view: View) -> list[Judged]:
    """Judge every claim of the study in every family."""
    count = view.family_count
    judged = []
    for claimed in view.claims:
        share = aggregate.percent(claimed.metric, view.results)
        for place, gain in _gains(view, claimed, count):
            verdict = None
            if gain.pairs:
                verdict = verdicts.judge(gain, count, claimed.least, claimed.within)
            judged.append(Judged(claimed, collect.placed(view.study, place), verdict, share))
    return judged


def _gains(view: View, claimed: Claimed, count: int) -> list[tuple[dict[str, str], Difference]]:
    """Return each place that has both points of a claim, and the gain there, above 0 if claimed."""
    gains = []
    families = _families(view, claimed)
    for place, family in families:
        if claimed.more_at is None:
            compared = compare.differences(
                view.place, [family], claimed.baseline, [claimed.metric], count
            )
        else:
            axis, point, baseline = claimed.more_at
            across = [other for at, other in families if at == place | {axis: baseline}]
            if place[axis] != point or not across:
                continue
            compared = compare.differences_of_gains(
                view.place, (family, across[0]), claimed.baseline, claimed.metric, count
            )
            place = {name: label for name, label in place.items() if name != axis}
        gain = next(gap for gap in compared if gap.point == claimed.point)
        gains.append((place, gain.negated if lower_is_better(claimed.metric) else gain))
    return gains


def _families(view: View, claimed: Claimed) -> list[tuple[dict[str, str], Family]]:
    """Return the families that have both points of a claim, and their labels on other axes."""
    found = []
    for family in view.families(claimed.axis):
        if {claimed.point, claimed.baseline} <= family.runs.keys():
            place = dict(family.runs[claimed.point][0].entry.labels)
            del place[claimed.axis]
            found.append((place, family))
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


def sentences(judged: Sequence[Judged]) -> dict[str, list[str]]:
    """Return each claim in a sentence, with its verdicts in a sentence for each place."""
    said: dict[str, list[str]] = {}
    for claimed, family, verdict, share in judged:
        stated = f"{_stated(claimed)} by {pretty(claimed.metric)}"
        here = ", ".join(filter(None, [stated, _bar(claimed, share)]))
        claim = f"{claimed.claim}: {CLAIMS[claimed.claim].text}. Tested here: {here}."
        difference = _difference(verdict, claimed.metric, share)
        where = f"{family}: " if family else ""
        said.setdefault(claim, []).append(f"{where}{difference}, {_word(verdict)}.")
    return said


def _stated(claimed: Claimed) -> str:
    """Write what is claimed here, without its metric."""
    if claimed.more_at is not None:
        _, point, baseline = claimed.more_at
        return f"{claimed.point} gains more over {claimed.baseline} at {point} than at {baseline},"
    against = "better than" if claimed.within is None else "no different from"
    return f"{claimed.point} is {against} {claimed.baseline}"


def _bar(claimed: Claimed, share: bool) -> str:
    if claimed.within is not None:
        return f"within {_amount(claimed.within, claimed.metric, share)}"
    return f"by more than {_amount(claimed.least, claimed.metric, share)}" if claimed.least else ""


def _amount(value: float, metric: str, share: bool, signed: bool = False) -> str:
    return _with_unit(plain(value, share, signed), metric, share)


def _with_unit(text: str, metric: str, share: bool) -> str:
    return text if share else f"{text} {unit(metric)}".rstrip()


def _difference(verdict: Verdict | None, metric: str, share: bool) -> str:
    if verdict is None:
        return "no pairs yet"
    mean = _amount(verdict.mean, metric, share, signed=True)
    if not math.isfinite(verdict.high):
        return f"{mean} (one pair: no interval)"
    return f"{mean} ({aggregate.interval(verdict.low, verdict.high, share)})"


def _word(verdict: Verdict | None) -> str:
    if verdict is None:
        return UNDERPOWERED
    if verdict.word != UNDERPOWERED or verdict.seeds < 2:
        return verdict.word
    return f"{verdict.word} ({_many(verdict.needed)} seeds would be needed)"


# --- before a launch ----------------------------------------------------------------------------


class Plan(NamedTuple):
    """What the power of a study follows from before it has run."""

    seeds: int
    families: int
    points: Mapping[str, int]  # of each axis


def power(claims: Sequence[Claimed], plan: Plan, tables: Sequence[Path]) -> list[str]:
    """Say the power of a study for the differences it looks for, by the spread of earlier runs.

    Args:
      claims: that the study has cells for.
      plan: of the study.
      tables: results.csv of studies that have run. The first that knows a metric counts. Tables
        that vary the axis of the claim come before others.
    """
    lines = []
    for claimed in claims:
        alike = sorted(tables, key=lambda table: claimed.axis not in _columns(table))
        known = ((table, spread(table, claimed.metric, claimed.axis)) for table in alike)
        table, deviation = next(((t, s) for t, s in known if s), (None, 0.0))
        share = is_share(claimed.metric) and claimed.effect <= 1  # SQuAD's are in per cent already
        looked_for = f"a difference of {_amount(claimed.effect, claimed.metric, share)}"
        if claimed.within is not None:
            looked_for = f"no difference beyond {_amount(claimed.within, claimed.metric, share)}"
        head = f"{claimed.claim}, {looked_for} by {pretty(claimed.metric)}"
        if table is None:
            lines.append(f"{head}: no earlier run says how far seeds lie apart")
            continue
        # Of a difference of gains, each value is the difference of two runs.
        apart = deviation * (1 if claimed.more_at is None else math.sqrt(2))
        room = claimed.effect - claimed.least
        other = math.inf
        if claimed.within is not None:  # found if nothing differs, both ends being as far
            room = other = claimed.within
        points, families = plan.points.get(claimed.axis, 2), plan.families
        wanted = simultaneous.Wanted(room, other, families=families)
        chance = simultaneous.power(plan.seeds, points, apart, wanted)
        needed = simultaneous.seeds_needed(points, apart, wanted)
        lines.append(
            f"{head}: power {100 * chance:.0f}{SPACE}% with {_counted(plan.seeds, 'seed')}, "
            f"90{SPACE}% with {_many(needed)} "
            f"(intervals of {_counted(families, 'family', 'families')} hold together; a run has a "
            f"standard deviation of {_amount(deviation, claimed.metric, share)} in "
            f"{os.path.relpath(table)})"
        )
    return lines


def _counted(count: int, one: str, more: str = "") -> str:
    return f"{count:,} {one if count == 1 else more or f'{one}s'}"


def _many(seeds: int | None) -> str:
    """Write how many seeds are needed."""
    return f"more than {simultaneous.MOST:,}" if seeds is None else f"{seeds:,}"


def _columns(table: Path) -> list[str]:
    """Return the names of a table's columns; none where it cannot be read."""
    try:
        with table.open(encoding="utf-8", newline="") as file:
            return next(csv.reader(file), [])
    except (OSError, UnicodeDecodeError, csv.Error):
        return []


def spread(table: Path, metric: str, axis: str) -> float:
    """Return the pooled standard deviation of a cell about its point and its seed; 0 if unknown.

    Points are those of `axis`. In a table without it they are those of the last axis but the
    budget.
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
    families: dict[tuple[str, ...], dict[tuple[str, str], float]] = {}
    for line in lines:
        if line[metric]:
            place = tuple(line[name] for name in axes if name not in (own, f"{own}.value"))
            at = line.get(own, ""), line["seed"]
            families.setdefault(place, {})[at] = float(line[metric])
    squares, freedom = 0.0, 0
    for runs in families.values():
        points, seeds = (list(dict.fromkeys(at[i] for at in runs)) for i in (0, 1))
        values = np.array([[runs.get((p, s), np.nan) for s in seeds] for p in points])
        compared = simultaneous.compare(values)
        if compared.freedom:
            squares += compared.freedom * compared.spread**2
            freedom += compared.freedom
    return math.sqrt(squares / freedom) if freedom else 0.0
