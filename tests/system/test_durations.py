"""Durations as people read them."""

import pytest

from bert_jax.system.durations import format_duration


@pytest.mark.parametrize(
    ("seconds", "exact", "rough"),
    [
        (0.0352, "35.2 ms", "0 s"),
        (2.3149, "2.31 s", "2 s"),
        (59.7, "1 min 00 s", "60 s"),
        (187.0, "3 min 07 s", "3 min"),
        (7_500.0, "2 h 05 min", "2 h"),
        (4_000_000.0, "1,111 h 06 min", "1,111 h"),
    ],
)
def test_duration_has_two_units_and_an_estimate_one(seconds, exact, rough):
    assert format_duration(seconds) == exact
    assert format_duration(seconds, rough=True) == rough
