"""Sums that are divided once, intervals against scipy, and metrics of which lower is better."""

import math

import numpy as np
import pytest
from scipy import stats

from bert_jax.evaluation import metrics


def test_totals_divide_sums_once():
    totals = metrics.Totals()
    for part in ({"loss": (6.0, 2.0)}, {"loss": (1.0, 5.0), "none": (0.0, 0.0)}):
        totals.add(part)
    found = totals.values()
    assert found["loss"] == 1.0
    assert math.isnan(found["none"])


@pytest.mark.parametrize(("hits", "total"), [(0, 5), (7, 7), (3, 8), (410, 1000)])
def test_wilson_is_the_interval_of_scipy(hits, total):
    expected = stats.binomtest(hits, total).proportion_ci(method="wilson")
    interval = pytest.approx((expected.low, expected.high), abs=1e-7)
    assert metrics.find_wilson_interval(hits, total) == interval
    assert metrics.find_wilson_interval(0, 0) == (0, 1)


def test_unigram_adds_one_to_every_token():
    found = metrics.unigram_log_probabilities(np.array([0, 3, 6]))
    np.testing.assert_allclose(np.exp(found), [1 / 12, 4 / 12, 7 / 12], rtol=1e-6)


def test_as_lower_negates_where_higher_is_better():
    assert (metrics.as_lower("mlm_loss", 2.0), metrics.as_lower("accuracy", 2.0)) == (2.0, -2.0)
    assert metrics.as_lower("accuracy", math.nan) == math.inf
