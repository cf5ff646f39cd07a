"""The rule of choices, by hand: m equally likely options share the point."""

import numpy as np

from bert_jax.suites.choices import Choice, average_groups, credit_choices


def test_credit_of_ties_is_shared():
    totals = [[-1, -2], [-3, -2, -9], [-2, -2, -2], [-2, -5, -2], [-5, -2, -2]]
    credits, ties = credit_choices([np.array(values, float) for values in totals])
    np.testing.assert_allclose(credits, [1, 0, 1 / 3, 1 / 2, 0])
    assert ties == 3


def test_average_groups_leaves_out_what_has_no_value():
    groups = [{"field": "a", "term": ""}, {"field": "b", "term": "x"}, {"field": "a", "term": "x"}]
    choices = [Choice("", (), (), group) for group in groups]
    found = average_groups(choices, np.array([1.0, 0.5, 0.0]))
    assert found == {"field": {"a": 0.5, "b": 0.5}, "term": {"x": 0.25}}
