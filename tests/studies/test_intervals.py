"""Means and their intervals against scipy's own test."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from bert_jax.studies.report.intervals import summarize_values

PRECISION = pytest.mark.filterwarnings("ignore:Precision loss")  # scipy's, of equal values
SAMPLES = st.lists(st.floats(-1e3, 1e3).map(lambda x: round(x, 3)), min_size=2, max_size=9)


@PRECISION
@given(SAMPLES)
def test_summary_is_scipys(values):
    found = summarize_values(values)
    assert found.n == len(values)
    assert found.deviation == pytest.approx(np.std(values, ddof=1), rel=1e-9, abs=1e-9)
    if np.ptp(values):
        interval = stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
        assert (found.low, found.high) == pytest.approx(tuple(interval), rel=1e-9, abs=1e-9)
    else:
        assert found.low == pytest.approx(found.high, abs=1e-9)


def test_summary_of_one_run_has_no_interval():
    found = summarize_values([0.7])
    assert (found.n, found.mean) == (1, 0.7)
    assert math.isnan(found.deviation)
    assert (found.low, found.high) == (-math.inf, math.inf)


@pytest.mark.parametrize("values", [[], [math.nan, 1.0], [[1.0, 2.0]]])
def test_summary_refuses_what_is_no_number(values):
    with pytest.raises(ValueError, match="no finite numbers"):
        summarize_values(values)
