"""N-grams of words as hashes of 64 bits: made for whole texts at once, and looked up in large tables."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bert_jax.data.batches import order

_TOKEN, _PLACE, _STEP = (
    0x9E3779B97F4A7C15,
    0xC2B2AE3D27D4EB4F,
    0xD6E8FEB86659FD93,
)  # odd: products lose nothing


class Hashes:
    """Sorted hashes to look others up in. Most of those that are not there are told by one bit of a table."""

    def __init__(self, hashes: np.ndarray):
        self.sorted = hashes  # uint64 [N]
        bits = min(max(10, (16 * len(hashes)).bit_length()), 28)
        self._shift = np.uint64(64 - bits)
        self._seen = np.zeros(1 << bits, bool)
        self._seen[hashes >> self._shift] = True

    def find(self, hashes: np.ndarray) -> np.ndarray:
        """The place of each, -1 where it is not there."""
        found = np.full(len(hashes), -1, np.int64)
        maybe = np.flatnonzero(self._seen[hashes >> self._shift])
        place = np.searchsorted(self.sorted, hashes[maybe])
        there = place < len(self.sorted)
        there[there] = self.sorted[place[there]] == hashes[maybe[there]]
        found[maybe[there]] = place[there]
        return found

    def __reduce__(self) -> tuple:
        return Hashes, (self.sorted,)


def word_hashes(tokens: np.ndarray, begins: np.ndarray) -> np.ndarray:
    """A hash of each word's pieces in their order: uint64 [W]."""
    if not len(begins):
        return np.zeros(0, np.uint64)
    place = np.arange(len(tokens)) - np.repeat(begins, np.diff(begins, append=len(tokens)))
    pieces = order.mix((tokens.astype(np.uint64) + 1) * _TOKEN + place.astype(np.uint64) * _PLACE)
    return order.mix(np.add.reduceat(pieces, begins))


def grams(
    words: np.ndarray, text: np.ndarray, most: int
) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """n from 1, the hash of the n-gram that begins at each word, and whether it lies in one text."""
    found = words
    for n in range(1, most + 1):
        found = words if n == 1 else order.mix(found[:-1] * _STEP + words[n - 1 :])
        yield n, found, text[: len(found)] == text[n - 1 :]


def longest(
    collocations: Hashes, most: int, tokens: np.ndarray, starts: np.ndarray, first: np.ndarray
) -> np.ndarray:
    """How many words the longest collocation has that begins at each word: 1 where none does, int32 [W].

    Args:
      collocations: what is looked for.
      most: its longest.
      tokens: of text alone, one after the other: [T].
      starts: bool [T], where a word begins.
      first: bool [T], where a text begins.
    """
    begins = np.flatnonzero(starts)
    words = word_hashes(tokens, begins)
    found = np.ones(len(words), np.int32)
    for n, hashes, inside in grams(words, np.cumsum(first)[begins], most):
        if n > 1:
            found[: len(hashes)][inside & (collocations.find(hashes) >= 0)] = n
    return found
