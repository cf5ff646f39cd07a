"""Verdicts on published claims: what the runs of a study say of a difference stated beforehand.

A claim is replicated if the simultaneous interval of its difference lies on the claimed side. It is
not replicated if the interval excludes that side. Otherwise the study is underpowered for it. A
claim that nothing differs is replicated if the interval lies within the margin, and not replicated
if it lies outside.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from bert_jax.reporting.formats import SPACE
from bert_jax.reporting.metric_names import lower_is_better, pretty
from bert_jax.studies.report import collect, compare, simultaneous
from bert_jax.studies.report.blocks import Block, Bullets, Paragraph, Table, add_detail
from bert_jax.studies.report.collect import Family
from bert_jax.studies.report.compare import Difference
from bert_jax.studies.report.published import CLAIMS
from bert_jax.studies.report.view import View
from bert_jax.studies.report.wording import format_amount, format_interval, join_names
from bert_jax.studies.spec import Claimed

REPLICATED, NOT_REPLICATED, UNDERPOWERED = "replicated", "not replicated", "underpowered"


class Verdict(NamedTuple):
    """What the pairs of runs say of a claim."""

    word: str
    mean: float  # of the differences, on the claimed side above 0
    low: float  # the simultaneous interval
    high: float
    seeds: int
    needed: int | None  # seeds for a verdict with power 0.9; None if known already, or beyond MOST


class Judged(NamedTuple):
    """A claim and what one family of the study says of it."""

    claimed: Claimed
    family: str
    verdict: Verdict | None  # None before there are pairs
    share: bool = False  # whether the metric is written in per cent


def judge_gain(
    gain: Difference, families: int = 1, least: float = 0.0, within: float | None = None
) -> Verdict:
    """Judge a claim by a difference that has pairs.

    Args:
      gain: on the claimed side above 0.
      families: of the study.
      least: the difference must be above this to count.
      within: the margin, of a claim that nothing differs.
    """
    if not gain.tested:
        return Verdict(UNDERPOWERED, gain.mean, -math.inf, math.inf, gain.pairs, None)
    if within is None:
        inside = gain.low > least
        outside = gain.high < least
        room = abs(gain.mean - least)
        other = math.inf
    else:
        inside = max(-gain.low, gain.high) < within
        outside = gain.low > within or gain.high < -within
        room = abs(within - abs(gain.mean))
        # An interval inside the margin is clear of both its ends, one outside of one end.
        other = within + abs(gain.mean) if abs(gain.mean) < within else math.inf
    word, needed = UNDERPOWERED, None
    if inside:
        word = REPLICATED
    elif outside:
        word = NOT_REPLICATED
    else:
        wanted = simultaneous.Wanted(room, other, gain.examples_error, families)
        needed = simultaneous.count_seeds(gain.points, gain.spread, wanted)
    return Verdict(word, gain.mean, gain.low, gain.high, gain.pairs, needed)


def judge_claims(view: View) -> list[Judged]:
    """Judge every claim of the study in every family."""
    count = view.family_count
    judged = []
    for claimed in view.claims:
        share = view.is_percent(claimed.metric)
        for place, gain in _find_gains(view, claimed, count):
            verdict = judge_gain(gain, count, claimed.least, claimed.within) if gain.pairs else None
            judged.append(Judged(claimed, collect.placed(view.study, place), verdict, share))
    return judged


def _find_gains(
    view: View, claimed: Claimed, count: int
) -> list[tuple[dict[str, str], Difference]]:
    """Return each place that has both points of a claim, and the gain there, above 0 if claimed."""
    gains = []
    families = _find_families(view, claimed)
    for place, family in families:
        if claimed.more_at is None:
            compared = compare.compare_families(
                view.place, [family], claimed.baseline, [claimed.metric], count
            )
        else:
            axis, point, baseline = claimed.more_at
            across = [other for at, other in families if at == place | {axis: baseline}]
            if place[axis] != point or not across:
                continue
            compared = compare.compare_gains(
                view.place, (family, across[0]), claimed.baseline, claimed.metric, count
            )
            place = {name: label for name, label in place.items() if name != axis}
        gain = next(gap for gap in compared if gap.point == claimed.point)
        gains.append((place, gain.negated if lower_is_better(claimed.metric) else gain))
    return gains


def _find_families(view: View, claimed: Claimed) -> list[tuple[dict[str, str], Family]]:
    """Return the families that have both points of a claim, and their labels on other axes."""
    found = []
    for family in view.families(claimed.axis):
        if {claimed.point, claimed.baseline} <= family.runs.keys():
            place = dict(family.runs[claimed.point][0].entry.labels)
            del place[claimed.axis]
            found.append((place, family))
    return found


# --- words --------------------------------------------------------------------------------------


def describe_claims(judged: Sequence[Judged]) -> list[Block]:
    """Describe each claim with its verdicts, and in detail what was published."""
    if not judged:
        return []
    blocks: list[Block] = [Paragraph("A difference above 0 is a gain.")]
    said: dict[str, list[str]] = {}
    for one in judged:
        claim = one.claimed.claim
        stated = f"{claim}: {CLAIMS[claim].text}. Tested here: {_state(one)}."
        where = f"{one.family}: " if one.family else ""
        said.setdefault(stated, []).append(f"{where}{_format_gain(one)}, {_format_word(one)}.")
    for stated, verdicts in said.items():
        blocks += [Paragraph(stated), Bullets(verdicts)]
    return [*blocks, add_detail("What was published", [_tabulate(judged)])]


def _tabulate(judged: Sequence[Judged]) -> Table:
    head = ["claim", "published", "here", f"difference, simultaneous 95{SPACE}%", "verdict"]
    rows = []
    for one in judged:
        claim = CLAIMS[one.claimed.claim]
        published = f"{claim.numbers} ({claim.setting}; {claim.source}); accepted: {claim.accepted}"
        here = join_names(_state(one), one.family)
        name = f"{one.claimed.claim}: {claim.text}"
        rows.append([name, published, here, _format_gain(one), _format_word(one)])
    return Table(head, rows, prose=True)


def _state(one: Judged) -> str:
    """Write what is claimed here, by which metric and by how much."""
    claimed = one.claimed
    if claimed.more_at is not None:
        _, point, baseline = claimed.more_at
        stated = (
            f"{claimed.point} gains more over {claimed.baseline} at {point} than at {baseline},"
        )
    else:
        against = "better than" if claimed.within is None else "no different from"
        stated = f"{claimed.point} is {against} {claimed.baseline}"
    bar = ""
    if claimed.within is not None:
        bar = f"within {format_amount(claimed.within, claimed.metric, one.share)}"
    elif claimed.least:
        bar = f"by more than {format_amount(claimed.least, claimed.metric, one.share)}"
    return join_names(f"{stated} by {pretty(claimed.metric)}", bar)


def _format_gain(one: Judged) -> str:
    """Write the difference with its simultaneous interval."""
    verdict = one.verdict
    if verdict is None:
        return "no pairs yet"
    mean = format_amount(verdict.mean, one.claimed.metric, one.share, signed=True)
    if not math.isfinite(verdict.high):
        return f"{mean} (one pair: no interval)"
    return f"{mean} ({format_interval(verdict.low, verdict.high, one.share)})"


def _format_word(one: Judged) -> str:
    verdict = one.verdict
    if verdict is None:
        return UNDERPOWERED
    if verdict.word != UNDERPOWERED or verdict.seeds < 2:
        return verdict.word
    return f"{verdict.word} ({format_needed(verdict.needed)} seeds would be needed)"


def format_needed(seeds: int | None) -> str:
    """Write how many seeds are needed."""
    return f"more than {simultaneous.MOST:,}" if seeds is None else f"{seeds:,}"
