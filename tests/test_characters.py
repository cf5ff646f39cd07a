"""Every character as google's code takes it, whatever the tokenizers library does; places in the
text; who chooses.
"""

from __future__ import annotations

import functools
import itertools
import json
import random
import sys
import unicodedata

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_jax import config as configs
from bert_jax.config import knobs
from bert_jax.data import characters, tokenizer
from bert_jax.data.text import encode, prepare
from bert_jax.data.tokenizer import SPECIALS, Style
from bert_jax.errors import ConfigError, DataError
from tests import toy
from tests.wordpiece import google_words, pieces

PRIVATE, IDEOGRAPH = "\ue000", "\U0002b820"
SMALL = [
    *"abeionσςοδй字,.[]",
    "mask",
    "##b",
    "##σ",
    "##ς",
    "##ο",
    "##δ",
    "a\ue000",
    "##\ue000",
    IDEOGRAPH,
    "##\u302e",
]
VOCAB = [*SPECIALS, *SMALL]
STYLES = [Style(lowercase=True), Style(lowercase=False)]
THEIRS = Style(characters="huggingface")
KINDS_OF_DIFFERENCE = {
    "private use": "\ue000\uf8ff\U000f0000\U0010fffd",
    "ideographs": "\U0002b820\U0002b91f",
    "neighbours decide": "Σ\u302e\u302f\U0001d165\U00016ff0",
    "punctuation since": "\u2e43\u2e5d\U00011a3f\U0001e95e",
    "marks since": "\u1dfb\U0001e944\U00011a01\U00010efd",
    "letters of case since": "\u1c90\u2c2f\ua7c0\U0001e900",
    "no longer what they were": "\u166d\u180e\u200b\u2028\u0085\x1c\x7f\xad\ufeff",
    "not yet": "\u0378\U0001fbff\U000e0080\U0003ffff",
    "half a character": "\ud800\udfff",
    "alike": "aBÉéßİıǅﬁ字가ёй\u0301\u0130Ωκ٣‘’…",
}
ODD = "".join(KINDS_OF_DIFFERENCE.values())


@functools.cache
def made(style: Style) -> tokenizer.Tokenizer:
    return tokenizer.Tokenizer(VOCAB, style)


def expected(text: str, found: tokenizer.Tokenizer) -> list[str]:
    cut = (
        pieces(word, set(found.vocab), found.max_word_length)
        for word in google_words(text, found.lowercase)
    )
    return list(itertools.chain.from_iterable(cut))


def named(found: tokenizer.Tokenizer, texts: list[str], **options) -> list[list[str]]:
    return [[found.vocab[i] for i in ids] for ids in found.encode_batch(texts, **options)]


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("name", KINDS_OF_DIFFERENCE)
def test_what_the_library_takes_otherwise_is_as_google_has_it(name, style):
    texts = [
        text
        for c in KINDS_OF_DIFFERENCE[name]
        for text in (c, f"a{c}b", f"a {c}b", f"{c}{c}", f"a{c}.b")
    ]
    assert named(made(style), texts) == [expected(text, made(style)) for text in texts]


def test_known_differences_by_hand():
    uncased, cased = map(made, STYLES)
    assert named(uncased, ["ΟΔΟΣ", "a\ue000", "o\ue000o", f"a{IDEOGRAPH}b", "Σ", "ΟΣ.Ο ΟΣ. Ο"]) == [
        ["ο", "##δ", "##ο", "##ς"],
        ["a\ue000"],
        ["[UNK]"],
        ["a", IDEOGRAPH, "b"],
        ["σ"],
        ["ο", "##σ", ".", "ο", "ο", "##ς", ".", "ο"],  # a full stop may stand within a word
    ]
    assert named(cased, ["ΟΔΟΣ", "Σ", "a\ue000b"]) == [["[UNK]"], ["[UNK]"], ["a\ue000", "##b"]]
    assert named(made(THEIRS), ["ΟΔΟΣ", "a\ue000b", f"a{IDEOGRAPH}b"]) == [
        ["ο", "##δ", "##ο", "##σ"],
        ["a", "##b"],
        ["[UNK]"],
    ]


def test_only_texts_with_such_characters_go_the_slower_way(monkeypatch):
    texts = ["plain", "É字, ‘ё’", f"a{PRIVATE}", "ΟΔΟΣ", "\ud800", "plain"]
    wanted = [expected(text, made(STYLES[0])) for text in texts]
    assert named(made(STYLES[0]), texts) == wanted
    taken = []
    monkeypatch.setattr(
        characters.Rules,
        "words",
        lambda self, text, real=characters.Rules.words: taken.append(text) or real(self, text),
    )
    assert named(made(STYLES[0]), texts) == wanted
    assert taken == [
        f"a{PRIVATE}",
        "\ud800",
    ]  # nothing is tried again, and a sigma alone costs nothing
    assert characters.google(True, True, True) is characters.google(True, True, True)


MIXED = st.text(st.sampled_from("ab字 ,.[]οΟδé\t'" + ODD) | st.characters(), max_size=14)


@given(st.lists(MIXED, max_size=5), st.sampled_from(STYLES))
@settings(max_examples=400)
def test_mixed_texts_are_as_google_has_them(texts, style):
    found = made(style)
    assert named(found, texts) == [expected(text, found) for text in texts]
    assert [ids for ids, _ in found.encode_with_offsets(texts)] == found.encode_batch(texts)
    spaced = [
        " ".join(text.split())
        for text in texts
        if not set("\x1c\x1d\x1e\x1f\x85\x0b\x0c") & set(text)
    ]
    ids, lengths = encode.Words(found).encode(
        ["", *spaced]
    )  # word by word, as a corpus is prepared
    assert [part.tolist() for part in np.split(ids, np.cumsum(lengths)[:-1])] == [
        [],
        *found.encode_batch(spaced),
    ]


def test_special_tokens_in_such_texts_are_text_unless_asked_for():
    text = f"ΟΣ[MASK] {PRIVATE} [MASK]{IDEOGRAPH}"
    for style in STYLES:
        assert named(made(style), [text], escape=False)[0] == [
            *(["ο", "##ς"] if style.lowercase else ["[UNK]"]),
            *("[MASK]", "[UNK]", "[MASK]", IDEOGRAPH),
        ]
        assert named(made(style), [text]) == [expected(text, made(style))]
        assert "[MASK]" not in named(made(style), [text])[0]
    short = tokenizer.Tokenizer(VOCAB, Style(max_word_length=2))
    assert named(short, [text], escape=False)[0] == [
        "ο",
        "##ς",
        "[MASK]",
        "[UNK]",
        "[MASK]",
        IDEOGRAPH,
    ]
    assert named(short, ["ab\ue000 a\ue000"])[0] == ["[UNK]", "a\ue000"]


# --- places ---------------------------------------------------------------------------------------

ORDINARY = st.text(
    st.sampled_from("abe字 ,.é\u0301Éİßﬁ가й’[]\t\xad\ufffd")
    | st.characters(categories=["L", "Zs"]),
    max_size=20,
)


@given(ORDINARY, st.sampled_from(STYLES), st.booleans())
@settings(max_examples=300)
def test_both_ways_give_the_same_ids_and_places(text, style, escape):
    found = made(style)
    usual = found.encode_with_offsets([text]), found.encode_batch([text], escape=escape)
    if characters.google(style.lowercase, style.lowercase, True).apart([text]):
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(characters.Rules, "apart", lambda _, texts: list(range(len(texts))))
        assert (
            found.encode_with_offsets([text]),
            found.encode_batch([text], escape=escape),
        ) == usual


def test_places_in_texts_that_the_library_would_cut_otherwise():
    text = f"a\u200b{PRIVATE}b  é\u0301{IDEOGRAPH}\u302e\u0301 ΟΣ,\ud800x"
    uncased, cased = (made(style).encode_with_offsets([text, "ab"]) for style in STYLES)
    assert uncased[1] == ([VOCAB.index("a"), VOCAB.index("##b")], [(0, 1), (1, 2)])
    words = [(text[start:end], VOCAB[i]) for i, (start, end) in zip(*uncased[0], strict=True)]
    assert words == [
        (f"a\u200b{PRIVATE}", "a\ue000"),
        ("b", "##b"),
        ("é\u0301", "e"),
        (IDEOGRAPH, IDEOGRAPH),
        ("\u302e\u0301", "[UNK]"),
        ("Ο", "ο"),
        ("Σ", "##ς"),
        (",", ","),
        ("\ud800x", "[UNK]"),
    ]
    assert [text[start:end] for start, end in cased[0][1]][2:] == [
        "é\u0301",
        IDEOGRAPH,
        "\u302e\u0301",
        "ΟΣ",
        ",",
        "\ud800x",
    ]


# --- every code point -----------------------------------------------------------------------------


def test_the_one_letter_that_becomes_two_and_the_one_that_looks_about():
    longer = [c for c in map(chr, range(sys.maxunicode + 1)) if len(c.lower()) > 1]
    assert longer == ["İ"]  # `settled` counts on it
    assert [c for c in "ΣσςϹÉ" if f"a{c}".lower() != "a" + c.lower()] == ["Σ"]


@pytest.mark.parametrize("style", STYLES)
def test_a_sample_of_all_code_points(style):
    draw = random.Random(7)
    assigned = [c for c in range(0x10000) if unicodedata.category(chr(c)) not in ("Cn", "Co", "Lo")]
    sample = [*draw.sample(assigned, 1500), *draw.sample(range(0x10000, sys.maxunicode + 1), 500)]
    texts = [f"a{chr(c)}b" for c in sample]
    assert named(made(style), texts) == [expected(text, made(style)) for text in texts]


WALKS = [("small", style.lowercase) for style in STYLES]
WALKS += [("uncased", True), ("cased", False), ("chinese", True), ("multilingual_cased", False)]


@functools.cache
def walk(lowercase: bool) -> list[tuple[str, list[str]]]:
    """Every code point alone and inside a word, and google's words of it."""
    texts = (text for c in map(chr, range(sys.maxunicode + 1)) for text in (c, f"a{c}b"))
    return [(text, google_words(text, lowercase)) for text in texts]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "lowercase"), WALKS)
def test_every_code_point_alone_and_inside_a_word(request, name, lowercase):
    if name == "small":
        found = made(Style(lowercase=lowercase))
    else:
        found = tokenizer.load(
            request.getfixturevalue("shared") / "vocab" / f"bert_base_{name}_vocab.txt"
        )
    assert found.lowercase == lowercase
    vocab, ids = set(found.vocab), {piece: i for i, piece in enumerate(found.vocab)}
    wrong = []
    rows = walk(lowercase)
    for start in range(0, len(rows), 1 << 14):
        part = rows[start : start + (1 << 14)]
        for (text, words), found_ids in zip(
            part, found.encode_batch([text for text, _ in part]), strict=True
        ):
            if found_ids != [ids[piece] for word in words for piece in pieces(word, vocab)]:
                wrong.append(text)
    assert wrong == []


# --- who chooses ----------------------------------------------------------------------------------


def test_files_of_ours_say_whose_rules_hold_and_others_have_the_librarys(tmp_path):
    files = {name: tmp_path / name for name in ("google", "huggingface", "bare")}
    for name, style in (("google", Style()), ("huggingface", THEIRS)):
        made(style).save(files[name])
        for file in (files[name], files[name] / "tokenizer.json", files[name] / "vocab.txt"):
            assert tokenizer.load(file).style == style
            for chosen in ("google", "huggingface"):
                assert tokenizer.load(file, characters=chosen).style == Style(characters=chosen)
    files["bare"].mkdir()
    (files["google"] / "vocab.txt").replace(files["bare"] / "vocab.txt")
    assert tokenizer.load(files["bare"]).style.characters == "google"
    (files["bare"] / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    assert tokenizer.load(files["bare"]).style.characters == "huggingface"
    saved = tokenizers.Tokenizer.from_file(
        str(files["google"] / "tokenizer.json")
    )  # the library reads past it
    assert (
        saved.encode("ΟΔΟΣ", add_special_tokens=False).ids == made(THEIRS).encode_batch(["ΟΔΟΣ"])[0]
    )
    saved.save(str(files["google"] / "tokenizer.json"))
    assert tokenizer.load(files["google"]).style.characters == "google"  # as its config still says
    (files["google"] / "tokenizer_config.json").unlink()
    assert tokenizer.load(files["google"]).style.characters == "huggingface"
    assert tokenizer.load(files["google"]).hash != made(Style()).hash


@pytest.mark.parametrize("value", [True, "mine", ["google"]])
def test_other_names_in_files_are_refused(tmp_path, value):
    made(Style()).save(tmp_path)
    for name, key in (("tokenizer_config.json", None), ("tokenizer.json", "normalizer")):
        good = (tmp_path / name).read_text()
        state = json.loads(good)
        (state if key is None else state[key])["characters"] = value
        (tmp_path / name).write_text(json.dumps(state))
        with pytest.raises(DataError, match=r"tokenizer.*json: characters = ") as caught:
            tokenizer.load(tmp_path)
        assert caught.value.hint == "google or huggingface"
        (tmp_path / name).write_text(good)


def test_the_knob_chooses_for_a_vocabulary_of_files_and_a_trained_one(tmp_path):
    made(THEIRS).save(tmp_path / "t")
    texts = ["οδος ΟΔΟΣ", "a\ue000 a\ue000 a\ue000"]
    for chosen, whose in (("auto", "google"), ("google", "google"), ("huggingface", "huggingface")):
        found = tokenizer.train(texts, knobs.Tokenizer(vocab_size=40, characters=chosen))
        assert found.style.characters == whose
        assert [("οδος" in found.vocab, "##\ue000" in found.vocab)] == [(whose == "google",) * 2]
        given_one = prepare.given_tokenizer(
            knobs.Tokenizer(path=str(tmp_path / "t"), characters=chosen)
        )
        assert given_one.style.characters == (chosen if chosen != "auto" else "huggingface")
    state = json.loads((tmp_path / "t" / "tokenizer.json").read_text())
    state["normalizer"]["clean_text"] = False
    (tmp_path / "t" / "tokenizer.json").write_text(json.dumps(state))
    (tmp_path / "t" / "tokenizer_config.json").unlink()
    assert (
        tokenizer.load(tmp_path / "t", characters="huggingface").style.characters == "huggingface"
    )
    with pytest.raises(ConfigError, match=r"characters = google does nothing to .*cleans its text"):
        tokenizer.load(tmp_path / "t", characters="google")


def test_a_corpus_cut_by_other_rules_or_another_unicode_is_another_corpus(tmp_path, monkeypatch):
    (tmp_path / "text.txt").write_text("ΟΔΟΣ\n")
    made(THEIRS).save(tmp_path / "t")
    corpus = knobs.Corpus(source="files", path=str(tmp_path / "text.txt"))

    def name(**chosen: str) -> str:
        return prepare.fingerprint(
            knobs.Config(corpus=corpus, tokenizer=knobs.Tokenizer(**chosen)), tmp_path
        )

    path = str(tmp_path / "t")
    told = {
        (where, whose): name(path=where, characters=whose)
        for where in ("", path)
        for whose in ("google", "huggingface")
    }
    assert len(set(told.values())) == 4
    assert name() == told["", "google"]
    assert name(path=path) == told[path, "huggingface"]
    monkeypatch.setattr(prepare.unicodedata, "unidata_version", "99.0.0")
    for (where, whose), before in told.items():
        assert (name(path=where, characters=whose) == before) == (whose == "huggingface")


def test_a_run_from_before_there_were_rules_of_characters_keeps_the_librarys():
    tree = configs.to_dict(toy.config())
    del tree["tokenizer"]["characters"]
    assert configs.recorded(tree).tokenizer.characters == "huggingface"
