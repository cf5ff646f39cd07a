"""Vocabularies that are trained: of the size asked for, and useful.

That they are the same every time is held by tests/net/test_preparation.py.
"""

from __future__ import annotations

import random

import pytest
from tokenizers import pre_tokenizers

from bert_jax.config import knobs
from bert_jax.data.tokenizer import SPECIALS
from bert_jax.data.vocabulary import train_vocabulary


def make_texts(seed: int, sentences: int = 400) -> list[str]:
    """Return made-up sentences with a Zipf-like choice of words."""
    draw = random.Random(seed)
    letters = "abcdefghijklmnop"
    stems = ["".join(draw.choices(letters, k=draw.randint(2, 7))) for _ in range(150)]
    ends = ["", "ed", "ing", "s"]
    return [
        " ".join(draw.choice(stems[: draw.randint(1, 150)]) + draw.choice(ends) for _ in range(9))
        for _ in range(sentences)
    ]


@pytest.mark.parametrize("lowercase", [True, False])
def test_train_gives_a_useful_wordpiece(lowercase):
    texts = [text.title() for text in make_texts(1)]
    settings = knobs.Tokenizer(vocab_size=300, lowercase=lowercase, max_word_length=9)
    found = train_vocabulary(texts, settings)
    assert (*found.vocab[:5],) == SPECIALS
    assert len(set(found.vocab)) == found.size == 300
    assert any(piece.isupper() for piece in found.vocab[5:]) != lowercase
    unknown = [found.special.unk in ids for ids in found.encode_batch(texts)]
    longest = [max(map(len, text.split())) for text in texts]
    assert unknown == [length > 9 for length in longest]


def test_train_gives_byte_pairs_for_any_text():
    found = train_vocabulary(make_texts(1), knobs.Tokenizer(kind="bpe", vocab_size=400))
    assert (*found.vocab[:5],) == SPECIALS
    assert {*pre_tokenizers.ByteLevel.alphabet()} == {*found.vocab[5:261]}
    assert (found.size, found.lowercase, found.special.separators) == (400, False, 1)
    for text in ("Ærø\u0301 今天 🙂\t\n  ", *make_texts(3)):
        assert found.decode(found.encode_batch([text])[0]) == text
    marked = found.encode_batch(["a [MASK]."], escape=False)[0]
    assert [found.vocab[i] for i in marked] == ["a", "[MASK]", "."]  # the mask takes its blank


def test_train_leaves_room_beside_rare_characters():
    texts = [*make_texts(3), "".join(chr(0x4E00 + i) for i in range(500))]
    found = train_vocabulary(texts, knobs.Tokenizer(vocab_size=200))
    letters = [p for p in found.vocab[5:] if len(p.removeprefix("##")) == 1]
    assert found.size == 200
    assert len(letters) < 195
    assert {"a", "##a"} <= set(found.vocab)
    assert not any("##\u4e00" <= p <= "##\u9fff" for p in found.vocab)  # each is a word
