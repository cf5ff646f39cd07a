"""Verdicts on claims: words by the ends of intervals, seeds needed by simulation, reports."""

import dataclasses

import numpy as np
import pytest

from bert_jax.studies.report import simultaneous, verdicts
from bert_jax.studies.report.compare import Difference
from bert_jax.studies.report.verdicts import NOT_REPLICATED, REPLICATED, UNDERPOWERED
from tests.studies.views import TRUE

SPREAD = 0.02


def make_gain(values: np.ndarray, families: int = 1, error: float = 0.0) -> Difference:
    """Make the first difference of a family of values [points, seeds]."""
    points = len(values)
    compared = simultaneous.compare_points(values, families, [error] * (points - 1))
    gap = compared.gaps[0]
    ends = {"mean": gap.mean, "low": gap.mean - gap.half, "high": gap.mean + gap.half}
    noise = {"spread": compared.spread, "points": points, "examples_error": error}
    return Difference("loss", "", "a", "b", gap.pairs, 0, **ends, **noise)


def judge(gain: Difference, families: int = 1, **options) -> verdicts.Verdict:
    return verdicts.judge_gain(gain, dataclasses.replace(TRUE, **options), families)


def draw_noise(seeds: int, points: int = 3, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, SPREAD, (points, seeds))


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
    ("mean", "families", "options", "wanted"),
    [
        (0.03, 1, {}, REPLICATED),
        (0.03, 6, {}, REPLICATED),
        (-0.03, 1, {}, NOT_REPLICATED),
        (0.01, 1, {"within": 0.05}, REPLICATED),
        (0.08, 1, {"within": 0.05}, NOT_REPLICATED),
    ],
)
def test_verdict_needs_seeds_that_are_enough(mean, families, options, wanted, monkeypatch):
    """Of simulated studies with that many seeds nine of ten come to the verdict, or a little more.

    Their noise has the spread of the first study, and its difference is the true one.
    """
    few = draw_noise(2, seed=5)
    scale = SPREAD / simultaneous.compare_points(few).spread
    verdict = judge(make_gain(raise_first(few * scale, mean), families), families, **options)
    assert verdict.word == UNDERPOWERED
    monkeypatch.setattr(simultaneous, "count_seeds", lambda *_: None)  # of the others: slow
    found = 0
    for seed in range(500):
        values = draw_noise(verdict.needed, seed=seed)
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
