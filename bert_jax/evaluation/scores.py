"""The metrics of each kind of task.

Metrics of a class that never occurs are 0, as in the libraries; a correlation with a constant, or
of fewer than two numbers, is NaN. A word that was cut off counts as wrong, and for entities as O.
SQuAD's metrics are in per cent, as published; all others are fractions.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bert_jax.config import knobs
from bert_jax.data.answers import Span
from bert_jax.data.examples import Example
from bert_jax.errors import DataError
from bert_jax.evaluation import squad

ENTITY = re.compile(r"[BIES]-.+")


def reported(kind: str, labels: Sequence[str], task: knobs.Task) -> tuple[str, ...]:
    """Return the names of the metrics that `score` finds for a task with these classes."""
    absent: tuple[str, ...] = ()
    if kind == "classify":
        absent = ("macro_f1",) if len(labels) == 2 else ("f1",)
    elif kind == "tag" and not is_entities(labels):
        absent = ("precision", "recall", "f1")
    elif kind == "span" and not task.no_answer:
        absent = tuple(name for name in knobs.METRICS[kind] if name not in ("exact", "f1"))
    names = tuple(name for name in knobs.METRICS[kind] if name not in absent)
    return tuple(name for name in names if not task.metrics or name in task.metrics)


def score(
    kind: str,
    examples: Sequence[Example],
    predictions: Sequence[Any],
    labels: Sequence[str],
    task: knobs.Task,
) -> dict[str, float]:
    """Score predictions of `answers.decode_outputs`; leave out examples without a label.

    The metrics are those of `knobs.METRICS[kind]` that apply to the task, and of these the ones in
    `task.metrics`, if it names any.
    """
    pairs = zip(examples, predictions, strict=True)
    labelled = [(example, output) for example, output in pairs if example.label is not None]
    if not labelled:
        raise DataError(
            f"none of {len(examples)} examples has a label", "score a split that has labels"
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about undefined metrics, whose values show it
        known, outputs = map(list, zip(*labelled, strict=True))
        metrics = _TABLE[kind](known, outputs, tuple(labels), task)
    return {
        name: float(value)
        for name, value in metrics.items()
        if not task.metrics or name in task.metrics
    }


def _classify(
    examples: list[Example], predictions: list, labels: tuple[str, ...], task: knobs.Task
) -> dict[str, Any]:
    from sklearn import metrics

    truth = np.array([example.label for example in examples])  # [N]
    chosen = np.array([scores.argmax() for scores in predictions])  # [N]
    binary = len(labels) == 2
    average = {"average": "binary" if binary else "macro", "zero_division": 0}
    return {
        "accuracy": metrics.accuracy_score(truth, chosen),
        "f1" if binary else "macro_f1": metrics.f1_score(truth, chosen, **average),
        "mcc": metrics.matthews_corrcoef(truth, chosen),
    }


def _regress(
    examples: list[Example], predictions: list, labels: tuple[str, ...], task: knobs.Task
) -> dict[str, Any]:
    from scipy import stats

    truth = np.array([example.label for example in examples], np.float64)  # [N]
    values = np.array(predictions, np.float64)  # [N]
    defined = len(truth) > 1 and bool(np.isfinite(values).all())
    return {
        "pearson": stats.pearsonr(truth, values).statistic if defined else np.nan,
        "spearman": stats.spearmanr(truth, values).statistic if defined else np.nan,
        "mse": np.mean((truth - values) ** 2),
    }


def _tag(
    examples: list[Example], predictions: list, labels: tuple[str, ...], task: knobs.Task
) -> dict[str, Any]:
    hits = [
        tag == predicted
        for example, tags in zip(examples, predictions, strict=True)
        for tag, predicted in zip(example.label, tags, strict=True)
    ]
    metrics = {"accuracy": np.mean(hits)}
    if is_entities(labels):
        from seqeval.metrics.sequence_labeling import precision_recall_fscore_support

        truth = [[labels[i] for i in example.label] for example in examples]
        chosen = [[labels[i] if i >= 0 else "O" for i in tags] for tags in predictions]
        precision, recall, f1, _ = precision_recall_fscore_support(
            truth, chosen, average="micro", zero_division=0
        )
        metrics |= {"precision": precision, "recall": recall, "f1": f1}
    return metrics


def is_entities(labels: Sequence[str]) -> bool:
    """Return whether labels are O, B-NAME, I-NAME and the like."""
    entities = [label for label in labels if ENTITY.fullmatch(label)]
    return bool(entities) and set(labels) - set(entities) <= {"O"}


def _span(
    examples: list[Example], predictions: list[Span], labels: tuple[str, ...], task: knobs.Task
) -> dict[str, Any]:
    answers = [[answer.text for answer in example.label] for example in examples]
    texts = [span.text for span in predictions]
    if not task.no_answer:
        return squad.evaluate(answers, texts)
    doubts = [span.no_answer_score - span.score for span in predictions]
    return squad.evaluate(answers, texts, doubts, [span.best_text for span in predictions])


def _choice(
    examples: list[Example], predictions: list, labels: tuple[str, ...], task: knobs.Task
) -> dict[str, Any]:
    pairs = zip(examples, predictions, strict=True)
    return {"accuracy": np.mean([scores.argmax() == example.label for example, scores in pairs])}


_TABLE: dict[str, Callable[..., dict[str, Any]]] = {
    "classify": _classify,
    "regress": _regress,
    "tag": _tag,
    "span": _span,
    "choice": _choice,
}
