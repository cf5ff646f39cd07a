"""Verdicts on claims, held against simulated studies whose truth is known."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from scipy import stats

from bert_jax.studies.report import verdicts
from bert_jax.studies.report.verdicts import NOT_REPLICATED, REPLICATED, UNDERPOWERED

SPREAD, DRAWS = 0.02, 400


def words(effect: float, seeds: int, **options) -> Counter[str]:
    """Return the verdicts of simulated studies of one claim."""
    rng = np.random.default_rng(7)
    drawn = rng.normal(effect, SPREAD, (DRAWS, seeds))
    return Counter(verdicts.judge(row, **options).word for row in drawn)


@pytest.mark.parametrize("claims", [1, 6])
def test_wrong_verdicts_are_at_most_five_of_a_hundred(claims):
    """A true effect is not called absent, nor a null or reversed one replicated."""
    for seeds in (2, 3, 5, 8):
        assert words(0.03, seeds, claims=claims)[NOT_REPLICATED] <= 0.05 * DRAWS
        for effect in (0.0, -0.03):
            assert words(effect, seeds, claims=claims)[REPLICATED] <= 0.05 * DRAWS


@pytest.mark.parametrize(("effect", "claims"), [(0.03, 1), (0.02, 1), (0.03, 6)])
def test_at_power_90_85_of_100_true_effects_are_replicated(effect, claims):
    seeds = verdicts.seeds_needed(SPREAD, effect, claims=claims)
    assert seeds is not None
    assert verdicts.power(seeds, SPREAD, effect, claims=claims) >= 0.9
    assert verdicts.power(seeds - 1, SPREAD, effect, claims=claims) < 0.9
    found = words(effect, seeds, claims=claims)
    assert found[REPLICATED] >= 0.85 * DRAWS
    assert words(-effect, seeds, claims=claims)[NOT_REPLICATED] >= 0.85 * DRAWS


def test_all_verdicts_of_a_study_hold_together():
    """Of studies of twelve claims of which none is true, at most 5 in 100 replicate any."""
    rng = np.random.default_rng(3)
    wrong = 0
    for _ in range(DRAWS):
        rows = rng.normal(0.0, SPREAD, (12, 4))
        wrong += any(verdicts.judge(row, claims=12).word == REPLICATED for row in rows)
    assert wrong <= 0.05 * DRAWS


def test_power_is_that_of_simulated_t_tests():
    for seeds, effect in ((3, 0.04), (6, 0.02)):
        share = words(effect, seeds)[REPLICATED] / DRAWS
        assert verdicts.power(seeds, SPREAD, effect) == pytest.approx(share, abs=0.06)


@pytest.mark.parametrize("claims", [1, 3, 12])
@pytest.mark.parametrize("away", [0.7, 1.8, 3.0, 30.0])  # effect, in spreads
def test_the_seeds_needed_are_the_first_that_are_enough(away, claims):
    """Power grows with the seeds, also where an effect is far beyond its noise (scipy: NaN)."""
    powers = [verdicts.power(seeds, 1.0, away, claims=claims) for seeds in range(1, 50)]
    assert all(0 <= one <= later <= 1 for one, later in itertools.pairwise(powers))
    first = next(seeds for seeds, power in enumerate(powers, 1) if power >= 0.9)
    assert verdicts.seeds_needed(1.0, away, claims=claims) == first
    for seeds in (2, 3, 8, 30):
        quantile = stats.t.isf(0.025 / claims, seeds - 1)
        exact = stats.nct.sf(quantile, seeds - 1, away * math.sqrt(seeds))
        if away <= 3:
            assert powers[seeds - 1] == pytest.approx(exact, abs=1e-4)


def test_a_claim_that_nothing_differs():
    assert words(0.0, 6, within=0.05)[REPLICATED] >= 0.85 * DRAWS
    assert words(0.1, 6, within=0.05)[NOT_REPLICATED] >= 0.85 * DRAWS
    for seeds in (2, 3, 6):
        assert words(0.05, seeds, within=0.05)[REPLICATED] <= 0.05 * DRAWS
        assert words(0.0, seeds, within=0.05)[NOT_REPLICATED] <= 0.05 * DRAWS


@pytest.mark.parametrize("true", [0.0, 0.01])
def test_the_seeds_of_a_claim_that_nothing_differs_are_enough_at_both_ends(true):
    seeds = verdicts.seeds_needed(SPREAD, 0.03 - true, 0.03 + true)
    assert seeds is not None
    assert seeds >= verdicts.seeds_needed(SPREAD, 0.03 - true)
    for count in (seeds, 4):
        share = words(true, count, within=0.03)[REPLICATED] / DRAWS
        power = verdicts.power(count, SPREAD, 0.03 - true, 0.03 + true)
        assert power == pytest.approx(share, abs=0.06)


def test_a_least_difference_moves_the_line():
    differences = [0.03, 0.032, 0.031, 0.029]
    assert verdicts.judge(differences).word == REPLICATED
    assert verdicts.judge(differences, least=0.05).word == NOT_REPLICATED
    open_ = verdicts.judge(differences, least=0.03)
    assert open_.word == UNDERPOWERED
    assert open_.needed is not None
    assert open_.needed > 4


def test_the_error_over_examples_widens_the_interval():
    differences = [0.03, 0.032, 0.031, 0.029]
    alone, wide = verdicts.judge(differences), verdicts.judge(differences, 0.05)
    assert wide.word == UNDERPOWERED
    assert wide.needed is None, "more seeds do not help where examples are too few"
    some = verdicts.judge([0.02, 0.042, 0.041, 0.019], 0.015)
    assert some.word == UNDERPOWERED
    assert some.needed is not None
    assert some.needed > some.seeds
    assert wide.high - wide.mean == pytest.approx(
        math.hypot(alone.high - alone.mean, 1.96 * 0.05), 1e-3
    )


def test_one_pair_or_no_difference_says_nothing():
    assert verdicts.judge([0.5])[0::5] == (UNDERPOWERED, None)
    assert verdicts.judge([0.5]).high == math.inf
    assert verdicts.seeds_needed(0.02, 0.0) is None
    assert verdicts.seeds_needed(1.0, 1e-3) is None, "more than anyone would train"
    assert verdicts.power(5, 0.0, 0.1) == 1.0
