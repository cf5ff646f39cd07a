"""Checked examples of labelled data, which all later stages read.

examples = load_examples(task, "classify", ("negative", "positive"), "train", print)
examples[0]            -> Example("train.tsv:2", "0", text="It rains.", label=1)
"""

import collections
import dataclasses
import hashlib
import math
import re
from collections.abc import Callable
from typing import Any

from bert_jax.config.knobs import TEXT, Config, Task
from bert_jax.data.rows import BadRow, TableRow, pick_column, read_rows
from bert_jax.data.tasks import TASKS
from bert_jax.errors import ConfigError, DataError

BAD_ROWS = 0.01  # share of bad rows that a task which skips them may have; one row always may be
MISPLACED = 0.1  # share of questions that may have answers elsewhere than their file says
NEARBY = 8  # characters around an answer's place in which the answer is searched for
UNREADABLE = re.compile("[\0\ud800-\udfff]")  # NUL, and half of a surrogate pair
Log = Callable[[str], None]


@dataclasses.dataclass(frozen=True, slots=True)
class Example:
    """One example of labelled data.

    The label is None if the data has no labels, as in some test splits. Otherwise the label is an
    int (classify, choice), a float (regress), an int for each word (tag), or a tuple of answers
    (span). An empty tuple means that the question has no answer.
    """

    where: str  # FILE:LINE, for messages
    id: str
    text: str = ""  # span: the question; choice: what the options follow; tag: usually empty
    pair: str | None = None  # span: the context
    words: tuple[str, ...] = ()  # tag
    options: tuple[str, ...] = ()  # choice
    label: Any = None


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """Answer of a span task: `context[start : start + len(text)] == text`, in characters."""

    text: str
    start: int
    # Why the answer is not where its file says, in which case `start` is -1.
    problem: str = dataclasses.field(default="", repr=False)


def load_examples(
    task: Task, kind: str, labels: tuple[str, ...], split: str, log: Log
) -> list[Example]:
    """Return the checked examples of a split; of `train` only the first `task.rows`, if set."""
    rows = read_rows(task, split)
    reader = _Reader(task, kind, labels)
    # A test split may have placeholders instead of labels.
    reader.is_labelled = split.startswith(("train", "validation"))
    reader.is_labelled |= any(map(reader.has_label, rows))
    examples = _convert_rows(rows, task, split, reader.read, log)
    if kind == "span":
        seen: set[str] = set()
        for example in examples:
            if example.id in seen:
                raise BadRow(example.where, f"id {example.id!r} occurs twice")
            seen.add(example.id)
        examples = _drop_misplaced(examples, split, log)
    if split == "train":
        examples = examples[: task.rows or None]
        _check_varied(examples, kind)
    shares = ""
    if kind == "classify" and reader.is_labelled:
        counts = collections.Counter(example.label for example in examples)
        shares = f" ({', '.join(f'{name} {counts[n]:,}' for n, name in enumerate(labels))})"
    log(f"{split}: {len(examples):,} examples from {task.source}{shares}")
    return examples


def find_labels(task: Task, kind: str, log: Log) -> tuple[str, ...]:
    """Return the sorted labels of the training data.

    If one file holds all splits, these are the labels of all its rows.
    """
    task = dataclasses.replace(task, validation_fraction=0.0)
    reader = _Reader(task, kind, ())
    spelt = _convert_rows(read_rows(task, "train"), task, "train", reader.spell_labels, log)
    names = sorted({name for of_row in spelt for name in of_row})
    log(f"labels found in the training data: {', '.join(names)}")
    return tuple(names)


def hash_examples(train: list[Example], validation: list[Example]) -> str:
    """Return a digest of the examples of both splits, which does not depend on file names."""
    digest = hashlib.sha256()
    for split, examples in (("train", train), ("validation", validation)):
        digest.update(split.encode())
        for example in examples:
            digest.update(repr(dataclasses.replace(example, where="")).encode())
    return digest.hexdigest()


def hash_training_data(config: Config) -> str:
    """Return a digest of the examples that a run of this config would train on now.

    `config` must have the names of the classes filled in.
    """
    kind, objective = next(iter(config.objectives.items()))

    def load(split: str) -> list[Example]:
        return load_examples(config.task, kind, objective.labels, split, lambda _: None)

    validation = config.evals.get("validation")
    return hash_examples(load("train"), load(validation.split) if validation else [])


def _convert_rows(
    rows: list[TableRow], task: Task, split: str, convert: Callable[[TableRow], Any], log: Log
) -> list[Any]:
    """Convert each row by `convert`, such as to an Example; return the list.

    A bad row is an error, unless the table of tasks says that the task skips bad rows. In a test
    split no row is skipped, because a server wants a prediction for each row.
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


def _drop_misplaced(examples: list[Example], split: str, log: Log) -> list[Example]:
    """Drop training questions whose answers are all missing from where the file states them.

    google's reader drops them too. Other splits keep such questions, because scoring compares only
    texts.
    """
    lost = [one for one in examples if one.label and all(a.problem for a in one.label)]
    if not lost:
        return examples
    first = f"{lost[0].where}: {lost[0].label[0].problem}"
    count = len(lost)
    share = f"{count:,} of {len(examples):,} questions"
    if count > MISPLACED * len(examples):
        limit = f"up to {MISPLACED:.0%} of the questions may be wrong"
        raise DataError(f"{first} ({share})", f"answer_start counts characters from 0; {limit}")
    fate = "left out" if split == "train" else "scored by the answer's text, and have no loss"
    log(f"warning: {split}: {share} are {fate}, first {first}")
    ids = {one.id for one in lost if split == "train"}
    return [one for one in examples if one.id not in ids]


def _check_varied(examples: list[Example], kind: str) -> None:
    """Refuse training data with a single label, which is mostly a mistake."""
    labels = [example.label for example in examples]
    if kind == "tag":
        labels = [label for example in examples for label in example.label]
    if kind not in ("span", "choice") and len(set(labels)) < 2:
        problem = f"from here on all {len(examples):,} training rows have the same label"
        raise BadRow(examples[0].where, problem, "set task.label; or are the rows sorted?")


# --- a row ----------------------------------------------------------------------------------------


class _Reader:
    """Converts rows of data to examples of an objective; errors name the file and line."""

    def __init__(self, task: Task, kind: str, labels: tuple[str, ...]):
        self.task = task
        self.kind = kind
        self.is_labelled = True
        # What a file writes for a label: the label's name, or its value.
        self.meanings = {name: number for number, name in enumerate(labels)}
        for number, value in enumerate(task.values):
            if self.meanings.setdefault(value, number) != number:
                means = f"already means label {self.meanings[value]}"
                raise ConfigError(f"task.values[{number}] = {value!r} {means}", "rename labels")

    def has_label(self, row: TableRow) -> bool:
        """Tell whether a row has a label, and not a placeholder such as -1 of test splits."""
        column = pick_column(self.task.label, row.fields)
        value = row.fields[column] if column else None  # "" is the index column of a table
        if isinstance(value, dict):  # answers
            value = value.get("text")
        if isinstance(value, list):  # tags or answers
            return self.task.no_answer or any(part not in (None, "", -1) for part in value)
        text = "" if value is None else str(value).strip()
        return text not in ("", "-1", "-1.0") or text in self.meanings

    def read(self, row: TableRow) -> Example:
        """Convert a row to an example."""
        task = self.task
        key = pick_column(task.id, row.fields)
        if key is None:
            hint = "set --config.task.id, or leave it empty to count rows"
            raise DataError(f"{row.where}: no column {task.id!r}", hint)
        fields: dict[str, Any] = {}
        pair = task.text_pair or ("context" if self.kind == "span" else "")
        if self.kind == "tag":
            fields["words"] = self._read_words(row)
        else:
            fields["text"] = self._read_text(row, "text", task.text)
        if self.kind == "choice":
            fields["options"] = self._read_options(row)
        elif pair and self.kind != "tag":
            fields["pair"] = self._read_text(row, "text_pair", pair)
        example = Example(row.where, str(row.fields[key] if key else row.number), **fields)
        if not self.is_labelled:
            return example
        return dataclasses.replace(example, label=self._read_label(row, example))

    def _read_value(self, row: TableRow, name: str, knob: str) -> Any:
        column = pick_column(knob, row.fields)
        if not column:
            hint = f"set --config.task.{name} to one of: {', '.join(map(str, row.fields))[:300]}"
            raise DataError(f"{row.where}: no column {knob!r}", hint)
        return row.fields[column]

    def _read_text(self, row: TableRow, name: str, knob: str) -> str:
        return _check_text(row.where, self._read_value(row, name, knob), repr(knob))

    def _read_list(self, row: TableRow, name: str, knob: str) -> list[Any]:
        """Return the words or labels in a field: a list, or a text with blanks between them."""
        value = self._read_value(row, name, knob)
        if isinstance(value, str):
            return value.split()
        if not isinstance(value, list):
            raise BadRow(row.where, f"{knob!r} is {type(value).__name__}, not a list of words")
        return value

    def _read_words(self, row: TableRow) -> tuple[str, ...]:
        words = self._read_list(row, "text", self.task.text)
        if not words:
            raise BadRow(row.where, "a sentence without words")
        for number, word in enumerate(words):
            _check_text(_locate_word(row, number), word, f"word {number}: {self.task.text!r}")
        return tuple(words)

    def _read_options(self, row: TableRow) -> tuple[str, ...]:
        """Read the options of a question, without empty options at the end.

        The options are in a column each, or in one column as a list.
        """
        values = [self._read_value(row, "options", knob) for knob in self.task.options]
        if len(values) == 1 and isinstance(values[0], list):
            values = list(values[0])
        while values and values[-1] in (None, ""):
            values.pop()
        if len(values) < 2:
            raise BadRow(row.where, f"{len(values)} options")
        texts = [_check_text(row.where, value, f"'option {n}'") for n, value in enumerate(values)]
        if not self.task.text_pair:
            return tuple(texts)
        beginning = self._read_text(row, "text_pair", self.task.text_pair)
        return tuple(f"{beginning} {text}" for text in texts)

    # --- labels -----------------------------------------------------------------------------------

    def _read_label(self, row: TableRow, example: Example) -> Any:
        if self.kind == "regress":
            return self._read_number(row)
        if self.kind == "span":
            return self._read_answers(row, example.pair or "")
        spelt = enumerate(self.spell_labels(row))
        numbers = tuple(self._number_label(_locate_word(row, n), name) for n, name in spelt)
        if self.kind == "tag" and len(numbers) != len(example.words):
            raise BadRow(row.where, f"{len(example.words)} words but {len(numbers)} labels")
        if self.kind == "choice" and numbers[0] >= len(example.options):
            problem = f"label {numbers[0]} of {len(example.options)} options"
            raise BadRow(row.where, problem, "the first is 0; or set task.values")
        return numbers if self.kind == "tag" else numbers[0]

    def spell_labels(self, row: TableRow) -> list[str]:
        """Return the label of a row, or of each of its words (tag), as texts."""
        knob = self.task.label
        values = [self._read_value(row, "label", knob)]
        if self.kind == "tag":
            values = self._read_list(row, "label", knob)
        spelt = []
        for number, value in enumerate(values):
            if isinstance(value, float) and value.is_integer():
                value = int(value)
            text = str(value).lower() if isinstance(value, bool) else str(value).strip()
            if not isinstance(value, str | int) or not text:
                problem = f"label {repr(value)[:80]} of column {knob!r} is no label"
                raise BadRow(_locate_word(row, number), problem, "set --config.task.label")
            spelt.append(text)
        return spelt

    def _number_label(self, where: str, label: str) -> int:
        if self.kind == "choice" and not self.meanings and label.isdecimal() and len(label) < 10:
            return int(label)
        if label not in self.meanings:
            allowed = ", ".join(self.meanings) or "the numbers of options, from 0"
            hint = "--config.task.values=A,B,C says how the file writes them"
            if self.kind != "choice":
                hint = f"objectives.classify.labels (or tag) names the classes; {hint}"
            raise BadRow(where, f"label {label[:80]!r} is not one of: {allowed}", hint)
        return self.meanings[label]

    def _read_number(self, row: TableRow) -> float:
        value = self._read_value(row, "label", self.task.label)
        try:
            number = math.nan if isinstance(value, bool) else float(value)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if not math.isfinite(number):
            shown = f"label {repr(value)[:80]} of column {self.task.label!r}"
            raise BadRow(row.where, f"{shown} is not a finite number")
        return number

    def _read_answers(self, row: TableRow, context: str) -> tuple[Answer, ...]:
        """Read a question's answers, in the form of SQuAD or of Hugging Face's datasets.

        These forms are a list of {text, answer_start}, and {text: [...], answer_start: [...]}.
        """
        value: Any = []
        if row.fields.get("is_impossible") is not True:
            value = self._read_value(row, "label", self.task.label)
        try:
            if isinstance(value, dict):
                pairs = list(zip(value["text"], value["answer_start"], strict=True))
            else:
                pairs = [(answer["text"], answer["answer_start"]) for answer in value]
        except (KeyError, TypeError, ValueError) as error:
            wanted = "a list of answers with text and answer_start"
            raise BadRow(row.where, f"{self.task.label!r} is not {wanted}: {error!r}") from None
        if not pairs and not self.task.no_answer:
            hint = "set --config.task.no_answer=true if there may be none"
            raise BadRow(row.where, "a question without an answer", hint)
        return tuple(_find_answer(row.where, text, start, context) for text, start in pairs)


def _check_text(where: str, value: Any, name: str) -> str:
    """Return a value unchanged; refuse it if it is no text that a model can read."""
    if not isinstance(value, str):
        raise BadRow(where, f"{name} is {type(value).__name__}, not text")
    if not value.strip():
        raise BadRow(where, f"{name} is empty")
    if len(value) > TEXT:  # tokenising it would exhaust memory
        raise BadRow(where, f"{name} has {len(value):,} characters, more than {TEXT:,}")
    if unreadable := UNREADABLE.search(value):
        raise BadRow(where, f"{name} has the character {unreadable[0]!r}")
    return value


def _locate_word(row: TableRow, number: int) -> str:
    """Name the file and line of a word, for an error."""
    return f"{row.where.rpartition(':')[0]}:{row.lines[number]}" if row.lines else row.where


def _find_answer(where: str, text: Any, start: Any, context: str) -> Answer:
    """Return an answer at the place that the file states, or up to NEARBY characters away.

    An answer that is not found there has the place -1.
    """
    _check_text(where, text, "'answer'")
    if type(start) is not int or not 0 <= start < len(context):
        problem = f"answer {text[:80]!r} starts at {start!r} of {len(context)} characters"
        raise BadRow(where, problem)
    if context.startswith(text, start):
        return Answer(text, start)
    # Any whitespace equals any other, also at the ends of the answer.
    pattern = re.compile(r"\s+".join(map(re.escape, text.split())))
    matches = pattern.finditer(context, max(0, start - NEARBY), start + len(text) + NEARBY)
    nearest = min(matches, key=lambda match: abs(match.start() - start), default=None)
    if nearest:
        return Answer(nearest.group(), nearest.start())
    actual = context[start : start + min(len(text), 80)]
    problem = f"answer {text[:80]!r} at character {start}, where the context has {actual!r}"
    return Answer(text, -1, problem)
