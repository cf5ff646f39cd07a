"""Checked fields of a row of labelled data: texts, words, options, answers and labels."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from bert_jax.config.knobs import TEXT, Task
from bert_jax.data.labelled.formats import Row, pick
from bert_jax.errors import ConfigError

MOST_OPTIONS = 1000  # of a question


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer of a span task: `context[start : start + len(text)] == text`, in characters."""

    text: str
    start: int
    # Why the answer is not where its file says, in which case `start` is -1.
    problem: str = field(default="", repr=False)


class BadRow(Exception):
    """Problem of a row, and its place; caught where the policy for bad rows is known."""

    def __init__(self, problem: str, hint: str = "", where: str = ""):
        super().__init__(problem)
        self.problem, self.hint, self.where = problem, hint, where


# --- parts of a row -------------------------------------------------------------------------------


def _value(row: Row, knob: str, name: str) -> Any:
    column = pick(knob, row.fields)
    if not column:
        hint = f"set --config.task.{name} to one of: {', '.join(map(str, row.fields))[:300]}"
        raise BadRow(f"no column {knob!r}", hint)
    return row.fields[column]


def _text(row: Row, knob: str, name: str) -> str:
    return _checked(_value(row, knob, name), knob)


def _checked(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise BadRow(f"{name!r} is {type(value).__name__}, not text")
    if not value.strip():
        raise BadRow(f"{name!r} is empty")
    if "\0" in value:
        raise BadRow(f"{name!r} has a NUL character")
    _bounded(len(value), name)
    if not value.isascii() and any("\ud800" <= c <= "\udfff" for c in value):
        raise BadRow(f"{name!r} has half a surrogate pair")
    return value


def _bounded(characters: int, name: str) -> None:
    """Refuse a text so long that tokenising it would exhaust memory."""
    if characters > TEXT:
        message = f"{name!r} has {characters:,} characters, more than {TEXT:,}"
        raise BadRow(message, "divide it, or leave it out")


def _shortened(value: Any) -> str:
    """Return a value's repr for a message, cut where it is long."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"


def identifier(row: Row, task: Task) -> str:
    """Return a row's id: that of its column, else its number."""
    column = pick(task.id, row.fields)
    if column is None:
        hint = "set --config.task.id, or leave it empty to count rows"
        raise BadRow(f"no column {task.id!r}", hint)
    return str(row.fields[column]) if column else str(row.number)


def _one_or_two(row: Row, task: Task) -> dict[str, Any]:
    pair = _text(row, task.text_pair, "text_pair") if task.text_pair else None
    return {"text": _text(row, task.text, "text"), "pair": pair}


def _words(row: Row, task: Task) -> dict[str, Any]:
    words = _list(_value(row, task.text, "text"), task.text)
    if not words:
        raise BadRow("a sentence without words")
    for number, word in enumerate(words):
        try:
            _checked(word, task.text)
        except BadRow as bad:
            raise BadRow(f"word {number}: {bad.problem}", where=_line(row, number)) from None
    _bounded(sum(map(len, words)), task.text)
    return {"words": tuple(words)}


def _list(value: Any, name: str) -> list:
    if isinstance(value, str):
        return value.split()
    if isinstance(value, list):
        return value
    raise BadRow(f"{name!r} is {type(value).__name__}, not a list of words")


def _line(row: Row, number: int) -> str:
    """Return the file and line of a word."""
    return f"{row.where.rpartition(':')[0]}:{row.lines[number]}" if row.lines else row.where


def _question(row: Row, task: Task) -> dict[str, Any]:
    return {
        "text": _text(row, task.text, "text"),
        "pair": _text(row, task.text_pair or "context", "text_pair"),
    }


def _options(row: Row, task: Task) -> dict[str, Any]:
    """Read options from a column each, or from one list; trailing empty ones are left out."""
    values = [_value(row, knob, "options") for knob in task.options]
    if len(values) == 1 and isinstance(values[0], list):
        values = list(values[0])
    while values and (values[-1] is None or values[-1] == ""):
        values.pop()
    if len(values) < 2:
        raise BadRow(f"{len(values)} options")
    beginning = f"{_text(row, task.text_pair, 'text_pair')} " if task.text_pair else ""
    options = [beginning + _checked(value, f"option {n}") for n, value in enumerate(values)]
    _bounded(sum(map(len, options)), "options")
    return {"text": _text(row, task.text, "text"), "options": tuple(options)}


# --- labels ---------------------------------------------------------------------------------------


def raw_label(row: Row, task: Task) -> Any:
    """Return the label as the file has it."""
    return _value(row, task.label, "label")


def meanings_of(labels: tuple[str, ...], task: Task, kind: str) -> dict[str, int]:
    """Return the number of each class by the texts that mean it: its name, and that of `values`."""
    if kind == "choice" and not labels and not task.values:
        labels = tuple(map(str, range(MOST_OPTIONS)))
    meanings = {name: number for number, name in enumerate(labels)}
    for number, value in enumerate(task.values):
        if meanings.setdefault(value, number) != number:
            message = f"task.values[{number}] = {value!r} already means label {meanings[value]}"
            raise ConfigError(message, "rename labels")
    return meanings


def label_text(value: Any, task: Task) -> str:
    """Return a label as text, as JSON would write it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if value is None or (isinstance(value, str) and not value.strip()):
        hint = (
            "write one; --config.task.on_bad_row=skip leaves a few such rows out; "
            "--config.task.label says the column"
        )
        raise BadRow(f"label {_shortened(value)}: column {task.label!r} is empty", hint)
    if not isinstance(value, str | int):
        message = f"label {_shortened(value)} of column {task.label!r} is no label"
        raise BadRow(message, "set --config.task.label")
    return str(value).strip()


def _number(value: Any, task: Task, meanings: dict[str, int]) -> int:
    label = label_text(value, task)
    if label not in meanings:
        allowed = ", ".join(meanings)
        hint = (
            "objectives.classify.labels (or tag) names the classes, task.values how the file "
            "writes them"
        )
        if len(meanings) >= MOST_OPTIONS:
            allowed = "the numbers of options, from 0"
            hint = "options count from 0; --config.task.values=A,B,C says how the file writes them"
        raise BadRow(f"label {label[:80]!r} is not one of: {allowed}", hint)
    return meanings[label]


def _class(row: Row, task: Task, meanings: dict[str, int], parts: dict[str, Any]) -> int:
    return _number(raw_label(row, task), task, meanings)


# Largest value to regress on: squared errors, and squares of gradients, are summed in float32.
LARGEST = 1e15


def _quantity(row: Row, task: Task, meanings: dict[str, int], parts: dict[str, Any]) -> float:
    value = raw_label(row, task)
    try:
        number = float(value) if not isinstance(value, bool) and "_" not in str(value) else math.nan
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise BadRow(f"label {_shortened(value)} of column {task.label!r} is not a finite number")
    if abs(number) > LARGEST:
        message = f"label {_shortened(value)} of column {task.label!r} is too large"
        hint = f"from -{LARGEST:g} to {LARGEST:g}: write it in another unit"
        raise BadRow(f"{message} to learn in float32", hint)
    return number


def label_texts(row: Row, task: Task) -> list[str]:
    """Return the labels of a row's words."""
    return _each(
        row, _list(raw_label(row, task), task.label), lambda value: label_text(value, task)
    )


def _each(row: Row, values: list, convert: Callable[[Any], Any]) -> list:
    """Convert the label of each word; an error names the word's line."""
    converted = []
    for number, value in enumerate(values):
        try:
            converted.append(convert(value))
        except BadRow as bad:
            raise BadRow(bad.problem, bad.hint, _line(row, number)) from None
    return converted


def _tags(row: Row, task: Task, meanings: dict[str, int], parts: dict[str, Any]) -> tuple[int, ...]:
    names = label_texts(row, task)
    if len(names) != len(parts["words"]):
        raise BadRow(f"{len(parts['words'])} words but {len(names)} labels")
    return tuple(_each(row, names, lambda name: _number(name, task, meanings)))


def _answers(
    row: Row, task: Task, meanings: dict[str, int], parts: dict[str, Any]
) -> tuple[Answer, ...]:
    """Read answers as SQuAD has them, or as Hugging Face's datasets do.

    That is a list of {text, answer_start}, or {text: [...], answer_start: [...]}.
    """
    value: Any = [] if row.fields.get("is_impossible") is True else raw_label(row, task)
    try:
        if isinstance(value, dict):
            pairs = list(zip(value["text"], value["answer_start"], strict=True))
        else:
            pairs = [(answer["text"], answer["answer_start"]) for answer in value]
    except (KeyError, TypeError, ValueError) as error:
        message = f"{task.label!r} is not a list of answers with text and answer_start: {error!r}"
        raise BadRow(message) from None
    if not pairs and not task.no_answer:
        hint = "set --config.task.no_answer=true if there may be none"
        raise BadRow("a question without an answer", hint)
    return tuple(_answer(text, start, parts["pair"]) for text, start in pairs)


def _answer(text: Any, start: Any, context: str) -> Answer:
    _checked(text, "answer")
    if not isinstance(start, int) or isinstance(start, bool) or not 0 <= start < len(context):
        raise BadRow(f"answer {text[:80]!r} starts at {start!r} of {len(context)} characters")
    if context.startswith(text, start):
        return Answer(text, start)
    begin, end = _around(context, start, start + len(text))
    # Any whitespace equals any other, that at the ends too.
    pattern = re.compile(r"\s+".join(map(re.escape, text.split())))
    matches = pattern.finditer(context, begin, end)
    nearest = min(matches, key=lambda match: abs(match.start() - start), default=None)
    if nearest:
        return Answer(nearest.group(), nearest.start())
    actual = context[start : start + min(len(text), 80)]
    problem = f"answer {text[:80]!r} at character {start}, where the context has {actual!r}"
    return Answer(text, -1, problem)


def _around(context: str, start: int, end: int) -> tuple[int, int]:
    """Widen a stretch of the context to whole words; whitespace belongs to the word before it."""
    while start > 0 and context[start].isspace():
        start -= 1
    while start > 0 and not context[start - 1].isspace():
        start -= 1
    end = min(end, len(context))
    while end < len(context) and not context[end].isspace():
        end += 1
    return start, end


def _chosen(row: Row, task: Task, meanings: dict[str, int], parts: dict[str, Any]) -> int:
    number = _number(raw_label(row, task), task, meanings)
    if number >= len(parts["options"]):
        message = f"label {number} of {len(parts['options'])} options"
        raise BadRow(message, "the first is 0; or set task.values")
    return number


PARTS: dict[str, Callable[[Row, Task], dict[str, Any]]] = {
    "classify": _one_or_two,
    "regress": _one_or_two,
    "tag": _words,
    "span": _question,
    "choice": _options,
}
LABELS: dict[str, Callable[[Row, Task, dict[str, int], dict[str, Any]], Any]] = {
    "classify": _class,
    "regress": _quantity,
    "tag": _tags,
    "span": _answers,
    "choice": _chosen,
}
