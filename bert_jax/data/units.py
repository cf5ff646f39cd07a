"""Masking units, which are masked as a whole: tokens, whole words, spans of words or collocations.

A unit is named by the index in the row of its first token; -1 marks special tokens and padding.
Each unit is the function of its name: pure, from whole batches to unit ids, int32 [B, L]; its
result for an example does not depend on the rest of the batch. A unit never crosses from one
segment into the next: a token that is not eligible separates the text on either side of it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bert_jax.config import knobs
from bert_jax.data import hashing
from bert_jax.data.text.ngrams import Hashes, longest

_SPAN = 0x5350414E  # keeps the hashes of the lengths of spans apart from all others


class Rows(NamedTuple):
    """Rows of tokens, and what their units depend on."""

    tokens: np.ndarray  # [B, L]
    eligible: np.ndarray  # bool [B, L], False for special tokens and padding
    continuation: np.ndarray  # bool [V], True for pieces that continue a word
    settings: knobs.Masking  # the knobs that UNITS lists
    example_ids: np.ndarray  # [B, 1], in the epoch's plan
    copies: np.ndarray  # [B, 1], the draw of the plan
    seed: int  # data seed
    collocations: Hashes | None = None  # of the training text, for the unit pmi


def token(rows: Rows) -> np.ndarray:
    """Make every token a unit."""
    columns = np.arange(rows.tokens.shape[1], dtype=np.int32)
    return np.where(rows.eligible, columns, np.int32(-1))


def word(rows: Rows) -> np.ndarray:
    """Make every word, with all its pieces, a unit.

    Pieces at the front of a truncated segment are a unit although they begin no word. The original
    code joins such pieces at the start of B to the last word of A, across [SEP].
    """
    return _number(_word_starts(rows), rows)


def span(rows: Rows) -> np.ndarray:
    """Make runs of whole words units, with lengths drawn from a clipped geometric distribution.

    Every copy draws its own lengths.
    """
    copies = np.asarray(rows.copies).astype(np.uint64)
    span_key = hashing.make_key(rows.seed, _SPAN)
    copy_keys = hashing.mix_words(hashing.mix_words(copies ^ span_key))  # [B, 1]
    keys = hashing.mix_words(np.asarray(rows.example_ids).astype(np.uint64) ^ copy_keys)
    columns = np.arange(1, rows.tokens.shape[1] + 1, dtype=np.uint64) * 0x9E3779B97F4A7C15
    uniform = (hashing.mix_words(keys + columns) >> 11) * 2.0**-53  # [B, L]
    shares = np.cumsum(span_lengths(rows.settings))[:-1]
    # [B, L]: the words of a span that begins at each token.
    words = (np.searchsorted(shares, uniform, side="right") + 1).astype(np.int32)
    return _number(_groups(rows, words), rows)


def pmi(rows: Rows) -> np.ndarray:
    """Make every collocation of the training text a unit, and every other word.

    Collocations are taken from left to right, the longest that fits; where two overlap, the paper
    chooses one at random.
    """
    assert rows.collocations is not None
    starts = _word_starts(rows)
    words = np.ones(rows.tokens.shape, np.int32)
    text = (array[rows.eligible] for array in (rows.tokens, starts, _segment_starts(rows.eligible)))
    words[starts] = longest(rows.collocations, rows.settings.pmi_words, *text)
    return _number(_groups(rows, words), rows)


def frequency_weights(counts: np.ndarray, power: float) -> np.ndarray:
    """Return the weight of each token [V]: its share of the training text to a power.

    A token that does not occur there weighs what one that occurs once does.
    """
    return (np.maximum(counts, 1) / max(counts.sum(), 1)) ** power


def scales(tokens: np.ndarray, unit_ids: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return 1 / the mean weight of the tokens of each unit, at its first one; 0 elsewhere.

    They are float32 [B, L]; `unit_ids` are those of the rows of tokens, and weights are [V].
    """
    eligible = unit_ids >= 0
    first = (np.arange(len(tokens))[:, None] * tokens.shape[1] + unit_ids)[eligible]
    counts = np.bincount(first, minlength=tokens.size)
    sums = np.bincount(first, weights[tokens[eligible]], minlength=tokens.size)
    means = np.divide(counts, sums, out=np.zeros(tokens.size), where=counts > 0)
    return means.reshape(tokens.shape).astype(np.float32)


def span_lengths(settings: knobs.Masking) -> np.ndarray:
    """Return the probabilities of spans of 1..span_max words.

    They are proportional to (1 - p)**words, with the p for which the mean is span_mean. SpanBERT's
    p = 0.2, clipped at 10 words, has the mean 3.8.
    """
    words = np.arange(1, settings.span_max + 1)

    def shares(ratio: float) -> np.ndarray:
        weights = ratio ** (words - 1.0)
        return weights / weights.sum()

    low, high = 0.0, 1.0
    for _ in range(60):  # the mean grows with the ratio 1 - p
        middle = (low + high) / 2
        if shares(middle) @ words < settings.span_mean:
            low = middle
        else:
            high = middle
    return shares(high)


def _segment_starts(eligible: np.ndarray) -> np.ndarray:
    starts = eligible.copy()
    starts[:, 1:] &= ~eligible[:, :-1]
    return starts


def _word_starts(rows: Rows) -> np.ndarray:
    return rows.eligible & (~rows.continuation[rows.tokens] | _segment_starts(rows.eligible))


def _groups(rows: Rows, words: np.ndarray) -> np.ndarray:
    """Tell where units begin, bool [B, L], given the words of a unit that begins at each token."""
    segment_starts = _segment_starts(rows.eligible).T  # [L, B], and with them a unit
    begins = np.zeros_like(segment_starts)
    left = np.zeros(len(words), np.int32)  # [B], words that the current unit still lacks
    for column, start in enumerate(_word_starts(rows).T):
        fresh = start & ((left == 0) | segment_starts[column])
        left = np.where(fresh, words.T[column], left) - start
        begins[column] = fresh
    return begins.T


def _number(starts: np.ndarray, rows: Rows) -> np.ndarray:
    """Return unit ids from the first tokens of units; cut units of more than max_unit tokens."""
    columns = np.arange(starts.shape[1], dtype=np.int32)
    first = np.maximum.accumulate(np.where(starts, columns, np.int32(0)), axis=1)
    offset = columns - first
    most = np.int32(rows.settings.max_unit)
    return np.where(rows.eligible, columns - offset % most, np.int32(-1))
