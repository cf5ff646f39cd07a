"""Vocabularies that are trained have room for any text.

That they are the same every time is held by tests/net/test_preparation.py.
"""

from tokenizers import pre_tokenizers

from bert_jax.config import knobs
from bert_jax.data.engines import SPECIALS
from bert_jax.data.vocabulary import train_vocabulary
from tests.data import small

TEXTS = [" ".join(lines) for lines in small.make_documents(100)]


def test_train_gives_byte_pairs_for_any_text():
    found = train_vocabulary(TEXTS, knobs.Tokenizer(kind="bpe", vocab_size=300))
    assert (*found.vocab[:5],) == SPECIALS
    assert {*pre_tokenizers.ByteLevel.alphabet()} == {*found.vocab[5:261]}
    assert (found.size, found.lowercase, found.special.separators) == (300, False, 1)
    for text in ("Ærø\u0301 今天 🙂\t\n  ", *TEXTS):
        assert found.decode(found.encode_batch([text])[0]) == text
    marked = found.encode_batch(["a [MASK]."], escape=False)[0]
    assert [found.vocab[i] for i in marked] == ["a", "[MASK]", "."]  # the mask takes its blank


def test_train_leaves_room_beside_rare_characters():
    texts = [*TEXTS, "".join(chr(0x4E00 + i) for i in range(500))]
    found = train_vocabulary(texts, knobs.Tokenizer(vocab_size=150, max_word_length=9))
    letters = [p for p in found.vocab[5:] if len(p.removeprefix("##")) == 1]
    assert (found.size, found.max_word_length) == (150, 9)
    assert len(letters) < 145
    assert {"a", "##a"} <= set(found.vocab)
    assert not any("##\u4e00" <= p <= "##\u9fff" for p in found.vocab)  # each is a word
