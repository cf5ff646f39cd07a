"""Read the parts of an example from a row of labelled data: texts, words, options and labels."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import re
from collections.abc import Callable
from typing import Any

from bert_jax.config.knobs import TEXT, Task
from bert_jax.data.row_formats import BadRow, Row, pick_column
from bert_jax.errors import ConfigError, DataError

NEARBY = 8  # characters around an answer's place in which the answer is searched for
MOST_OPTIONS = 1000  # of a question
LARGEST = 1e15  # value to regress on: squared errors and gradients are summed in float32
UNREADABLE = re.compile("[\0\ud800-\udfff]")  # NUL, and half of a surrogate pair
Meanings = dict[str, int]  # what a file writes for a label -> number of the label
Fields = dict[str, Any]  # of an example


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """Answer of a span task: `context[start : start + len(text)] == text`, in characters."""

    text: str
    start: int
    # Why the answer is not where its file says, in which case `start` is -1.
    problem: str = dataclasses.field(default="", repr=False)


def _read_value(row: Row, knob: str, name: str) -> Any:
    column = pick_column(knob, row.fields)
    if not column:
        hint = f"set --config.task.{name} to one of: {', '.join(map(str, row.fields))[:300]}"
        raise DataError(f"{row.where}: no column {knob!r}", hint)
    return row.fields[column]


def _read_text(row: Row, knob: str, name: str) -> str:
    return _check_text(row.where, _read_value(row, knob, name), repr(knob))


def _check_text(where: str, value: Any, name: str) -> str:
    """Return a value after the check that it is a text which a model can read."""
    if not isinstance(value, str):
        raise BadRow(where, f"{name} is {type(value).__name__}, not text")
    if not value.strip():
        raise BadRow(where, f"{name} is empty")
    if len(value) > TEXT:  # tokenising it would exhaust memory
        raise BadRow(where, f"{name} has {len(value):,} characters, more than {TEXT:,}")
    if unreadable := UNREADABLE.search(value):
        raise BadRow(where, f"{name} has the character {unreadable[0]!r}")
    return value


def _read_list(row: Row, knob: str, name: str) -> list[Any]:
    """Return a list of words or labels, which a text separates by blanks."""
    value = _read_value(row, knob, name)
    if isinstance(value, str):
        return value.split()
    if not isinstance(value, list):
        raise BadRow(row.where, f"{knob!r} is {type(value).__name__}, not a list of words")
    return value


def _locate_word(row: Row, number: int) -> str:
    """Return the file and line of a word."""
    return f"{row.where.rpartition(':')[0]}:{row.lines[number]}" if row.lines else row.where


def read_id(row: Row, task: Task) -> str:
    """Return a row's id: the value of its column, else its number."""
    column = pick_column(task.id, row.fields)
    if column is None:
        hint = "set --config.task.id, or leave it empty to count rows"
        raise DataError(f"{row.where}: no column {task.id!r}", hint)
    return str(row.fields[column] if column else row.number)


def _read_texts(row: Row, task: Task) -> Fields:
    pair = _read_text(row, task.text_pair, "text_pair") if task.text_pair else None
    return {"text": _read_text(row, task.text, "text"), "pair": pair}


def _read_question(row: Row, task: Task) -> Fields:
    context = _read_text(row, task.text_pair or "context", "text_pair")
    return {"text": _read_text(row, task.text, "text"), "pair": context}


def _read_words(row: Row, task: Task) -> Fields:
    words = _read_list(row, task.text, "text")
    if not words:
        raise BadRow(row.where, "a sentence without words")
    for number, word in enumerate(words):
        _check_text(_locate_word(row, number), word, f"word {number}: {task.text!r}")
    return {"words": tuple(words)}


def _read_options(row: Row, task: Task) -> Fields:
    """Read options from a column each or from one list, without empty options at the end."""
    values = [_read_value(row, knob, "options") for knob in task.options]
    if len(values) == 1 and isinstance(values[0], list):
        values = list(values[0])
    while values and values[-1] in (None, ""):
        values.pop()
    if len(values) < 2:
        raise BadRow(row.where, f"{len(values)} options")
    beginning = f"{_read_text(row, task.text_pair, 'text_pair')} " if task.text_pair else ""
    options = [_check_text(row.where, value, f"'option {n}'") for n, value in enumerate(values)]
    options = [beginning + option for option in options]
    return {"text": _read_text(row, task.text, "text"), "options": tuple(options)}


FIELDS: dict[str, Callable[[Row, Task], Fields]] = {
    "classify": _read_texts,
    "regress": _read_texts,
    "tag": _read_words,
    "span": _read_question,
    "choice": _read_options,
}


# --- labels ---------------------------------------------------------------------------------------


def find_meanings(labels: tuple[str, ...], task: Task, kind: str) -> Meanings:
    """Return the number of each label by the texts that mean it: its name, and its value."""
    if kind == "choice" and not labels and not task.values:
        labels = tuple(map(str, range(MOST_OPTIONS)))
    meanings = {name: number for number, name in enumerate(labels)}
    for number, value in enumerate(task.values):
        if meanings.setdefault(value, number) != number:
            message = f"task.values[{number}] = {value!r} already means label {meanings[value]}"
            raise ConfigError(message, "rename labels")
    return meanings


def _spell_label(where: str, value: Any, task: Task) -> str:
    """Return a label as text, as JSON would write it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if value is None or (isinstance(value, str) and not value.strip()):
        hint = "write one; --config.task.label says the column"
        raise BadRow(where, f"label {value!r}: column {task.label!r} is empty", hint)
    if not isinstance(value, str | int):
        problem = f"label {repr(value)[:80]} of column {task.label!r} is no label"
        raise BadRow(where, problem, "set --config.task.label")
    return str(value).strip()


def spell_labels(row: Row, task: Task, kind: str) -> list[str]:
    """Return the labels of a row as text: of each word (tag), or of the row."""
    if kind != "tag":
        return [_spell_label(row.where, _read_value(row, task.label, "label"), task)]
    values = _read_list(row, task.label, "label")
    return [_spell_label(_locate_word(row, n), value, task) for n, value in enumerate(values)]


def _number_label(where: str, value: Any, task: Task, meanings: Meanings) -> int:
    label = _spell_label(where, value, task)
    if label in meanings:
        return meanings[label]
    allowed = ", ".join(meanings)
    hint = "objectives.classify.labels (or tag) names the classes, task.values how the file writes"
    if len(meanings) >= MOST_OPTIONS:
        allowed = "the numbers of options, from 0"
        hint = "options count from 0; --config.task.values=A,B,C says how the file writes"
    raise BadRow(where, f"label {label[:80]!r} is not one of: {allowed}", f"{hint} them")


def _read_class(row: Row, task: Task, meanings: Meanings, fields: Fields) -> int:
    return _number_label(row.where, _read_value(row, task.label, "label"), task, meanings)


def _read_choice(row: Row, task: Task, meanings: Meanings, fields: Fields) -> int:
    number = _read_class(row, task, meanings, fields)
    if number >= len(fields["options"]):
        problem = f"label {number} of {len(fields['options'])} options"
        raise BadRow(row.where, problem, "the first is 0; or set task.values")
    return number


def _read_number(row: Row, task: Task, meanings: Meanings, fields: Fields) -> float:
    value = _read_value(row, task.label, "label")
    number = math.nan
    if not isinstance(value, bool) and "_" not in str(value):  # float() would take both
        with contextlib.suppress(TypeError, ValueError):
            number = float(value)
    if not abs(number) <= LARGEST:
        shown = f"label {repr(value)[:80]} of column {task.label!r}"
        raise BadRow(row.where, f"{shown} is not a number from -{LARGEST:g} to {LARGEST:g}")
    return number


def _read_tags(row: Row, task: Task, meanings: Meanings, fields: Fields) -> tuple[int, ...]:
    values = _read_list(row, task.label, "label")
    if len(values) != len(fields["words"]):
        raise BadRow(row.where, f"{len(fields['words'])} words but {len(values)} labels")
    tags = []
    for number, value in enumerate(values):
        tags.append(_number_label(_locate_word(row, number), value, task, meanings))
    return tuple(tags)


def _read_answers(row: Row, task: Task, meanings: Meanings, fields: Fields) -> tuple[Answer, ...]:
    """Read answers as SQuAD has them, or as Hugging Face's datasets do.

    That is a list of {text, answer_start}, or {text: [...], answer_start: [...]}.
    """
    value: Any = []
    if row.fields.get("is_impossible") is not True:
        value = _read_value(row, task.label, "label")
    try:
        if isinstance(value, dict):
            pairs = list(zip(value["text"], value["answer_start"], strict=True))
        else:
            pairs = [(answer["text"], answer["answer_start"]) for answer in value]
    except (KeyError, TypeError, ValueError) as error:
        problem = f"{task.label!r} is not a list of answers with text and answer_start: {error!r}"
        raise BadRow(row.where, problem) from None
    if not pairs and not task.no_answer:
        hint = "set --config.task.no_answer=true if there may be none"
        raise BadRow(row.where, "a question without an answer", hint)
    return tuple(_find_answer(row.where, text, start, fields["pair"]) for text, start in pairs)


def _find_answer(where: str, text: Any, start: Any, context: str) -> Answer:
    """Return an answer at its place in the file, or at the nearest place close by."""
    _check_text(where, text, "'answer'")
    if type(start) is not int or not 0 <= start < len(context):
        problem = f"answer {text[:80]!r} starts at {start!r} of {len(context)} characters"
        raise BadRow(where, problem)
    if context.startswith(text, start):
        return Answer(text, start)
    # Any whitespace equals any other, also at the ends of the answer.
    pattern = re.compile(r"\s+".join(map(re.escape, text.split())))
    end = start + len(text) + NEARBY
    matches = pattern.finditer(context, max(0, start - NEARBY), end)
    nearest = min(matches, key=lambda match: abs(match.start() - start), default=None)
    if nearest:
        return Answer(nearest.group(), nearest.start())
    actual = context[start : start + min(len(text), 80)]
    problem = f"answer {text[:80]!r} at character {start}, where the context has {actual!r}"
    return Answer(text, -1, problem)


LABELS: dict[str, Callable[[Row, Task, Meanings, Fields], Any]] = {
    "classify": _read_class,
    "regress": _read_number,
    "tag": _read_tags,
    "span": _read_answers,
    "choice": _read_choice,
}
