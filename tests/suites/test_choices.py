"""The rule of choices, by hand: m equally likely options share the point."""

from __future__ import annotations

import numpy as np
import pytest

from bert_jax.suites.choices import Choice, average_groups, credit_choices


def test_credit_of_the_likeliest_option_is_one():
    credits, ties = credit_choices([np.array([-1.0, -2.0]), np.array([-3.0, -2.0, -9.0])])
    assert (credits.tolist(), ties) == ([1.0, 0.0], 0)


@pytest.mark.parametrize(
    ("totals", "credit"),
    [([-2, -2], 1 / 2), ([-2, -2, -2], 1 / 3), ([-2, -5, -2], 1 / 2), ([-5, -2, -2], 0)],
)
def test_credit_of_ties_is_shared(totals, credit):
    credits, ties = credit_choices([np.array(totals, float)])
    assert (credits.tolist(), ties) == ([pytest.approx(credit)], 1)


def test_credit_of_a_model_that_tells_nothing_apart():
    """It is that of chance, whatever the number of options."""
    totals = [np.zeros(count) for count in (2, 2, 5, 5, 5)]
    assert credit_choices(totals)[0].mean() == pytest.approx((2 / 2 + 3 / 5) / 5)


def test_average_groups_leaves_out_what_has_no_value():
    groups = [{"field": "a", "term": ""}, {"field": "b", "term": "x"}, {"field": "a", "term": "x"}]
    choices = [Choice("", (), (), group) for group in groups]
    found = average_groups(choices, np.array([1.0, 0.5, 0.0]))
    assert found == {"field": {"a": 0.5, "b": 0.5}, "term": {"x": 0.25}}
