"""Metrics against golden files of the original programs, and by hand."""

import json
import math

import numpy as np
import pytest

from bert_jax.config import knobs
from bert_jax.data.answers import Candidate, Span
from bert_jax.data.examples import Example, load_examples
from bert_jax.errors import DataError
from bert_jax.evaluation import scores

TASK = knobs.Task()
CORRELATED = ("pearson", "spearman", "mse")
NER = ("O", "B-x", "I-x", "B-y", "I-y")


def examples(labels) -> list[Example]:
    return [Example(f"f:{i}", str(i), label=label) for i, label in enumerate(labels)]


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
    labels = sorted({label for one in golden["labels"] + golden["predictions"] for label in one})
    truth = [tuple(map(labels.index, one)) for one in golden["labels"]]
    made = [tuple(map(labels.index, one)) for one in golden["predictions"]]
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
    texts = json.loads((folder / "predictions.json").read_text())
    doubts = folder / "na_prob.json"
    doubts = json.loads(doubts.read_text()) if doubts.exists() else dict.fromkeys(texts, 0.0)
    v2 = "best_f1" in golden["official"]
    columns = {"text": "question", "text_pair": "context", "label": "answers", "id": "id"}
    task = knobs.Task(source=f"files:{copies / 'squad_xquad_en'}", no_answer=v2, **columns)
    questions = load_examples(task, "span", (), "validation", print)
    impossible = golden.get("impossible", ())
    answers = [() if one.id in impossible else one.label for one in questions]
    made = [span(texts[one.id], doubts[one.id]) for one in questions]
    found = scores.score("span", examples(answers), made, (), task)
    assert len(found) == (10 if v2 else 2)
    for metric, value in found.items():
        assert abs(value - golden["official"][OFFICIAL[metric]]) < 1e-6, metric


# --- classes, numbers, tags, options --------------------------------------------------------------


CASES = [  # kind, truth, predictions, labels, and the scores by hand
    ("tag", [(1, 0)], [(1, -1)], ("NOUN", "VERB"), {"accuracy": 0.5}),  # a word is cut off
    ("tag", [(1, 0)], [(1, -1)], NER, {"accuracy": 0.5, "precision": 1, "recall": 1, "f1": 1}),
    ("tag", [(0, 0)], [(0, 0)], NER, {"accuracy": 1, "precision": 0, "recall": 0, "f1": 0}),
    ("classify", [1, 1], sure([1, 1], 2), "ab", {"accuracy": 1, "f1": 1, "mcc": 0}),
    ("classify", [0], sure([0], 2), "ab", {"accuracy": 1, "f1": 0, "mcc": 0}),
    ("classify", [0, 1], sure([0, 1], 3), "abc", {"accuracy": 1, "macro_f1": 2 / 3, "mcc": 1}),
    ("classify", [1, None, 0], sure([1, 0, 0], 2), "ab", {"accuracy": 1, "f1": 1, "mcc": 1}),
    ("regress", [1.0, 2.0], [math.nan, math.inf], "", dict.fromkeys(CORRELATED, math.nan)),
]


@pytest.mark.parametrize(("kind", "truth", "made", "labels", "expected"), CASES)
def test_score_of_odd_data_is_that_by_hand(kind, truth, made, labels, expected):
    """Class c never occurs, and an example without a label is left out; nothing warns."""
    found = scores.score(kind, examples(truth), made, tuple(labels), TASK)
    assert found == pytest.approx(expected, nan_ok=True)


def test_score_leaves_unlabelled_examples_out():
    with pytest.raises(DataError, match="none of 1 examples"):
        scores.score("classify", examples([None]), sure([1], 2), ("a", "b"), TASK)


def test_is_entities_knows_the_schemes():
    assert all(map(scores.is_entities, (NER, ("O", "S-x", "E-x"))))
    assert not any(map(scores.is_entities, (("B-", "O"), ("O",), ("B-x", "NOUN"))))
