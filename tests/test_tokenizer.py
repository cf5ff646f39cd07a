"""Google's ids, the same vocabulary every time, and text that stays text."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax import knobs
from bert_jax.data import tokenizer
from bert_jax.errors import DataError

PIECES = ["un", "##want", "##ed", "runn", "##ing", "the", "fill", "[", "]", "mask", ",", ".", "a", "##a", "é", "字"]
VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *PIECES]


def words(ids, vocab=VOCAB):
    return [vocab[i] for i in ids]


def text_of(seed: int, sentences: int = 400) -> list[str]:
    """Made-up sentences with a Zipf-like choice of words."""
    draw = random.Random(seed)
    stems = ["".join(draw.choice("abcdefghijklmnop") for _ in range(draw.randint(2, 7))) for _ in range(150)]
    return [
        " ".join(draw.choice(stems[: draw.randint(1, 150)]) + draw.choice(["", "ed", "ing", "s"]) for _ in range(9))
        for _ in range(sentences)
    ]


def wordpiece(word: str, vocab: set[str], limit: int) -> list[str]:
    """Greedy longest match first, as the paper states it."""
    pieces, start = [], 0
    while start < len(word) <= limit:
        prefix = "##" if start else ""
        end = next((e for e in range(len(word), start, -1) if prefix + word[start:e] in vocab), None)
        if end is None:
            break
        pieces.append(prefix + word[start:end])
        start = end
    return pieces if start == len(word) else ["[UNK]"]


@pytest.mark.parametrize(
    ("name", "lowercase"), [("uncased", 1), ("cased", 0), ("chinese", 1), ("multilingual_cased", 0)]
)
def test_ids_are_those_of_google(shared, name, lowercase):
    found = tokenizer.load(shared / "vocab" / f"bert_base_{name}_vocab.txt")
    lines = (shared / "golden_tokenization" / "bert_tokenization.jsonl").read_text(encoding="utf-8").split("\n")
    rows = [json.loads(line) for line in lines if line]
    assert found.lowercase == bool(lowercase)
    assert len(rows) > 200
    for row, ids in zip(rows, found.encode_batch([row["text"] for row in rows]), strict=True):
        assert ids == row[name], row["text"]


@given(st.lists(st.text("abcun字 ,", max_size=12)))
def test_pieces_are_the_greedy_longest_match(texts):
    found = tokenizer.Tokenizer(VOCAB, lowercase=True, max_word_length=6)
    for text, ids in zip(texts, found.encode_batch(texts), strict=True):
        spaced = text.replace(",", " , ").replace("字", " 字 ")
        assert words(ids) == [p for word in spaced.split() for p in wordpiece(word, set(VOCAB), 6)]


def test_case_and_accents():
    uncased, cased = (tokenizer.Tokenizer(VOCAB, lowercase=low) for low in (True, False))
    assert words(uncased.encode_batch(["UNwanted Á"])[0]) == ["un", "##want", "##ed", "a"]
    assert words(cased.encode_batch(["unwanted é É"])[0]) == ["un", "##want", "##ed", "é", "[UNK]"]
    assert unicodedata.normalize("NFD", "é") != "é"  # and yet it was found composed: cased text keeps its form


def test_literal_special_tokens_are_text_unless_asked_for():
    found = tokenizer.Tokenizer(VOCAB, lowercase=True)
    escaped, marked = (found.encode_batch(["fill the [MASK]."], escape=e)[0] for e in (True, False))
    assert words(escaped) == ["fill", "the", "[", "mask", "]", "."]
    assert words(marked) == ["fill", "the", "[MASK]", "."]
    assert not set(escaped) & set(found.special)
    assert found.decode(marked) == "fill the [MASK]."


def test_long_words_are_unknown_beyond_the_limit():
    long = "a" * 7
    assert words(tokenizer.Tokenizer(VOCAB, True, 7).encode_batch([long])[0]) == ["a"] + ["##a"] * 6
    assert words(tokenizer.Tokenizer(VOCAB, True, 6).encode_batch([long])[0]) == ["[UNK]"]


def test_lone_surrogates_and_controls_do_not_stop_it():
    found = tokenizer.Tokenizer(VOCAB, lowercase=True)
    assert [words(ids) for ids in found.encode_batch(["a\ud800 \0the", "fill"])] == [["a", "the"], ["fill"]]


def test_properties_of_the_vocabulary():
    found = tokenizer.Tokenizer(VOCAB, lowercase=True)
    assert found.size == len(VOCAB)
    assert found.special == (0, 1, 2, 3, 4)
    assert [VOCAB[i] for i in found.continuation.nonzero()[0]] == [p for p in VOCAB if p.startswith("##")]
    others = [
        tokenizer.Tokenizer(VOCAB, lowercase=False),
        tokenizer.Tokenizer(VOCAB, True, 100),
        tokenizer.Tokenizer([*VOCAB[:-2], VOCAB[-1], VOCAB[-2]], True),
    ]
    assert len({found.hash, *(other.hash for other in others)}) == 4


@pytest.mark.parametrize("lowercase", [True, False])
def test_save_and_load_give_the_same_tokenizer(tmp_path, lowercase):
    found = tokenizer.Tokenizer(VOCAB, lowercase, max_word_length=77)
    found.save(tmp_path)
    again = tokenizer.load(tmp_path)
    assert (again.hash, again.vocab, again.lowercase, again.max_word_length) == (found.hash, VOCAB, lowercase, 77)
    text = ["Unwanted [MASK], é 字."]
    assert again.encode_batch(text) == found.encode_batch(text)
    assert (tmp_path / "vocab.txt").read_text(encoding="utf-8").split("\n") == [*VOCAB, ""]
    assert tokenizer.load(tmp_path / "vocab.txt", lowercase, 77).hash == found.hash


def test_saved_file_adds_special_tokens_for_others(tmp_path):
    import tokenizers

    tokenizer.Tokenizer(VOCAB, True).save(tmp_path)
    encoded = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json")).encode("fill", "the a")
    assert encoded.tokens == ["[CLS]", "fill", "[SEP]", "the", "a", "[SEP]"]
    assert encoded.type_ids == [0, 0, 0, 1, 1, 1]


def test_case_of_a_foreign_vocabulary_is_found(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join([*VOCAB, "The", "Mask"]), encoding="utf-8")
    assert not tokenizer.load(tmp_path).lowercase
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    assert tokenizer.load(tmp_path).lowercase
    assert not tokenizer.load(tmp_path, lowercase=False).lowercase


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("\n".join([*VOCAB, "the"]), "line 22 repeats line 11"),
        ("\n".join(["[PAD]", "", "[UNK]"]), "line 2 is empty"),
        ("[PAD]\n[UNK]\n[CLS]\na", r"no \[SEP\], \[MASK\]"),
        (b"[PAD]\n\xff", "not UTF-8 at byte 6"),
    ],
)
def test_bad_vocabularies_are_refused(tmp_path, text, says):
    (tmp_path / "vocab.txt").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(DataError, match=says):
        tokenizer.load(tmp_path / "vocab.txt")


def test_missing_and_foreign_models_are_refused(tmp_path):
    with pytest.raises(DataError, match="no tokenizer at"):
        tokenizer.load(tmp_path / "nothing")
    with pytest.raises(DataError, match=r"no vocab.txt or tokenizer.json"):
        tokenizer.load(tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"model": {"type": "BPE", "vocab": {"a": 0}}}')
    with pytest.raises(DataError, match="BPE"):
        tokenizer.load(tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"model": ')
    with pytest.raises(DataError, match="not JSON"):
        tokenizer.load(tmp_path)


@pytest.mark.parametrize("lowercase", [True, False])
def test_trained_vocabulary_is_sane(lowercase):
    texts = [text.title() for text in text_of(1)]
    found = tokenizer.train(texts, knobs.Tokenizer(vocab_size=300, lowercase=lowercase))
    assert found.vocab[:5] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert len(found.vocab) == len(set(found.vocab)) == 300
    assert any(p.isupper() for p in found.vocab[5:]) != lowercase
    assert not any(1 in ids for ids in found.encode_batch(texts))


def test_training_is_the_same_in_any_order_process_and_thread_count():
    texts = text_of(2)
    expected = tokenizer.train(texts, knobs.Tokenizer(vocab_size=300)).hash
    assert tokenizer.train(texts[::-1], knobs.Tokenizer(vocab_size=300)).hash == expected
    code = (
        "import sys, json\nfrom bert_jax import knobs\nfrom bert_jax.data import tokenizer\n"
        "print(tokenizer.train(json.load(sys.stdin), knobs.Tokenizer(vocab_size=300)).hash)"
    )
    for threads in ("1", "3"):
        env = {**os.environ, "RAYON_NUM_THREADS": threads, "PYTHONHASHSEED": threads}
        out = subprocess.run(
            [sys.executable, "-c", code], input=json.dumps(texts), env=env, capture_output=True, text=True, check=True
        )
        assert out.stdout.strip() == expected


def test_rare_characters_leave_room_for_words():
    texts = [*text_of(3), "".join(chr(0x4E00 + i) for i in range(500))]
    found = tokenizer.train(texts, knobs.Tokenizer(vocab_size=200))
    single = [p for p in found.vocab[5:] if len(p.removeprefix("##")) == 1]
    assert found.size == 200
    assert len(single) <= 195
    assert {"a", "##a"} <= set(found.vocab)
    assert not any(p.startswith("##一") for p in found.vocab)  # such a character is always a word of its own


def test_text_too_small_for_the_size_gives_a_smaller_vocabulary():
    found = tokenizer.train(["ab ab"], knobs.Tokenizer(vocab_size=1000))
    assert found.vocab[5:] == ["##a", "##b", "a", "b", "ab"]
    with pytest.raises(DataError, match="no text"):
        tokenizer.train(["", " \n"], knobs.Tokenizer())


def test_long_text_is_trained_on_in_pieces():
    long = " ".join(text_of(4))
    assert len(long) > 2 * tokenizer.LINE
    assert tokenizer.train([long, "\ud800"], knobs.Tokenizer(vocab_size=250)).size == 250
