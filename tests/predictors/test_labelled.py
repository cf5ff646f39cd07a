"""Tasks of fine-tuned heads against transformers' answers and their definition."""

import json

import numpy as np
import pytest

from bert_jax.api import Model
from bert_jax.errors import DataError
from bert_jax.predictors.labelled import find_entities
from tests import variants
from tests.predictors.drawing import open_golden

PAIR = ("text", "text_pair")
ANSWERS = json.loads((variants.GOLDEN / "pipelines.json").read_text())


def take_keys(rows: list[dict], *names: str) -> list[dict]:
    return [{key: row[key] for key in names if key in row} for row in rows]


# --- as transformers answers; tests/test_api.py has its choices among options ---------------------


def test_classify_equals_the_pipeline():
    model = Model(open_golden("sequence_classification"))
    found = model.classify(take_keys(ANSWERS["classify"], *PAIR))
    for one, golden in zip(found, ANSWERS["classify"], strict=True):
        assert one["probabilities"] == pytest.approx(golden["scores"], abs=1e-5)
        assert one["label"] == max(golden["scores"], key=golden["scores"].get)


def test_tag_finds_the_entities_of_the_pipeline():
    """Its words are parted at blanks, the pipeline's also at punctuation; in these texts that is
    the same.
    """
    rows = take_keys(ANSWERS["tag"], "text")
    found = Model(open_golden("token_classification")).tag(rows, entities=True)
    assert any(golden["entities"] for golden in ANSWERS["tag"])
    for row, one, golden in zip(rows, found, ANSWERS["tag"], strict=True):
        assert one["words"] == row["text"].split()
        assert take_keys(one["entities"], "label", "start", "end") == golden["entities"]


def test_answer_finds_the_best_span_of_all():
    rows = take_keys(ANSWERS["answer"], "question", "context")
    found = Model(open_golden("question_answering")).answer(rows, top_k=3)
    for one, golden in zip(found, ANSWERS["answer"], strict=True):
        (best,) = take_keys(golden["best"][:1], "answer", "start", "end")
        assert {key: one[key] for key in best} == best
        scores = {span["answer"]: span["score"] for span in reversed(golden["best"])}
        texts = list(dict.fromkeys(span["answer"] for span in golden["best"]))
        assert [span["answer"] for span in one["n_best"]][: len(texts)] == texts[:3]
        first, second = one["n_best"][:2]
        odds = scores[first["answer"]] - scores[second["answer"]]
        assert np.log(first["score"] / second["score"]) == pytest.approx(odds, abs=1e-4)


def test_refused_text_is_told_its_ways():
    """The transcript of `predict` has those of other tasks."""
    with pytest.raises(DataError) as caught:
        Model(open_golden("token_classification")).tag(["the " * 999], long="refuse")
    assert caught.value.hint == "--long=cut loses its end; there is --long=windows too"


# --- by definition --------------------------------------------------------------------------------


def test_find_entities_reads_marks():
    words, labels = ["New", "York", "and", "Paris", "x"], ["B-LOC", "I-LOC", None, "I-LOC", "B-PER"]
    text = "New  York\tand Paris x"
    expected = [("New  York", "LOC", 0, 9), ("Paris", "LOC", 14, 19), ("x", "PER", 20, 21)]
    assert [tuple(one.values()) for one in find_entities(text, words, labels)] == expected
