"""Ids, offsets and text against google's code, transformers and the tokenizers library."""

import functools
import gzip
import json
import unicodedata

import numpy as np
import pytest
import tokenizers
from tokenizers import models, normalizers, pre_tokenizers, processors

from bert_jax.batch import Special, TwoSeparators
from bert_jax.data import encode, encoding, engines, tokenizer
from bert_jax.data.engines import SPECIALS, build_wordpiece
from bert_jax.data.tokenizer import Tokenizer
from tests.data.small import BPE

KINDS = ("roberta", "modernbert")
ROWS = [
    json.loads(line) for line in gzip.decompress((BPE / "texts.jsonl.gz").read_bytes()).splitlines()
]
WORDS = ["the", "fill", "mask", "a", "##a", "un", "##want", "##ed", "é", "字"]
VOCAB = [*SPECIALS, *"[]().,!'", *WORDS]


@functools.cache
def golden(kind: str) -> Tokenizer:
    return tokenizer.load_tokenizer(BPE / kind)


def small(**options) -> Tokenizer:
    return Tokenizer(build_wordpiece(VOCAB, **options))


def pieces(found: Tokenizer, text: str) -> list[str]:
    return [found.vocab[i] for i in found.encode_batch([text])[0]]


@pytest.mark.parametrize(
    ("name", "lowercase"),
    [("uncased", True), ("cased", False), ("chinese", True), ("multilingual_cased", False)],
)
def test_load_gives_ids_of_google_and_hugging_face(copies, name, lowercase):
    lines = (copies / "golden_tokenization" / "bert_tokenization.jsonl").read_text("utf-8")
    rows = [json.loads(line) for line in lines.split("\n") if line]
    texts = [row["text"] for row in rows]
    file = copies / "vocab" / f"bert_base_{name}_vocab.txt"
    google = tokenizer.load_tokenizer(file)
    assert len(rows) == 247
    assert google.encode_batch(texts) == [row[name] for row in rows]
    assert google.lowercase == lowercase
    theirs = tokenizer.load_tokenizer(file, max_word_length=100)
    wanted = [row.get("hf_differs", row)[name] for row in rows]
    assert theirs.encode_batch(texts, escape=False) == wanted
    assert google.encode_batch(texts) != wanted  # they differ in three texts


OFFSETS = {  # of a text: the part of the text that each piece stands for
    "unwante\u0301d\u0301, a\u0301": "un=un want=##want e\u0301d\u0301=##ed ,=, a\u0301=a",
    "UN字字e\u0301": "UN=un 字=字 字=字 e\u0301=e",  # a mark stays with its letter
    "😀x É": "😀x=[UNK] É=e",
    "한": "한=ᄒ 한=##ᅡ 한=##ᆫ",  # three pieces of one character
    "\u0301": "",
    "\ud800a": "a=a",
}


@pytest.mark.parametrize("text", OFFSETS)
def test_offsets_hold_accents_of_the_last_letter(text):
    found = Tokenizer(build_wordpiece([*VOCAB, "e", "ᄒ", "##ᅡ", "##ᆫ"]))
    ((ids, offsets),) = found.encode_with_offsets([text])
    shown = [f"{text[a:b]}={found.vocab[i]}" for i, (a, b) in zip(ids, offsets, strict=True)]
    assert shown == OFFSETS[text].split()


def test_hash_is_as_committed_records_have_it():
    """Of a WordPiece it is part of the name of a corpus: test_corpus.py."""
    assert golden("roberta").hash[:12] == "7d3004779578"
    assert golden("modernbert").hash[:12] == "c4382d75661c"


@pytest.mark.parametrize("kind", [*KINDS, "wordpiece", "other wordpiece"])
def test_save_and_load_give_the_same_tokenizer(tmp_path, kind):
    found = small(lowercase=False, strip_accents=True, max_word_length=77)
    if kind in KINDS:
        found = golden(kind)
    elif kind == "wordpiece":
        found = small()
    names = found.save(tmp_path, model_max_length=128)
    assert {file.name for file in tmp_path.iterdir()} == {*names}
    texts = [row["text"] for row in ROWS]
    for file in (tmp_path, tmp_path / "tokenizer.json"):
        again = tokenizer.load_tokenizer(file)
        assert (again.hash, again.vocab, again.special) == (found.hash, found.vocab, found.special)
        assert again.encode_batch(texts, escape=False) == found.encode_batch(texts, escape=False)
    stated = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert stated["model_max_length"] == 128
    assert stated["mask_token"] == found.mask
    assert ("token_type_ids" in stated["model_input_names"]) == (kind != "roberta")
    (tmp_path / "tokenizer.json").unlink()
    if kind != "modernbert":  # whose other added tokens only tokenizer.json names
        assert tokenizer.load_tokenizer(tmp_path).encode_batch(texts) == found.encode_batch(texts)


def test_load_takes_its_rules_from_files(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join([*VOCAB, "The", "Mask"]), encoding="utf-8")
    bare = tokenizer.load_tokenizer(tmp_path)
    assert (bare.lowercase, bare.max_word_length) == (False, 200)
    assert tokenizer.load_tokenizer(tmp_path, max_word_length=8).max_word_length == 8
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    stated = tokenizer.load_tokenizer(tmp_path)
    assert (stated.lowercase, stated.max_word_length) == (True, 100)  # Hugging Face's length
    (tmp_path / "tokenizer_config.json").write_text('{"max_input_chars_per_word": 55}')
    assert tokenizer.load_tokenizer(tmp_path / "vocab.txt").max_word_length == 55
    flags = '{"do_lower_case": true, "strip_accents": false, "tokenize_chinese_chars": false}'
    (tmp_path / "tokenizer_config.json").write_text(flags)
    assert pieces(tokenizer.load_tokenizer(tmp_path), "É 字a") == ["é", "字", "##a"]


def test_load_reads_unigram_as_the_library_does(tmp_path):
    scores = [(name, 0.0) for name in engines.ROBERTA]
    scores += [("▁the", -1.0), ("▁a", -1.5), ("n", -2.0), ("▁", -3.0), ("the", -9.0)]
    engine = tokenizers.Tokenizer(models.Unigram(scores, unk_id=1))
    engine.normalizer = normalizers.Lowercase()
    engine.pre_tokenizer = pre_tokenizers.Metaspace()
    engine.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", 2)]
    )
    engine.save(str(tmp_path / "tokenizer.json"))
    found = tokenizer.load_tokenizer(tmp_path)
    assert (found.kind, found.lowercase, found.special) == ("unigram", True, (0, 1, 2, 3, 4))
    assert pieces(found, "The an") == ["▁the", "▁a", "n"] == engine.encode("The an").tokens[1:]
    assert found.continuation.tolist() == [False] * 7 + [True, False, True]
    words = encode.Words(found).encode([" the an", " an"], np.ones(2, bool))
    assert words[0].tolist() == [i for ids in found.encode_batch(["the an", "an"]) for i in ids]
    found.save(tmp_path / "saved")
    assert tokenizer.load_tokenizer(tmp_path / "saved").hash == found.hash
    saved = tokenizers.Tokenizer.from_file(str(tmp_path / "saved" / "tokenizer.json"))
    assert saved.encode("the").tokens == ["<s>", "▁the", "</s>"]  # as the model reads a text


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_byte_pairs_are_those_of_transformers(kind):
    found = golden(kind)
    texts = found.encode_batch([row["text"] for row in ROWS], escape=False)
    pairs = found.encode_batch([row["pair"] for row in ROWS], escape=False)
    for row, a, b in zip(ROWS, texts, pairs, strict=True):
        short, _ = encoding.truncate_pair(a, (), 24 - found.special.added(1))
        both = encoding.truncate_pair(a, b, 24 - found.special.added(2))
        rows = {"text": [a], "pair": [a, b], "short": [short], "short_pair": both}
        for key, parts in rows.items():
            wanted = row[kind][key]
            batch = encoding.pad_rows(found.special, [parts], len(wanted))
            assert batch["tokens"][0].tolist() == wanted, (key, row["text"])
            if key == "pair":
                assert batch["type_ids"][0].tolist() == row[kind]["types"]
        assert found.decode(row[kind]["text"]) == row[kind]["decoded"]


@pytest.mark.parametrize("kind", KINDS)
def test_offsets_are_those_of_transformers(kind):
    found = golden(kind)
    compared = 0
    for row in ROWS:
        text, wanted = row["text"], row[kind]["text"][1:-1]
        ids, offsets = found.encode_with_offsets([text])[0]
        if ids != wanted or any(map(unicodedata.combining, text)):
            continue  # there special tokens are found in text, and marks stand alone
        for (start, end), theirs in zip(offsets, row[kind]["offsets"], strict=True):
            part = text[slice(*theirs)]
            assert text[start:end] == part.lstrip()  # ours begin behind blanks
            assert end == theirs[1] or not part.strip()
        compared += 1
    assert compared > 150


@pytest.mark.parametrize("kind", KINDS)
def test_special_tokens_of_byte_pairs_are_text(kind):
    found = golden(kind)
    text = f"the {' '.join(found.vocab[i] for i in found.special)}"
    plain, marked = (found.encode_batch([text], escape=escape)[0] for escape in (True, False))
    assert not {*plain} & {*found.special}
    assert found.decode(plain) == text
    assert [i for i in marked if i in found.special] == [*found.special]
    assert not found.continuation[list(found.special)].any()
    assert type(found.special) is (TwoSeparators if kind == "roberta" else Special)


def test_readable_text_of_byte_pairs():
    found = golden("roberta")
    for text in ("The dog's rate, 2,048 (10 %).", "caf\u00e9  今天", "", "<mask> is <mask>."):
        assert found.readable(found.encode_batch([text], escape=False)[0]) == text
    assert found.shown[found.vocab.index("Ã")] == "Ã"  # the first byte of é
    assert found.shown[found.vocab.index("Ġthe")] == " the"
