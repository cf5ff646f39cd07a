"""The permutation against what a uniformly random permutation does."""

import math

import numpy as np
import pytest

from bert_jax.data.hashing import make_key, permute_index


def permute_all(size: int, *words: int) -> np.ndarray:
    return permute_index(np.arange(size), size, make_key(*words))


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000, 4095, 4096, 4097, 300_007])
def test_permute_index_is_a_permutation(size):
    whole = permute_all(size, 3)
    assert np.array_equal(np.sort(whole), np.arange(size))
    one = size // 2
    assert permute_index(np.array([one]), size, make_key(3))[0] == whole[one]


@pytest.mark.parametrize("size", [20, 1000])
def test_permute_index_places_look_random(size):
    seeds = 1000
    drawn = np.stack([permute_all(size, 3, seed) for seed in range(seeds)])  # [S, N]

    # Each index is as often in each tenth of the places.
    tenths = np.stack([(drawn // (size // 10) == tenth).sum(0) for tenth in range(10)])  # [10, N]
    chi_square = ((tenths - seeds / 10) ** 2 / (seeds / 10)).sum()
    freedom = 9 * (size - 1)  # both margins are fixed
    assert abs(chi_square - freedom) < 5 * math.sqrt(2 * freedom)

    # The place of an index says nothing about its neighbour's: a permutation has -1 / (N - 1).
    for lag in (1, 2, math.isqrt(size), math.isqrt(size) + 1):
        centred = drawn - (size - 1) / 2
        products = (centred[:, lag:] * centred[:, :-lag]).mean(1) / ((size**2 - 1) / 12)
        assert abs(products.mean() + 1 / (size - 1)) < 5 * products.std() / math.sqrt(seeds)

    # One index stays where it is, and an index moves by a third of the size.
    fixed = (drawn == np.arange(size)).sum(1)
    assert abs(fixed.mean() - 1) < 5 / math.sqrt(seeds)
    moved = np.abs(drawn - np.arange(size)).mean(1)
    assert abs(moved.mean() - (size**2 - 1) / (3 * size)) < 5 * moved.std() / math.sqrt(seeds)
