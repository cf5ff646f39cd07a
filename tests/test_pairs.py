"""Plans against the original's algorithm, restated in `published`, and against what must always
hold.
"""

from __future__ import annotations

import dataclasses
import itertools
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.config import knobs
from bert_jax.data.batches import pairs
from bert_jax.errors import DataError
from tests import corpora, published

DOCUMENTS = st.lists(st.lists(st.integers(1, 30), min_size=1, max_size=12), min_size=1, max_size=12)


def numbered(documents: list[list[int]]) -> list[list[list[int]]]:
    """Sentences of so many tokens, each token its place in the corpus."""
    tokens = itertools.count()
    return [
        [list(itertools.islice(tokens, length)) for length in document] for document in documents
    ]


def summary(
    a_start: np.ndarray,
    a: np.ndarray,
    b_start: np.ndarray,
    b: np.ndarray,
    label: np.ndarray,
    ends: np.ndarray,
):
    """One pass over the corpus in numbers that must agree."""
    begins = np.concatenate([[0], ends])
    total, pair = a + b, label >= 0
    a_cut, b_cut = ~np.isin(a_start, begins), ~np.isin(b_start, begins)
    tail_a, tail_b = ~np.isin(a_start + a, begins), ~np.isin(b_start + b, begins)
    full = total == total.max()
    return {
        "examples": len(a),
        "labelled 1": (label == 1).mean(),
        "no pair": (label == -1).mean(),
        "length of A": a.mean(),
        "length of B": b.mean(),
        "square of A": (a.astype(float) ** 2).mean(),
        "square of B": (b.astype(float) ** 2).mean(),
        "product": (a.astype(float) * b).mean(),
        "full": full.mean(),
        "short": (total < total.max() / 2).mean(),
        "very short": (total < total.max() / 5).mean(),
        "B of random": b[label == 1].mean(),
        "A of random": a[label == 1].mean(),
        "A lost its front": a_cut.mean(),
        "B lost its front": b_cut[pair].mean(),
        "A lost its end": tail_a.mean(),
        "B lost its end": tail_b[pair].mean(),
        "where B lies": b_start[label == 1].mean(),
        "where A lies": a_start.mean(),
    }


def of_plan(plan: np.ndarray, ends: np.ndarray) -> dict[str, float]:
    columns = (
        plan[name].astype(np.int64)
        for name in ("a_start", "a_length", "b_start", "b_length", "label")
    )
    return summary(*columns, ends)


def of_original(
    examples: list[tuple[list[int], list[int], int]], ends: np.ndarray
) -> dict[str, float]:
    rows = [(a[0], len(a), b[0] if b else 0, len(b), label) for a, b, label in examples]
    return summary(*np.array(rows).T, ends)


@pytest.mark.parametrize("mode", ["nsp", "sop"])
@pytest.mark.parametrize(("length", "short"), [(48, 0.1), (49, 0.6), (24, 0.1)])
def test_agrees_with_the_original(mode: str, length: int, short: float) -> None:
    documents = corpora.random_documents(120, seed=1, sentences=9, tokens=9)
    shard = corpora.shard(documents)
    settings = knobs.Examples(short_probability=short)
    passes = 60
    rng = random.Random(5)
    ours = [
        of_plan(pairs.plan(shard, mode, settings, length, 3, c), shard.sentence_ends)
        for c in range(passes)
    ]
    texts = numbered(documents)
    theirs = [
        of_original(published.pairs(texts, length - 3, short, rng, mode), shard.sentence_ends)
        for _ in ours
    ]
    for name in ours[0]:
        a, b = (np.array([one[name] for one in side], float) for side in (ours, theirs))
        error = np.sqrt((a.var() + b.var()) / passes)
        # 19 numbers in 6 settings: four standard errors of the difference of two means are exceeded
        # once in 140 runs
        assert abs(a.mean() - b.mean()) <= 4 * error + 1e-12, (
            f"{name}: {a.mean():.4f} here, {b.mean():.4f} there"
        )


@pytest.mark.parametrize("mode", ["nsp", "sop"])
def test_distribution_of_lengths_is_the_original(mode: str) -> None:
    documents = corpora.random_documents(200, seed=2)
    shard = corpora.shard(documents)
    rng = random.Random(6)
    ours = [pairs.plan(shard, mode, knobs.Examples(), 35, 3, c) for c in range(40)]
    theirs = [published.pairs(numbered(documents), 32, 0.1, rng, mode) for _ in range(40)]
    for name, part in (("a_length", 0), ("b_length", 1)):
        here = np.stack([np.bincount(p[name], minlength=33)[:33] for p in ours])
        there = np.stack(
            [np.bincount([len(e[part]) for e in p], minlength=33)[:33] for p in theirs]
        )
        error = np.sqrt((here.var(0) + there.var(0)) / 40) + 1 / 40
        assert (np.abs(here.mean(0) - there.mean(0)) < 4.5 * error).all()  # 33 lengths each


def describe(documents: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    """The document and the sentence of each token."""
    lengths = [n for d in documents for n in d]
    sentence = np.repeat(np.arange(len(lengths)), lengths)
    return np.repeat(np.arange(len(documents)), [sum(d) for d in documents]), sentence


@given(
    documents=DOCUMENTS,
    length=st.integers(8, 60),
    mode=st.sampled_from(["nsp", "sop"]),
    short=st.sampled_from([0.0, 0.5, 1.0]),
    truncate=st.sampled_from(["either", "front", "back"]),
    seed=st.integers(0, 10_000),
)
def test_pairs_are_what_their_label_says(
    documents: list[list[int]], length: int, mode: str, short: float, truncate: str, seed: int
) -> None:
    document, sentence = describe(documents)
    plan = pairs.plan(
        corpora.shard(documents), mode, knobs.Examples(short, 0.5, truncate), length, seed, 0
    )
    covered = np.zeros(len(documents), bool)
    for a_start, a_length, b_start, b_length, label in plan.tolist():
        assert a_length >= 1
        assert a_length + b_length <= length - 3
        a = np.arange(a_start, a_start + a_length)
        b = np.arange(b_start, b_start + b_length)
        assert len(set(document[a])) == 1
        covered[document[a[0]]] = True
        if label == -1:
            assert b_length == 0
            assert mode == "sop" or len(documents) == 1
            assert sentence[a[0]] == sentence[a[-1]]
            assert (
                sentence[a[0]] == sentence[document == document[a[0]]].max()
            )  # the last of its document
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
    assert (mode != "nsp") or len(documents) > 1 or not (plan["label"] == 1).any()


@given(documents=DOCUMENTS, seed=st.integers(0, 1000), mode=st.sampled_from(["nsp", "sop"]))
def test_no_text_is_lost_or_repeated_where_nothing_is_truncated(
    documents: list, seed: int, mode: str
) -> None:
    units = [
        [1] * len(document) for document in documents
    ]  # sentences of one token always fit exactly
    for texts, length in ((units, 11), (documents, 10_000)):
        shard = corpora.shard(texts)
        plan = pairs.plan(shard, mode, knobs.Examples(short_probability=0.0), length, seed, 0)
        used = np.zeros(len(shard.tokens), int)
        for a_start, a_length, b_start, b_length, label in plan.tolist():
            used[a_start : a_start + a_length] += 1
            if mode == "sop" or label != 1:
                used[b_start : b_start + b_length] += 1
        assert (used == 1).all()


@given(a=st.integers(1, 200), b=st.integers(0, 200), limit=st.integers(5, 120))
def test_truncated_lengths_are_the_loop(a: int, b: int, limit: int) -> None:
    columns = [np.array([x]) for x in (1000, a, 5000, b, 0)]
    keep_a, keep_b = a, b
    while keep_a + keep_b > limit:
        if keep_a > keep_b:
            keep_a -= 1
        else:
            keep_b -= 1
    for truncate in ("either", "front", "back"):
        found = pairs._finish(tuple(columns), limit, truncate, np.random.default_rng(0))[0]
        assert (found["a_length"], found["b_length"]) == (keep_a, keep_b)
        front = found["a_start"] - 1000
        assert front == {"front": a - keep_a, "back": 0}.get(truncate, front)
        assert 0 <= front <= a - keep_a
        if keep_b:
            assert 5000 <= found["b_start"] <= 5000 + b - keep_b


def test_each_lost_token_comes_from_either_end_by_a_fair_coin() -> None:
    rows = 20_000
    columns = [np.full(rows, x) for x in (0, 120, 1000, 90, 0)]
    found = pairs._finish(tuple(columns), 100, "either", np.random.default_rng(0))
    assert (found["a_length"] == 50).all()
    assert (found["b_length"] == 50).all()
    for front, lost in ((found["a_start"], 70), (found["b_start"] - 1000, 40)):
        # binomial(lost, 1/2); five standard errors of mean and variance
        assert abs(front.mean() - lost / 2) < 5 * np.sqrt(lost / 4 / rows)
        assert abs(front.var() / (lost / 4) - 1) < 5 * np.sqrt(2 / rows)
    assert abs(np.corrcoef(found["a_start"], found["b_start"])[0, 1]) < 5 / np.sqrt(rows)


def test_more_than_half_of_the_labels_are_random_as_single_sentences_force_it() -> None:
    documents = corpora.random_documents(3000, seed=4, sentences=4, tokens=15)
    shard = corpora.shard(documents)
    plans = {p: pairs.plan(shard, "nsp", knobs.Examples(0.1, p), 64, 0, 0) for p in (0.0, 0.5, 1.0)}
    sentences = np.concatenate([[0], shard.sentence_ends])
    # At 0 only chunks of one sentence are random, and A is then that sentence: no put-back, so A
    # ends its chunk.
    forced = plans[0.0][plans[0.0]["label"] == 1]
    assert len(forced)
    whole = np.searchsorted(
        sentences, forced["a_start"] + forced["a_length"], side="left"
    ) - np.searchsorted(sentences, forced["a_start"], side="right")
    assert (whole == 0).all()
    assert (plans[1.0]["label"] == 1).all()
    assert 0.52 < (plans[0.5]["label"] == 1).mean() < 0.95


def test_share_of_short_targets() -> None:
    shard = corpora.shard(
        [[1] * 400] * 300
    )  # one-token sentences: an example has exactly its document's target
    limit = 61
    for short in (0.0, 0.1, 1.0):
        plan = pairs.plan(shard, "nsp", knobs.Examples(short_probability=short), limit + 3, 0, 0)
        first = np.searchsorted(plan["a_start"], np.arange(300) * 400)  # of each document
        targets = (plan["a_length"] + plan["b_length"])[first]
        random_b = plan["label"][first] == 1  # whose document may end too early
        shorter = (targets < limit) & ~random_b
        expected = short * (1 - 1 / (limit - 1)) * (~random_b).sum()
        assert abs(shorter.sum() - expected) <= 4 * np.sqrt(
            max(expected, 0) * (1 - short * 0.98)
        ) + 1e-9 + 6 * (short == 1)
        if short == 1.0:  # uniform on 2..limit
            values = targets[~random_b]
            assert abs(values.mean() - (2 + limit) / 2) < 4 * (limit - 1) / np.sqrt(
                12 * len(values)
            )
            assert values.min() >= 2


def test_short_targets_are_uniform_from_two_to_the_limit() -> None:
    shard = corpora.shard([[1] * 30] * 4000)
    plan = pairs.plan(shard, "sop", knobs.Examples(short_probability=1.0), 5 + 3, 0, 0)
    begins = np.where(
        plan["label"] == 1, plan["b_start"], plan["a_start"]
    )  # in the order of the text
    first = np.searchsorted(begins, np.arange(4000) * 30)
    seen = np.bincount((plan["a_length"] + plan["b_length"])[first], minlength=6)
    assert seen[:2].sum() == 0
    assert ((seen[2:] - 1000) ** 2 / 1000).sum() < 3 + 5 * np.sqrt(
        6
    )  # chi-square, three degrees of freedom


def test_random_segments_come_evenly_from_the_other_documents() -> None:
    shard = corpora.shard([[3, 3]] * 40)
    count = np.zeros((40, 40))
    starts = np.zeros(2)
    for copy in range(400):
        plan = pairs.plan(shard, "nsp", knobs.Examples(), 9, 0, copy)
        drawn = plan[plan["label"] == 1]
        np.add.at(count, (drawn["a_start"] // 6, drawn["b_start"] // 6), 1)
        np.add.at(starts, (drawn["b_start"] % 6) // 3, 1)
    assert np.trace(count) == 0
    off = count[~np.eye(40, dtype=bool)]
    chi_square = ((off - off.mean()) ** 2 / off.mean()).sum()
    assert abs(chi_square - 1559) < 5 * np.sqrt(2 * 1559)
    assert abs(starts[0] - starts[1]) < 5 * np.sqrt(
        starts.sum()
    )  # the start is uniform in the document


@pytest.mark.parametrize("mode", ["nsp", "sop"])
def test_one_document_or_one_sentence_makes_no_false_label(mode: str) -> None:
    lone = pairs.plan(corpora.shard([[300]]), mode, knobs.Examples(), 20, 0, 0)
    assert lone["label"].tolist() == [-1]
    assert lone["a_length"].tolist() == [17]
    assert lone["b_length"].tolist() == [0]
    three = pairs.plan(corpora.shard([[50, 50, 50]]), mode, knobs.Examples(), 20, 0, 0)
    assert three["label"][1] == -1
    assert three["label"][0] == (0 if mode == "nsp" else three["label"][0])
    singles = pairs.plan(corpora.shard([[5]] * 50), mode, knobs.Examples(), 20, 0, 0)
    assert (singles["label"] == (1 if mode == "nsp" else -1)).all()


def test_every_short_target_from_two_to_the_whole_room_occurs() -> None:
    """With sentences of one token an untruncated example has its target's length, or the rest of
    its document.
    """
    length = 8
    shard = corpora.shard([[1] * length] * 400)
    found = pairs.plan(shard, "nsp", knobs.Examples(short_probability=1.0), length, 0, 0)
    firsts = found["a_length"].astype(int) + found["b_length"]
    assert set(firsts.tolist()) == set(range(2, length - 3 + 1))
    alike = pairs.plan(shard, "nsp", knobs.Examples(short_probability=0.0), length, 0, 0)
    assert (alike["a_length"].astype(int) + alike["b_length"] == length - 3).mean() > 0.3


def test_sop_is_swapped_half_of_the_time() -> None:
    plan = pairs.plan(corpora.shard([[4] * 50] * 300), "sop", knobs.Examples(), 32, 0, 0)
    labelled = plan[plan["label"] >= 0]
    assert len(labelled) > 0.95 * len(plan)
    assert abs(labelled["label"].mean() - 0.5) < 4 * 0.5 / np.sqrt(len(labelled))
    assert ((labelled["a_start"] > labelled["b_start"]) == (labelled["label"] == 1)).all()


@given(
    documents=st.lists(
        st.lists(st.integers(1, 80), min_size=1, max_size=9), min_size=1, max_size=12
    ),
    length=st.integers(8, 70),
)
def test_rows_of_full_sentences(documents: list[list[int]], length: int) -> None:
    shard = corpora.shard(documents)
    document, sentence = describe(documents)
    plan = pairs.plan(shard, "none", knobs.Examples(), length, 0, 0)
    assert (plan["label"] == -1).all()
    room = length - 2
    at = 0
    for start, tokens, first, breaks, _ in plan.tolist():
        assert start == at  # contiguous: every token once
        at = start + tokens
        assert tokens >= 1
        assert tokens + breaks <= room
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


def test_rows_do_not_depend_on_seed_or_copy() -> None:
    shard = corpora.shard(corpora.random_documents(20, 0))
    one, two = (
        pairs.plan(shard, "none", knobs.Examples(), 32, seed, copy)
        for seed, copy in ((0, 0), (1, 5))
    )
    assert np.array_equal(one, two)


@pytest.mark.parametrize("mode", ["nsp", "sop"])
def test_seed_copy_and_shard_draw_apart_and_again_the_same(mode: str) -> None:
    shard = corpora.shard(corpora.random_documents(50, 0))
    keys = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)]
    plans = [pairs.plan(shard, mode, knobs.Examples(), 32, *key).tobytes() for key in keys]
    assert len(set(plans)) == 4
    assert plans[0] == pairs.plan(shard, mode, knobs.Examples(), 32, 0, 0, 0).tobytes()


@pytest.mark.parametrize(
    "broken",
    [
        {"sentence_ends": [3, 3, 8]},
        {"sentence_ends": [3, 5, 7]},
        {"document_ends": [0, 3]},
        {"document_ends": [2]},
    ],
)
def test_damaged_shards_are_refused(broken: dict) -> None:
    shard = dataclasses.replace(
        corpora.shard([[3, 2], [3]]), **{k: np.array(v, np.uint32) for k, v in broken.items()}
    )
    with pytest.raises(DataError, match="shard 4"):
        pairs.plan(shard, "nsp", knobs.Examples(), 32, 0, 0, 4)


def test_empty_shard() -> None:
    for mode in ("nsp", "sop", "none"):
        assert len(pairs.plan(corpora.shard([]), mode, knobs.Examples(), 32, 0, 0)) == 0
