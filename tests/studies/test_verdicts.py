"""Verdicts on claims: words by the ends of intervals, seeds needed by simulation, reports."""

import dataclasses
import math

import numpy as np
import pytest

from bert_jax.studies.definition import Comparison
from bert_jax.studies.report import answers, blocks, simultaneous, verdicts
from bert_jax.studies.report.compare import Difference
from bert_jax.studies.report.verdicts import NOT_REPLICATED, REPLICATED, UNDERPOWERED
from tests import study_workdir
from tests.studies.views import TRUE, build_view, define_claims, halves_by_hand, list_values

SPREAD = 0.02


def make_gain(values: np.ndarray, families: int = 1, error: float = 0.0) -> Difference:
    """Make the first difference of a family of values [points, seeds]."""
    points = len(values)
    compared = simultaneous.compare_points(values, families, [error] * (points - 1))
    gap = compared.gaps[0]
    found = {"mean": gap.mean, "low": gap.mean - gap.half, "high": gap.mean + gap.half}
    found |= {"spread": gap.spread, "points": points, "uneven": compared.uneven}
    return Difference("loss", "", "a", "b", gap.pairs, 0, examples_error=error, **found)


def judge(gain: Difference, families: int = 1, **options) -> verdicts.Verdict:
    return verdicts.judge_gain(gain, dataclasses.replace(TRUE, **options), families)


def draw_noise(seeds: int, points: int = 3, seed: int = 0, last: float = 1.0) -> np.ndarray:
    """Draw noise [points, seeds], which is `last` times as wide at the last point."""
    noise = np.random.default_rng(seed).normal(0, SPREAD, (points, seeds))
    noise[-1] *= last
    return noise


def raise_first(values: np.ndarray, mean: float) -> np.ndarray:
    """Move values so that their first difference has a mean that is known."""
    moved = values.copy()
    moved[1] += mean - (values[1] - values[0]).mean()
    return moved


@pytest.mark.parametrize(
    ("low", "high", "options", "word"),
    [
        (0.1, 0.3, {}, REPLICATED),
        (-0.1, 0.3, {}, UNDERPOWERED),
        (-0.3, -0.1, {}, NOT_REPLICATED),
        (-0.1, 0.15, {"within": 0.2}, REPLICATED),
        (-0.1, 0.3, {"within": 0.2}, UNDERPOWERED),
        (0.1, 0.3, {"within": 0.25}, UNDERPOWERED),
        (0.25, 0.3, {"within": 0.2}, NOT_REPLICATED),
        (-0.3, -0.25, {"within": 0.2}, NOT_REPLICATED),
    ],
)
def test_verdict_follows_from_the_interval(low, high, options, word):
    ends = {"mean": (low + high) / 2, "low": low, "high": high, "spread": 0.1, "points": 2}
    verdict = judge(Difference("loss", "", "a", "b", 3, 0, **ends), **options)
    assert verdict.word == word
    assert (verdict.needed is None) == (word != UNDERPOWERED)


@pytest.mark.parametrize(
    ("mean", "families", "last", "options", "wanted"),
    [
        (0.03, 1, 1, {}, REPLICATED),
        (0.03, 6, 1, {}, REPLICATED),
        (-0.03, 1, 1, {}, NOT_REPLICATED),
        (0.01, 1, 1, {"within": 0.05}, REPLICATED),
        (0.08, 1, 1, {"within": 0.05}, NOT_REPLICATED),
        (0.08, 2, 40, {}, REPLICATED),
    ],
)
def test_verdict_needs_seeds_that_are_enough(mean, families, last, options, wanted, monkeypatch):
    """Of simulated studies with that many seeds nine of ten come to the verdict, or a little more.

    Their noise has the spread of the first study, and its difference is the true one. If the last
    point scatters far more, all points have the intervals of their own pairs.
    """
    points = 5 if last > 1 else 3
    few = draw_noise(3, points, 5, last)
    scale = SPREAD / make_gain(few).spread
    verdict = judge(make_gain(raise_first(few * scale, mean), families), families, **options)
    assert verdict.word == UNDERPOWERED
    monkeypatch.setattr(simultaneous, "count_seeds", lambda *_: None)  # of the others: slow
    found = 0
    for seed in range(500):
        values = draw_noise(verdict.needed, points, seed, last)
        values[1] += mean
        found += judge(make_gain(values, families), families, **options).word == wanted
    assert 435 <= found <= 480


def test_verdict_needs_no_seeds_where_none_help():
    """Examples are too few, or the difference is nothing."""
    values = raise_first(draw_noise(6, points=2), 0.1)
    assert judge(make_gain(values)).word == REPLICATED
    assert judge(make_gain(values, error=0.1)) == (UNDERPOWERED, None)
    assert judge(make_gain(raise_first(values, 0.0))) == (UNDERPOWERED, None)
    close = raise_first(draw_noise(3, points=2, seed=1), 0.02)
    assert judge(make_gain(close, error=0.004)).needed > judge(make_gain(close)).needed


def by_hand(values: dict[tuple[str, int], float], baseline: str, point: str, level: float):
    """Return mean and half of the interval of a point minus the baseline, over all three rates."""
    labels = [baseline, point, *({"15 %", "20 %", "80 %"} - {baseline, point})]
    table = np.array([[values[label, seed] for seed in range(4)] for label in labels])
    return (table[1] - table[0]).mean(), halves_by_hand(table, level)[0]


def test_claims_are_judged_by_all_points(view):
    """Six families: two sizes, each against 15 % (also claimed), 20 % and 80 %.

    One claim is true, one reversed, and one null.
    """
    assert view.family_count == 6
    judged = verdicts.judge_claims(view)
    words = {(one.claimed.claim, one.place): one.verdict.word for one in judged}
    wanted = {"C1": REPLICATED, "C3": NOT_REPLICATED, "C16": REPLICATED}
    assert words == {(c, at): word for c, word in wanted.items() for at in ("2 x 64", "2 x 128")}
    compared = {(gap.family, gap.point): gap for gap in answers.compute_findings(view).gaps[0]}
    losses = list_values(view)
    for claimed, place, gain, _ in judged:
        own = {(rate, seed): losses[place, rate, seed] for _, rate, seed in losses}
        mean, half = by_hand(own, claimed.baseline, claimed.point, 0.05 / 6)
        assert (gain.mean, gain.pairs) == (pytest.approx(-mean), 4)
        # Over 300 examples, whose own noise has a deviation of 0.3, on both sides and in 4 seeds.
        error = math.sqrt((gain.high - gain.mean) ** 2 - half**2) / 2.865  # Sidak's quantile
        assert error == pytest.approx(0.3 / math.sqrt(300) * math.sqrt(2 / 4), rel=0.25)
        if claimed.baseline == "15 %":  # also compared; a lower loss is a gain
            gap = compared[place, claimed.point]
            assert (gain.low, gain.high) == (-gap.high, -gap.low)


def test_claims_of_gains_are_judged_by_all_points(tmp_path):
    """The spread is that of differences of gains, over all rates; one verdict of both sizes."""
    metric = "pos/accuracy"  # no values of single examples
    larger = dataclasses.replace(TRUE, metric=metric, more_at=("size", "2 x 128", "2 x 64"))
    smaller = dataclasses.replace(larger, more_at=("size", "2 x 64", "2 x 128"))
    compared = (Comparison("masking.rate", "15 %", (metric,)),)
    asked = {"comparisons": compared, "evaluations": study_workdir.EVALUATIONS}
    view = build_view(tmp_path / "w", define_claims(claims=(larger, smaller), **asked))
    scores = list_values(view, metric)
    rates = {(rate, seed) for _, rate, seed in scores}
    more = {at: scores["2 x 128", *at] - scores["2 x 64", *at] for at in rates}
    mean, half = by_hand(more, "80 %", "20 %", 0.05 / 4)  # two claims, a comparison at two sizes
    judged = verdicts.judge_claims(view)
    one, other = (claim.gain for claim in judged)
    assert (one.mean, other.mean) == pytest.approx((mean, -mean))
    for gain in (one, other):
        assert gain.high - gain.mean == pytest.approx(half, rel=5e-3)
    text = blocks.render_markdown(verdicts.describe_claims(view, judged))
    assert "20 % gains more over 80 % at 2 x 128 than at 2 x 64, by POS accuracy" in text
