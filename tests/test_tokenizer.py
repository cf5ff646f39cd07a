"""Google's ids and Hugging Face's, SMILES, the same vocabulary every time, and text that stays
text.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import random
import re
import subprocess
import sys
import unicodedata

import numpy as np
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers.implementations import BertWordPieceTokenizer

from bert_jax import config
from bert_jax.config import knobs
from bert_jax.data import encoding, tokenizer, training_text
from bert_jax.data.text import prepare
from bert_jax.data.tokenizer import SPECIALS, Style
from bert_jax.errors import ConfigError, DataError
from tests.wordpiece import pieces

PIECES = [
    "un",
    "##want",
    "##ed",
    "runn",
    "##ing",
    "the",
    "fill",
    "[",
    "]",
    "mask",
    ",",
    ".",
    "a",
    "##a",
    "é",
    "字",
]
VOCAB = [*SPECIALS, *PIECES]
ATOMS = [
    *SPECIALS,
    "[unused1]",
    "c",
    "C",
    "Cl",
    "Br",
    "(",
    ")",
    "=",
    "1",
    ">>",
    ".",
    "%10",
    "[O-]",
    "[C@@H]",
]
REACTION = Style(kind="smiles")
CASED = Style(lowercase=False)
THEIRS = Style(characters="huggingface")


def words(ids, vocab=VOCAB):
    return [vocab[i] for i in ids]


def text_of(seed: int, sentences: int = 400) -> list[str]:
    """Made-up sentences with a Zipf-like choice of words."""
    draw = random.Random(seed)
    stems = [
        "".join(draw.choice("abcdefghijklmnop") for _ in range(draw.randint(2, 7)))
        for _ in range(150)
    ]
    return [
        " ".join(
            draw.choice(stems[: draw.randint(1, 150)]) + draw.choice(["", "ed", "ing", "s"])
            for _ in range(9)
        )
        for _ in range(sentences)
    ]


GOLDEN = [("uncased", 1), ("cased", 0), ("chinese", 1), ("multilingual_cased", 0)]


@pytest.mark.parametrize(("name", "lowercase"), GOLDEN)
def test_ids_are_those_of_google_and_of_hugging_face(copies, name, lowercase):
    file = copies / "vocab" / f"bert_base_{name}_vocab.txt"
    lines = (
        (copies / "golden_tokenization" / "bert_tokenization.jsonl")
        .read_text(encoding="utf-8")
        .split("\n")
    )
    rows = [json.loads(line) for line in lines if line]
    texts = [row["text"] for row in rows]
    assert len(rows) == 247
    assert sum("hf_differs" in row for row in rows) == 3
    google = tokenizer.load(file)
    assert google.style == Style(lowercase=bool(lowercase))
    for row, ids in zip(rows, google.encode_batch(texts), strict=True):
        assert ids == row[name], row["text"]
    theirs = tokenizer.load(file, max_word_length=100, characters="huggingface")
    for row, ids in zip(rows, theirs.encode_batch(texts, escape=False), strict=True):
        assert ids == row.get("hf_differs", row)[name], row["text"]


WORDS = st.sampled_from(
    [
        *PIECES,
        "Un",
        "É",
        "e\u0301",
        "[MASK]",
        "[SEP]",
        "字字",
        "a" * 100,
        "a" * 101,
        "\x00",
        "\u200b",
    ]
)
FLAGS = st.fixed_dictionaries(
    {
        "lowercase": st.booleans(),
        "strip_accents": st.none() | st.booleans(),
        "chinese": st.booleans(),
    }
)


@given(
    st.lists(WORDS | st.text("aéÉ字\t\u0301\x07 ", max_size=5), max_size=9),
    st.sampled_from(["", " "]),
    FLAGS,
)
def test_ids_are_those_of_the_tokenizers_library(found, between, flags):
    text = between.join(found)
    renamed = {
        ("handle_chinese_chars" if name == "chinese" else name): flag
        for name, flag in flags.items()
    }
    library = BertWordPieceTokenizer({piece: i for i, piece in enumerate(VOCAB)}, **renamed)
    ours = tokenizer.Tokenizer(VOCAB, Style(max_word_length=100, characters="huggingface", **flags))
    assert (
        ours.encode_batch([text], escape=False)[0]
        == library.encode(text, add_special_tokens=False).ids
    )


@given(st.lists(st.text("abcun字 ,", max_size=12)))
def test_pieces_are_the_greedy_longest_match(texts):
    found = tokenizer.Tokenizer(VOCAB, Style(max_word_length=6))
    for text, ids in zip(texts, found.encode_batch(texts), strict=True):
        spaced = text.replace(",", " , ").replace("字", " 字 ")
        assert words(ids) == [p for word in spaced.split() for p in pieces(word, set(VOCAB), 6)]


def test_case_and_accents():
    uncased, cased = (tokenizer.Tokenizer(VOCAB, style) for style in (Style(), CASED))
    assert words(uncased.encode_batch(["UNwanted Á"])[0]) == ["un", "##want", "##ed", "a"]
    assert words(cased.encode_batch(["unwanted é É"])[0]) == ["un", "##want", "##ed", "é", "[UNK]"]
    assert (
        unicodedata.normalize("NFD", "é") != "é"
    )  # and yet it was found composed: cased text keeps its form


@pytest.mark.fault(21)
def test_literal_special_tokens_are_text_unless_asked_for():
    found = tokenizer.Tokenizer(VOCAB, Style())
    escaped, marked = (found.encode_batch(["fill the [MASK]."], escape=e)[0] for e in (True, False))
    assert words(escaped) == ["fill", "the", "[", "mask", "]", "."]
    assert words(marked) == ["fill", "the", "[MASK]", "."]
    assert not set(escaped) & set(found.special)
    assert found.decode(marked) == "fill the [MASK]."


def test_long_words_are_unknown_beyond_the_limit():
    long = "a" * 7
    assert (
        words(tokenizer.Tokenizer(VOCAB, Style(max_word_length=7)).encode_batch([long])[0])
        == ["a"] + ["##a"] * 6
    )
    assert words(tokenizer.Tokenizer(VOCAB, Style(max_word_length=6)).encode_batch([long])[0]) == [
        "[UNK]"
    ]


def test_lone_surrogates_and_controls_do_not_stop_it():
    found = tokenizer.Tokenizer(VOCAB, Style())
    texts = ["a\ud800 \0the", "fill"]
    assert [words(ids) for ids in found.encode_batch(texts)] == [
        ["[UNK]", "the"],
        ["fill"],
    ]  # as google's code has it
    theirs = tokenizer.Tokenizer(VOCAB, THEIRS)
    assert [words(ids) for ids in theirs.encode_batch(texts)] == [["a", "the"], ["fill"]]


def test_properties_of_the_vocabulary():
    found = tokenizer.Tokenizer(VOCAB, Style())
    assert found.size == len(VOCAB)
    assert found.special == (0, 1, 2, 3, 4)
    assert [VOCAB[i] for i in found.continuation.nonzero()[0]] == [
        p for p in VOCAB if p.startswith("##")
    ]
    others = [
        tokenizer.Tokenizer(VOCAB, CASED),
        tokenizer.Tokenizer(VOCAB, Style(max_word_length=100)),
        tokenizer.Tokenizer([*VOCAB[:-2], VOCAB[-1], VOCAB[-2]], Style()),
    ]
    others += [
        tokenizer.Tokenizer(VOCAB, Style(**{k: False}))
        for k in ("strip_accents", "chinese", "clean_text")
    ]
    others += [tokenizer.Tokenizer(VOCAB, REACTION), tokenizer.Tokenizer(VOCAB, THEIRS)]
    assert len({found.hash, *(other.hash for other in others)}) == 9
    assert (
        tokenizer.Tokenizer(VOCAB, Style(strip_accents=True)).hash == found.hash
    )  # what follows from the case
    lines = json.dumps([VOCAB, True, 200])  # by which runs and shards have named it so far
    assert others[-1].hash == hashlib.sha256(lines.encode()).hexdigest()


EVERY = [
    Style(max_word_length=100),
    Style(max_word_length=77),
    CASED,
    Style(lowercase=False, strip_accents=True, chinese=False),
    Style(strip_accents=False, clean_text=False),
    THEIRS,
]


@pytest.mark.parametrize("style", EVERY)
def test_save_and_load_give_the_same_tokenizer(tmp_path, style):
    found = tokenizer.Tokenizer(VOCAB, style)
    found.save(tmp_path)
    text = ["Unwanted [MASK], é 字.", "a" * 90, "\x07"]
    for file in (tmp_path, tmp_path / "tokenizer.json", tmp_path / "vocab.txt"):
        again = tokenizer.load(file)
        assert (again.hash, again.vocab, again.style) == (found.hash, VOCAB, style)
        assert again.encode_batch(text) == found.encode_batch(text)
    assert (tmp_path / "vocab.txt").read_text(encoding="utf-8").split("\n") == [*VOCAB, ""]
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted(tokenizer.FILES)
    (tmp_path / "tokenizer_config.json").unlink()
    kept = dataclasses.asdict(tokenizer.load(tmp_path).style)
    assert kept == dataclasses.asdict(style)  # tokenizer.json alone says it all


@pytest.mark.parametrize(
    ("vocab", "style", "first", "second"),
    [(VOCAB, Style(), "fill", "the a"), (ATOMS, REACTION, "C", "c1")],
)
def test_saved_files_add_special_tokens_for_others(tmp_path, vocab, style, first, second):
    ours = tokenizer.Tokenizer(vocab, style)
    ours.save(tmp_path, model_max_length=64)
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    a, b = ours.encode_batch([first, second])
    for found, parts in ((theirs.encode(first), [a]), (theirs.encode(first, second), [a, b])):
        row = encoding.pad_rows(ours.special, [parts], len(found.ids))
        assert found.ids == row["tokens"][0].tolist()
        assert found.type_ids == row["type_ids"][0].tolist()
    stated = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert stated["model_max_length"] == 64
    assert "token_type_ids" in stated["model_input_names"]
    assert stated.items() >= json.loads((tmp_path / "special_tokens_map.json").read_text()).items()
    assert {stated[f"{name}_token"] for name in ("pad", "unk", "cls", "sep", "mask")} == set(
        SPECIALS
    )


@pytest.mark.parametrize(
    ("vocab", "style", "name"),
    [
        (VOCAB, style, "BertTokenizer" if style == EVERY[0] else "PreTrainedTokenizerFast")
        for style in EVERY
    ]
    + [(ATOMS, REACTION, "PreTrainedTokenizerFast")],
)
def test_only_what_transformers_rebuilds_alike_is_called_a_bert_tokenizer(
    tmp_path, vocab, style, name
):
    """BertTokenizer of transformers 5 keeps vocabulary and flags, and has its own word length and
    cleaning.
    """
    tokenizer.Tokenizer(vocab, style).save(tmp_path)
    assert json.loads((tmp_path / "tokenizer_config.json").read_text())["tokenizer_class"] == name


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


def test_missing_files_are_refused(tmp_path):
    with pytest.raises(DataError, match="no tokenizer at"):
        tokenizer.load(tmp_path / "nothing")
    with pytest.raises(DataError, match=r"no vocab.txt or tokenizer.json"):
        tokenizer.load(tmp_path)


# --- what files state -----------------------------------------------------------------------------


def test_the_word_length_is_what_the_files_state(tmp_path):
    tokenizer.Tokenizer(VOCAB, Style(max_word_length=55)).save(tmp_path)
    assert tokenizer.load(tmp_path).max_word_length == 55
    assert tokenizer.load(tmp_path, max_word_length=8).max_word_length == 8
    (tmp_path / "tokenizer.json").unlink()
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    assert tokenizer.load(tmp_path).max_word_length == 100  # Hugging Face's own
    (tmp_path / "tokenizer_config.json").unlink()
    assert tokenizer.load(tmp_path).max_word_length == 200  # google's
    assert tokenizer.train(["a b"], knobs.Tokenizer()).max_word_length == 200
    assert tokenizer.train(["a b"], knobs.Tokenizer(max_word_length=9)).max_word_length == 9


@pytest.mark.parametrize(
    "config",
    [
        '{"do_lower_case": true}',
        '{"strip_accents": true}',
        '{"cls_token": "the"}',
        '{"sep_token": {"content": "a"}}',
    ],
)
def test_a_folder_that_contradicts_itself_is_refused(tmp_path, config):
    tokenizer.Tokenizer(VOCAB, CASED).save(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(config)
    with pytest.raises(DataError, match=r"contradicts the tokenizer\.json|_token = "):
        tokenizer.load(tmp_path)


def test_what_a_config_says_of_a_vocabulary_and_a_question_of_both(tmp_path):
    tokenizer.Tokenizer(VOCAB, CASED).save(tmp_path)
    assert tokenizer.load(tmp_path, lowercase=True).style == Style()
    (tmp_path / "tokenizer_config.json").write_text(
        '{"do_lower_case": true, "tokenize_chinese_chars": false}'
    )
    stated = Style(chinese=False, max_word_length=100, characters="huggingface")
    assert tokenizer.load(tmp_path / "vocab.txt").style == stated


def test_truncation_and_padding_in_a_file_change_nothing(tmp_path):
    found = tokenizer.Tokenizer(VOCAB, Style())
    found.save(tmp_path)
    engine = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    engine.enable_truncation(4)
    engine.enable_padding(length=4)
    engine.save(str(tmp_path / "tokenizer.json"))
    assert len(engine.encode("fill the a a a a").ids) == 4
    assert tokenizer.load(tmp_path).hash == found.hash
    assert len(tokenizer.load(tmp_path).encode_batch(["fill the a a a a"])[0]) == 6


def test_files_of_older_libraries_name_no_model_type(tmp_path):
    tokenizer.Tokenizer(VOCAB, Style()).save(tmp_path)
    state = json.loads((tmp_path / "tokenizer.json").read_text())
    del state["model"]["type"]
    state["normalizer"] = None  # text as it is
    (tmp_path / "tokenizer.json").write_text(json.dumps(state))
    (tmp_path / "tokenizer_config.json").unlink()
    found = tokenizer.load(tmp_path)
    assert found.style == Style(lowercase=False, chinese=False, clean_text=False)
    library = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    text = "fill É, 字 the字"
    assert (
        found.encode_batch([text], escape=False)[0]
        == library.encode(text, add_special_tokens=False).ids
    )


NEST = "[" * 100_000
CHANGES = [  # of a good tokenizer.json: the keys, the value, what is said
    (["model", "type"], "WordLevel", "model is 'WordLevel', not WordPiece"),
    (["model", "unk_token"], "<unk>", "unk_token is '<unk>'"),
    (["model", "continuing_subword_prefix"], "@@", "continuing_subword_prefix is '@@'"),
    (["model", "max_input_chars_per_word"], 10**30, "max_input_chars_per_word = 1000000"),
    (["model", "max_input_chars_per_word"], "9", "max_input_chars_per_word = '9'"),
    (["model", "vocab"], ["a"], "holds no vocabulary"),
    (["model"], None, "holds no vocabulary"),
    (["model", "vocab", "a"], "7", "ids are not 0 to 20"),
    (["model", "vocab", "a"], 10**40, "ids are not 0 to 20"),
    (["model", "vocab", "a"], 7.0, "ids are not 0 to 20"),
    (["model", "vocab", "a"], True, "ids are not 0 to 20"),
    (["model", "vocab", "a"], None, "ids are not 0 to 20"),
    (["model", "vocab", "\ud800"], 21, "line end or half a character"),
    (["model", "vocab", "a\nb"], 21, "line end or half a character"),
    (["normalizer"], {"type": "Lowercase"}, "normalizer is 'Lowercase', not BertNormalizer"),
    (["normalizer"], [[]], "normalizer is a list"),
    (["normalizer", "lowercase"], "yes", "lowercase = 'yes'"),
    (["normalizer"], {"type": "BertNormalizer"}, "normalizer has no clean_text"),
    (["pre_tokenizer"], None, "pre_tokenizer is None, not BertPreTokenizer"),
    (["pre_tokenizer", "type"], "Whitespace", "pre_tokenizer is 'Whitespace'"),
    (["added_tokens"], [{"content": "[NEW]", "id": 21}], r"added token '\[NEW\]' is none of"),
    (["added_tokens"], {"content": []}, "added token a list is none of"),
]


@pytest.mark.parametrize(("keys", "value", "says"), CHANGES)
def test_what_cannot_be_done_is_refused_in_one_line(tmp_path, keys, value, says):
    tokenizer.Tokenizer(VOCAB, Style()).save(tmp_path)
    state = node = json.loads((tmp_path / "tokenizer.json").read_text())
    for key in keys[:-1]:
        node = node[key]
    node[keys[-1]] = value
    (tmp_path / "tokenizer.json").write_text(json.dumps(state))
    with pytest.raises(DataError, match=says) as caught:
        tokenizer.load(tmp_path)
    assert "\n" not in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"model": ', "not JSON"),
        (b"\xff\xfe{", "not UTF-8 at byte 0"),
        (NEST, "lists and objects are nested too deeply"),
        ('{"model": ' + NEST, "lists and objects are nested too deeply"),
        ('{"model": ' + "9" * 5000 + "}", "a number of 5,000 digits"),
        ("[]", "the whole is a list, not an object"),
        ("{}", "holds no vocabulary"),
    ],
)
def test_cut_and_hostile_json_is_refused_in_one_line(tmp_path, text, says):
    (tmp_path / "vocab.txt").write_text("\n".join(VOCAB), encoding="utf-8")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        if name == "tokenizer_config.json" and text == "{}":
            continue
        with pytest.raises(
            DataError, match=says if "vocabulary" in says else f"{name}: {says}"
        ) as caught:
            tokenizer.load(tmp_path)
        assert "\n" not in str(caught.value)
        (tmp_path / name).unlink()


@pytest.mark.parametrize(
    ("stated", "says"),
    [
        ({"do_lower_case": "true"}, "do_lower_case = 'true'"),
        ({"word_tokenizer_type": "mecab"}, "word_tokenizer_type = 'mecab', and only 'basic'"),
        ({"do_basic_tokenize": False}, "do_basic_tokenize = False"),
        ({"never_split": ["un"]}, "never_split = a list"),
        ({"max_input_chars_per_word": 0}, "max_input_chars_per_word = 0"),
        ({"added_tokens_decoder": {"21": {"content": "[NEW]"}}}, r"added token '\[NEW\]'"),
    ],
)
def test_a_config_beside_a_vocabulary_is_honoured_or_refused(tmp_path, stated, says):
    (tmp_path / "vocab.txt").write_text("\n".join(VOCAB), encoding="utf-8")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(stated))
    with pytest.raises(DataError, match=says):
        tokenizer.load(tmp_path)


@pytest.fixture(scope="module")
def sound(tmp_path_factory) -> dict[str, bytes]:
    """Files of a tokenizer."""
    folder = tmp_path_factory.mktemp("sound")
    tokenizer.Tokenizer(VOCAB, Style()).save(folder)
    return {name: (folder / name).read_bytes() for name in tokenizer.FILES}


@given(
    st.sampled_from(tokenizer.FILES[:3]),
    st.floats(0, 1),
    st.binary(max_size=3),
    st.booleans(),
    st.booleans(),
)
def test_damaged_files_are_read_or_refused(tmp_path_factory, sound, name, place, damage, cut, bare):
    folder = tmp_path_factory.mktemp("damaged")
    at = int(place * len(sound[name]))
    files = sound | {
        name: sound[name][:at] + damage + (b"" if cut else sound[name][at + len(damage) :])
    }
    for file, content in files.items():
        if not (bare and file == "tokenizer.json"):
            (folder / file).write_bytes(content)
    found = said = None
    try:
        found = tokenizer.load(folder)
    except DataError as error:
        said = error
    if found is not None:
        found.save(folder)
        assert tokenizer.load(folder).hash == found.hash
    else:
        assert "\n" not in str(said)
        assert said.hint


def test_huge_files_are_not_read(tmp_path):
    with (tmp_path / "vocab.txt").open("wb") as stream:
        stream.truncate(1 << 40)  # takes no room
    with pytest.raises(DataError, match="has 1,099,511,627,776 bytes"):
        tokenizer.load(tmp_path)


# --- SMILES ---------------------------------------------------------------------------------------


@given(st.lists(st.sampled_from([*ATOMS, "[Xx]", "é", "B", "r", "]", "[", " ", "%1"]), max_size=12))
def test_smiles_are_split_by_the_expression_and_nothing_vanishes(found):
    text = "".join(found)
    ours = tokenizer.Tokenizer(ATOMS, REACTION)
    atoms = [atom for atom in re.split(tokenizer.VOCABULARIES["smiles"], text.strip()) if atom]
    known = {piece: i for i, piece in enumerate(ATOMS) if piece not in SPECIALS}
    assert ours.encode_batch([text])[0] == [known.get(atom, ours.special.unk) for atom in atoms]


def test_special_tokens_in_smiles_are_text_unless_asked_for():
    ours = tokenizer.Tokenizer(ATOMS, REACTION)
    text = " C[MASK]1 [CLS]"
    escaped, marked = (words(ours.encode_batch([text], escape=e)[0], ATOMS) for e in (True, False))
    assert escaped == ["C", "[UNK]", "1", "[UNK]", "[UNK]"]  # the fourth is the space
    assert marked == ["C", "[MASK]", "1", "[CLS]"]
    assert (
        ours.decode(ours.encode_batch(["C[MASK](Cl)>>[C@@H]"], escape=False)[0])
        == "C[MASK](Cl)>>[C@@H]"
    )
    assert ours.encode_batch(["C\ud800"]) == ours.encode_batch(["C\ufffd"])


@pytest.mark.parametrize("pieces", ["0123456789", "CNOF"])
def test_load_never_guesses_smiles(tmp_path, pieces):
    """A vocab.txt is WordPiece whatever its pieces look like, unless a file beside it says more."""
    file, vocab = tmp_path / "vocab.txt", [*SPECIALS, *pieces]
    file.write_text("\n".join(vocab))
    assert tokenizer.load(file).style.kind == "wordpiece"
    assert tokenizer.load(file).encode_batch([pieces[:2]]) == [[vocab.index("[UNK]")]]
    beside = tmp_path / "tokenizer_config.json"
    beside.write_text('{"kind": "smiles"}')
    for path in (file, tmp_path):
        assert tokenizer.load(path).hash == tokenizer.Tokenizer(vocab, REACTION).hash
        assert tokenizer.load(path).encode_batch([pieces[:2]]) == [[5, 6]]
    beside.write_text('{"kind": "selfies"}')
    with pytest.raises(DataError, match="kind = 'selfies'"):
        tokenizer.load(file)


def test_knob_kind_has_every_kind_of_vocabulary():
    assert [
        field.metadata["choices"]
        for field in dataclasses.fields(knobs.Tokenizer)
        if field.name == "kind"
    ] == [("auto", *tokenizer.VOCABULARIES)]


def test_smiles_come_back_from_their_files(tmp_path):
    found = tokenizer.Tokenizer(ATOMS, REACTION)
    found.save(tmp_path)
    for file in (tmp_path, tmp_path / "tokenizer.json", tmp_path / "vocab.txt"):
        again = tokenizer.load(file)
        assert (again.hash, again.style) == (found.hash, REACTION)
    (tmp_path / "bare.txt").write_text("\n".join(ATOMS))
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare.txt").rename(tmp_path / "bare" / "vocab.txt")
    assert tokenizer.load(tmp_path / "bare", kind="smiles").hash == found.hash
    state = json.loads((tmp_path / "tokenizer.json").read_text())
    for change, says in (
        ({"normalizer": None}, "normalizer is None, not Strip"),
        (
            {"pre_tokenizer": state["pre_tokenizer"] | {"behavior": "Removed"}},
            "model is 'WordLevel', not WordPiece",
        ),
    ):
        (tmp_path / "tokenizer.json").write_text(json.dumps(state | change))
        with pytest.raises(DataError, match=says):
            tokenizer.load(tmp_path)


def test_a_kind_that_is_asked_for_is_taken(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join([*ATOMS, "cc"]))
    given = {
        kind: prepare.given_tokenizer(knobs.Tokenizer(path=str(tmp_path), kind=kind))
        for kind in ("auto", "wordpiece", "smiles")
    }
    found = {kind: words(one.encode_batch(["cc"])[0], one.vocab) for kind, one in given.items()}
    assert found == {"auto": ["cc"], "wordpiece": ["cc"], "smiles": ["c", "c"]}
    given["smiles"].save(tmp_path)
    assert tokenizer.load(tmp_path).style == REACTION  # though its vocabulary would not show it
    assert tokenizer.load(tmp_path, kind="wordpiece").style == Style(lowercase=False)
    with pytest.raises(ConfigError, match=r"max_word_length = 9 does nothing to .*smiles"):
        prepare.given_tokenizer(knobs.Tokenizer(path=str(tmp_path), max_word_length=9))


def test_only_wordpiece_can_be_trained():
    with pytest.raises(ConfigError, match="'smiles' is no vocabulary that can be trained"):
        config.resolve({"tokenizer": {"kind": "smiles"}})
    for chosen in ({"kind": "wordpiece"}, {"kind": "smiles", "path": "vocab.txt"}):
        config.resolve({"tokenizer": chosen})


def test_reactions_are_those_the_checkpoint_was_run_on(copies):
    found = tokenizer.load(copies / "reactions" / "vocab.txt", kind="smiles")
    assert found.style == REACTION
    golden = json.loads((copies / "reactions" / "ids.json").read_text())
    texts = golden.pop("texts")
    arrays = {name: np.array(rows) for name, rows in golden.items()}
    labels = arrays["labels"]
    batch = encoding.pad_rows(
        found.special, [[ids] for ids in found.encode_batch(texts)], labels.shape[1]
    )
    masked = labels != -100
    assert (arrays["input_ids"][masked] == found.special.mask).all()
    np.testing.assert_array_equal(batch["tokens"], np.where(masked, labels, arrays["input_ids"]))
    np.testing.assert_array_equal(batch["segment_ids"], arrays["attention_mask"])


# --- training -------------------------------------------------------------------------------------


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
        "import sys, json\nfrom bert_jax.config import knobs\nfrom bert_jax.data import tokenizer\n"
        "print(tokenizer.train(json.load(sys.stdin), knobs.Tokenizer(vocab_size=300)).hash)"
    )
    for threads in ("1", "3"):
        env = {**os.environ, "RAYON_NUM_THREADS": threads, "PYTHONHASHSEED": threads}
        out = subprocess.run(
            [sys.executable, "-c", code],
            input=json.dumps(texts),
            env=env,
            capture_output=True,
            text=True,
            check=True,
        )
        assert out.stdout.strip() == expected


def test_rare_characters_leave_room_for_words():
    texts = [*text_of(3), "".join(chr(0x4E00 + i) for i in range(500))]
    found = tokenizer.train(texts, knobs.Tokenizer(vocab_size=200))
    single = [p for p in found.vocab[5:] if len(p.removeprefix("##")) == 1]
    assert found.size == 200
    assert len(single) <= 195
    assert {"a", "##a"} <= set(found.vocab)
    assert not any(
        p.startswith("##一") for p in found.vocab
    )  # such a character is always a word of its own


def test_text_too_small_for_the_size_gives_a_smaller_vocabulary():
    found = tokenizer.train(["ab ab"], knobs.Tokenizer(vocab_size=1000))
    assert found.vocab[5:] == ["##a", "##b", "a", "b", "ab"]
    with pytest.raises(DataError, match="no text"):
        tokenizer.train(["", " \n"], knobs.Tokenizer())


def test_long_text_is_trained_on_in_pieces():
    long = " ".join(text_of(4))
    assert len(long) > 2 * training_text.LINE
    assert tokenizer.train([long, "\ud800"], knobs.Tokenizer(vocab_size=250)).size == 250
