"""Metrics against golden files of the original programs, and by hand."""

import json
import math

import numpy as np
import pytest

from bert_jax.config import knobs
from bert_jax.data.answers import Candidate, Span
from bert_jax.data.examples import Answer, Example
from bert_jax.errors import DataError
from bert_jax.evaluation import scores

TASK = knobs.Task()
V2 = knobs.Task(no_answer=True)
NER = ("O", "B-x", "I-x", "B-y", "I-y")


def examples(labels, **fields) -> list[Example]:
    return [
        Example(where=f"f:{i}", id=str(i), label=label, **fields) for i, label in enumerate(labels)
    ]


def sure(chosen: list[int], classes: int) -> list[np.ndarray]:
    """Probabilities that choose these classes."""
    return list(np.eye(classes)[chosen])


def span(text: str, doubt: float = 0.0) -> Span:
    return Span(text, 0, len(text), 0.0, doubt, (Candidate(text, 0, len(text), 0.0, 1.0),))


# --- golden files ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["CoLA", "SST-2", "MRPC", "RTE", "STS-B", "MNLI-10k"])
def test_glue_equals_the_golden_file(copies, name):
    golden = json.loads((copies / "golden_metrics" / "glue_dev.json").read_text())[name]
    expected = golden["expected"]
    if name == "STS-B":
        found = scores.score("regress", examples(golden["labels"]), golden["predictions"], (), TASK)
    else:
        labels = expected.pop("label_order", None) or golden["label_order"]
        made = sure(golden["predictions"], len(labels))
        found = scores.score("classify", examples(golden["labels"]), made, labels, TASK)
    assert set(expected) <= set(found)
    for metric, value in expected.items():
        assert abs(found[metric] - value) < 1e-6, metric


def test_score_entities_equal_the_golden_file(copies):
    golden = json.loads((copies / "golden_metrics" / "ner_seqeval_wnut17.json").read_text())
    labels = sorted(
        {label for side in ("labels", "predictions") for one in golden[side] for label in one}
    )
    truth, made = (
        [tuple(map(labels.index, one)) for one in golden[side]]
        for side in ("labels", "predictions")
    )
    found = scores.score("tag", examples(truth), made, labels, TASK)
    for metric in ("precision", "recall", "f1"):
        assert abs(found[metric] - golden["expected"][metric]) < 1e-6, metric


OFFICIAL = {  # our name -> that of evaluate-v2.0.py
    **{name: name for name in ("exact", "f1", "best_exact", "best_f1")},
    "has_answer_exact": "HasAns_exact",
    "has_answer_f1": "HasAns_f1",
    "no_answer_exact": "NoAns_exact",
    "no_answer_f1": "NoAns_f1",
    "best_exact_threshold": "best_exact_thresh",
    "best_f1_threshold": "best_f1_thresh",
}


@pytest.mark.parametrize("name", ["squad11_xquad_dev", "squad20_xquad_dev"])
def test_squad_equals_the_golden_file(copies, name):
    folder = copies / "golden_metrics" / name
    golden = json.loads((folder / "expected.json").read_text())
    data = json.loads((copies / "squad_xquad_en" / "dev.json").read_text())["data"]
    texts = json.loads((folder / "predictions.json").read_text())
    doubts = folder / "na_prob.json"
    doubts = json.loads(doubts.read_text()) if doubts.exists() else dict.fromkeys(texts, 0.0)
    questions = [
        one for article in data for paragraph in article["paragraphs"] for one in paragraph["qas"]
    ]
    answers = [
        tuple(Answer(a["text"], a["answer_start"]) for a in one["answers"])
        if one["id"] not in golden.get("impossible", ())
        else ()
        for one in questions
    ]
    made = [span(texts[one["id"]], doubts[one["id"]]) for one in questions]
    v2 = "best_f1" in golden["official"]
    found = scores.score("span", examples(answers), made, (), V2 if v2 else TASK)
    assert len(found) == (10 if v2 else 2)
    for metric, value in found.items():
        assert abs(value - golden["official"][OFFICIAL[metric]]) < 1e-6, metric


# --- classes, numbers, tags, options --------------------------------------------------------------


def test_score_counts_words_cut_off_as_wrong():
    assert scores.score("tag", examples([(1, 0)]), [(1, -1)], NER, TASK)["recall"] == 1.0
    assert scores.score("tag", examples([(1, 0)]), [(1, -1)], ("NOUN", "VERB"), TASK) == {
        "accuracy": 0.5
    }


def test_is_entities_knows_the_schemes():
    assert all(map(scores.is_entities, (NER, ("O", "S-x", "E-x"))))
    assert not any(map(scores.is_entities, (("B-", "O"), ("O",), ("B-x", "NOUN"))))


# --- what is reported -----------------------------------------------------------------------------


def test_score_leaves_unlabelled_examples_out():
    truth = examples([1, None, 0])
    assert scores.score("classify", truth, sure([1, 0, 0], 2), ("a", "b"), TASK)["accuracy"] == 1.0
    with pytest.raises(DataError, match="none of 1 examples"):
        scores.score("classify", truth[1:2], sure([1], 2), ("a", "b"), TASK)


def test_score_takes_constants_and_nan():
    """pytest makes a warning one."""
    found = scores.score("classify", examples([1, 1]), sure([1, 1], 2), ("a", "b"), TASK)
    assert found == {"accuracy": 1.0, "f1": 1.0, "mcc": 0.0}
    assert scores.score("classify", examples([0]), sure([0], 2), ("a", "b"), TASK)["f1"] == 0.0
    found = scores.score("classify", examples([0, 1]), sure([0, 1], 3), ("a", "b", "c"), TASK)
    assert found["macro_f1"] == pytest.approx(2 / 3)  # class c never occurs
    found = scores.score("regress", examples([1.0, 2.0]), [math.nan, math.inf], (), TASK)
    assert all(math.isnan(found[name]) for name in ("pearson", "spearman"))
    assert scores.score("tag", examples([(0, 0)]), [(0, 0)], NER, TASK)["f1"] == 0.0
