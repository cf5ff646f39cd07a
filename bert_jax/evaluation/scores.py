"""How good predictions are: the metrics of each kind of task.

Metrics of a class that never occurs are 0, as in the libraries; a correlation with a constant, or of fewer than two
numbers, is NaN. A word that was cut off counts as wrong, and for entities as O. SQuAD's are in per cent, as published;
all others are fractions.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bert_jax.config import knobs
from bert_jax.data.labelled.answers import Span
from bert_jax.data.labelled.examples import Example
from bert_jax.errors import DataError
from bert_jax.evaluation import squad
from bert_jax.evaluation.metrics import as_lower

ENTITY = re.compile(r"[BIES]-.+")


def higher_is_better(name: str) -> bool:
    """Whether a larger value of a metric is the better one."""
    return as_lower(name, 1.0) < 0


def reported(kind: str, labels: Sequence[str], task: knobs.Task) -> tuple[str, ...]:
    """The names of what `score` finds for a task with these classes."""
    absent: tuple[str, ...] = ()
    if kind == "classify":
        absent = ("macro_f1",) if len(labels) == 2 else ("f1",)
    elif kind == "tag" and not is_entities(labels):
        absent = ("precision", "recall", "f1")
    elif kind == "span" and not task.no_answer:
        absent = tuple(name for name in knobs.METRICS[kind] if name not in ("exact", "f1"))
    return tuple(
        n
        for n in knobs.METRICS[kind]
        if n not in absent and (not task.metrics or n in task.metrics)
    )


def score(
    kind: str,
    examples: Sequence[Example],
    predictions: Sequence[Any],
    labels: Sequence[str],
    task: knobs.Task,
) -> dict[str, float]:
    """Those of `knobs.METRICS[kind]` that apply and `task.metrics` names, if it does; unlabelled examples are left out.

    Predictions are those of `answers.decode`.
    """
    pairs = [
        (one, made)
        for one, made in zip(examples, predictions, strict=True)
        if one.label is not None
    ]
    if not pairs:
        raise DataError(
            f"none of {len(examples)} examples has a label", "score a split that has labels"
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what is undefined; the values say it
        found = _TABLE[kind](
            [one for one, _ in pairs], [made for _, made in pairs], tuple(labels), task
        )
    return {
        name: float(value)
        for name, value in found.items()
        if not task.metrics or name in task.metrics
    }


def _classify(
    examples: list[Example], predictions: list, labels: tuple[str, ...], task: knobs.Task
) -> dict[str, Any]:
    from sklearn import metrics

    truth = np.array([one.label for one in examples])  # [N]
    chosen = np.array([made.argmax() for made in predictions])  # [N]
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

    truth, made = (
        np.array([one.label for one in examples], np.float64),
        np.array(predictions, np.float64),
    )  # [N] each
    defined = len(truth) > 1 and bool(np.isfinite(made).all())
    return {
        "pearson": stats.pearsonr(truth, made).statistic if defined else np.nan,
        "spearman": stats.spearmanr(truth, made).statistic if defined else np.nan,
        "mse": np.mean((truth - made) ** 2),
    }


def _tag(
    examples: list[Example], predictions: list, labels: tuple[str, ...], task: knobs.Task
) -> dict[str, Any]:
    pairs = [
        (t, p)
        for one, made in zip(examples, predictions, strict=True)
        for t, p in zip(one.label, made, strict=True)
    ]
    found = {"accuracy": np.mean([t == p for t, p in pairs])}
    if is_entities(labels):
        from seqeval.metrics.sequence_labeling import precision_recall_fscore_support

        truth = [[labels[i] for i in one.label] for one in examples]
        chosen = [[labels[i] if i >= 0 else "O" for i in made] for made in predictions]
        precision, recall, f1, _ = precision_recall_fscore_support(
            truth, chosen, average="micro", zero_division=0
        )
        found |= {"precision": precision, "recall": recall, "f1": f1}
    return found


def is_entities(labels: Sequence[str]) -> bool:
    """Whether labels are O, B-NAME, I-NAME and the like."""
    entities = [label for label in labels if ENTITY.fullmatch(label)]
    return bool(entities) and set(labels) - set(entities) <= {"O"}


def _span(
    examples: list[Example], predictions: list[Span], labels: tuple[str, ...], task: knobs.Task
) -> dict[str, Any]:
    answers = [[answer.text for answer in one.label] for one in examples]
    texts = [made.text for made in predictions]
    if not task.no_answer:
        return squad.evaluate(answers, texts)
    doubts = [made.no_answer_score - made.score for made in predictions]
    return squad.evaluate(answers, texts, doubts, [made.best_text for made in predictions])


def _choice(
    examples: list[Example], predictions: list, labels: tuple[str, ...], task: knobs.Task
) -> dict[str, Any]:
    return {
        "accuracy": np.mean(
            [made.argmax() == one.label for one, made in zip(examples, predictions, strict=True)]
        )
    }


_TABLE: dict[str, Callable[..., dict[str, Any]]] = {
    "classify": _classify,
    "regress": _regress,
    "tag": _tag,
    "span": _span,
    "choice": _choice,
}
