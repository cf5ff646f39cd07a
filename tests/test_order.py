"""The permutation against what a uniformly random one does."""

from __future__ import annotations

import collections
import itertools
import math

import numpy as np
import pytest

from bert_jax.data.batches import order


@pytest.mark.parametrize(
    "size", [1, 2, 3, 4, 5, 6, 7, 10, 99, 1000, 4095, 4096, 4097, 65537, 300_007]
)
def test_permutes(size: int) -> None:
    for seed in range(3):
        assert np.array_equal(
            np.sort(order.permute(np.arange(size), size, order.key(seed))), np.arange(size)
        )


def test_an_index_alone_goes_where_it_goes_in_company() -> None:
    everything = order.permute(np.arange(1009), 1009, 5)
    for index in (0, 1, 500, 1008):
        assert order.permute(np.array([index]), 1009, 5)[0] == everything[index]


def test_the_largest_epoch() -> None:
    size = 2**31 - 1
    index = np.concatenate([np.arange(1000), size - 1 - np.arange(1000)])
    places = order.permute(index, size, 1)
    assert len(np.unique(places)) == 2000
    assert places.min() >= 0
    assert places.max() < size
    # uniform on 0..1 has mean 1/2 and deviation 1/sqrt(12); five standard errors
    assert abs(places.mean() / size - 0.5) < 5 / math.sqrt(12 * 2000)


def test_every_permutation_of_five_is_as_frequent() -> None:
    draws = 3_000
    seen = collections.Counter(
        tuple(order.permute(np.arange(5), 5, order.key(7, s)).tolist()) for s in range(draws)
    )
    expected = draws / math.factorial(5)
    chi_square = sum((seen[p] - expected) ** 2 / expected for p in itertools.permutations(range(5)))
    assert chi_square < 119 + 5 * math.sqrt(2 * 119)  # 119 degrees of freedom, five deviations


@pytest.mark.parametrize("size", [20, 60, 1000])
def test_places_neighbours_and_fixed_points(size: int) -> None:
    seeds = 2000
    drawn = np.stack(
        [order.permute(np.arange(size), size, order.key(3, seed)) for seed in range(seeds)]
    )  # [S, N]

    # Each index is as often in each tenth of the places.
    tenths = np.stack(
        [(drawn // (size // 10) == tenth).sum(0) for tenth in range(10)], 1
    )  # [N, 10]
    chi_square = ((tenths - seeds / 10) ** 2 / (seeds / 10)).sum()
    freedom = 9 * (size - 1)  # both margins are fixed
    assert abs(chi_square - freedom) < 5 * math.sqrt(2 * freedom)

    # Where an index goes says nothing about its neighbour: the correlation of a permutation is -1 /
    # (N - 1).
    for lag in (1, 2, math.isqrt(size), math.isqrt(size) + 1):
        centred = drawn - (size - 1) / 2
        pairs = (centred[:, lag:] * centred[:, :-lag]).mean(1) / ((size**2 - 1) / 12)
        assert abs(pairs.mean() + 1 / (size - 1)) < 5 * pairs.std() / math.sqrt(seeds)

    # One index stays where it is, on average and in variance.
    fixed = (drawn == np.arange(size)).sum(1)
    assert abs(fixed.mean() - 1) < 5 / math.sqrt(seeds)
    # An index moves by a third of the size.
    moved = np.abs(drawn - np.arange(size)).mean(1)
    assert abs(moved.mean() - (size**2 - 1) / (3 * size)) < 5 * moved.std() / math.sqrt(seeds)


def test_one_seed_looks_random_inside() -> None:
    size = 100_000
    one, two = (order.permute(np.arange(size), size, order.key(0, epoch)) for epoch in (0, 1))
    for a, b in ((one[1:], one[:-1]), (one, two), (one, np.arange(size))):
        assert abs(np.corrcoef(a, b)[0, 1]) < 5 / math.sqrt(size)
    steps = np.unique((one[1:] - one[:-1]) % size)
    assert (
        abs(len(steps) / size - (1 - math.exp(-1))) < 0.01
    )  # as many different steps as balls fill boxes


def test_keys_differ_in_every_word() -> None:
    keys = {
        order.key(*words)
        for words in [(0,), (1,), (0, 0), (0, 1), (1, 0), (0, 0, 0), (2**64 - 1,), (-1, 0)]
    }
    assert len(keys) == 8
    assert all(0 <= key < 2**64 for key in keys)


def test_mix_moves_half_of_the_bits() -> None:
    words = np.arange(10_000, dtype=np.uint64)
    for bit in range(64):
        changed = np.bitwise_count(order.mix(words) ^ order.mix(words ^ np.uint64(1 << bit)))
        assert abs(changed.mean() - 32) < 5 * 4 / math.sqrt(
            10_000
        )  # binomial(64, 1/2) has deviation 4
