"""Texts of a --source: which are read, and passages whose masks are alike for all vocabularies."""

import dataclasses
import gzip
import itertools
import json

import numpy as np
import pytest

from bert_jax.data.engines import SPECIALS
from bert_jax.errors import ConfigError
from bert_jax.suites import cross_rate, texts
from tests import reactions
from tests.suites.asking import ask, load_passages


def test_find_files_takes_patterns_and_folders(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("b.txt", "a.jsonl.gz", "c.csv", "x[1].txt"):
        (tmp_path / name).touch()
    for source, found in (
        (tmp_path, ["a.jsonl.gz", "b.txt", "x[1].txt"]),
        (f"files:{tmp_path}/*.txt", ["b.txt", "x[1].txt"]),
        ("files:~/x[1].txt", ["x[1].txt"]),
    ):
        files = texts.find_files(str(source), "pll", "files:x", texts.TEXTS)
        assert [file.name for file in files] == found


def test_read_texts_knows_lines_and_objects(tmp_path):
    (tmp_path / "a.txt").write_bytes("\ufeffone\r\n \ntwo\u2028three\n".encode())
    with gzip.open(tmp_path / "b.jsonl.gz", "wt") as stream:
        stream.write('{"text": "one\\ntwo"}\n\n{"text": "three"}\n')
    assert list(texts.read_texts(tmp_path / "a.txt")) == ["one", "two\u2028three"]
    assert list(texts.read_texts(tmp_path / "b.jsonl.gz")) == ["one\ntwo", "three"]
    assert list(texts.read_documents(tmp_path / "a.txt")) == [["one"], ["two\u2028three"]]
    assert list(texts.read_documents(tmp_path / "b.jsonl.gz")) == [["one", "two"], ["three"]]


def test_passages_are_whole_sentences_of_documents(models, tmp_path):
    one, two, long = "The cat sees. It hears a dog.", "A bird.", " ".join("abcdefghij")
    (tmp_path / "a.txt").write_text(f"{one}\n{two}\n\n \n{long}\n")
    rows = [f"{one}\n{two}", f"\n{long}"]
    (tmp_path / "b.jsonl").write_text("".join(json.dumps({"text": row}) + "\n" for row in rows))
    found = load_passages(models["letters"], tmp_path, words=7)
    written = ["The cat sees. It hears a dog.", "A bird.", "a b c d e f g", "h i j"]
    assert [passage.text for passage in found] == 2 * written
    assert [passage.document for passage in found] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert found[0].lengths.tolist() == [3, 3, 5, 2, 5, 1, 4]
    few = load_passages(models["whole"], tmp_path, words=7, limit=3)
    assert [passage.text for passage in few] == written[:3]


def test_passage_masks_nest_and_follow_from_the_text():
    lengths = np.array(texts.count_characters("one two three four five six seven eight nine ten"))
    none = np.zeros(0, np.int64)
    chosen = [
        [set(np.flatnonzero(passage.choose_masked(rate))) for rate in cross_rate.RATES]
        for text in ("a text", "a text", "another")
        for passage in [texts.Passage(text, 3, none, none, lengths)]
    ]
    assert chosen[0] == chosen[1] != chosen[2]
    assert [len(words) for words in chosen[0]] == [1, 1, 2, 2, 3, 4, 5, 6, 7, 8]
    assert all(few <= more for few, more in itertools.pairwise(chosen[0]))


def test_number_words_takes_blanks_to_their_word():
    """`cross_rate` has the tokens of WordPiece, and tokens with the blank before a word.

    Tokens of two words are refused.
    """
    offsets = [(0, 2), (3, 3), (3, 7), (7, 8), (8, 9)]
    assert texts.number_words("ab cat. é", offsets).tolist() == [0, 1, 1, 2, 2]
    with pytest.raises(ConfigError, match="token of several words, 'ab cat'"):
        texts.number_words("ab cat. é", [(0, 6), (6, 7), (7, 9)])


def test_count_characters_takes_ideographs_as_words():
    assert texts.count_characters("cat 3猫们 \U00020000 x") == [3, 1, 1, 1, 1, 1]


@pytest.mark.parametrize(("suite", "asked"), [("cross_rate", {}), ("pll", {"within_word": True})])
def test_words_are_masked_where_there_are_words(models, source, suite, asked):
    molecules = reactions.build_tokenizer([*SPECIALS, "C", "O"])
    run = dataclasses.replace(models["whole"], tokenizer=molecules)
    with pytest.raises(ConfigError, match="the vocabulary of model has no"):
        ask(run, suite, source=source, **asked)
