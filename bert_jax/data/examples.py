"""Checked examples of labelled data, on which all later stages rely.

examples = load_examples(task, "classify", ("negative", "positive"), "train", print)
examples[0]            -> Example("train.tsv:2", "0", text="It rains.", label=1)
"""

from __future__ import annotations

import collections
import dataclasses
import hashlib
from collections.abc import Callable
from typing import Any

from bert_jax.config.knobs import Config, Task
from bert_jax.data import row_fields
from bert_jax.data.row_fields import FIELDS, LABELS, Meanings
from bert_jax.data.row_formats import BadRow, Row, pick_column
from bert_jax.data.task_files import read_rows
from bert_jax.data.tasks import TASKS
from bert_jax.errors import DataError

BAD_ROWS = 0.01  # share of bad rows that a task which skips them may have; one row always may be
MISPLACED = 0.1  # share of questions that may have answers elsewhere than their file says
Log = Callable[[str], None]


@dataclasses.dataclass(frozen=True, slots=True)
class Example:
    """One example of labelled data.

    Its label is None if the data has no labels, as in some test splits. Else the label is an int
    (classify, choice), a float (regress), an int for each word (tag), or a tuple of answers (span).
    An empty tuple says that there is no answer.
    """

    where: str  # FILE:LINE, for messages
    id: str
    text: str = ""  # span: the question; choice: what the options follow; tag: usually empty
    pair: str | None = None  # span: the context
    words: tuple[str, ...] = ()  # tag
    options: tuple[str, ...] = ()  # choice
    label: Any = None


def load_examples(
    task: Task, kind: str, labels: tuple[str, ...], split: str, log: Log
) -> list[Example]:
    """Return the examples of a split, or of `train` the first `task.rows` examples."""
    rows = read_rows(task, split)
    meanings = row_fields.find_meanings(labels, task, kind)
    is_labelled = _has_labels(rows, task, split, meanings)

    def make(row: Row) -> Example:
        fields = FIELDS[kind](row, task)
        label = LABELS[kind](row, task, meanings, fields) if is_labelled else None
        return Example(row.where, row_fields.read_id(row, task), **fields, label=label)

    examples = _convert_rows(rows, task, split, make, log)
    if kind == "span":
        _check_ids(examples)
        examples = _drop_misplaced(examples, split, log)
    if split == "train":
        examples = examples[: task.rows or None]
        _check_varied(examples, kind)
    source = task.source
    if not source.startswith("tfds:"):
        place = examples[0].where.partition(": ")[0]  # FILE:LINE, or FILE alone
        source = place.rpartition(":")[0] or place
    shares = ""
    if kind == "classify" and is_labelled:
        counts = collections.Counter(example.label for example in examples)
        shares = f" ({', '.join(f'{name} {counts[n]:,}' for n, name in enumerate(labels))})"
    log(f"{split}: {len(examples):,} examples from {source}{shares}")
    return examples


def find_labels(task: Task, kind: str, log: Log) -> tuple[str, ...]:
    """Return the sorted labels of the training data, or of all rows of a single file."""
    task = dataclasses.replace(task, validation_fraction=0.0)

    def spell(row: Row) -> list[str]:
        return row_fields.spell_labels(row, task, kind)

    spelt = _convert_rows(read_rows(task, "train"), task, "train", spell, log)
    names = sorted({name for of_row in spelt for name in of_row})
    log(f"labels found in the training data: {', '.join(names)}")
    return tuple(names)


def _convert_rows(
    rows: list[Row], task: Task, split: str, convert: Callable[[Row], Any], log: Log
) -> list[Any]:
    """Convert all rows. A bad row is an error, unless the task's row of the table skips it.

    In a test split no row is skipped, because a server wants a prediction for each row.
    """
    known = TASKS.get(task.name)
    skips = known is not None and known.skips_bad_rows and not split.startswith("test")
    converted: list[Any] = []
    bad: list[BadRow] = []
    for row in rows:
        try:
            if row.problem:
                raise BadRow(row.where, row.problem)
            converted.append(convert(row))
        except BadRow as error:
            if not skips:
                raise
            bad.append(error)
    if len(bad) > max(1, BAD_ROWS * len(rows)):
        hint = f"{task.name} skips at most {BAD_ROWS:.0%}: is it the right file?"
        raise DataError(f"{bad[0]} ({len(bad):,} bad rows of {len(rows):,})", hint)
    if bad:
        log(f"warning: {len(bad):,} of {len(rows):,} rows are left out, first {bad[0]}")
    if not converted:
        hint = "check task.source, task.format and task.validation_fraction"
        raise DataError(f"{task.source}, split {split!r}, has no rows", hint)
    return converted


def hash_examples(train: list[Example], validation: list[Example]) -> str:
    """Return a digest of the examples of both splits, whatever their files are called."""
    digest = hashlib.sha256()
    for split, examples in (("train", train), ("validation", validation)):
        digest.update(split.encode())
        for example in examples:
            digest.update(repr(dataclasses.replace(example, where="")).encode())
    return digest.hexdigest()


def hash_training_data(config: Config) -> str:
    """Return the digest of the examples that a run with this config would train on now.

    The labels of the config are those settled from the data.
    """
    kind = next(iter(config.objectives))
    labels = config.objectives[kind].labels

    def load(split: str) -> list[Example]:
        return load_examples(config.task, kind, labels, split, lambda _: None)

    train = load("train")
    validation = config.evals.get("validation")
    return hash_examples(train, load(validation.split) if validation else [])


# --- checks of a whole split ----------------------------------------------------------------------


def _has_labels(rows: list[Row], task: Task, split: str, meanings: Meanings) -> bool:
    """Return whether a split has labels. A test split may have placeholders instead."""
    if split.startswith(("train", "validation")):
        return True
    columns = [pick_column(task.label, row.fields) for row in rows]
    values = [row.fields[column] for row, column in zip(rows, columns, strict=True) if column]
    return not all(_is_placeholder(value, task, meanings) for value in values)


def _is_placeholder(value: Any, task: Task, meanings: Meanings) -> bool:
    if isinstance(value, dict):  # answers
        value = value.get("text")
    if isinstance(value, list):  # tags or answers
        return not task.no_answer and all(part in (None, "", -1) for part in value)
    text = "" if value is None else str(value).strip()
    return text in ("", "-1", "-1.0") and text not in meanings


def _check_ids(examples: list[Example]) -> None:
    """Refuse an id that occurs twice, because answers are kept by id."""
    seen: dict[str, str] = {}
    for example in examples:
        if example.id in seen:
            message = f"{example.where}: id {example.id!r} is also at {seen[example.id]}"
            raise DataError(message, "ids are unique")
        seen[example.id] = example.where


def _drop_misplaced(examples: list[Example], split: str, log: Log) -> list[Example]:
    """Leave questions whose answers are not where their file says out of training.

    google's reader does so too. In other splits they are scored, which takes only the answer's
    text.
    """
    misplaced = {
        example.id: f"{example.where}: {example.label[0].problem}"
        for example in examples
        if example.label and all(answer.problem for answer in example.label)
    }
    if not misplaced:
        return examples
    first = next(iter(misplaced.values()))
    share = f"{len(misplaced):,} of {len(examples):,} questions"
    if len(misplaced) > MISPLACED * len(examples):
        limit = f"up to {MISPLACED:.0%} of the questions may be wrong"
        raise DataError(f"{first} ({share})", f"answer_start counts characters from 0; {limit}")
    if split != "train":
        fate = "scored by the answer's text, and have no loss"
        log(f"warning: {split}: {share} are {fate}, first {first}")
        return examples
    log(f"warning: {split}: {share} are left out, first {first}")
    return [example for example in examples if example.id not in misplaced]


def _check_varied(examples: list[Example], kind: str) -> None:
    """Refuse training rows of a single label, which teach nothing and are mostly a mistake."""
    if kind in ("span", "choice"):
        return
    labels: set[Any] = {example.label for example in examples}
    if kind == "tag":
        labels = set().union(*labels)
    if len(labels) < 2:
        problem = f"from here on all {len(examples):,} training rows have the same label"
        hint = "set task.label; task.rows takes the first rows of a file, which may be sorted"
        raise BadRow(examples[0].where, problem, hint)
