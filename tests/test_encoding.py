"""Pairs cut as the tokenizers library cuts them, and rows that are Hugging Face's encodings."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import models, pre_tokenizers, processors

from bert_jax.batch import Special
from bert_jax.data import encoding, tokenizer
from bert_jax.errors import DataError

SPECIAL = Special(pad=0, unk=1, cls=2, sep=3, mask=4)
LENGTHS = st.integers(0, 12)


@pytest.fixture(scope="module")
def library() -> tokenizers.Tokenizer:
    """One token a letter, and BERT's special tokens around them."""
    names = [*tokenizer.SPECIALS, "a", "b"]
    engine = tokenizers.Tokenizer(
        models.WordLevel({name: i for i, name in enumerate(names)}, unk_token="[UNK]")
    )
    engine.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    engine.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return engine


@given(LENGTHS, LENGTHS, st.integers(0, 26))
def test_longest_first_is_that_of_the_tokenizers_library(library, first, second, room):
    library.enable_truncation(room + 3, strategy="longest_first")
    found = library.encode(" ".join("a" * first), " ".join("b" * second))
    a, b = encoding.truncate([5] * first, [6] * second, room)
    assert [2, *a, 3, *b, 3] == found.ids
    batch = encoding.rows(SPECIAL, [[a, b]], length=len(found.ids))
    assert batch["type_ids"][0].tolist() == found.type_ids
    single = library.encode(" ".join("a" * first))
    assert [2, *encoding.truncate([5] * first, [], room + 1)[0], 3] == single.ids


def test_the_last_token_of_an_odd_room():
    for first, second, kept in ((9, 9, (2, 3)), (8, 9, (2, 3)), (9, 8, (3, 2))):
        a, b = encoding.truncate([5] * first, [6] * second, 5)
        assert (len(a), len(b)) == kept
    with pytest.raises(ValueError, match="room = -1"):
        encoding.truncate([5], [6], -1)


IDS = st.lists(st.integers(5, 99), max_size=9)


@given(
    st.lists(st.lists(IDS, min_size=1, max_size=2), min_size=1, max_size=4),
    st.sampled_from([21, 23]),  # the longest pair, and longer
)
def test_rows_hold_each_text_once_and_nothing_else(texts, length):
    batch = encoding.rows(SPECIAL, texts, length, size=5)
    assert batch["tokens"].shape == (5, length)
    assert {key: array.dtype for key, array in batch.items()} == dict.fromkeys(batch, np.int32)
    for row in range(5):
        tokens, types, segments, positions = (
            batch[key][row].tolist() for key in ("tokens", "type_ids", "segment_ids", "positions")
        )
        expected: list[tuple[int, int]] = []  # token, type
        if row < len(texts):
            expected = [(2, 0)]
            for kind, part in enumerate(texts[row]):
                expected += [(i, kind) for i in [*part, 3]]
        spare = len(tokens) - len(expected)
        assert list(zip(tokens, types, strict=True)) == expected + [(0, 0)] * spare
        assert segments == [1] * len(expected) + [0] * spare
        assert positions == [*range(len(expected)), *[0] * spare]
    assert batch["cls_positions"].tolist() == [[0]] * 5


def test_rows_have_the_length_asked_for_and_are_never_cut():
    assert encoding.rows(SPECIAL, [[[5], [6]], [[7]]], length=8)["tokens"].tolist() == [
        [2, 5, 3, 6, 3, 0, 0, 0],
        [2, 7, 3, 0, 0, 0, 0, 0],
    ]
    with pytest.raises(DataError, match="row 1 has 5 tokens, and 4 fit"):
        encoding.rows(SPECIAL, [[[5]], [[5], [6]]], length=4)


def test_pairs_are_those_of_hugging_face(copies):
    found = tokenizer.load(copies / "vocab" / "bert_base_uncased_vocab.txt", max_word_length=100)
    lines = (
        (copies / "golden_tokenization" / "bert_uncased_pairs.jsonl")
        .read_text(encoding="utf-8")
        .split("\n")
    )
    pairs = [json.loads(line) for line in lines if line]
    assert len(pairs) == 90
    first, second = (
        found.encode_batch([row[key] for row in pairs], escape=False)
        for key in ("text_a", "text_b")
    )
    for row, a, b in zip(pairs, first, second, strict=True):
        length = row["max_length"]
        batch = encoding.rows(found.special, [list(encoding.truncate(a, b, length - 3))], length)
        assert batch["tokens"][0].tolist() == row["input_ids"]
        assert batch["type_ids"][0].tolist() == row["token_type_ids"]
        assert batch["segment_ids"][0].tolist() == row["attention_mask"]
