"""Write predictions of a benchmark's test set as the files that its server takes.

GLUE: a tsv file with the columns index and prediction. A label is written as in the benchmark's own
files, and the prediction for STS-B is a number from 0 to 5. SQuAD: predictions.json with a text for
each id, which is empty for no answer. SQuAD 2.0 also has na_prob.json, with the probability that
there is no answer.
"""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bert_jax.data import tasks
from bert_jax.data.answers import Prediction, Span
from bert_jax.data.examples import Example
from bert_jax.errors import need
from bert_jax.system import disk

SIMILARITY = (0.0, 5.0)  # of STS-B


def check_submission(name: str, split: str, labels: Sequence[str], folder: Path) -> None:
    """Refuse what no server takes, and a folder that cannot be written; make the folder."""
    row: Any = tasks.TASKS.get(name)
    takes = row.submission.files if row is not None and row.submission is not None else {}
    need(
        split in takes,
        f"{name}: no server takes predictions of split {split!r}",
        f"one of: {', '.join(takes)}" if takes else "leave --submission out",
    )
    need(
        sorted(labels) == sorted(row.labels),
        f"the model's labels are {', '.join(labels) or 'none'}, "
        f"and {name} has {', '.join(row.labels) or 'none'}",
        f"train it with configs/finetune.py:{name}, or name its classes as the task does",
    )
    disk.check_output(folder / takes[split])


def write_submission(
    name: str,
    split: str,
    examples: Sequence[Example],
    predictions: Sequence[Prediction],
    labels: Sequence[str],
    folder: Path,
) -> list[Path]:
    """Write the files of one split of a task, which was checked; return their paths.

    Args:
      name: a row of `data/tasks.py`.
      split: a split that the benchmark's server scores.
      examples: all examples of the split.
      predictions: a prediction for each example, as `answers.decode_outputs` makes them.
      labels: names of the model's classes in its order, which may differ from the task's order.
      folder: where to write; created if it does not exist.
    """
    row: Any = tasks.TASKS.get(name)
    file = row.submission.files[split]
    if row.kind == "span":
        files = _format_answers(examples, predictions, file, "no_answer" in row.task)
    else:
        values = [_format_value(row, labels, prediction) for prediction in predictions]
        rows = sorted(zip(map(_read_index, examples), values, strict=True))
        lines = ["\t".join(row.submission.columns), *(f"{index}\t{text}" for index, text in rows)]
        files = {file: "".join(f"{line}\n" for line in lines)}
    folder.mkdir(parents=True, exist_ok=True)
    for file_name, text in files.items():
        disk.write(folder / file_name, text)
    return [folder / file_name for file_name in files]


def _read_index(example: Example) -> int:
    """Return the number that an example has in the benchmark's file; the server asks for it."""
    need(
        example.id.isdecimal(),
        f"{example.where}: {example.id!r} is no number of a row",
        "task.id names the column that holds it",
    )
    return int(example.id)


def _format_value(row: tasks.TaskRow, labels: Sequence[str], prediction: Any) -> str:
    if row.kind == "regress":
        low, high = SIMILARITY
        return f"{min(max(prediction, low), high):.3f}"
    label = labels[int(prediction.argmax())]
    values = row.task.get("values", row.labels)
    return values[row.labels.index(label)]


def _format_answers(
    examples: Sequence[Example], predictions: Sequence[Any], file: str, no_answer: bool
) -> dict[str, str]:
    ids = [example.id for example in examples]
    spans: dict[str, Span] = dict(zip(ids, predictions, strict=True))
    files: dict[str, dict[str, Any]] = {file: {key: span.text for key, span in spans.items()}}
    if no_answer:
        # It rises with the difference of scores that `scores.py` puts a threshold on.
        doubts = {key: span.no_answer_score - span.score for key, span in spans.items()}
        files["na_prob.json"] = {
            key: 1 / (1 + math.exp(-min(max(doubt, -700.0), 700.0)))
            for key, doubt in doubts.items()
        }
    return {
        name: json.dumps(rows, ensure_ascii=False, indent=1) + "\n" for name, rows in files.items()
    }
