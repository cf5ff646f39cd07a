"""Counter-based randomness: a hash, and a permutation that is computed index by index."""

from __future__ import annotations

import math

import numpy as np

EXAMPLES = 0x4F524445  # keeps the hashes of an epoch's order apart from all others
_WORD = 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15
# Rounds after which neighbours are independent, by measurement; sizes below _SMALL need more.
_SMALL, _ROUNDS, _SMALL_ROUNDS = 64, 8, 24


def mix(words: np.ndarray) -> np.ndarray:
    """Apply splitmix64's finaliser, a bijection in which each input bit affects all output bits."""
    words = (words ^ (words >> 30)) * 0xBF58476D1CE4E5B9
    words = (words ^ (words >> 27)) * 0x94D049BB133111EB
    return words ^ (words >> 31)


def key(*words: int) -> int:
    """Return one 64-bit key for a sequence of integers; their order matters."""
    state = np.zeros(1, np.uint64)
    for word in words:
        state = mix((state + _GOLDEN) ^ np.uint64(word & _WORD))
        state = mix(state + _GOLDEN)
    return int(state[0])


def permute(index: np.ndarray, size: int, seed: int) -> np.ndarray:
    """Return where a random permutation of 0..size-1 sends each index, in constant time and memory.

    It is a Feistel network over the smallest near-square grid of rows x columns with room for
    `size`. The few cells beyond `size` are skipped by walking on until the cycle comes back inside.
    """
    rows = math.isqrt(size - 1) + 1
    columns = -(-size // rows)
    keys = [key(seed, number) for number in range(_ROUNDS if size >= _SMALL else _SMALL_ROUNDS)]

    def step(cell: np.ndarray) -> np.ndarray:
        row, column = cell // columns, cell % columns
        for number, round_key in enumerate(keys):
            if number % 2:
                row = (row + _below(rows, column, round_key)) % rows
            else:
                column = (column + _below(columns, row, round_key)) % columns
        return row * columns + column

    cell = step(np.asarray(index).astype(np.uint64))
    while (outside := np.flatnonzero(cell >= size)).size:
        cell[outside] = step(cell[outside])
    return cell.astype(np.int64)


def _below(bound: int, words: np.ndarray, seed: int) -> np.ndarray:
    """Hash each word to 0..bound-1, for bounds far below 2**32."""
    return ((mix(words ^ seed) >> 32) * bound) >> 32
