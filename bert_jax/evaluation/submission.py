"""Predictions of a benchmark's test set, as the files its server takes.

GLUE: a tsv file of index and prediction, where a label is written as the benchmark's own files write it, and a number
of STS-B from 0 to 5. SQuAD: predictions.json with a text for each id, empty for no answer; 2.0 also na_prob.json, how
likely it is that there is none.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bert_jax.data import tasks
from bert_jax.data.labelled.answers import Prediction, Span
from bert_jax.data.labelled.examples import Example
from bert_jax.errors import ConfigError
from bert_jax.system import disk

SIMILARITY = (0.0, 5.0)  # of STS-B


def write(
    name: str,
    split: str,
    examples: Sequence[Example],
    predictions: Sequence[Prediction],
    labels: Sequence[str],
    folder: Path,
) -> list[Path]:
    """Writes the files of one split of a task, and returns where they are.

    Args:
      name: a row of `data/tasks.py`.
      split: one of those its server scores.
      examples: all of the split.
      predictions: of each, as `data/answers.py` makes them.
      labels: names of the model's classes, in its order, which need not be the task's.
      folder: made if it is not there.
    """
    file, row = check(name, split, labels)
    if row.kind == "span":
        files = _answers(examples, predictions, file, "no_answer" in row.task)
    else:
        written = [_written(row, labels, made) for made in predictions]
        rows = sorted(zip((_index(one) for one in examples), written, strict=True))
        lines = ["\t".join(row.submission.columns), *(f"{index}\t{text}" for index, text in rows)]
        files = {file: "".join(f"{line}\n" for line in lines)}
    folder.mkdir(parents=True, exist_ok=True)
    for place, text in files.items():
        disk.write(folder / place, text)
    return [folder / place for place in files]


def check(name: str, split: str, labels: Sequence[str]) -> tuple[str, Any]:
    """The file and row of a split; ConfigError if there is none, or the model has other labels."""
    row = tasks.TASKS.get(name)
    if row is None or row.submission is None:
        have = ", ".join(task for task, one in tasks.TASKS.items() if one.submission is not None)
        raise ConfigError(f"no server takes predictions of task {name!r}", f"one of: {have}")
    if split not in row.submission.files:
        raise ConfigError(
            f"{name}: no server takes predictions of split {split!r}",
            f"one of: {', '.join(row.submission.files)}",
        )
    if sorted(labels) != sorted(row.labels):
        raise ConfigError(
            f"the model's labels are {', '.join(labels) or 'none'}, and {name} has {', '.join(row.labels) or 'none'}",
            f"train it with configs/finetune.py:{name}, or name its classes as the task does",
        )
    return row.submission.files[split], row


def _index(example: Example) -> int:
    """The number a server knows a row by."""
    if not example.id.isdecimal():
        raise ConfigError(
            f"{example.where}: {example.id!r} is no number of a row",
            "task.id names the column that holds it",
        )
    return int(example.id)


def _written(row: tasks.Row, labels: Sequence[str], made: Any) -> str:
    if row.kind == "regress":
        low, high = SIMILARITY
        return f"{min(max(made, low), high):.3f}"
    label = labels[int(made.argmax())]
    values = row.task.get("values", row.labels)
    return values[row.labels.index(label)]


def _answers(
    examples: Sequence[Example], predictions: Sequence[Any], file: str, no_answer: bool
) -> dict[str, str]:
    spans: dict[str, Span] = {one.id: made for one, made in zip(examples, predictions, strict=True)}
    files: dict[str, dict[str, Any]] = {file: {name: made.text for name, made in spans.items()}}
    if no_answer:
        files["na_prob.json"] = {name: _no_answer(made) for name, made in spans.items()}
    return {
        name: json.dumps(found, ensure_ascii=False, indent=1) + "\n"
        for name, found in files.items()
    }


def _no_answer(made: Span) -> float:
    """No answer against the best answer: from 0 to 1, and it rises with what `scores.py` puts a threshold on."""
    doubt = min(max(made.no_answer_score - made.score, -700.0), 700.0)
    return 1 / (1 + math.exp(-doubt))
