"""Checked examples of a labelled task: what every later stage may rely on."""

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

MISPLACED = 0.1  # share of questions whose answers may be elsewhere than their file says
__all__ = ["Answer", "Example", "fingerprint", "found_labels", "load", "trained_on"]


@dataclass(frozen=True, slots=True)
class Example:
    """One labelled thing.

    `label` is an int (classify, choice), a float (regress), one int a word (tag) or the answers (span: empty is no
    answer); None where the data has no labels, as test splits may.
    """

    where: str  # FILE:LINE, for messages
    id: str
    text: str = ""  # span: the question; choice: what the options follow
    pair: str | None = None  # span: the context
    words: tuple[str, ...] = ()  # tag
    options: tuple[str, ...] = ()  # choice
    label: Any = None


def load(task: Task, kind: str, labels: tuple[str, ...], split: str, log: Log) -> list[Example]:
    """The examples of a split; of `train`, the first `task.rows`."""
    count = Count(task.on_bad_row)
    given = list(rows.read(task, split, log, count))
    meanings = meanings_of(labels, task, kind)
    labelled = _labelled(given, task, split, meanings)
    found: list[Example] = []
    for row in given:
        try:
            parts = PARTS[kind](row, task)
            label = LABELS[kind](row, task, meanings, parts) if labelled else None
            found.append(Example(row.where, identifier(row, task), **parts, label=label))
        except BadRow as bad:
            count.refuse(bad.where or row.where, bad.problem, bad.hint)
    count.check(log)
    if not found:
        raise DataError(
            f"{task.source}, split {split!r}, has no rows", "check task.source and task.format"
        )
    if kind == "span":
        _distinct(found)
        found = _placed(found, split, log)
    if split == "train":
        found = found[: task.rows or None]
        _varied(found, kind)
    place = task.source if task.source.startswith("tfds:") else found[0].where.rpartition(":")[0]
    log(f"{split}: {len(found):,} examples from {place}{_shares(found, kind, labels)}")
    return found


def fingerprint(data: dict[str, list[Example]]) -> str:
    """Return a digest of examples by split, wherever they lie."""
    found = hashlib.sha256()
    for split, several in data.items():
        found.update(split.encode())
        for one in several:
            found.update(repr(dataclasses.replace(one, where="")).encode())
    return found.hexdigest()


def trained_on(config: Config) -> str:
    """Return the fingerprint of what a run with this config, its labels settled, would be trained on now."""
    kind = next(iter(config.objectives))
    labels = config.objectives[kind].labels
    wanted = {"train": "train"} | {
        name: one.split for name, one in config.evals.items() if name == "validation"
    }
    data = {
        name: load(config.task, kind, labels, split, lambda _: None)
        for name, split in wanted.items()
    }
    return fingerprint({"train": data["train"], "validation": data.get("validation", [])})


def found_labels(task: Task, kind: str, log: Log) -> tuple[str, ...]:
    """The labels that the training data have, sorted; where one file is all there is, that all of it has."""
    task = dataclasses.replace(task, validation_fraction=0.0)
    count = Count(task.on_bad_row)
    names: set[str] = set()
    for row in rows.read(task, "train", log, count):
        try:
            names |= set(
                label_texts(row, task)
                if kind == "tag"
                else [label_text(raw_label(row, task), task)]
            )
        except BadRow as bad:
            count.refuse(bad.where or row.where, bad.problem, bad.hint)
    count.check(log)
    if not names:
        raise DataError(
            f"{task.source}, split 'train', has no rows", "check task.source and task.format"
        )
    log(f"labels found in the training data: {', '.join(sorted(names))}")
    return tuple(sorted(names))


def _labelled(given: list[Row], task: Task, split: str, meanings: dict[str, int]) -> bool:
    """Whether a split has labels: one for tests may leave the column out, or have a stand-in for all."""
    if split.startswith(("train", "validation")):
        return True
    columns = [pick(task.label, row.fields) for row in given]
    values = [row.fields[column] for column, row in zip(columns, given, strict=True) if column]
    return not all(_nothing(value, task, meanings) for value in values)


def _nothing(value: Any, task: Task, meanings: dict[str, int]) -> bool:
    if isinstance(value, dict):
        value = [part for part in value.values() if part]
    if isinstance(value, list):  # tags or answers
        return not task.no_answer and all(part in (None, "", -1) for part in value)
    text = "" if value is None else str(value).strip()
    return text in ("", "-1", "-1.0") and text not in meanings


# --- all of a split -------------------------------------------------------------------------------


def _distinct(found: list[Example]) -> None:
    """Answers are kept by id."""
    seen: dict[str, str] = {}
    for example in found:
        if example.id in seen:
            raise DataError(
                f"{example.where}: id {example.id!r} is also at {seen[example.id]}",
                "ids are unique",
            )
        seen[example.id] = example.where


def _placed(found: list[Example], split: str, log: Log) -> list[Example]:
    """Leave out of training, as google's reader does, questions whose answers are not where their file says.

    In other splits they are scored, which takes an answer's text alone.
    """
    lost = {
        one.id: one for one in found if one.label and all(answer.problem for answer in one.label)
    }
    if not lost:
        return found
    first = next(iter(lost.values()))
    said = f"{first.where}: {first.label[0].problem}"
    if len(lost) > MISPLACED * len(found):
        hint = f"answer_start counts characters from 0; up to {MISPLACED:.0%} of the questions may be wrong"
        raise DataError(f"{said} ({len(lost):,} of {len(found):,} questions)", hint)
    done = "left out" if split == "train" else "scored by the answer's text, and have no loss"
    log(f"warning: {split}: {len(lost):,} of {len(found):,} questions are {done}, first {said}")
    return [one for one in found if one.id not in lost] if split == "train" else found


def _varied(found: list[Example], kind: str) -> None:
    """A single label teaches nothing, and is mostly a mistake."""
    if kind in ("span", "choice"):
        return
    labels = {label for e in found for label in (e.label if kind == "tag" else (e.label,))}
    if len(labels) < 2:
        message = (
            f"{found[0].where}: from here on all {len(found):,} training rows have the same label"
        )
        raise DataError(
            message, "set task.label; task.rows takes the first rows of a file, which may be sorted"
        )


def _shares(found: list[Example], kind: str, labels: tuple[str, ...]) -> str:
    if kind != "classify" or found[0].label is None:
        return ""
    counts = collections.Counter(example.label for example in found)
    return (
        " (" + ", ".join(f"{name} {counts[number]:,}" for number, name in enumerate(labels)) + ")"
    )
