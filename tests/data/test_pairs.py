"""Plans hold what their labels say. `test_fidelity` compares them with the original's algorithm."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.config import knobs
from bert_jax.data import pairs
from tests import corpora

DOCUMENTS = st.lists(st.lists(st.integers(1, 30), min_size=1, max_size=12), min_size=1, max_size=12)
COLUMNS = ("a_start", "a_length", "b_start", "b_length", "label")


def plan(documents: list[list[int]], mode: str, length: int, copy: int = 0, **settings: float):
    """The plan of documents given as the tokens of their sentences."""
    return pairs.plan_split(
        corpora.shard(documents), mode, knobs.Examples(**settings), length, 3, copy
    )


def list_examples(found: np.ndarray) -> list[tuple[int, ...]]:
    return found[list(COLUMNS)].tolist()


def locate_tokens(documents: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    """The document and the sentence of each token."""
    lengths = [n for document in documents for n in document]
    document = np.repeat(np.arange(len(documents)), [sum(d) for d in documents])
    return document, np.repeat(np.arange(len(lengths)), lengths)


@given(
    documents=DOCUMENTS,
    length=st.integers(8, 60),
    mode=st.sampled_from(["nsp", "sop"]),
    short=st.sampled_from([0.0, 0.5, 1.0]),
    truncate=st.sampled_from(["either", "front", "back"]),
    copy=st.integers(0, 10_000),
)
def test_plan_pairs_are_what_their_label_says(documents, length, mode, short, truncate, copy):
    document, sentence = locate_tokens(documents)
    found = plan(documents, mode, length, copy, short_probability=short, truncate=truncate)
    covered = np.zeros(len(documents), bool)
    for a_start, a_length, b_start, b_length, label in list_examples(found):
        a, b = np.arange(a_start, a_start + a_length), np.arange(b_start, b_start + b_length)
        assert 1 <= a_length <= length - 3 - b_length
        assert len(set(document[a])) == 1
        covered[document[a[0]]] = True
        if label == -1:  # the last sentence of its document, by itself
            assert b_length == 0
            assert mode == "sop" or len(documents) == 1
            assert sentence[a[0]] == sentence[a[-1]]
            assert sentence[a[0]] == sentence[document == document[a[0]]].max()
            continue
        assert b_length >= 1
        assert len(set(document[b])) == 1
        if label == 1 and mode == "nsp":
            assert document[a[0]] != document[b[0]]
            continue
        if label == 1:
            a, b = b, a  # swapped: in the text, B comes first
        assert document[a[0]] == document[b[0]]
        # They are neighbours, but for what truncation took from the sentences between them.
        assert b[0] > a[-1]
        assert a_length + b_length == length - 3 or b[0] == a[-1] + 1
        assert sentence[b[0]] > sentence[a[-1]]
    assert covered.all()
    assert (mode != "nsp") or len(documents) > 1 or not (found["label"] == 1).any()


@given(documents=DOCUMENTS, length=st.integers(8, 30))
def test_plan_full_sentences_fill_their_rows(documents, length):
    document, sentence = locate_tokens(documents)
    found = plan(documents, "none", length)
    assert (found["label"] == -1).all()
    room, at = length - 2, 0
    columns = ["a_start", "a_length", "document", "breaks"]
    for start, tokens, first, breaks in found[columns].tolist():
        assert start == at  # contiguous: every token once
        at = start + tokens
        assert 1 <= tokens <= room - breaks
        assert document[start] == first
        assert document[at - 1] == first + breaks
        if at == len(document):
            continue
        if sentence[at] == sentence[at - 1]:  # a cut sentence had the row to itself, up to its end
            assert tokens == room
        else:  # the next sentence, or what a row can hold of it, would not have fitted
            following = min((sentence == sentence[at]).sum(), room)
            assert tokens + breaks + (document[at] != document[at - 1]) + following > room
    assert at == len(document)
