"""Pairs cut as the tokenizers library cuts them, and rows that are Hugging Face's encodings."""

from __future__ import annotations

import json

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import models, pre_tokenizers, processors

from bert_jax.batch import Special, TwoSeparators
from bert_jax.data import encoding, tokenizer

SPECIAL = Special(pad=0, unk=1, cls=2, sep=3, mask=4)


@pytest.fixture(scope="module")
def library() -> tokenizers.Tokenizer:
    """One token a letter, and BERT's special tokens around them."""
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b"]
    vocabulary = {name: i for i, name in enumerate(names)}
    engine = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    engine.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    engine.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return engine


@given(st.integers(0, 12), st.integers(0, 12), st.integers(0, 26))
def test_truncate_pair_is_longest_first_of_tokenizers(library, first, second, room):
    library.enable_truncation(room + 3, strategy="longest_first")
    found = library.encode(" ".join("a" * first), " ".join("b" * second))
    a, b = encoding.truncate_pair([5] * first, [6] * second, room)
    assert [2, *a, 3, *b, 3] == found.ids
    assert encoding.pad_rows(SPECIAL, [[a, b]], len(found.ids))["type_ids"][0].tolist() == (
        found.type_ids
    )
    single = library.encode(" ".join("a" * first))
    assert [2, *encoding.truncate_pair([5] * first, [], room + 1)[0], 3] == single.ids


def test_join_rows_puts_two_separators_between():
    flat = encoding.join_rows(TwoSeparators(*SPECIAL), [[([5], [6]), ([7], None)], [([8], [])]])
    assert flat["tokens"].tolist() == [2, 5, 3, 3, 6, 3, 2, 7, 3, 2, 8, 3, 3, 3]
    assert flat["type_ids"].tolist() == [0] * 14
    assert flat["segment_ids"].tolist() == [1] * 6 + [2] * 3 + [1] * 5
    assert flat["positions"].tolist() == [*range(6), *range(3), *range(5)]
    assert flat["offsets"].tolist() == [0, 9, 14]
    assert flat["cls_positions"].tolist() == [[0, 6], [0, 0]]


def test_pad_rows_equals_hugging_face_on_pairs(copies):
    found = tokenizer.load(copies / "vocab" / "bert_base_uncased_vocab.txt", max_word_length=100)
    file = copies / "golden_tokenization" / "bert_uncased_pairs.jsonl"
    pairs = [json.loads(line) for line in file.read_text(encoding="utf-8").split("\n") if line]
    assert len(pairs) == 90
    first, second = (
        found.encode_batch([row[key] for row in pairs], escape=False)
        for key in ("text_a", "text_b")
    )
    for row, a, b in zip(pairs, first, second, strict=True):
        length = row["max_length"]
        texts = [encoding.truncate_pair(a, b, length - 3)]
        batch = encoding.pad_rows(found.special, texts, length)
        assert batch["tokens"][0].tolist() == row["input_ids"]
        assert batch["type_ids"][0].tolist() == row["token_type_ids"]
        assert batch["segment_ids"][0].tolist() == row["attention_mask"]
