"""Hash n-grams of words to 64 bits, for whole texts at once, and look them up in large tables.

A hash stands for an n-gram: two n-grams with the same hash are taken for one n-gram.
"""

from collections.abc import Iterator

import numpy as np

from bert_jax.data import hashing

# Odd numbers, so that products lose no bits.
_TOKEN, _PLACE, _STEP = 0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0xD6E8FEB86659FD93


class Hashes:
    """A sorted set of hashes, in which most absent hashes are ruled out by their first bits."""

    def __init__(self, hashes: np.ndarray):
        self.sorted = hashes  # uint64 [N]
        bits = min(max(10, (16 * len(hashes)).bit_length()), 28)
        self._shift = np.uint64(64 - bits)
        self._seen = np.zeros(1 << bits, bool)
        self._seen[hashes >> self._shift] = True

    def find(self, hashes: np.ndarray) -> np.ndarray:
        """Return the index of each hash in the set, -1 where it is not in the set."""
        result = np.full(len(hashes), -1, np.int64)
        candidates = np.flatnonzero(self._seen[hashes >> self._shift])
        index = np.searchsorted(self.sorted, hashes[candidates])
        equal = index < len(self.sorted)
        equal[equal] = self.sorted[index[equal]] == hashes[candidates[equal]]
        result[candidates[equal]] = index[equal]
        return result


def word_hashes(tokens: np.ndarray, begins: np.ndarray) -> np.ndarray:
    """Return a hash of each word, which depends on its pieces and their order: uint64 [W]."""
    if not len(begins):
        return np.zeros(0, np.uint64)
    index = np.arange(len(tokens)) - np.repeat(begins, np.diff(begins, append=len(tokens)))
    pieces = (tokens.astype(np.uint64) + 1) * _TOKEN + index.astype(np.uint64) * _PLACE
    return hashing.mix_words(np.add.reduceat(hashing.mix_words(pieces), begins))


def hash_ngrams(
    words: np.ndarray, text: np.ndarray, most: int
) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Yield (n, hashes, inside) for each n from 1 to `most`.

    Args:
      words: the hash of each word of the texts.
      text: the number of the text that each word belongs to.
      most: the largest n.

    `hashes` has the hash of the n-gram that begins at each word, and `inside` tells whether this
    n-gram lies within one text.
    """
    hashes = words
    for n in range(1, most + 1):
        hashes = words if n == 1 else hashing.mix_words(hashes[:-1] * _STEP + words[n - 1 :])
        yield n, hashes, text[: len(hashes)] == text[n - 1 :]


def find_longest(
    collocations: Hashes, most: int, tokens: np.ndarray, starts: np.ndarray, first: np.ndarray
) -> np.ndarray:
    """Return the number of words of the longest collocation that begins at each word: int32 [W].

    The number is 1 if no collocation begins at the word.

    Args:
      collocations: the hashes of all collocations.
      most: the words of the longest collocation.
      tokens: the tokens of all texts, one text after the other, without special tokens [T].
      starts: whether each token begins a word [T].
      first: whether each token begins a text [T].
    """
    begins = np.flatnonzero(starts)
    words = word_hashes(tokens, begins)
    lengths = np.ones(len(words), np.int32)
    for n, hashes, inside in hash_ngrams(words, np.cumsum(first)[begins], most):
        if n > 1:
            lengths[: len(hashes)][inside & (collocations.find(hashes) >= 0)] = n
    return lengths
