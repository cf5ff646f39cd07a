"""Minimal pairs, against sums by hand; and files of texts or pairs that cannot be read."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from bert_jax import suites
from bert_jax.errors import ConfigError, DataError
from tests.suites.asking import ask
from tests.suites.masked import plainly


def write_pairs(folder: Path, name: str, pairs: list[tuple[str, str]], **more: str) -> None:
    lines = [
        json.dumps({"sentence_good": good, "sentence_bad": bad, **more}) + "\n"
        for good, bad in pairs
    ]
    (folder / f"{name}.jsonl").write_text("".join(lines))


def test_blimp_equals_a_plain_loop(masked, tmp_path, one_device):
    texts = ["the cat sees", "cat", "the cats see .", "abc", "see the cat ."]
    score = {
        text: sum(plainly(masked, ids))
        for text, ids in zip(texts, masked.tokenizer.encode_batch(texts), strict=True)
    }
    pairs = [(a, b) for a in texts for b in texts]
    write_pairs(tmp_path, "one", pairs[:13], UID="one", field="syntax", linguistics_term="order")
    write_pairs(tmp_path, "two", pairs[13:])
    found, arrays = suites.score(masked, *suites.build(["blimp"], source=f"files:{tmp_path}"))
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
    assert found["paradigm"] == pytest.approx(share)
    assert found["field"] == {"syntax": pytest.approx(share["one"])}
    assert found["term"] == {"order": pytest.approx(share["one"])}
    (options,) = suites.build(["blimp"], source=f"files:{tmp_path}", limit=3, batch_size=5)
    few, arrays = suites.score(masked, options)
    assert arrays["accuracy.sum"].tolist() == [*right[:3], *right[13:16]]
    assert arrays["examples"].tobytes() != which
    assert few["paradigm"]["one"] == pytest.approx(np.mean(right[:3]))
    assert few["pairs"] == 6
    assert ask(masked, "blimp", source=f"files:{tmp_path / 'two.jsonl'}")["paradigm"] == {
        "two": pytest.approx(share["two"])
    }
    assert "accuracy_word_l2r" in ask(masked, "blimp", source=f"files:{tmp_path}", within_word=True)


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


def test_blimp_reads_tensorflow_datasets(masked, monkeypatch, one_device):
    monkeypatch.setattr("bert_jax.data.tfds.builder", lambda *named: Dataset)
    monkeypatch.setattr("bert_jax.data.tfds.examples_of", Dataset.examples_of)
    found = ask(masked, "blimp", source="tfds:blimp")
    assert (found["pairs"], found["ties"], list(found["paradigm"])) == (
        2,
        1,
        ["agreement", "order"],
    )
    assert list(ask(masked, "blimp", source="tfds:blimp/order")["paradigm"]) == ["order"]


@pytest.mark.fault(12)
@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"sentence_good": "a"}', "no text 'sentence_bad'"),
        ("[1]", "no text"),
        ("{", "not JSON"),
        ('{"sentence_good": "the cat", "sentence_bad": "\u0301"}', "no token in "),
    ],
)
def test_blimp_names_a_bad_row(masked, tmp_path, line, said):
    good = '{"sentence_good": "a", "sentence_bad": "b"}\n'
    (tmp_path / "bad.jsonl").write_text(f"{good}{line}\n")
    with pytest.raises(DataError, match=rf"bad\.jsonl:2: {said}"):
        ask(masked, "blimp", source=f"files:{tmp_path / 'bad.jsonl'}")


def test_blimp_needs_a_source_with_pairs(masked, tmp_path):
    with pytest.raises(ConfigError, match="suite blimp needs --source"):
        ask(masked, "blimp")
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(DataError, match=r"empty of files:.*empty\.jsonl holds no pairs"):
        ask(masked, "blimp", source=f"files:{tmp_path / 'empty.jsonl'}")
