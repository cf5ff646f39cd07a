"""The metrics of each kind of task, by scikit-learn, scipy, seqeval and SQuAD's own rules.

Metrics of a class that never occurs are 0. The macro average counts this 0, so that it is over the
same classes for every checkpoint. A correlation is NaN if one side is constant or there are fewer
than two numbers. The label of a word that was cut off counts as wrong, and as O when entities are
counted. SQuAD's metrics are in per cent, as published; all others are fractions.
"""

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


def list_reported(kind: str, labels: Sequence[str], task: knobs.Task) -> tuple[str, ...]:
    """Return the names of the metrics that `score` returns for a task with these classes."""
    absent: tuple[str, ...] = ()
    if kind == "classify":
        absent = ("macro_f1",) if len(labels) == 2 else ("f1",)
    elif kind == "tag" and not is_entities(labels):
        absent = ("precision", "recall", "f1")
    elif kind == "span" and not task.no_answer:
        absent = tuple(name for name in knobs.METRICS[kind] if name not in ("exact", "f1"))
    asked = task.metrics or knobs.METRICS[kind]
    return tuple(name for name in knobs.METRICS[kind] if name in asked and name not in absent)


def score(
    kind: str,
    examples: Sequence[Example],
    predictions: Sequence[Any],
    labels: Sequence[str],
    task: knobs.Task,
) -> dict[str, float]:
    """Score predictions of `answers.decode_outputs`; leave out examples without a label.

    The metrics are those of `knobs.METRICS[kind]` that are defined for the task. If `task.metrics`
    names metrics, only these are returned.
    """
    pairs = zip(examples, predictions, strict=True)
    labelled = [(example, output) for example, output in pairs if example.label is not None]
    if not labelled:
        raise DataError(
            f"none of {len(examples)} examples has a label", "score a split that has labels"
        )
    truth = [example.label for example, _ in labelled]
    outputs = [output for _, output in labelled]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about undefined metrics, whose values show it
        metrics = _TABLE[kind](truth, outputs, tuple(labels), task)
    asked = task.metrics or metrics
    return {name: float(value) for name, value in metrics.items() if name in asked}


# Each function takes the right labels, predictions, names of the classes, and the task.


def _score_classes(
    truth: list[int], predictions: list, labels: tuple[str, ...], task: knobs.Task
) -> dict[str, Any]:
    from sklearn import metrics

    chosen = [scores.argmax() for scores in predictions]
    binary = len(labels) == 2
    # Without `labels` the macro average leaves out classes that neither side has.
    average = {"average": "binary" if binary else "macro", "labels": list(range(len(labels)))}
    return {
        "accuracy": metrics.accuracy_score(truth, chosen),
        "f1" if binary else "macro_f1": metrics.f1_score(truth, chosen, zero_division=0, **average),
        "mcc": metrics.matthews_corrcoef(truth, chosen),
    }


def _score_numbers(
    truth: list[float], predictions: list, labels: tuple[str, ...], task: knobs.Task
) -> dict[str, Any]:
    from scipy import stats

    wanted, values = np.array(truth, np.float64), np.array(predictions, np.float64)  # [N]
    defined = len(truth) > 1 and bool(np.isfinite(values).all())
    return {
        "pearson": stats.pearsonr(wanted, values).statistic if defined else np.nan,
        "spearman": stats.spearmanr(wanted, values).statistic if defined else np.nan,
        "mse": np.mean((wanted - values) ** 2),
    }


def _score_tags(
    truth: list, predictions: list, labels: tuple[str, ...], task: knobs.Task
) -> dict[str, Any]:
    metrics = {"accuracy": np.mean(np.concatenate(truth) == np.concatenate(predictions))}
    if is_entities(labels):
        from seqeval.metrics.sequence_labeling import precision_recall_fscore_support

        wanted = [[labels[i] for i in tags] for tags in truth]
        chosen = [[labels[i] if i >= 0 else "O" for i in tags] for tags in predictions]
        precision, recall, f1, _ = precision_recall_fscore_support(
            wanted, chosen, average="micro", zero_division=0
        )
        metrics |= {"precision": precision, "recall": recall, "f1": f1}
    return metrics


def is_entities(labels: Sequence[str]) -> bool:
    """Tell whether labels mark entities, as O, B-NAME and I-NAME do."""
    entities = [label for label in labels if ENTITY.fullmatch(label)]
    return bool(entities) and set(labels) - set(entities) <= {"O"}


def _score_spans(
    truth: list, predictions: list[Span], labels: tuple[str, ...], task: knobs.Task
) -> dict[str, Any]:
    answers = [[answer.text for answer in found] for found in truth]
    texts = [span.text for span in predictions]
    if not task.no_answer:
        return squad.evaluate_squad(answers, texts)
    doubts = [span.no_answer_score - span.score for span in predictions]
    return squad.evaluate_squad(answers, texts, doubts, [span.best_text for span in predictions])


def _score_choices(
    truth: list[int], predictions: list, labels: tuple[str, ...], task: knobs.Task
) -> dict[str, Any]:
    chosen = [scores.argmax() for scores in predictions]
    return {"accuracy": np.mean(np.array(chosen) == np.array(truth))}


_TABLE: dict[str, Callable[..., dict[str, Any]]] = {
    "classify": _score_classes,
    "regress": _score_numbers,
    "tag": _score_tags,
    "span": _score_spans,
    "choice": _score_choices,
}
