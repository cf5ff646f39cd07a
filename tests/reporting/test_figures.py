"""Descriptions: what the axes must hold, what is constant, and how long lines are thinned."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.reporting.figures import Chart, Series, has_values, thin_points
from tests.reporting.shown import EMPTY, FIGURES

POINTS = [(float(i), 1.0 + i / 10) for i in range(5)]


def seeds(half: float, last: float = 0.0) -> Series:
    """Intervals of one half, and maybe a longer last one."""
    halves = [half] * 4 + [last or half]
    whiskers = [(x, y - h, y + h) for (x, y), h in zip(POINTS, halves, strict=True)]
    return Series("s", POINTS, whiskers=whiskers)


def test_a_figure_has_values_or_is_empty():
    assert all(map(has_values, FIGURES))
    assert not any(map(has_values, EMPTY))


def test_a_long_interval_does_not_squash_the_rest():
    assert max(Chart("t", [seeds(0.1, 100.0)]).values) < 2
    assert max(Chart("t", [seeds(0.1, 100.0)], cut=False).values) > 100
    both = Chart("t", [seeds(0.2), seeds(50.0)]).values
    assert max(both) - min(both) < 3
    alone = Chart("t", [seeds(50.0)]).values
    assert max(alone) - min(alone) > 100


@pytest.mark.parametrize(("level", "held"), [(60.0, False), (-60.0, False), (1.45, True)])
def test_a_far_baseline_leaves_the_axis_to_values(level, held):
    series = [Series("s", POINTS)]
    assert (level in Chart("t", series, [("b", level)], edge=True).values) == held
    assert level in Chart("t", series, [("b", level)]).values
    assert math.nan not in Chart("t", series, [("b", math.nan)]).values


@pytest.mark.parametrize(
    ("series", "value"),
    [
        (Series("", [(1.0, 0.5), (2.0, 0.5 + 1e-9)]), 0.5 + 1e-9),
        (Series("", [(1.0, 0.5), (2.0, 0.6)]), None),
        (Series("", [(1.0, 0.5)], whiskers=[(1.0, 0.4, 0.6)]), None),
        (Series("", [(1.0, 0.5)], dots=[(1.0, 0.4), (1.0, 0.6)]), None),
        (Series("", []), None),
    ],
)
def test_a_chart_knows_its_one_value(series, value):
    assert Chart("t", [series]).constant == value


@given(st.lists(st.floats(-1e6, 1e6), max_size=200), st.integers(3, 50))
def test_thinning_keeps_ends_order_and_mean(values, most):
    points = [(float(i), value) for i, value in enumerate(values)]
    thinned = thin_points(points, most)
    assert len(thinned) == min(len(points), most)
    assert thinned[:1] == points[:1]
    assert thinned[-1:] == points[-1:]
    assert [x for x, _ in thinned] == sorted(x for x, _ in thinned)
    if len(points) > most and (len(points) - 2) % (most - 2) == 0:  # stretches of equal length
        means = math.fsum(y for _, y in thinned[1:-1]) / (most - 2)
        assert means == pytest.approx(math.fsum(values[1:-1]) / len(values[1:-1]), abs=1e-3)
