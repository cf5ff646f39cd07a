"""The rule of choices, by hand: m equally likely options share the point."""

from __future__ import annotations

import numpy as np
import pytest

from bert_jax.suites.choices import Choice, average_groups, credit_choices


@pytest.mark.parametrize(
    ("totals", "credit", "ties"),
    [
        ([-1, -2], 1, 0),
        ([-3, -2, -9], 0, 0),
        ([-2, -2], 1 / 2, 1),
        ([-2, -2, -2], 1 / 3, 1),
        ([-2, -5, -2], 1 / 2, 1),
        ([-5, -2, -2], 0, 1),
    ],
)
def test_credit_of_ties_is_shared(totals, credit, ties):
    credits, found = credit_choices([np.array(totals, float)])
    assert (credits.tolist(), found) == ([pytest.approx(credit)], ties)


def test_average_groups_leaves_out_what_has_no_value():
    groups = [{"field": "a", "term": ""}, {"field": "b", "term": "x"}, {"field": "a", "term": "x"}]
    choices = [Choice("", (), (), group) for group in groups]
    found = average_groups(choices, np.array([1.0, 0.5, 0.0]))
    assert found == {"field": {"a": 0.5, "b": 0.5}, "term": {"x": 0.25}}
