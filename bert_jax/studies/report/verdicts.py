"""Verdicts on published claims: tests of differences that a study states beforehand.

A claim is replicated if the simultaneous interval of its difference lies on the claimed side. It is
not replicated if the interval excludes that side. Otherwise the study is underpowered for it. A
claim that nothing differs is replicated if the interval lies within the margin, and not replicated
if it lies outside.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from bert_jax.reporting.metric_names import find_title, need_direction
from bert_jax.studies.published import CLAIMS
from bert_jax.studies.report import compare, simultaneous
from bert_jax.studies.report.blocks import Block, Bullets, Paragraph, Section
from bert_jax.studies.report.compare import Difference
from bert_jax.studies.report.families import name_place
from bert_jax.studies.report.view import View, find_point_labels
from bert_jax.studies.report.wording import format_amount, format_interval, join_names
from bert_jax.studies.spec import Claimed

REPLICATED, NOT_REPLICATED, UNDERPOWERED = "replicated", "not replicated", "underpowered"


class Verdict(NamedTuple):
    """The verdict on a claim, and the number of seeds that would give a verdict with power 0.9."""

    word: str
    needed: int | None = None  # None if known already, or beyond simultaneous.MOST


class Judged(NamedTuple):
    """A published claim, and the difference and verdict for it in one family of the study."""

    claimed: Claimed
    place: str  # labels of the other axes
    gain: Difference  # on the claimed side above 0
    verdict: Verdict


def judge_gain(gain: Difference, claimed: Claimed, families: int = 1) -> Verdict:
    """Return the verdict that a difference gives on a claim.

    `families` is the number of families of the study.
    """
    if not gain.tested:
        return Verdict(UNDERPOWERED)
    within = claimed.within
    if within is None:
        inside = gain.low > 0
        outside = gain.high < 0
        room = abs(gain.mean)
        other = math.inf
    else:
        inside = max(-gain.low, gain.high) < within
        outside = gain.low > within or gain.high < -within
        room = abs(within - abs(gain.mean))
        # An interval inside the margin is clear of both its ends, one outside of one end.
        other = within + abs(gain.mean) if abs(gain.mean) < within else math.inf
    if inside:
        return Verdict(REPLICATED)
    if outside:
        return Verdict(NOT_REPLICATED)
    points = gain.points
    if gain.uneven:  # the interval is that of the own pairs, and the level is divided among points
        families *= points - 1
        points = 2
    wanted = simultaneous.Wanted(room, other, gain.examples_error, families)
    return Verdict(UNDERPOWERED, simultaneous.count_seeds(points, gain.spread, wanted))


def judge_claims(view: View) -> list[Judged]:
    """Return the verdict on each claim of a study, in each family that can test it."""
    return [
        Judged(claimed, place, gain, judge_gain(gain, claimed, view.family_count))
        for claimed in view.study.claims
        for place, gain in _find_gains(view, claimed)
    ]


def _find_gains(view: View, claimed: Claimed) -> Iterator[tuple[str, Difference]]:
    """Yield (family, gain) of each family that has both points of a claim.

    A gain above 0 is in the direction of the claim.
    """
    families = []
    places = []  # labels of the other axes
    for family in view.families(claimed.axis):
        if {claimed.point, claimed.baseline} <= family.runs.keys():
            families.append(family)
            places.append(find_point_labels(family) | {claimed.axis: ""})
    asked = (claimed.baseline, claimed.metric, view.family_count)
    resampled = view.resample(claimed.metric) if families else {}
    for family, place in zip(families, places, strict=True):
        named = dict(place)
        del named[claimed.axis]
        if claimed.more_at is None:
            compared = compare.compare_families(resampled, [family], *asked)
        else:
            axis, point, elsewhere = claimed.more_at
            there = place | {axis: elsewhere}
            if place[axis] != point or there not in places:
                continue
            sides = (family, families[places.index(there)])
            compared = compare.compare_gains(resampled, sides, *asked)
            del named[axis]
        gain = next(gap for gap in compared if gap.point == claimed.point)
        if need_direction(claimed.metric) < 0:
            gain = gain.negate()
        yield name_place(view.study.axes, named), gain


# --- words --------------------------------------------------------------------------------------


def describe_claims(view: View, judged: Sequence[Judged]) -> list[Block]:
    """Return blocks with each claim and its verdicts, and with what was published."""
    if not judged:
        return []
    said: dict[str, list[str]] = {}
    for one in judged:
        name = one.claimed.claim
        stated = f"{name}: {CLAIMS[name].text}. Tested here: {_state_claim(view, one.claimed)}."
        place = f"{one.place}: " if one.place else ""
        said.setdefault(stated, []).append(f"{place}{_format_verdict(view, one)}.")
    blocks: list[Block] = [Paragraph("A difference above 0 is a gain.")]
    for stated, verdicts in said.items():
        blocks += [Paragraph(stated), Bullets(verdicts)]
    published = []
    for name in dict.fromkeys(one.claimed.claim for one in judged):
        claim = CLAIMS[name]
        origin = f"{claim.setting}; {claim.source}"
        published.append(f"{name}: {claim.numbers} ({origin}). Accepted: {claim.accepted}.")
    return [*blocks, Section("What was published", [Bullets(published)], detail=True)]


def _state_claim(view: View, claimed: Claimed) -> str:
    """Write what is claimed of this study: the points, the metric and the margin."""
    against = "better than" if claimed.within is None else "no different from"
    stated = f"{claimed.point} is {against} {claimed.baseline}"
    if claimed.more_at is not None:
        _, point, other = claimed.more_at
        stated = f"{claimed.point} gains more over {claimed.baseline} at {point} than at {other},"
    stated += f" by {find_title(claimed.metric)}"
    if claimed.within is not None:
        share = view.is_percent(claimed.metric)
        return join_names(stated, f"within {format_amount(claimed.within, claimed.metric, share)}")
    return stated


def _format_verdict(view: View, one: Judged) -> str:
    """Format a claim's difference with its simultaneous interval, and the verdict."""
    gain, share = one.gain, view.is_percent(one.claimed.metric)
    word = one.verdict.word
    if not gain.pairs:
        return f"no pairs yet, {word}"
    mean = format_amount(gain.mean, one.claimed.metric, share, signed=True)
    if not gain.tested:
        return f"{mean} (no interval), {word}"
    interval = format_interval(gain.low, gain.high, share)
    if word == UNDERPOWERED:
        word += f" ({format_needed(one.verdict.needed)} seeds needed)"
    return f"{mean} ({interval}), {word}"


def format_needed(seeds: int | None) -> str:
    """Write how many seeds are needed; None means more than were looked for."""
    return f"more than {simultaneous.MOST:,}" if seeds is None else f"{seeds:,}"
