"""Plans hold what their labels say. `test_fidelity` compares them with the original's algorithm."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.config import knobs
from bert_jax.data import pairs
from tests import corpora

DOCUMENTS = st.lists(st.lists(st.integers(1, 30), min_size=1, max_size=12), min_size=1, max_size=12)
PAIRED = pytest.mark.parametrize("mode", ["nsp", "sop"])
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


@given(documents=DOCUMENTS, copy=st.integers(0, 1000), mode=st.sampled_from(["nsp", "sop"]))
def test_plan_reads_all_text_once_if_nothing_is_cut(documents, copy, mode):
    ones = [[1] * len(document) for document in documents]  # such sentences always fit exactly
    for texts, length in ((ones, 11), (documents, 10_000)):
        used = np.zeros(sum(map(sum, texts)), int)
        found = plan(texts, mode, length, copy, short_probability=0.0)
        for a_start, a_length, b_start, b_length, label in list_examples(found):
            used[a_start : a_start + a_length] += 1
            if mode == "sop" or label != 1:
                used[b_start : b_start + b_length] += 1
        assert (used == 1).all()


@given(a=st.integers(1, 200), b=st.integers(0, 200), limit=st.integers(5, 120))
def test_truncate_pairs_has_the_lengths_of_the_loop(a, b, limit):
    columns = tuple(np.array([x]) for x in (1000, a, 5000, b, 0))
    keep_a, keep_b = a, b
    while keep_a + keep_b > limit:
        if keep_a > keep_b:
            keep_a -= 1
        else:
            keep_b -= 1
    for truncate in ("either", "front", "back"):
        found = pairs._truncate_pairs(columns, limit, truncate, np.random.default_rng(0))[0]
        assert (found["a_length"], found["b_length"]) == (keep_a, keep_b)
        front = found["a_start"] - 1000
        assert front == {"front": a - keep_a, "back": 0}.get(truncate, front)
        assert 0 <= front <= a - keep_a
        if keep_b:
            assert 5000 <= found["b_start"] <= 5000 + b - keep_b


def test_truncate_pairs_draws_the_end_by_a_fair_coin():
    rows = 20_000
    columns = tuple(np.full(rows, x) for x in (0, 120, 1000, 90, 0))
    found = pairs._truncate_pairs(columns, 100, "either", np.random.default_rng(0))
    assert (found["a_length"] == 50).all()
    assert (found["b_length"] == 50).all()
    for front, lost in ((found["a_start"], 70), (found["b_start"] - 1000, 40)):
        # binomial(lost, 1/2); five standard errors of mean and variance
        assert abs(front.mean() - lost / 2) < 5 * np.sqrt(lost / 4 / rows)
        assert abs(front.var() / (lost / 4) - 1) < 5 * np.sqrt(2 / rows)
    assert abs(np.corrcoef(found["a_start"], found["b_start"])[0, 1]) < 5 / np.sqrt(rows)


def test_plan_random_b_where_one_sentence_forces_it():
    documents = corpora.random_documents(3000, seed=4, sentences=4, tokens=15)
    _, sentence = locate_tokens(documents)
    plans = {p: plan(documents, "nsp", 64, random_next_probability=p) for p in (0.0, 0.5, 1.0)}
    # At 0 only chunks of one sentence are random.
    forced = plans[0.0][plans[0.0]["label"] == 1]
    assert len(forced)
    last = forced["a_start"] + forced["a_length"] - 1
    assert (sentence[forced["a_start"]] == sentence[last]).all()
    assert (plans[1.0]["label"] == 1).all()
    assert 0.52 < (plans[0.5]["label"] == 1).mean() < 0.95


@pytest.mark.parametrize("short", [0.0, 0.1, 1.0])
def test_plan_short_targets_are_uniform(short):
    """With sentences of one token, an untruncated example has exactly its document's target."""
    documents, limit = 4000, 11
    found = plan([[1] * 100] * documents, "sop", limit + 3, short_probability=short)
    # In the order of the text, a swapped B comes first.
    begins = np.where(found["label"] == 1, found["b_start"], found["a_start"])
    first = np.searchsorted(begins, np.arange(documents) * 100)  # of each document
    targets = (found["a_length"] + found["b_length"])[first]
    seen = np.bincount(targets, minlength=limit + 1)[2:]  # of 2..limit tokens
    assert seen.sum() == documents
    expected = np.full(limit - 1, short * documents / (limit - 1))
    expected[-1] += (1 - short) * documents
    assert (np.abs(seen - expected) < 5 * np.sqrt(expected) + 1e-9).all()


def test_plan_random_b_comes_evenly_from_the_others():
    count = np.zeros((40, 40))
    starts = np.zeros(2)
    for copy in range(400):
        found = plan([[3, 3]] * 40, "nsp", 9, copy)
        drawn = found[found["label"] == 1]
        np.add.at(count, (drawn["a_start"] // 6, drawn["b_start"] // 6), 1)
        np.add.at(starts, (drawn["b_start"] % 6) // 3, 1)
    assert np.trace(count) == 0
    off = count[~np.eye(40, dtype=bool)]
    chi_square = ((off - off.mean()) ** 2 / off.mean()).sum()
    assert abs(chi_square - 1559) < 5 * np.sqrt(2 * 1559)
    # The start is uniform in the document.
    assert abs(starts[0] - starts[1]) < 5 * np.sqrt(starts.sum())


@PAIRED
def test_plan_makes_no_false_label_of_little_text(mode):
    lone = plan([[300]], mode, 20)
    assert list_examples(lone)[0][1::2] == (17, 0)
    assert lone["label"].tolist() == [-1]
    three = plan([[50, 50, 50]], mode, 20)["label"].tolist()
    assert three[1] == -1
    assert mode == "sop" or three[0] == 0
    assert set(plan([[5]] * 50, mode, 20)["label"].tolist()) == {1 if mode == "nsp" else -1}
    assert len(plan([], mode, 20)) == 0


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
