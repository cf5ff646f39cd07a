"""Masking units, which are masked as a whole: tokens, whole words, spans of words or collocations.

A unit is named by the index in the row of its first token; -1 marks special tokens and padding.
Each function is pure and works on whole batches; its result for an example does not depend on the
rest of the batch. A unit never crosses from one segment into the next: a token that is not eligible
separates the text on either side of it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bert_jax.config import knobs
from bert_jax.data.batches import order
from bert_jax.data.text.ngrams import Hashes, longest


def token(
    tokens: np.ndarray,
    eligible: np.ndarray,
    continuation: np.ndarray,
    settings: knobs.Masking,
    example_ids: np.ndarray,
    copies: np.ndarray,
    seed: int,
) -> np.ndarray:
    """Make every token a unit.

    Args (the same for all units):
      tokens: [B, L].
      eligible: bool [B, L], False for special tokens and padding.
      continuation: bool [V], True for pieces that continue a word.
      settings: max_unit; span_mean and span_max for spans.
      example_ids: [B, 1], in the epoch's plan.
      copies: [B, 1], the draw of the plan.
      seed: data seed.

    Returns:
      unit ids, int32 [B, L].
    """
    columns = np.arange(tokens.shape[1], dtype=np.int32)
    return np.where(eligible, columns, np.int32(-1))


def word(
    tokens: np.ndarray,
    eligible: np.ndarray,
    continuation: np.ndarray,
    settings: knobs.Masking,
    example_ids: np.ndarray,
    copies: np.ndarray,
    seed: int,
) -> np.ndarray:
    """Make every word, with all its pieces, a unit.

    Pieces at the front of a truncated segment are a unit although they begin no word. The original
    code joins such pieces at the start of B to the last word of A, across [SEP].
    """
    return _number(_word_starts(tokens, eligible, continuation), eligible, settings.max_unit)


def span(
    tokens: np.ndarray,
    eligible: np.ndarray,
    continuation: np.ndarray,
    settings: knobs.Masking,
    example_ids: np.ndarray,
    copies: np.ndarray,
    seed: int,
) -> np.ndarray:
    """Make runs of whole words units, with lengths drawn from a clipped geometric distribution.

    Every copy draws its own lengths.
    """
    starts = _word_starts(tokens, eligible, continuation).T  # [L, B]: _groups loops over columns
    segment_starts = _segment_starts(eligible).T
    keys = order.mix(np.asarray(example_ids).astype(np.uint64) ^ _copy_keys(copies, seed))  # [B, 1]
    columns = np.arange(1, tokens.shape[1] + 1, dtype=np.uint64) * 0x9E3779B97F4A7C15
    uniform = (order.mix(keys + columns) >> 11) * 2.0**-53  # [B, L]
    shares = np.cumsum(span_lengths(settings))[:-1]
    # [L, B]: the words of a span that begins at each token.
    words = (np.searchsorted(shares, uniform.T, side="right") + 1).astype(np.int32)
    return _number(_groups(starts, segment_starts, words), eligible, settings.max_unit)


def pmi(
    tokens: np.ndarray,
    eligible: np.ndarray,
    continuation: np.ndarray,
    settings: knobs.Masking,
    example_ids: np.ndarray,
    copies: np.ndarray,
    seed: int,
    collocations: Hashes,
) -> np.ndarray:
    """Make every collocation of the training text a unit, and every other word.

    Collocations are taken from left to right, the longest that fits; where two overlap, the paper
    chooses one at random.
    """
    starts, segment_starts = _word_starts(tokens, eligible, continuation), _segment_starts(eligible)
    words = np.ones(tokens.shape, np.int32)
    text = (array[eligible] for array in (tokens, starts, segment_starts))
    words[starts] = longest(collocations, settings.pmi_words, *text)
    return _number(_groups(starts.T, segment_starts.T, words.T), eligible, settings.max_unit)


TABLE: dict[str, Callable[..., np.ndarray]] = {
    "token": token,
    "word": word,
    "span": span,
    "pmi": pmi,
}


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


def _copy_keys(copies: np.ndarray, seed: int) -> np.ndarray:
    """Return a random key for the copy of each row: uint64 [B, 1]."""
    return order.mix(order.mix(np.asarray(copies).astype(np.uint64) ^ order.key(seed, 0x5350414E)))


def _segment_starts(eligible: np.ndarray) -> np.ndarray:
    starts = eligible.copy()
    starts[:, 1:] &= ~eligible[:, :-1]
    return starts


def _word_starts(tokens: np.ndarray, eligible: np.ndarray, continuation: np.ndarray) -> np.ndarray:
    return eligible & (~continuation[tokens] | _segment_starts(eligible))


def _groups(starts: np.ndarray, segment_starts: np.ndarray, words: np.ndarray) -> np.ndarray:
    """Tell where units begin, bool [B, L].

    Args:
      starts: bool [L, B], where words begin.
      segment_starts: bool [L, B], where segments begin, and with them a unit.
      words: [L, B], the words of a unit that begins at each token.
    """
    begins = np.zeros_like(starts)
    left = np.zeros(starts.shape[1], np.int32)  # words that the current unit still lacks
    for column, start in enumerate(starts):
        fresh = start & ((left == 0) | segment_starts[column])
        left = np.where(fresh, words[column], left) - start
        begins[column] = fresh
    return begins.T


def _number(starts: np.ndarray, eligible: np.ndarray, most: int) -> np.ndarray:
    """Return unit ids from the first tokens of units; cut units of more than `most` tokens."""
    columns = np.arange(starts.shape[1], dtype=np.int32)
    first = np.maximum.accumulate(np.where(starts, columns, np.int32(0)), axis=1)
    offset = columns - first
    return np.where(eligible, columns - offset % np.int32(most), np.int32(-1))
