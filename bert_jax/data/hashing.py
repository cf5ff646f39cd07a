"""Random numbers without state: a hash of integers, and a permutation computed index by index."""

import math

import numpy as np

_WORD = 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15
# By measurement, neighbours are independent after 8 rounds, and in permutations of fewer than 64
# indices after 24.
_SMALL, _ROUNDS, _SMALL_ROUNDS = 64, 8, 24


def mix_words(words: np.ndarray) -> np.ndarray:
    """Apply splitmix64's finaliser, a bijection in which each input bit affects all output bits."""
    words = (words ^ (words >> 30)) * 0xBF58476D1CE4E5B9
    words = (words ^ (words >> 27)) * 0x94D049BB133111EB
    return words ^ (words >> 31)


def make_key(*words: int) -> int:
    """Hash a sequence of integers, whose order matters, to one 64-bit key."""
    state = np.zeros(1, np.uint64)
    for word in words:
        state = mix_words((state + _GOLDEN) ^ np.uint64(word & _WORD))
        state = mix_words(state + _GOLDEN)
    return int(state[0])


def permute_index(index: np.ndarray, size: int, seed: int) -> np.ndarray:
    """Return the place of each index in a random permutation of 0..size-1.

    The cost of an index does not depend on `size`. The permutation is a Feistel network over the
    smallest near-square grid of rows x columns that has room for `size`. An index that lands beyond
    `size` is permuted again, until it lands below.
    """
    rows = math.isqrt(size - 1) + 1
    columns = -(-size // rows)
    rounds = _ROUNDS if size >= _SMALL else _SMALL_ROUNDS
    keys = [make_key(seed, number) for number in range(rounds)]

    def step(cell: np.ndarray) -> np.ndarray:
        row, column = cell // columns, cell % columns
        for number, round_key in enumerate(keys):
            if number % 2:
                row = (row + _hash_below(rows, column, round_key)) % rows
            else:
                column = (column + _hash_below(columns, row, round_key)) % columns
        return row * columns + column

    cell = step(np.asarray(index).astype(np.uint64))
    while (outside := np.flatnonzero(cell >= size)).size:
        cell[outside] = step(cell[outside])
    return cell.astype(np.int64)


def _hash_below(bound: int, words: np.ndarray, seed: int) -> np.ndarray:
    """Hash each 64-bit integer to 0..bound-1, for bounds far below 2**32."""
    return ((mix_words(words ^ seed) >> 32) * bound) >> 32
