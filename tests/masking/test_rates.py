"""Laws of drawn rates against scipy's distributions, and phases against values by hand."""

import math

import numpy as np
import pytest
from scipy import stats

from bert_jax.config.knobs import Masking
from bert_jax.masking import rates
from tests.masking.by_hand import LAWS, PHASES, read_law


@pytest.mark.parametrize(
    ("name", "distribution", "mean"),
    [
        ("uniform", stats.uniform(0.1, 0.4).cdf, 0.3),
        ("beta", stats.beta(3, 9).cdf, 0.25),
        ("cosine_low", lambda r: 2 / math.pi * np.arccos(1 - r), 1 - 2 / math.pi),
        ("cosine_high", lambda r: 1 - 2 / math.pi * np.arccos(r), 2 / math.pi),
    ],
)
def test_law_table_has_the_distribution(name, distribution, mean):
    found = read_law(LAWS[name], (np.arange(200_000) + 0.5) / 200_000)
    assert stats.kstest(found, distribution).statistic < 1 / rates.CELLS  # straight in a cell
    means = [found.mean(), rates.mean_rate(LAWS[name]), rates.rate_at(LAWS[name], 3, 9)]
    assert means == pytest.approx([mean] * 3, abs=1e-4)


def test_rate_at_follows_the_phases():
    """Over 401 steps a hundredth is four: values by hand."""
    at = [rates.rate_at(PHASES, step, 401) for step in (0, 99, 100, 150, 200, 300, 400)]
    assert at == pytest.approx([0.3, 0.3, 0.15, 0.3, 0.45, 0.25, 0.05])
    falling = Masking(rate=0.3, phases=((0.5, 0.15, "step"), (0.8, 0.05, "step")))
    assert {rates.rate_at(falling, step, 1001) for step in range(1001)} == {0.3, 0.15, 0.05}
    for how in ("linear", "cosine"):
        still = Masking(rate=0.15, phases=((1.0, 0.15, how),))
        assert {rates.rate_at(still, step, 301) for step in range(301)} == {0.15}
    assert rates.rate_at(Masking(rate=0.2), 0, 1) == 0.2  # a run of one step


@pytest.mark.parametrize("share", [0.1, 0.25, 0.4, 0.7, 1.0])
def test_mean_rate_is_the_mean_of_the_steps(share):
    done = round(share * 100_000)
    by_hand = np.mean([rates.rate_at(PHASES, step, 100_001) for step in range(0, done + 1, 10)])
    assert rates.mean_rate(PHASES, share) == pytest.approx(by_hand, abs=1e-4)


@pytest.mark.parametrize(
    ("rate", "wanted", "views"),
    [(0.15, None, 1), (0.15, 0.4, 3), (0.15, 0.45, 3), (0.01, 0.07, 7), (0.4, 0.15, 1)],
)
def test_count_views_is_the_quotient_rounded_up(rate, wanted, views):
    """Of floats 0.45 // 0.15 is 2, and 0.07 / 0.01 more than 7."""
    assert rates.count_views(Masking(rate=rate, prediction_rate=wanted)) == views
    assert rates.count_views(Masking(rate=rate, prediction_rate=wanted, draw="beta")) == 1
