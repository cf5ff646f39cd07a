"""Minimal pairs, against sums by hand; and files of pairs that cannot be read."""

import json

import numpy as np
import pytest

from bert_jax.suites import choices, token_scores
from tests.suites.asking import ask, score
from tests.suites.masked import plainly

pytestmark = pytest.mark.usefixtures("one_device")


def make_lines(pairs: list[tuple[str, str]], **more: str) -> str:
    rows = [{"sentence_good": good, "sentence_bad": bad, **more} for good, bad in pairs]
    return "".join(f"{json.dumps(row)}\n" for row in rows)


def test_credit_of_ties_is_shared():
    """Options that are equally likely share the point."""
    totals = [[-1, -2], [-3, -2, -9], [-2, -2, -2], [-2, -5, -2], [-5, -2, -2]]
    credits, ties = choices.credit_choices([np.array(values, float) for values in totals])
    np.testing.assert_allclose(credits, [1, 0, 1 / 3, 1 / 2, 0])
    assert ties == 3


def test_blimp_equals_a_plain_loop(masked, tmp_path):
    texts = ["the cat sees", "cat", "the cats see .", "abc", "see the cat ."]
    encoded = dict(zip(texts, masked.tokenizer.encode_batch(texts), strict=True))
    sums = {text: sum(plainly(masked, ids)) for text, ids in encoded.items()}
    pairs = [(a, b) for a in texts for b in texts]
    named = {"UID": "one", "field": "syntax", "linguistics_term": "order"}
    (tmp_path / "one.jsonl").write_text(make_lines(pairs[:13], **named))
    (tmp_path / "two.jsonl").write_text(make_lines(pairs[13:]))
    found, arrays = score(masked, "blimp", source=f"files:{tmp_path}")
    right = [(sums[a] > sums[b]) + 0.5 * (sums[a] == sums[b]) for a, b in pairs]
    share = {"one": np.mean(right[:13]), "two": np.mean(right[13:])}
    assert found["accuracy"] == pytest.approx(np.mean(right))
    assert arrays["accuracy.sum"].tolist() == right
    assert arrays["accuracy.count"].tolist() == [1.0] * 25
    assert found["accuracy_low"] < found["accuracy"] < found["accuracy_high"]
    assert (found["pairs"], found["ties"]) == (25, 5)  # each text against itself: half right
    assert found["paradigm"] == pytest.approx(share)
    assert found["field"] == {"syntax": pytest.approx(share["one"])}
    assert found["term"] == {"order": pytest.approx(share["one"])}
    of_few = score(masked, "blimp", source=f"files:{tmp_path}", limit=3, batch_size=5)[1]
    assert of_few["accuracy.sum"].tolist() == [*right[:3], *right[13:16]]
    assert of_few["examples"].tobytes() != arrays["examples"].tobytes()


class Dataset:
    """What TensorFlow Datasets gives for blimp."""

    builder_configs = ("order", "agreement")
    info = type("Info", (), {"splits": {"train": None}, "features": {}})

    @staticmethod
    def examples_of(name, data_dir, split):
        good, bad = ("cat see", "cat see") if "agreement" in name else ("the cat sees", "cat the")
        bits = {"UID": name.partition("/")[2].encode(), "field": b"x", "linguistics_term": b"any"}
        return [{"sentence_good": good.encode(), "sentence_bad": bad.encode(), **bits}]


def test_blimp_reads_tensorflow_datasets(masked, monkeypatch):
    def score_alike(scorer, given, *_):
        return [np.ones(len(ids)) for ids in given]

    monkeypatch.setattr(token_scores.TokenScorer, "__call__", score_alike)
    monkeypatch.setattr("bert_jax.data.tfds.builder", lambda *named: Dataset)
    monkeypatch.setattr("bert_jax.data.tfds.examples_of", Dataset.examples_of)
    found = ask(masked, "blimp", source="tfds:blimp")
    assert (found["pairs"], found["ties"]) == (2, 1)
    assert list(found["paradigm"]) == ["agreement", "order"]
    assert list(ask(masked, "blimp", source="tfds:blimp/order")["paradigm"]) == ["order"]
    monkeypatch.setattr(Dataset, "builder_configs", ())  # as of one that is made from files
    assert list(ask(masked, "blimp", source="tfds:own")["paradigm"]) == ["own"]
