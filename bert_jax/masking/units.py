"""Masking units, which are selected as a whole: tokens, whole words, spans of words, collocations.

A unit is named by the column of its first token. Special tokens and padding have the name -1:

    column     0      1   2       3     4    5
    token      [CLS]  un  ##want  ##ed  man  [SEP]
    unit=token -1     1   2       3     4    -1
    unit=word  -1     1   1       1     4    -1

A function of MARKERS turns whole batches into unit ids, int32 [B, L]. The units of an example do
not depend on the rest of the batch. A segment is the text between two tokens that are not eligible,
and no unit crosses from one segment into the next.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from bert_jax.config import knobs
from bert_jax.data import hashing
from bert_jax.data.ngrams import Hashes, find_longest

_SPAN = 0x5350414E  # keeps the hashes of the lengths of spans apart from all others


class Rows(NamedTuple):
    """Rows of tokens, with everything that their units depend on."""

    tokens: np.ndarray  # [B, L]
    eligible: np.ndarray  # bool [B, L], False for special tokens and padding
    continuation: np.ndarray  # bool [V], True for pieces that continue a word
    settings: knobs.Masking
    example_ids: np.ndarray  # [B, 1], in the epoch's plan
    copies: np.ndarray  # [B, 1], which copy of the data
    seed: int  # data seed
    collocations: Hashes | None = None  # of the training text, for the unit pmi


def mark_tokens(rows: Rows) -> np.ndarray:
    """Make every token a unit."""
    columns = np.arange(rows.tokens.shape[1], dtype=np.int32)
    return np.where(rows.eligible, columns, np.int32(-1))


def mark_words(rows: Rows) -> np.ndarray:
    """Make every word, with all its pieces, a unit.

    Pieces at the front of a truncated segment are a unit although they begin no word. The original
    code joins such pieces at the start of B to the last word of A, across [SEP].
    """
    return _name_units(_find_words(rows), rows)


def mark_spans(rows: Rows) -> np.ndarray:
    """Make each span of words a unit; the numbers of words have a clipped geometric distribution.

    Every copy of the data draws its lengths again.
    """
    # One hash for each token [B, L], of (seed, copy, example, column), as a number from 0 to 1.
    copies = np.asarray(rows.copies).astype(np.uint64)
    span_key = hashing.make_key(rows.seed, _SPAN)
    copy_keys = hashing.mix_words(hashing.mix_words(copies ^ span_key))  # [B, 1]
    keys = hashing.mix_words(np.asarray(rows.example_ids).astype(np.uint64) ^ copy_keys)
    columns = np.arange(1, rows.tokens.shape[1] + 1, dtype=np.uint64) * 0x9E3779B97F4A7C15
    uniform = (hashing.mix_words(keys + columns) >> 11) * 2.0**-53  # [B, L]
    # [B, L], the words of a span that begins at each token: 1 if uniform is below the first share,
    # 2 if it is below the sum of the first two shares, and so on.
    bounds = np.cumsum(span_lengths(rows.settings.span_mean, rows.settings.span_max))[:-1]
    words = (np.searchsorted(bounds, uniform, side="right") + 1).astype(np.int32)
    return _name_units(_group_words(rows, words), rows)


def mark_collocations(rows: Rows) -> np.ndarray:
    """Make every collocation of the training text a unit, and every word outside of collocations.

    Collocations are found from left to right, the longest that fits. If two of them overlap, the
    paper chooses at random.
    """
    assert rows.collocations is not None
    starts = _find_words(rows)
    segments = _find_segments(rows.eligible)
    words = np.ones(rows.tokens.shape, np.int32)  # [B, L], the words of a unit that begins there
    # The eligible tokens of all rows in one line [T], without special tokens and padding.
    text = [array[rows.eligible] for array in (rows.tokens, starts, segments)]
    words[starts] = find_longest(rows.collocations, rows.settings.pmi_words, *text)
    return _name_units(_group_words(rows, words), rows)


MARKERS: dict[str, Callable[[Rows], np.ndarray]] = {  # the values of masking.unit
    "token": mark_tokens,
    "word": mark_words,
    "span": mark_spans,
    "pmi": mark_collocations,
}


def frequency_weights(counts: np.ndarray, power: float) -> np.ndarray:
    """Return the weight of each token [V]: the token's share of the training text, to a power.

    A token that does not occur in the text counts as if it occurred once.
    """
    return (np.maximum(counts, 1) / max(counts.sum(), 1)) ** power


def unit_scales(tokens: np.ndarray, unit_ids: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return 1 / the mean weight of a unit's tokens, at the unit's first token; 0 elsewhere.

    `tokens` and `unit_ids` are [B, L], `weights` [V], and the result is float32 [B, L]. A unit of
    the tokens a and b has the scale 2 / (weights[a] + weights[b]).
    """
    eligible = unit_ids >= 0
    # The place of each token's unit in the flattened batch [B * L]; the sums run over these places.
    unit = (np.arange(len(tokens))[:, None] * tokens.shape[1] + unit_ids)[eligible]
    counts = np.bincount(unit, minlength=tokens.size)
    sums = np.bincount(unit, weights[tokens[eligible]], minlength=tokens.size)
    scales = np.divide(counts, sums, out=np.zeros(tokens.size), where=counts > 0)
    return scales.reshape(tokens.shape).astype(np.float32)


@functools.cache
def span_lengths(mean: float, most: int) -> np.ndarray:
    """Return the probabilities of spans of 1 to `most` words, whose mean is `mean` words.

    The probabilities are proportional to ratio**words. SpanBERT's ratio of 0.8, clipped at 10
    words, has the mean 3.8.
    """
    words = np.arange(1, most + 1)
    low, high = 0.0, 1.0  # the mean grows with the ratio
    for _ in range(60):
        ratio = (low + high) / 2
        weights = ratio ** (words - 1.0)
        if (weights / weights.sum()) @ words < mean:
            low = ratio
        else:
            high = ratio
    weights = high ** (words - 1.0)
    return weights / weights.sum()


def _find_segments(eligible: np.ndarray) -> np.ndarray:
    """Mark the first token of each segment, bool [B, L].

    A segment begins at an eligible token that follows a token which is not eligible.
    """
    starts = eligible.copy()
    starts[:, 1:] &= ~eligible[:, :-1]
    return starts


def _find_words(rows: Rows) -> np.ndarray:
    """Mark the first token of each word, bool [B, L]; a segment always begins with a word."""
    continued = rows.continuation[rows.tokens] & ~_find_segments(rows.eligible)
    return rows.eligible & ~continued


def _group_words(rows: Rows, words: np.ndarray) -> np.ndarray:
    """Mark the first token of each unit of several words, bool [B, L].

    A unit that begins at a token has as many words as `words` [B, L] says there, and fewer if the
    segment ends. So five words with `words` of 2 3 1 2 2 are units of 2, 1 and 2 words.
    """
    # The loop goes over the columns, for all rows at once.
    segment_starts = _find_segments(rows.eligible).T  # [L, B]
    begins = np.zeros_like(segment_starts)
    missing = np.zeros(len(words), np.int32)  # [B], words that the current unit still lacks
    for column, word_start in enumerate(_find_words(rows).T):
        fresh = word_start & ((missing == 0) | segment_starts[column])
        missing = np.where(fresh, words.T[column], missing) - word_start
        begins[column] = fresh
    return begins.T


def _name_units(starts: np.ndarray, rows: Rows) -> np.ndarray:
    """Return the unit ids [B, L], given the first token of each unit; cut units above max_unit."""
    columns = np.arange(starts.shape[1], dtype=np.int32)
    # [B, L]: the last start up to each token is the first token of its unit.
    first = np.maximum.accumulate(np.where(starts, columns, np.int32(0)), axis=1)
    beyond = (columns - first) % np.int32(rows.settings.max_unit)
    return np.where(rows.eligible, columns - beyond, np.int32(-1))
