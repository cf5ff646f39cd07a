"""Byte-level BPE: transformers' ids, GPT-2's algorithm, files of every shape, and the blanks."""

from __future__ import annotations

import functools
import gzip
import json
import os
import random
import re
import shutil
import subprocess
import sys
import types
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers.implementations import ByteLevelBPETokenizer

from bert_jax.batch import Special, TwoSeparators
from bert_jax.config import knobs
from bert_jax.data import bpe, encoding, features, tokenizer
from bert_jax.data.examples import Example
from bert_jax.data.row_fields import Answer
from bert_jax.data.text import encode
from bert_jax.errors import ConfigError, DataError
from bert_jax.evaluation import samples
from bert_jax.interop import initial
from bert_jax.predictors import base, fill_mask, unmask
from tests import bytepairs

GOLDEN = Path(__file__).parent / "golden" / "bpe"
KINDS = ("roberta", "modernbert")
ROWS = [
    json.loads(line)
    for line in gzip.decompress((GOLDEN / "texts.jsonl.gz").read_bytes()).splitlines()
]
LENGTH = 24  # of the truncated rows there
MERGES = [
    tuple(line.split(" ")) for line in (GOLDEN / "roberta" / "merges.txt").read_text().split("\n")
][1:-1]


@functools.cache
def golden(kind: str) -> tokenizer.Tokenizer:
    return tokenizer.load(GOLDEN / kind)


@functools.cache
def trained() -> tokenizer.Tokenizer:
    return tokenizer.train([row["text"] for row in ROWS], settings())


def settings(size: int = 400) -> knobs.Tokenizer:
    return knobs.Tokenizer(kind="bpe", vocab_size=size)


def pieces(found: tokenizer.Tokenizer, text: str) -> list[str]:
    return [found.vocab[i] for i in found.encode_batch([text])[0]]


# --- transformers ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_ids_are_those_of_transformers(kind):
    assert len(ROWS) == 300
    found = golden(kind)
    texts = found.encode_batch([row["text"] for row in ROWS], escape=False)
    pairs = found.encode_batch([row["pair"] for row in ROWS], escape=False)
    cut = 0
    for row, a, b in zip(ROWS, texts, pairs, strict=True):
        wanted = row[kind]
        cut += wanted["short_pair"] != wanted["pair"]
        short, _ = encoding.truncate_pair(a, (), LENGTH - found.special.added(1))
        both = encoding.truncate_pair(a, b, LENGTH - found.special.added(2))
        for key, parts in (
            ("text", [a]),
            ("pair", [a, b]),
            ("short", [short]),
            ("short_pair", both),
        ):
            size = len(wanted[key])
            batch = encoding.pad_rows(found.special, [parts], size)
            assert batch["tokens"][0].tolist() == wanted[key], (key, row["text"])
            assert batch["segment_ids"].all()
            flat = encoding.join_rows(found.special, [[(parts[0], (*parts[1:], None)[0])]])
            assert flat["tokens"].tolist() == wanted[key]
            assert np.array_equal(flat["type_ids"], batch["type_ids"][0])
            if key == "pair":
                assert flat["type_ids"].tolist() == wanted["types"]
    assert cut > 50


@pytest.mark.parametrize("kind", KINDS)
def test_text_comes_back_as_in_transformers(kind):
    found = golden(kind)
    for row in ROWS:
        assert found.decode(row[kind]["text"]) == row[kind]["decoded"]


@pytest.mark.parametrize("kind", KINDS)
def test_words_given_separately_have_a_blank_before_them(kind):
    found = golden(kind)
    added = {token["id"] for token in found._bytes.state["added_tokens"]}
    for row in ROWS:
        words = [found.blank + word for word in row["text"].split()]
        ids = [i for word in found.encode_batch(words, escape=False) for i in word]
        if not {*ids} & added:  # which there take no blank
            assert ids == row[kind]["words"], row["text"]


@pytest.mark.parametrize("kind", KINDS)
def test_offsets_are_those_of_transformers_without_blanks(kind):
    found = golden(kind)
    for row in ROWS:
        text, ids = row["text"], row[kind]["text"][1:-1]
        if {*ids} & {*found.special} or any(map(unicodedata.combining, text)):
            continue  # there special tokens are found in text, and marks stand alone
        (ours, offsets) = found.encode_with_offsets([text])[0]
        if ours != ids:
            assert kind == "modernbert"
            assert "<|endoftext|>" in text
            continue
        for (start, end), theirs in zip(offsets, row[kind]["offsets"], strict=True):
            part = text[slice(*theirs)]
            if part.strip():
                assert text[start:end] == part.lstrip()
                assert end == theirs[1]
            else:
                assert not text[start:end].strip()


# --- GPT-2 ----------------------------------------------------------------------------------------


def test_bytes_are_spelt_as_in_gpt2():
    assert {byte: character for character, byte in bpe.BYTES.items()} == bytepairs.SPELT


def test_ids_are_those_of_gpt2s_algorithm():
    found = golden("roberta")
    for row in ROWS:
        assert pieces(found, row["text"]) == bytepairs.pieces(row["text"], MERGES)


@given(st.text(max_size=40) | st.text(" \n\t\u00a0'srtvemlld1.é今\u0301", max_size=40))
def test_ids_of_any_text_are_those_of_gpt2s_algorithm(text):
    known = "".join(c for c in text if unicodedata.category(c) not in ("Cn", "Cs"))
    assert pieces(golden("roberta"), known) == bytepairs.pieces(known, MERGES)


def assert_like_gpt2(points: range) -> None:
    """Code points alone, and inside a word; those that this Python does not know yet only alone."""
    found, library = (
        golden("roberta"),
        ByteLevelBPETokenizer(
            str(GOLDEN / "roberta" / "vocab.json"), str(GOLDEN / "roberta" / "merges.txt")
        ),
    )
    characters = [chr(c) for c in points if not 0xD800 <= c < 0xE000]
    for texts in (characters, [f"un{c}ed it" for c in characters]):
        ids = found.encode_batch(texts)
        assert ids == [encoding.ids for encoding in library.encode_batch(texts)]
        for text, own in zip(texts, ids, strict=True):
            assert found.decode(own) == text
            if all(unicodedata.category(c) != "Cn" for c in text):
                assert [found.vocab[i] for i in own] == bytepairs.pieces(text, MERGES), ascii(text)


def test_characters_are_cut_as_in_gpt2():
    assert_like_gpt2(range(0x400))
    assert_like_gpt2(range(0x400, 0x110000, 499))


@pytest.mark.slow
def test_all_characters_are_cut_as_in_gpt2():
    for start in range(0, 0x110000, 0x8000):
        assert_like_gpt2(range(start, start + 0x8000))


def test_a_first_blank_is_added_where_the_files_say_so(tmp_path):
    shutil.copytree(GOLDEN / "roberta", tmp_path / "prefixed")
    file = tmp_path / "prefixed" / "tokenizer_config.json"
    file.write_text(file.read_text().replace("false", "true"))
    prefixed = tokenizer.load(tmp_path / "prefixed")
    texts = ["The rate", " The rate", "", "1", "'s", "\nThe"]
    with_blank = [text if not text or text.startswith(" ") else f" {text}" for text in texts]
    assert prefixed.encode_batch(texts) == golden("roberta").encode_batch(with_blank)
    assert prefixed.hash != golden("roberta").hash
    prefixed.save(tmp_path / "saved")
    assert tokenizer.load(tmp_path / "saved").hash == prefixed.hash
    assert prefixed.words(np.ones(prefixed.size, int), 5) == int((~prefixed.continuation).sum())


# --- special and added tokens ---------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "mask"), [("roberta", "<mask>"), ("modernbert", "[MASK]")])
def test_literal_special_tokens_are_text_unless_asked_for(kind, mask):
    found = golden(kind)
    assert found.mask == mask
    names = [found.vocab[i] for i in found.special]
    text = f"the {mask} of {' '.join(names)}"
    (plain,), (marked,) = (found.encode_batch([text], escape=escape) for escape in (True, False))
    assert not {*plain} & {*found.special}
    assert found.decode(plain) == text
    assert [i for i in marked if i in found.special] == [found.special.mask, *found.special]
    assert found.vocab[marked[0]] != mask
    assert marked[1] == found.special.mask or found.vocab[marked[1]] == "e"
    assert found.encode_with_offsets([text])[0][0] == plain


def test_other_added_tokens_are_found_in_any_text():
    found = golden("modernbert")
    for escape in (True, False):
        ids = found.encode_batch(["a    b |||EMAIL||| [unused1]"], escape=escape)[0]
        assert [found.vocab[i] for i in ids if found.vocab[i] in ("    ", "|||EMAIL|||")] == [
            "    ",
            "|||EMAIL|||",
        ]
        assert found.vocab[ids[-1]] == "[unused1]"


def test_special_tokens_have_their_roles_whatever_their_names():
    assert golden("roberta").special == (1, 3, 0, 2, golden("roberta").size - 1)
    assert isinstance(golden("roberta").special, TwoSeparators)
    modern = golden("modernbert")
    assert [modern.vocab[i] for i in modern.special] == list(tokenizer.SPECIALS)
    assert modern.special.separators == trained().special.separators == 1
    assert trained().special == (0, 1, 2, 3, 4)
    assert [
        special.added(n) for special in (modern.special, golden("roberta").special) for n in (1, 2)
    ] == [2, 3, 2, 4]


@pytest.mark.parametrize("kind", KINDS)
def test_a_word_begins_with_a_blank(kind):
    found = golden(kind)
    for row in ROWS:
        ids = found.encode_batch([row["text"]])[0]
        for i in ids[1:]:
            assert found.continuation[i] == (found.shown[i][0] not in " \t\n\v\f\r")
    assert not found.continuation[list(found.special)].any()


def test_pieces_are_shown_as_their_text():
    found = golden("roberta")
    ids = found.encode_batch([" the model, 3 é"])[0]
    assert "".join(found.shown[i] for i in ids[:-3]) == " the model, 3"
    assert found.shown[found.special.mask] == "<mask>"
    half = found.vocab.index("Ã")  # the first byte of é
    assert found.shown[half] == "Ã"
    assert golden("modernbert").shown[golden("modernbert").vocab.index("    ")] == "    "


def test_text_is_readable():
    found = golden("roberta")

    def read(text: str) -> str:
        return found.readable(found.encode_batch([text], escape=False)[0])

    for text in ("The dog's rate, 2,048 (10 %).", "caf\u00e9  今天", ""):
        assert read(text) == text
    assert read(" The <mask> of <mask>s") == "The <mask> of <mask>s"
    assert read("<mask> is <mask>.") == "<mask> is <mask>."
    assert found.joined(found.encode_batch([" the dog"])[0]) == "the dog"


# --- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [*KINDS, "trained"])
def test_a_saved_tokenizer_comes_back(kind, tmp_path):
    found = trained() if kind == "trained" else golden(kind)
    found.save(tmp_path / "one", model_max_length=128)
    again = tokenizer.load(tmp_path / "one")
    again.save(tmp_path / "two", model_max_length=128)
    for name in (*found.files, "tokenizer.json"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    assert sorted(file.name for file in (tmp_path / "one").iterdir()) == sorted(found.files)
    assert (again.hash, again.vocab, again.special) == (found.hash, found.vocab, found.special)
    assert again.special.separators == found.special.separators
    stated = json.loads((tmp_path / "one" / "tokenizer_config.json").read_text())
    assert stated["model_max_length"] == 128
    assert ("token_type_ids" in stated["model_input_names"]) == (kind == "trained")
    assert stated["mask_token"] == found.mask
    (tmp_path / "one" / "tokenizer.json").unlink()
    pair = tokenizer.load(tmp_path / "one")  # vocab.json and merges.txt, which name no added tokens
    assert pair.special == found.special
    if kind != "modernbert":
        texts = [row["text"] for row in ROWS]
        assert pair.hash == found.hash
        assert pair.encode_batch(texts, escape=False) == found.encode_batch(texts, escape=False)


def test_every_file_of_a_folder_leads_to_it(tmp_path):
    golden("roberta").save(tmp_path)
    for name in ("tokenizer.json", "vocab.json"):
        assert tokenizer.load(tmp_path / name).hash == golden("roberta").hash


def test_older_forms_of_the_files_mean_the_same(tmp_path):
    golden("roberta").save(tmp_path)
    file = tmp_path / "tokenizer.json"
    state = json.loads(file.read_text())
    state["model"]["merges"] = [" ".join(pair) for pair in state["model"]["merges"]]
    for key in ("type", "byte_fallback", "ignore_merges"):
        del state["model"][key]
    state["model"] |= {"continuing_subword_prefix": "", "end_of_word_suffix": ""}
    del state["pre_tokenizer"]["use_regex"]
    state["truncation"] = {"max_length": 5, "strategy": "LongestFirst", "stride": 0}
    state["truncation"]["direction"] = "Right"
    file.write_text(json.dumps(state))
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"mask_token": {"content": "<mask>", "lstrip": True}, "bos_token": "<s>"})
    )
    assert tokenizer.load(tmp_path).hash == golden("roberta").hash


def change_state(**changes):
    def change(state):
        for path, value in changes.items():
            *sections, key = path.split("__")
            functools.reduce(lambda node, name: node[name], sections, state)[key] = value

    return change


def drop(name):
    def change(state):
        del state["model"]["vocab"][name]
        state["added_tokens"] = [t for t in state["added_tokens"] if t["content"] != name]

    return change


def add(token):
    return lambda state: state["added_tokens"].append(token)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (change_state(model__type="Unigram"), "is a Unigram model, as of SentencePiece"),
        (change_state(model__byte_fallback=True), "byte_fallback = True: no byte-level BPE"),
        (change_state(model__end_of_word_suffix="</w>"), "end_of_word_suffix = '</w>'"),
        (change_state(model__dropout=0.1), "dropout = 0.1"),
        (change_state(pre_tokenizer={"type": "Metaspace"}), "pre_tokenizer is 'Metaspace', not"),
        (change_state(pre_tokenizer=None), "pre_tokenizer is None, not ByteLevel"),
        (change_state(model__merges=[["t", "q9"]]), "merge 1, 't q9', names 'q9', which is no"),
        (change_state(model__merges=["a t h"]), "merge 1, 'a t h', is not two pieces"),
        (change_state(model__merges=[7]), "merge 1, 7, is not two pieces"),
        (change_state(model__vocab__Ġ=7), "no piece has the id"),
        (change_state(model__vocab__Ġ="7"), "of its model, vocab"),
        (drop("Ġ"), "no piece has the id"),
        (drop("<mask>"), "has no special token for mask"),
        (add({"id": 1, "content": "<mask>"}), "'<mask>' has the ids"),
        (add({"id": "1", "content": "x"}), "of its added_tokens"),
        (change_state(normalizer={"type": "Nothing"}), "the tokenizers library refuses it"),
    ],
)
def test_wrong_files_are_refused_in_one_line(change, message, tmp_path):
    golden("roberta").save(tmp_path)
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        (tmp_path / name).unlink()
    file = tmp_path / "tokenizer.json"
    state = json.loads(file.read_text())
    change(state)
    file.write_text(json.dumps(state))
    with pytest.raises(DataError, match=re.escape(message)) as caught:
        tokenizer.load(file)
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value) + caught.value.hint
    assert caught.value.hint


def test_a_vocabulary_without_special_tokens_is_refused(tmp_path):
    shutil.copytree(GOLDEN / "roberta", tmp_path / "gpt2")
    file = tmp_path / "gpt2" / "vocab.json"
    ids = json.loads(file.read_text())
    names = [name for name in ids if not (name.startswith("<") and name.endswith(">"))]
    file.write_text(json.dumps({name: i for i, name in enumerate([*names, "<|endoftext|>"])}))
    stated = dict.fromkeys(("bos_token", "eos_token", "unk_token"), "<|endoftext|>")
    (tmp_path / "gpt2" / "tokenizer_config.json").write_text(json.dumps(stated))
    with pytest.raises(DataError, match="no special token for pad, mask") as caught:
        tokenizer.load(tmp_path / "gpt2")
    assert "tokenizer.kind=bpe" in caught.value.hint
    stated |= {"pad_token": "<|endoftext|>", "mask_token": "<|endoftext|>"}
    (tmp_path / "gpt2" / "tokenizer_config.json").write_text(json.dumps(stated))
    with pytest.raises(DataError, match="is another special token too"):
        tokenizer.load(tmp_path / "gpt2")
    file.write_text(json.dumps({name: i for i, name in enumerate([*names, "<|x|>", "<|m|>"])}))
    stated |= {"bos_token": "<|x|>", "eos_token": "<|x|>", "pad_token": "<|x|>"}
    stated |= {"mask_token": {"content": "<|m|>"}}
    (tmp_path / "gpt2" / "tokenizer_config.json").write_text(json.dumps(stated))
    found = tokenizer.load(tmp_path / "gpt2")
    x, m = len(names), len(names) + 1
    assert found.special == Special(x, x, x, x, m)


def test_what_is_no_vocabulary_is_refused_by_name(tmp_path):
    shutil.copy(GOLDEN / "roberta" / "vocab.json", tmp_path)
    with pytest.raises(DataError, match=r"no merges\.txt beside"):
        tokenizer.load(tmp_path)
    (tmp_path / "vocab.json").unlink()
    (tmp_path / "spiece.model").write_bytes(b"\n\x0e\n\x05<unk>\xff")
    for path in (tmp_path, tmp_path / "spiece.model"):
        with pytest.raises(DataError, match=r"spiece\.model is a SentencePiece model"):
            tokenizer.load(path)


def test_a_kind_that_the_files_are_not_is_refused(tmp_path):
    assert tokenizer.load(GOLDEN / "roberta", kind="bpe").hash == golden("roberta").hash
    with pytest.raises(ConfigError, match=r"kind = wordpiece, and .*vocab\.json is a bpe"):
        tokenizer.load(GOLDEN / "roberta", kind="wordpiece")
    (tmp_path / "vocab.txt").write_text("\n".join([*tokenizer.SPECIALS, "a"]))
    with pytest.raises(ConfigError, match=r"kind = bpe, and .*vocab\.txt is no bpe"):
        tokenizer.load(tmp_path, kind="bpe")
    with pytest.raises(ConfigError, match=r"max_word_length = 9 does nothing .* takes all bytes"):
        tokenizer.load(GOLDEN / "roberta", max_word_length=9)
    with pytest.raises(ConfigError, match="characters = google does nothing"):
        tokenizer.load(GOLDEN / "roberta", characters="google")


# --- training -------------------------------------------------------------------------------------

LEARN = """
import json, random, sys
from bert_jax.config import knobs
from bert_jax.data import tokenizer
texts = json.load(sys.stdin)
random.Random(1).shuffle(texts)
print(tokenizer.train(texts, knobs.Tokenizer(kind="bpe", vocab_size=400)).hash)
"""


def test_a_trained_vocabulary_depends_on_the_texts_alone():
    texts = [row["text"] for row in ROWS]
    done = subprocess.run(
        [sys.executable, "-c", LEARN],
        input=json.dumps(texts),
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "RAYON_NUM_THREADS": "1", "PYTHONHASHSEED": "7"},
    )
    assert done.stdout.strip() == trained().hash


def test_a_trained_vocabulary_is_sane():
    found = trained()
    assert found.size == 400
    assert found.vocab[:5] == list(tokenizer.SPECIALS)
    assert {*bpe.BYTES} <= {*found.vocab[5:261]}
    assert found.has_words
    assert not found.lowercase
    merges = found._bytes.state["model"]["merges"]
    for row in ROWS:
        assert pieces(found, row["text"]) == bytepairs.pieces(row["text"], list(map(tuple, merges)))
        assert found.decode(found.encode_batch([row["text"]])[0]) == row["text"]
    assert pieces(found, "a [MASK] [SEP]")[:1] == ["a"]
    (marked,) = found.encode_batch(["a [MASK]."], escape=False)
    assert marked == [found.vocab.index("a"), found.special.mask, found.vocab.index(".")]
    with pytest.raises(DataError, match="no two bytes stand together twice"):
        tokenizer.train(["ab"], settings())


# --- prepared text --------------------------------------------------------------------------------


@given(st.lists(st.lists(st.sampled_from([row["text"] for row in ROWS]), max_size=3), max_size=4))
def test_word_by_word_gives_the_ids_of_whole_documents(found):
    texts = [" ".join(" ".join(several).split()) for several in found]
    starts = np.array([random.Random(len(text)).random() < 0.5 for text in texts], bool)
    for kind in KINDS:
        assert golden(kind).divides_at_blanks
        ids, lengths = encode.Words(golden(kind)).encode_lines(
            "".join(f"{text}\n" for text in texts), starts
        )
        spaced = [text if start else f" {text}" for text, start in zip(texts, starts, strict=True)]
        wanted = golden(kind).encode_batch(spaced)
        assert lengths.tolist() == list(map(len, wanted))
        assert ids.tolist() == [i for text in wanted for i in text]


def test_text_that_does_not_divide_at_blanks_is_read_whole(tmp_path):
    golden("modernbert").save(tmp_path)
    file = tmp_path / "tokenizer.json"
    state = json.loads(file.read_text())
    token = next(token for token in state["added_tokens"] if token["content"] == "[unused0]")
    piece = state["model"]["vocab"].pop("[unused0]")
    state["model"]["vocab"]["of the"] = piece
    token["content"] = "of the"
    file.write_text(json.dumps(state))
    found = tokenizer.load(tmp_path)
    assert not found.divides_at_blanks
    ids, _ = encode.Words(found).encode(["one of the dogs"])
    assert piece in ids
    assert ids.tolist() == found.encode_batch(["one of the dogs"])[0]


def test_words_are_counted_between_blanks():
    found = golden("roberta")
    text = 'He said: "What\'s 3.5 % of it?" - nothing at all'
    counts = np.bincount(found.encode_batch([text])[0], minlength=found.size)
    assert found.words(counts, documents=1) == len(text.split())


# --- tasks ----------------------------------------------------------------------------------------


def task_rows(examples, kind, found, length=64, **settings):
    return features.encode_examples(
        examples, kind, found, knobs.Task(**settings), length, train=False
    )


def test_tags_stand_at_the_first_piece_of_words_with_a_blank():
    found = golden("roberta")
    words = ("The", "dog's", "masking", "rate", "<mask>", "")
    example = Example("line 1", "", words=words, label=(1, 2, 3, 4, 5, 6))
    rows = task_rows([example], "tag", found)
    ids = rows.tokens.tolist()[1:-1]
    assert ids == found.encode_batch([" The dog's masking rate <mask> "])[0]
    tags = rows.targets["tags"].tolist()[1:-1]
    assert [tag for tag in tags if tag >= 0] == [1, 2, 3, 4, 5, 6]
    assert all((tag >= 0) == (not found.continuation[i]) for tag, i in zip(tags, ids, strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_answers_are_the_text_between_their_tokens(kind):
    found = golden(kind)
    context = "In 1999 the old man's dog, caf\u00e9 and all, walked along the river."
    for text in ("1999", "the old man", "caf\u00e9", "river"):
        answer = Answer(text, context.index(text))
        example = Example("line 1", "", text="When?", pair=context, label=(answer,))
        rows = task_rows([example], "span", found)
        ((start, end),) = rows.targets["spans"].tolist()
        first, last = rows.characters[start, 0], rows.characters[end, 1]
        assert context[first:last] == text
        column = len(found.encode_batch(["When?"])[0]) + 1 + found.special.separators
        assert (rows.characters[:column] == -1).all()
        assert rows.characters[column].tolist() == [0, 1]
        assert rows.tokens[column - 1] == found.special.sep


def test_pairs_are_cut_to_fit_with_both_separators():
    found = golden("roberta")
    example = Example("line 1", "", text="the model " * 20, pair="the text " * 20, label=0)
    rows = task_rows([example], "classify", found, length=17)
    tokens = rows.tokens.tolist()
    assert len(tokens) == 17
    assert rows.cut == 1
    sep = found.special.sep
    at = tokens.index(sep)
    assert tokens[at : at + 2] == [sep, sep]
    assert tokens[-1] == sep
    assert tokens.count(sep) == 3
    assert not rows.type_ids.any()
    with pytest.raises(DataError, match="cannot hold"):
        task_rows(
            [Example("line 1", "", text="the", pair="text", label=())], "span", found, length=5
        )


# --- predictions ----------------------------------------------------------------------------------


def model(found: tokenizer.Tokenizer, likeliest: list[int]) -> types.SimpleNamespace:
    """What predictors need of a model: one that says the same for every mask."""

    def apply(batch):
        slots = batch["predict_positions"].shape
        assert (batch["tokens"][0, batch["predict_positions"][0, :1]] == found.special.mask).all()
        ids = np.broadcast_to(np.array(likeliest), (*slots, len(likeliest)))
        return np.full(ids.shape, 0.25), ids

    run = types.SimpleNamespace(tokenizer=found)
    return types.SimpleNamespace(
        run=run, options=base.Options(top_k=2), limit=32, head=lambda name, function: apply
    )


def test_masks_of_roberta_are_filled():
    found = golden("roberta")
    wanted = found.encode_batch([" dog s"])[0]
    predictor = fill_mask.FillMask(model(found, wanted[:2]))
    rows = [predictor.read(1, "The old <mask> and his man<mask>."), predictor.read(2, "No [MASK].")]
    work = predictor.encode(rows)
    values, ids = work.compute(np.arange(2), 32, 2)
    first, second = work.results([(values[0], ids[0]), (values[1], ids[1])])
    shown = [found.shown[i] for i in wanted[:2]]
    assert [[one["token"] for one in mask] for mask in first["masks"]] == [shown, shown]
    assert second["masks"] == []
    (remark,) = predictor.remarks()
    assert remark.startswith("1 text has no <mask>: line 2 has '[MASK]'")
    assert "write <mask> in place of [MASK]" in predictor.text(second)


@pytest.mark.parametrize(
    ("text", "fill", "final"),
    [
        ("The old <mask> walked.", " dog", "The old dog walked."),
        ("The old<mask> walked.", " dog", "The old dog walked."),
        ("The old <mask> walked.", "er", "The older walked."),
        ("<mask> walked.", "He", "He walked."),
    ],
)
def test_filled_masks_are_written_into_the_text(text, fill, final):
    found = golden("roberta")
    masked = found.encode_batch([text], escape=False)[0]
    place = masked.index(found.special.mask)
    filling = found.encode_batch([fill])[0]
    ids = [*masked[:place], filling[0], *masked[place + 1 :]]
    if len(filling) == 1:
        assert unmask.written(found, text, ids, [place]) == final
    else:
        whole = [*masked[:place], *filling, *masked[place + 1 :]]
        assert found.readable(whole).replace("  ", " ") == final.replace("old er", "older")


def test_samples_mask_whole_words():
    found = trained()
    ids = found.encode_batch([" a b a the of to in is"])[0]
    sample = samples._masked(ids, found, 3)
    assert all(answer.strip().isalpha() for answer in sample.answers)
    assert sample.text.count("[MASK]") == len(sample.answers)
    words = sample.text.split()
    for answer in sample.answers:
        words[words.index("[MASK]")] = answer.strip()
    assert words == ["a", "b", "a", "the", "of", "to", "in", "is"]


def test_rows_of_the_special_tokens_move_by_their_roles():
    ours, theirs = trained(), golden("roberta")
    table = np.arange(theirs.size, dtype=np.float32)[:, None]
    fresh = np.full((ours.size, 1), -1, np.float32)
    name = "encoder/embeddings/token"
    config = knobs.Config(init_from="there", init_vocab="remap")
    run = types.SimpleNamespace(tokenizer=theirs, tokenizer_path="")
    params = {"encoder": {"embeddings": {"token": fresh}}}
    moved = initial._remapped(config, run, ours, params, {name: table})[name][:, 0]
    assert moved[list(ours.special)].tolist() == list(theirs.special)
    for piece in ("a", "Ġ", "Ġthe"):
        assert moved[ours.vocab.index(piece)] == theirs.vocab.index(piece)
