"""Positions by formula against their papers."""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.models import positions


def test_sinusoids_are_those_of_the_transformer_paper():
    table = positions.make_sinusoids(50, 16)
    for position in (0, 1, 7, 49):
        for i in range(8):
            angle = position / 10_000 ** (2 * i / 16)
            assert table[position, 2 * i] == pytest.approx(math.sin(angle), abs=1e-6)
            assert table[position, 2 * i + 1] == pytest.approx(math.cos(angle), abs=1e-6)


@pytest.mark.parametrize("base", [50.0, 10_000.0])
def test_rotate_turns_pairs_as_complex_numbers(base):
    x = np.random.default_rng(0).normal(size=(2, 5, 3, 8)).astype(np.float32)
    places = np.array([[0, 1, 2, 3, 40], [0, 1, 0, 1, 2]])
    angles = places[:, :, None, None] * base ** (-np.arange(4) / 4)
    turned = (x[..., :4] + 1j * x[..., 4:]) * np.exp(1j * angles)
    expected = np.concatenate([turned.real, turned.imag], -1)
    found = positions.rotate(jnp.asarray(x), jnp.asarray(places), base)
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize(
    ("heads", "powers"),
    [
        (8, [-1, -2, -3, -4, -5, -6, -7, -8]),  # the paper's examples
        (16, [-0.5 * i for i in range(1, 17)]),
        (3, [-4, -8, -2]),
        (12, [-1, -2, -3, -4, -5, -6, -7, -8, -0.5, -1.5, -2.5, -3.5]),  # by the published code
    ],
)
def test_slopes_are_the_published_ones(heads, powers):
    np.testing.assert_allclose(positions.make_slopes(heads), 2.0 ** np.array(powers), rtol=1e-6)


def test_penalties_grow_by_distance_both_ways():
    found = positions.penalise_distance(jnp.array([[[0, -3], [3, 0]]]), heads=2)
    expected = [[[0, -3 / 16], [-3 / 16, 0]], [[0, -3 / 256], [-3 / 256, 0]]]
    np.testing.assert_allclose(found[0], expected)
