"""Verdicts on claims: the words by the ends of the interval, and seeds needed by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bert_jax.studies.report import simultaneous, verdicts
from bert_jax.studies.report.compare import Difference
from bert_jax.studies.report.verdicts import NOT_REPLICATED, REPLICATED, UNDERPOWERED

SPREAD = 0.02


def gain(values: np.ndarray, families: int = 1, error: float = 0.0) -> Difference:
    """Return the first difference of a family of values [points, seeds]."""
    points = len(values)
    compared = simultaneous.compare(values, families, [error] * (points - 1))
    gap = compared.gaps[0]
    ends = {"mean": gap.mean, "low": gap.mean - gap.half, "high": gap.mean + gap.half}
    noise = {"spread": compared.spread, "points": points, "examples_error": error}
    return Difference("loss", "", "a", "b", gap.pairs, 0, **ends, **noise)


def noise(seeds: int, points: int = 3, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, SPREAD, (points, seeds))


def raised(values: np.ndarray, mean: float) -> np.ndarray:
    """Return values whose first difference has a mean that is known."""
    moved = values.copy()
    moved[1] += mean - (values[1] - values[0]).mean()
    return moved


@pytest.mark.parametrize(
    ("low", "high", "options", "word"),
    [
        (0.1, 0.3, {}, REPLICATED),
        (-0.1, 0.3, {}, UNDERPOWERED),
        (-0.3, -0.1, {}, NOT_REPLICATED),
        (0.1, 0.3, {"least": 0.05}, REPLICATED),
        (0.1, 0.3, {"least": 0.15}, UNDERPOWERED),
        (0.1, 0.3, {"least": 0.4}, NOT_REPLICATED),
        (-0.1, 0.15, {"within": 0.2}, REPLICATED),
        (-0.15, 0.1, {"within": 0.2}, REPLICATED),
        (-0.1, 0.3, {"within": 0.2}, UNDERPOWERED),
        (0.1, 0.3, {"within": 0.25}, UNDERPOWERED),
        (-0.3, 0.3, {"within": 0.2}, UNDERPOWERED),
        (0.25, 0.3, {"within": 0.2}, NOT_REPLICATED),
        (-0.3, -0.25, {"within": 0.2}, NOT_REPLICATED),
    ],
)
def test_verdict_follows_from_the_interval(low, high, options, word):
    ends = {"mean": (low + high) / 2, "low": low, "high": high, "spread": 0.1, "points": 2}
    verdict = verdicts.judge(Difference("loss", "", "a", "b", 3, 0, **ends), **options)
    assert verdict == (word, (low + high) / 2, low, high, 3, verdict.needed)
    assert (verdict.needed is None) == (word != UNDERPOWERED)


@pytest.mark.parametrize(
    ("mean", "families", "options", "wanted"),
    [
        (0.03, 1, {}, REPLICATED),
        (0.03, 6, {}, REPLICATED),
        (-0.03, 1, {}, NOT_REPLICATED),
        (0.05, 1, {"least": 0.02}, REPLICATED),
        (0.01, 1, {"within": 0.05}, REPLICATED),
        (0.08, 1, {"within": 0.05}, NOT_REPLICATED),
    ],
)
def test_verdict_needs_seeds_that_are_enough(mean, families, options, wanted, monkeypatch):
    """Of simulated studies with that many seeds nine of ten come to the verdict, or a little more.

    Their noise has the spread of the first study, and its difference is the true one.
    """
    few = noise(2, seed=5)
    scale = SPREAD / simultaneous.compare(few).spread
    seen = gain(raised(few * scale, mean), families)
    verdict = verdicts.judge(seen, families, **options)
    assert verdict.word == UNDERPOWERED
    monkeypatch.setattr(simultaneous, "seeds_needed", lambda *_: None)  # of the others: slow
    found = 0
    for seed in range(500):
        values = noise(verdict.needed, seed=seed)
        values[1] += mean
        found += verdicts.judge(gain(values, families), families, **options).word == wanted
    assert 435 <= found <= 480


def test_verdict_needs_no_seeds_where_none_help():
    """Examples are too few, or the difference is nothing."""
    values = raised(noise(6, points=2), 0.1)
    assert verdicts.judge(gain(values)).word == REPLICATED
    assert verdicts.judge(gain(values, error=0.1))[0::5] == (UNDERPOWERED, None)
    close = raised(noise(3, points=2, seed=1), 0.02)
    wide, narrow = verdicts.judge(gain(close, error=0.004)), verdicts.judge(gain(close))
    assert (wide.word, narrow.word) == (UNDERPOWERED, UNDERPOWERED)
    assert wide.needed > narrow.needed
    assert verdicts.judge(gain(raised(values, 0.0)))[0::5] == (UNDERPOWERED, None)


def test_verdict_of_one_pair_is_open():
    verdict = verdicts.judge(gain(np.array([[0.0], [0.5]])))
    assert verdict == (UNDERPOWERED, 0.5, -math.inf, math.inf, 1, None)
