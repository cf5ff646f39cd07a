"""Units against the rule told token by token, and span lengths against the distribution they come
from.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.config import knobs
from bert_jax.data import units

VOCAB = 40
CONTINUATION = np.arange(VOCAB) % 2 == 1  # odd ids go on with a word


def rows(seed: int, batch: int, length: int) -> tuple[np.ndarray, np.ndarray]:
    """[CLS] A [SEP] B [SEP] and padding: ids, and which of them are text."""
    rng = np.random.default_rng(seed)
    tokens = rng.integers(0, VOCAB, (batch, length))
    eligible = np.zeros((batch, length), bool)
    for row in eligible:
        n = rng.integers(3, length + 1)
        row[1 : n - 1] = True
        if n > 4 and rng.random() < 0.8:
            row[rng.integers(2, n - 2)] = False
    return tokens, eligible


def run(
    unit: str,
    tokens: np.ndarray,
    eligible: np.ndarray,
    seed: int = 0,
    ids=None,
    copies=None,
    **settings,
) -> np.ndarray:
    ids = np.arange(len(tokens))[:, None] if ids is None else ids
    copies = np.zeros_like(ids) if copies is None else copies
    masking = knobs.Masking(unit=unit, **settings)
    rows = units.Rows(tokens, eligible, CONTINUATION, masking, ids, copies, seed)
    found = getattr(units, unit)(rows)
    assert found.dtype == np.int32
    return found


def words(tokens: np.ndarray, eligible: np.ndarray) -> list[list[list[int]]]:
    """The segments of a row, each a list of words, each a list of columns."""
    segments: list[list[list[int]]] = []
    for column, (token, text) in enumerate(zip(tokens, eligible, strict=True)):
        if not text:
            continue
        if column == 0 or not eligible[column - 1]:
            segments.append([])
        if token % 2 == 0 or not segments[-1]:
            segments[-1].append([])
        segments[-1][-1].append(column)
    return segments


def numbered(groups: list[list[int]], length: int, longest: int) -> list[int]:
    """Unit ids of groups of columns, cut after `longest`."""
    ids = [-1] * length
    for group in groups:
        for place, column in enumerate(group):
            ids[column] = group[place - place % longest]
    return ids


def test_token() -> None:
    tokens, eligible = rows(0, 9, 20)
    assert np.array_equal(run("token", tokens, eligible), np.where(eligible, np.arange(20), -1))


@given(seed=st.integers(0, 10_000), length=st.integers(3, 40), longest=st.integers(1, 6))
def test_word(seed: int, length: int, longest: int) -> None:
    tokens, eligible = rows(seed, 5, length)
    found = run("word", tokens, eligible, max_unit=longest)
    for row in range(5):
        groups = [word for segment in words(tokens[row], eligible[row]) for word in segment]
        assert found[row].tolist() == numbered(groups, length, longest)


@given(
    seed=st.integers(0, 10_000),
    length=st.integers(3, 40),
    longest=st.integers(1, 12),
    most=st.integers(1, 7),
)
def test_span(seed: int, length: int, longest: int, most: int) -> None:
    tokens, eligible = rows(seed, 5, length)
    found = run(
        "span",
        tokens,
        eligible,
        seed,
        max_unit=length,
        span_max=most,
        span_mean=min(1.5, (most + 1) / 2),
    )
    cut = run(
        "span",
        tokens,
        eligible,
        seed,
        max_unit=longest,
        span_max=most,
        span_mean=min(1.5, (most + 1) / 2),
    )
    for row in range(5):
        spans = []
        for segment in words(tokens[row], eligible[row]):
            for word in segment:
                assert len({found[row, column] for column in word}) == 1  # whole words
                if found[row, word[0]] == word[0]:
                    spans.append([word])
                else:
                    spans[-1].append(word)
            assert found[row, segment[0][0]] == segment[0][0]  # a segment begins a span
        assert all(len(span) <= most for span in spans)
        columns = [[column for word in span for column in word] for span in spans]
        assert found[row].tolist() == numbered(columns, length, length)
        assert cut[row].tolist() == numbered(columns, length, longest)


def test_spans_belong_to_the_example_and_not_to_the_batch() -> None:
    tokens, eligible = (
        np.zeros((8, 60), int),
        np.arange(60) % np.full((8, 1), 59) > 0,
    )  # sixty words each
    ids = np.array([[3], [1], [4], [15], [9], [2], [6], [5]])
    copies = np.array([[0], [0], [1], [1], [2], [2], [0], [7]])
    together = run("span", tokens, eligible, 5, ids, copies)
    order = np.array([7, 3, 5])
    assert np.array_equal(
        run("span", tokens[order], eligible[order], 5, ids[order], copies[order]), together[order]
    )
    for changed in (
        run("span", tokens, eligible, 6, ids, copies),
        run("span", tokens, eligible, 5, ids + 100, copies),
        run("span", tokens, eligible, 5, ids, copies + 1),
    ):
        assert (changed != together).any(axis=1).all()


@pytest.mark.parametrize(("mean", "most"), [(3.8, 10), (1.0, 10), (2.0, 4), (2.5, 4), (1.0, 1)])
def test_span_lengths_follow_the_clipped_geometric(mean: float, most: int) -> None:
    shares = units.span_lengths(knobs.Masking(span_mean=mean, span_max=most))
    assert shares @ np.arange(1, most + 1) == pytest.approx(mean)
    ratios = shares[1:] / shares[:-1] if mean > 1 else np.zeros(most - 1)
    assert np.allclose(ratios, ratios[:1])  # geometric

    tokens = np.zeros((400, 512), int)  # every token is a word
    eligible = np.ones((400, 512), bool)
    found = run("span", tokens, eligible, span_mean=mean, span_max=most)
    lengths = np.concatenate(
        [np.diff(np.unique(row)) for row in found]
    )  # but the last of each row, which is cut off
    # Leaving the last one out favours short ones by at most one span in each row's hundreds.
    expected = shares * len(lengths)
    seen = np.bincount(lengths, minlength=most + 1)[1:]
    possible = expected > 1e-6
    chi_square = ((seen - expected)[possible] ** 2 / expected[possible]).sum()
    freedom = possible.sum() - 1
    assert chi_square <= freedom + 5 * np.sqrt(2 * freedom) + 1e-9
    assert seen[~possible].sum() == 0


def test_spanbert_is_the_default() -> None:
    weights = 0.2 * 0.8 ** np.arange(10)
    assert (weights / weights.sum()) @ np.arange(1, 11) == pytest.approx(3.8, abs=0.01)
    assert np.allclose(units.span_lengths(knobs.Masking()), weights / weights.sum(), atol=1e-3)
