"""Checked examples of labelled data, on which all later stages rely."""

from __future__ import annotations

import collections
import dataclasses
import hashlib
from dataclasses import dataclass
from typing import Any

from bert_jax.config.knobs import Config, Task
from bert_jax.data.labelled import rows
from bert_jax.data.labelled.fields import (
    LABELS,
    PARTS,
    Answer,
    BadRow,
    identifier,
    label_text,
    label_texts,
    meanings_of,
    raw_label,
)
from bert_jax.data.labelled.formats import Count, Log, Row, pick
from bert_jax.errors import DataError

MISPLACED = 0.1  # share of questions that may have answers elsewhere than their file says
__all__ = ["Answer", "Example", "fingerprint", "found_labels", "load", "trained_on"]


@dataclass(frozen=True, slots=True)
class Example:
    """One example, labelled or not.

    `label` is an int (classify, choice), a float (regress), one int a word (tag) or the answers
    (span: empty is no answer); None where the data has no labels, as in some test splits.
    """

    where: str  # FILE:LINE, for messages
    id: str
    # span: the question; choice: what the options follow; tag: the text of the words, if any
    text: str = ""
    pair: str | None = None  # span: the context
    words: tuple[str, ...] = ()  # tag
    options: tuple[str, ...] = ()  # choice
    label: Any = None


def load(task: Task, kind: str, labels: tuple[str, ...], split: str, log: Log) -> list[Example]:
    """Return the examples of a split; of `train`, the first `task.rows`."""
    count = Count(task.on_bad_row)
    raw = list(rows.read(task, split, log, count))
    meanings = meanings_of(labels, task, kind)
    labelled = _labelled(raw, task, split, meanings)
    examples: list[Example] = []
    for row in raw:
        try:
            parts = PARTS[kind](row, task)
            label = LABELS[kind](row, task, meanings, parts) if labelled else None
            examples.append(Example(row.where, identifier(row, task), **parts, label=label))
        except BadRow as bad:
            count.refuse(bad.where or row.where, bad.problem, bad.hint)
    count.check(log)
    if not examples:
        raise _no_rows(task, split)
    if kind == "span":
        _distinct(examples)
        examples = _placed(examples, split, log)
    if split == "train":
        examples = examples[: task.rows or None]
        _varied(examples, kind)
    in_files = not task.source.startswith("tfds:")
    source = examples[0].where.rpartition(":")[0] if in_files else task.source
    log(f"{split}: {len(examples):,} examples from {source}{_shares(examples, kind, labels)}")
    return examples


def _no_rows(task: Task, split: str) -> DataError:
    message = f"{task.source}, split {split!r}, has no rows"
    return DataError(message, "check task.source and task.format")


def fingerprint(data: dict[str, list[Example]]) -> str:
    """Return a digest of examples by split, whatever their files are called."""
    digest = hashlib.sha256()
    for split, examples in data.items():
        digest.update(split.encode())
        for example in examples:
            digest.update(repr(dataclasses.replace(example, where="")).encode())
    return digest.hexdigest()


def trained_on(config: Config) -> str:
    """Return the fingerprint of the examples that a run with this config would train on now.

    The labels of the config are those settled from the data.
    """
    kind = next(iter(config.objectives))
    labels = config.objectives[kind].labels

    def examples(split: str) -> list[Example]:
        return load(config.task, kind, labels, split, lambda _: None)

    train, validation = examples("train"), config.evals.get("validation")
    held_out = examples(validation.split) if validation else []
    return fingerprint({"train": train, "validation": held_out})


def found_labels(task: Task, kind: str, log: Log) -> tuple[str, ...]:
    """Return the sorted labels of the training data; of one file alone, those of the whole file."""
    task = dataclasses.replace(task, validation_fraction=0.0)
    count = Count(task.on_bad_row)
    names: set[str] = set()
    for row in rows.read(task, "train", log, count):
        try:
            if kind == "tag":
                names |= set(label_texts(row, task))
            else:
                names.add(label_text(raw_label(row, task), task))
        except BadRow as bad:
            count.refuse(bad.where or row.where, bad.problem, bad.hint)
    count.check(log)
    if not names:
        raise _no_rows(task, "train")
    log(f"labels found in the training data: {', '.join(sorted(names))}")
    return tuple(sorted(names))


def _labelled(raw: list[Row], task: Task, split: str, meanings: dict[str, int]) -> bool:
    """Return whether a split has labels; a test split may have none, or placeholders."""
    if split.startswith(("train", "validation")):
        return True
    columns = [pick(task.label, row.fields) for row in raw]
    values = [row.fields[column] for column, row in zip(columns, raw, strict=True) if column]
    return not all(_placeholder(value, task, meanings) for value in values)


def _placeholder(value: Any, task: Task, meanings: dict[str, int]) -> bool:
    if isinstance(value, dict):
        value = [part for part in value.values() if part]
    if isinstance(value, list):  # tags or answers
        return not task.no_answer and all(part in (None, "", -1) for part in value)
    text = "" if value is None else str(value).strip()
    return text in ("", "-1", "-1.0") and text not in meanings


# --- checks of a whole split ----------------------------------------------------------------------


def _distinct(examples: list[Example]) -> None:
    """Refuse an id that occurs twice, because answers are kept by id."""
    seen: dict[str, str] = {}
    for example in examples:
        if example.id in seen:
            message = f"{example.where}: id {example.id!r} is also at {seen[example.id]}"
            raise DataError(message, "ids are unique")
        seen[example.id] = example.where


def _placed(examples: list[Example], split: str, log: Log) -> list[Example]:
    """Leave questions whose answers are not where their file says out of training.

    google's reader does so too. In other splits they are scored, which takes the answer's text
    alone.
    """
    misplaced = {
        example.id: example
        for example in examples
        if example.label and all(answer.problem for answer in example.label)
    }
    if not misplaced:
        return examples
    first = next(iter(misplaced.values()))
    problem = f"{first.where}: {first.label[0].problem}"
    share = f"{len(misplaced):,} of {len(examples):,} questions"
    if len(misplaced) > MISPLACED * len(examples):
        hint = (
            f"answer_start counts characters from 0; up to {MISPLACED:.0%} of the questions may "
            "be wrong"
        )
        raise DataError(f"{problem} ({share})", hint)
    training = split == "train"
    fate = "left out" if training else "scored by the answer's text, and have no loss"
    log(f"warning: {split}: {share} are {fate}, first {problem}")
    return [e for e in examples if e.id not in misplaced] if training else examples


def _varied(examples: list[Example], kind: str) -> None:
    """Refuse training rows of a single label, which teach nothing and are mostly a mistake."""
    if kind in ("span", "choice"):
        return
    labels = {label for e in examples for label in (e.label if kind == "tag" else (e.label,))}
    if len(labels) < 2:
        where, number = examples[0].where, f"{len(examples):,}"
        raise DataError(
            f"{where}: from here on all {number} training rows have the same label",
            "set task.label; task.rows takes the first rows of a file, which may be sorted",
        )


def _shares(examples: list[Example], kind: str, labels: tuple[str, ...]) -> str:
    if kind != "classify" or examples[0].label is None:
        return ""
    counts = collections.Counter(example.label for example in examples)
    return f" ({', '.join(f'{name} {counts[n]:,}' for n, name in enumerate(labels))})"
