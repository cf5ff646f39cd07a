"""Units against the rule told token by token, and span lengths against their distribution."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.config import knobs
from bert_jax.masking import units
from tests.masking.by_hand import list_words, name_groups

VOCAB = 40
CONTINUATION = np.arange(VOCAB) % 2 == 1  # odd ids go on with a word


def make_rows(seed: int, batch: int, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Return ids of [CLS] A [SEP] B [SEP] and padding, and which of them are text."""
    rng = np.random.default_rng(seed)
    eligible = np.zeros((batch, length), bool)
    for row in eligible:
        n = rng.integers(3, length + 1)
        row[1 : n - 1] = True
        if n > 4 and rng.random() < 0.8:
            row[rng.integers(2, n - 2)] = False
    return rng.integers(0, VOCAB, (batch, length)), eligible


def mark(unit, tokens, eligible, seed=0, **settings) -> np.ndarray:
    ids = np.arange(len(tokens))[:, None]
    masking = knobs.Masking(unit=unit, **settings)
    rows = units.Rows(tokens, eligible, CONTINUATION, masking, ids, np.zeros_like(ids), seed)
    found = units.MARKERS[unit](rows)
    assert found.dtype == np.int32
    return found


@given(
    seed=st.integers(0, 10_000),
    length=st.integers(3, 40),
    longest=st.integers(1, 12),
    most=st.integers(1, 7),
)
def test_mark_spans_joins_whole_words(seed, length, longest, most):
    """Spans are read off the uncut ids; then they are checked, and cut by hand. Words are spans of
    one word.
    """
    tokens, eligible = make_rows(seed, 5, length)
    settings = {"span_max": most, "span_mean": min(1.5, (most + 1) / 2)}
    found = mark("span", tokens, eligible, seed, max_unit=length, **settings)
    cut = mark("span", tokens, eligible, seed, max_unit=longest, **settings)
    for row in range(5):
        spans: list[list[list[int]]] = []
        for segment in list_words(tokens[row], eligible[row], CONTINUATION):
            assert found[row, segment[0][0]] == segment[0][0]  # a segment begins a span
            for word in segment:
                if found[row, word[0]] == word[0]:
                    spans.append([])
                spans[-1].append(word)
        assert all(len(span) <= most for span in spans)
        assert found[row].tolist() == name_groups(spans, length, length)
        assert cut[row].tolist() == name_groups(spans, length, longest)
        if most == 1:
            words = mark("word", tokens, eligible, max_unit=longest)
            assert words[row].tolist() == cut[row].tolist()


@pytest.mark.parametrize(("mean", "most"), [(3.8, 10), (2.0, 4), (2.5, 4), (1.0, 1)])
def test_span_lengths_are_a_clipped_geometric(mean, most):
    shares = units.span_lengths(mean, most)
    assert shares @ np.arange(1, most + 1) == pytest.approx(mean)
    if mean > 1:
        assert np.allclose(shares[1:] / shares[:-1], shares[1] / shares[0])
    if mean == 3.8:  # SpanBERT's
        weights = 0.2 * 0.8 ** np.arange(10)
        assert np.allclose(shares, weights / weights.sum(), atol=1e-3)
    tokens, eligible = np.zeros((400, 512), int), np.ones((400, 512), bool)  # words alone
    found = mark("span", tokens, eligible, span_mean=mean, span_max=most)
    lengths = np.concatenate([np.diff(np.unique(row)) for row in found])  # but the last, cut off
    seen, expected = np.bincount(lengths, minlength=most + 1)[1:], shares * len(lengths)
    possible = expected > 1e-6
    chi_square = ((seen - expected)[possible] ** 2 / expected[possible]).sum()
    freedom = possible.sum() - 1
    assert chi_square <= freedom + 5 * np.sqrt(2 * freedom) + 1e-9
    assert seen[~possible].sum() == 0
