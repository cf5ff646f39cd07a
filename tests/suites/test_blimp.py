"""Minimal pairs, against sums by hand; and files of texts or pairs that cannot be read."""

from __future__ import annotations

import dataclasses
import gzip
import json
import math
from pathlib import Path

import numpy as np
import pytest

from bert_jax import suites
from bert_jax.data import tokenizer as tokenizers
from bert_jax.errors import ConfigError, DataError
from bert_jax.interop import runs
from tests import toy
from tests.suites.asking import ask
from tests.suites.masked import TEXTS, make_model, plainly, write_vocabulary


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> runs.TrainedModel:
    return make_model(write_vocabulary(tmp_path_factory.mktemp("vocabulary")))


def test_pll_of_a_file(run, tmp_path, one_device):
    (tmp_path / "texts.txt").write_text("\n".join([*TEXTS, "", " "]) + "\n")
    with gzip.open(tmp_path / "texts.jsonl.gz", "wt") as stream:
        stream.writelines(json.dumps({"text": text}) + "\n" for text in TEXTS)
    wanted = [sum(plainly(run, ids)) for ids in run.tokenizer.encode_batch(TEXTS)]
    count = sum(map(len, run.tokenizer.encode_batch(TEXTS)))
    for name in ("texts.txt", "texts.jsonl.gz"):
        found = ask(run, "pll", source=f"files:{tmp_path / name}")
        assert (found["texts"], found["tokens"]) == (len(TEXTS), count)
        assert found["pll"] == pytest.approx(sum(wanted) / len(TEXTS), rel=1e-5)
        assert found["pseudo_perplexity"] == pytest.approx(math.exp(-sum(wanted) / count), rel=1e-5)
    found = ask(run, "pll", source=f"files:{tmp_path / 'texts.txt'}", limit=2, within_word=True)
    corrected = [sum(plainly(run, ids, True)) for ids in run.tokenizer.encode_batch(TEXTS[:2])]
    assert found["pll_word_l2r"] == pytest.approx(sum(corrected) / 2, rel=1e-5)


def write_pairs(folder: Path, name: str, pairs: list[tuple[str, str]], **more: str) -> None:
    lines = [
        json.dumps({"sentence_good": good, "sentence_bad": bad, **more}) + "\n"
        for good, bad in pairs
    ]
    (folder / f"{name}.jsonl").write_text("".join(lines))


def test_minimal_pairs(run, tmp_path, capsys, one_device):
    texts = ["the cat sees", "cat", "the cats see .", "abc", "see the cat ."]
    score = {
        text: sum(plainly(run, ids))
        for text, ids in zip(texts, run.tokenizer.encode_batch(texts), strict=True)
    }
    pairs = [(a, b) for a in texts for b in texts]
    write_pairs(tmp_path, "one", pairs[:13], UID="one", field="syntax", linguistics_term="order")
    write_pairs(tmp_path, "two", pairs[13:])
    found, arrays = suites.score(run, *suites.build(["blimp"], source=f"files:{tmp_path}"))
    which = arrays.pop("examples").tobytes()
    right = [(score[a] > score[b]) + 0.5 * (score[a] == score[b]) for a, b in pairs]
    share = {name: np.mean(part) for name, part in {"one": right[:13], "two": right[13:]}.items()}
    assert found["accuracy"] == pytest.approx(np.mean(right))
    assert {name: values.tolist() for name, values in arrays.items()} == {
        "accuracy.sum": [float(hit) for hit in right],
        "accuracy.count": [1.0] * 25,
    }
    assert found["accuracy_low"] < found["accuracy"] < found["accuracy_high"]
    assert (found["pairs"], found["ties"]) == (
        25,
        5,
    )  # each text against itself: half right, and said
    assert "5 of 25 pairs have equal scores" in capsys.readouterr().err
    assert found["paradigm"] == pytest.approx(share)
    assert found["field"] == {"syntax": pytest.approx(share["one"])}
    assert found["term"] == {"order": pytest.approx(share["one"])}
    (options,) = suites.build(["blimp"], source=f"files:{tmp_path}", limit=3, batch_size=5)
    few, arrays = suites.score(run, options)
    assert arrays["accuracy.sum"].tolist() == [*right[:3], *right[13:16]]
    assert arrays["examples"].tobytes() != which
    assert few["paradigm"]["one"] == pytest.approx(np.mean(right[:3]))
    assert few["pairs"] == 6
    assert ask(run, "blimp", source=f"files:{tmp_path / 'two.jsonl'}")["paradigm"] == {
        "two": pytest.approx(share["two"])
    }
    assert "accuracy_word_l2r" in ask(run, "blimp", source=f"files:{tmp_path}", within_word=True)


def test_twenty_pairs_of_blimp(copies, run, tmp_path, one_device):
    file = copies / "blimp" / "principle_A_case_1.jsonl"
    pairs = [json.loads(line) for line in file.read_text().splitlines()]
    words = {
        w
        for pair in pairs
        for w in f"{pair['sentence_good']} {pair['sentence_bad']}".lower()[:-1].split()
    }
    pieces = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *sorted({w.strip(".,'") for w in words}),
        ".",
        "'",
        "t",
    ]
    (tmp_path / "vocab.txt").write_text("".join(f"{piece}\n" for piece in dict.fromkeys(pieces)))
    tokenizer = tokenizers.load(tmp_path / "vocab.txt")
    params = toy.init(run.config, vocab=tokenizer.size)
    small = dataclasses.replace(run, tokenizer=tokenizer, params=params)
    found = ask(small, "blimp", source=f"files:{file}", limit=20)
    texts = [pair[f"sentence_{side}"] for side in ("good", "bad") for pair in pairs]
    totals = [sum(plainly(small, ids)) for ids in tokenizer.encode_batch(texts)]
    assert found["accuracy"] == np.mean(
        [a > b for a, b in zip(totals[:20], totals[20:], strict=True)]
    )
    assert found["pairs"] == 20
    assert found["field"] == {"syntax_semantics": found["accuracy"]}
    assert found["term"] == {"binding": found["accuracy"]}
    assert found["paradigm"] == {"principle_A_case_1": found["accuracy"]}


class Dataset:
    """What TensorFlow Datasets gives for blimp."""

    builder_configs = ("order", "agreement")
    info = type("Info", (), {"splits": {"train": None}, "features": {}})

    @staticmethod
    def examples_of(name, data_dir, split):
        paradigm = name.partition("/")[2]
        pairs = {
            "order": [("the cat sees", "sees cat the")],
            "agreement": [("cat see", "cat see")],
        }[paradigm]
        bits = {"UID": paradigm.encode(), "field": b"syntax", "linguistics_term": b"any"}
        return [{"sentence_good": a.encode(), "sentence_bad": b.encode(), **bits} for a, b in pairs]


def test_pairs_of_tensorflow_datasets(run, monkeypatch, one_device):
    monkeypatch.setattr("bert_jax.data.tfds.builder", lambda *named: Dataset)
    monkeypatch.setattr("bert_jax.data.tfds.examples_of", Dataset.examples_of)
    found = ask(run, "blimp", source="tfds:blimp")
    assert (found["pairs"], found["ties"], list(found["paradigm"])) == (
        2,
        1,
        ["agreement", "order"],
    )
    assert list(ask(run, "blimp", source="tfds:blimp/order")["paradigm"]) == ["order"]


def test_a_model_without_the_head(run):
    bare = dataclasses.replace(run, config=dataclasses.replace(run.config, objectives={}))
    for suite in ("pll", "blimp", "cross_rate"):
        with pytest.raises(
            ConfigError, match=f"suite {suite} needs the mlm head; .*has no head at all"
        ):
            suites.evaluate(bare, suite, source="files:x")


def test_sources_that_cannot_be_read(run, tmp_path):
    with pytest.raises(ConfigError, match="suite blimp needs --source"):
        ask(run, "blimp")
    with pytest.raises(ConfigError, match="needs a --source"):
        ask(run, "pll")  # a model of others has no text of its own
    with pytest.raises(ConfigError, match="cannot read --source='books:x'"):
        ask(run, "pll", source="books:x")
    with pytest.raises(DataError, match="no files at "):
        ask(run, "pll", source=f"files:{tmp_path / 'nowhere'}")
    (tmp_path / "blank.txt").write_text("\n\n")
    with pytest.raises(DataError, match="holds no text"):
        ask(run, "pll", source=f"files:{tmp_path / 'blank.txt'}")
    (tmp_path / "bad.txt").write_bytes(b"fine\n\xff\n")
    with pytest.raises(DataError, match=r"bad\.txt:2: invalid UTF-8"):
        ask(run, "pll", source=f"files:{tmp_path / 'bad.txt'}")
    good = '{"sentence_good": "a", "sentence_bad": "b"}\n'
    for line, said in (
        ('{"sentence_good": "a"}', "no text 'sentence_bad'"),
        ("[1]", "no text"),
        ("{", "not JSON"),
    ):
        (tmp_path / "bad.jsonl").write_text(f"{good}{line}\n")
        with pytest.raises(DataError, match=rf"bad\.jsonl:2: {said}"):
            ask(run, "blimp", source=f"files:{tmp_path / 'bad.jsonl'}")
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(DataError, match=r"empty of files:.*empty\.jsonl holds no pairs"):
        ask(run, "blimp", source=f"files:{tmp_path / 'empty.jsonl'}")
    write_pairs(tmp_path, "marks", [("the cat", "cat the"), ("the cat", "\u0301")])
    with pytest.raises(DataError, match=r"marks\.jsonl:2: no token in "):
        ask(run, "blimp", source=f"files:{tmp_path / 'marks.jsonl'}")


def test_the_correction_needs_words(run):
    letters = dataclasses.replace(run)
    object.__setattr__(letters.tokenizer, "has_words", False)
    try:
        with pytest.raises(ConfigError, match="has no words"):
            ask(letters, "pll", source="files:x", within_word=True)
    finally:
        letters.tokenizer.has_words = True
