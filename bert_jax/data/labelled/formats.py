"""Formats of labelled files: tsv, csv, JSON lines and the JSON of SQuAD become rows, each with its file and line.

Any may be packed as .gz or .zst. Only a newline ends a line. What cannot be read goes to `Count.refuse`.
"""

from __future__ import annotations

import codecs
import csv
import io
import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from bert_jax.config.knobs import LINE, Task
from bert_jax.data.text.readers import BROKEN, opened
from bert_jax.data.text.sentences import PIECE
from bert_jax.errors import DataError
from bert_jax.system import jsons

WHOLE = 1 << 30  # bytes of a .json file that is one value
BAD_ROWS = 0.01  # share of rows that on_bad_row=skip accepts; one is always accepted
DELIMITERS = (
    ",",
    ";",
    "\t",
    "|",
)  # of a .csv file; programs of countries with a decimal comma write semicolons
BETWEEN = re.compile(r"[\s,]*")  # values of an array
LONGER = "--config.task.extra_columns=true leaves further columns out; --config.task.on_bad_row=skip such rows"
Log = Callable[[str], None]


class Row(NamedTuple):
    """One row as its file has it."""

    where: str  # FILE:LINE
    number: int  # in its file, bad rows included, from 0
    fields: dict[str, Any]
    lines: tuple[int, ...] = ()  # conll, conllu: of each word


@dataclass
class Count:
    """Rows seen and rows refused, under `on_bad_row`."""

    policy: str
    rows: int = 0
    bad: int = 0
    first: str = ""
    longer: int = 0  # rows whose further columns are left out

    def refuse(self, where: str, problem: str, hint: str = "", rows: int = 1) -> None:
        """Raises, or leaves bad rows out."""
        if self.policy == "fail":
            raise DataError(
                f"{where}: {problem}", hint or "repair it, or set --config.task.on_bad_row=skip"
            )
        self.bad += rows
        self.first = self.first or f"{where}: {problem}"

    def check(self, log: Log) -> None:
        """Raises where too many rows were left out; says so where few were."""
        if self.bad > max(1, BAD_ROWS * self.rows):
            hint = f"task.on_bad_row=skip accepts {BAD_ROWS:.0%}; are task.format, text and label right?"
            raise DataError(f"{self.first} ({self.bad} bad rows of {self.rows:,})", hint)
        if self.bad:
            log(f"warning: {self.bad} of {self.rows:,} rows are left out, first {self.first}")
        if self.longer:
            log(
                f"{self.longer:,} of {self.rows:,} rows have more columns than are named: these are left out"
            )


def pick(knob: str, names: Iterable[str]) -> str | None:
    """The column a knob means: itself, else the first of `a|b` that is there; "" if an empty one may stand for none.

    >>> pick("sentence1|#1 String", ["Quality", "#1 String"])
    '#1 String'
    """
    if knob in names:
        return knob
    return next((name for name in knob.split("|") if not name or name in names), None)


# --- lines ----------------------------------------------------------------------------------------


def lines(path: Path, limit: int = LINE) -> Iterator[tuple[int, str, str]]:
    """Yield (number from 1, text, what is wrong with it); of a line of more bytes than the limit no text is kept."""
    try:
        with opened(str(path)) as packed:
            stream = _utf8(packed)
            for number in itertools.count(1):
                data = stream.readline(limit + 1)
                if not data:
                    return
                if len(data) > limit and not data.endswith(b"\n"):
                    while (rest := stream.readline(PIECE)) and not rest.endswith(b"\n"):
                        pass
                    yield number, "", f"a line of more than {limit:,} bytes"
                    continue
                data = data.removesuffix(b"\n").removesuffix(b"\r")
                if number == 1:
                    data = data.removeprefix(b"\xef\xbb\xbf")
                try:
                    text = data.decode()
                except UnicodeDecodeError as error:
                    yield (
                        number,
                        data.decode(errors="replace"),
                        f"invalid UTF-8 at byte {error.start} of the line",
                    )
                else:
                    yield number, text, "a NUL character: is it UTF-8?" if "\0" in text else ""
    except BROKEN as error:
        raise DataError(
            f"{path} is damaged: {error}", "it may be cut short; fetch it again"
        ) from error
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}", "check task.source") from error


def _utf8(stream: BinaryIO) -> BinaryIO:
    """Return the stream, or where it begins with the mark of UTF-16, as spreadsheets export it, the same in UTF-8."""
    begin = stream.peek(2)[:2]  # type: ignore[attr-defined]  # all that `opened` returns are buffered
    return (
        io.BufferedReader(_Recoded(stream))
        if begin in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
        else stream
    )


class _Recoded(io.RawIOBase):
    """UTF-16 as UTF-8; half a surrogate pair, or half a character at the end, becomes bytes that are not UTF-8."""

    def __init__(self, stream: BinaryIO):
        self.stream = stream
        self.decoder = codecs.getincrementaldecoder("utf-16")("surrogatepass")
        self.data = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self.data:
            packed = self.stream.read(PIECE)
            if not packed:
                self.data = (
                    b"\xff" if self.decoder.getstate()[0] else b""
                )  # half a character is left
                self.decoder.reset()
                break
            self.data = self.decoder.decode(packed).encode("utf-8", "surrogatepass")
        taken = min(len(buffer), len(self.data))
        buffer[:taken], self.data = self.data[:taken], self.data[taken:]
        return taken


def _whole(path: Path) -> str:
    """A file that is one value: a bad line spoils it."""
    texts = []
    for number, text, problem in lines(path, WHOLE):
        if problem:
            raise DataError(f"{path}:{number}: {problem}", "repair the file")
        texts.append(text)
    return "\n".join(texts)


# --- tables ---------------------------------------------------------------------------------------


def tsv(path: Path, task: Task, count: Count) -> Iterator[Row]:
    """Fields between tabs; quotes mean nothing unless `task.quoting`."""
    return _table(path, task, count, _quoted(path, "\t") if task.quoting else _split(path))


def comma(path: Path, task: Task, count: Count) -> Iterator[Row]:
    """Read fields between commas, or what else the first line has between its columns; quotes hold one together."""
    first = next((text for _, text, _ in lines(path) if text.strip()), "")
    return _table(path, task, count, _quoted(path, delimiter(first, task)))


def needed(task: Task) -> list[str]:
    """Return the knobs' columns without which no row can be used."""
    return [knob for knob in (task.text, task.text_pair, *task.options) if knob]


def delimiter(first: str, task: Task) -> str:
    """Return what divides a table's first line into the columns that are needed, or into as many as are named.

    Where nothing does, it is what divides the line at all, so that an error can list the columns there are.
    """
    divided = {mark: next(csv.reader([first[:PIECE]], delimiter=mark), []) for mark in DELIMITERS}
    for mark, fields in divided.items():
        if all(pick(knob, fields) is not None for knob in needed(task)):
            return mark
    same = [mark for mark, fields in divided.items() if len(fields) == len(task.columns)]
    return next(iter(same), max(divided, key=lambda mark: len(divided[mark])))


def _split(path: Path) -> Iterator[tuple[int, int, list[str], str]]:
    for number, text, problem in lines(path):
        if text or problem:
            yield number, 1, text.split("\t"), problem


def _quoted(path: Path, delimiter: str) -> Iterator[tuple[int, int, list[str], str]]:
    """(first line, lines, fields, problem); a quoted field may hold newlines."""
    problems: dict[int, str] = {}

    def texts() -> Iterator[str]:
        for number, text, problem in lines(path):
            if problem:
                problems[number] = problem
            yield text + "\n"

    csv.field_size_limit(
        LINE
    )  # of the process: a document is no mistake, and a quote that never ends is
    reader = csv.reader(texts(), delimiter=delimiter, strict=True)
    while True:
        start = reader.line_num + 1
        try:
            fields, problem = next(reader), ""
        except StopIteration:
            return
        except csv.Error as error:
            fields, problem = [], f"not CSV: {error}"
            if "field limit" in str(error):
                problem = f"a field of more than {LINE:,} bytes"
            if delimiter == "\t":
                problem += "; --config.task.format=tsv takes quotes as text"
        span = reader.line_num + 1 - start  # an open quote swallows all lines up to the end
        problem = problem or next(
            (problems[n] for n in range(start, start + span) if n in problems), ""
        )
        if fields or problem:
            yield start, span, fields, problem


def _table(
    path: Path, task: Task, count: Count, records: Iterable[tuple[int, int, list[str], str]]
) -> Iterator[Row]:
    """Rows by column name; the first line names the columns if it holds those that are needed."""
    names: list[str] = []
    for line, span, fields, problem in records:
        where = f"{path}:{line}"
        if not names and problem:
            raise DataError(f"{where}: {problem}", "repair the file")
        if not names:
            missing = [knob for knob in needed(task) if pick(knob, fields) is None]
            names = list(task.columns) if missing else fields
            if not names:
                hint = f"set --config.task.text (text_pair, options) to one of: {', '.join(fields)[:300]}; or columns"
                raise DataError(f"{where}: no column {missing[0]!r}", hint)
            twice = [
                name
                for knob in (*needed(task), task.label)
                if (name := pick(knob, names)) and names.count(name) > 1
            ]
            if twice:
                raise DataError(f"{where}: two columns {twice[0]!r}", "name each column once")
            if not missing:
                continue
        hint = ""
        if not problem and len(fields) > len(names) and task.extra_columns:
            count.longer += 1
            fields = fields[: len(names)]
        if not problem and len(fields) != len(names):
            problem = f"{len(fields)} columns, not {len(names)}"
            hint = LONGER if len(fields) > len(names) else ""
        count.rows += 1 if fields else span
        if problem:
            count.refuse(where, problem, hint, rows=1 if fields else span)
        else:
            yield Row(where, count.rows - 1, dict(zip(names, fields, strict=True)))


# --- JSON -----------------------------------------------------------------------------------------


def json_lines(path: Path, task: Task, count: Count) -> Iterator[Row]:
    """An object a line."""
    for number, text, problem in lines(path):
        if not text.strip() and not problem:
            continue
        value: Any = None
        if not problem:
            try:
                value = jsons.parse(text)
            except jsons.Malformed as error:
                problem = str(error)
        yield from _object(f"{path}:{number}", value, problem, count)


def _object(where: str, value: Any, problem: str, count: Count) -> Iterator[Row]:
    if not problem and not isinstance(value, dict):
        problem = f"a JSON {type(value).__name__}, not an object"
    count.rows += 1
    if problem:
        count.refuse(where, problem)
    else:
        yield Row(where, count.rows - 1, value)


def json_file(path: Path, task: Task, count: Count) -> Iterator[Row]:
    """A .json file: an array of objects, data in the form of SQuAD, or JSON lines all the same."""
    first = next((text.strip() for _, text, _ in lines(path, WHOLE) if text.strip()), "")
    if first.startswith("["):
        return _array(path, count)
    try:
        value = jsons.parse(first)
    except jsons.Malformed:
        value = {"data": []}  # an object over several lines
    nested = isinstance(value, dict) and isinstance(value.get("data"), list)
    return (squad if nested else json_lines)(path, task, count)


def _array(path: Path, count: Count) -> Iterator[Row]:
    text = _whole(path)
    values, decoder = _parsed(path, text), jsons.LOOSE
    at, start, line = text.index("[") + 1, 0, 1
    for value in values:
        at = BETWEEN.match(text, at).end()  # type: ignore[union-attr]  # it matches anything, if only nothing
        line += text.count("\n", start, at)
        start, (_, at) = at, decoder.raw_decode(text, at)
        yield from _object(f"{path}:{line}", value, "", count)


def _parsed(path: Path, text: str) -> Any:
    try:
        return jsons.parse(text)
    except jsons.Malformed as error:
        raise DataError(f"{path}:{error.line}: {error}", "repair the file") from error


def squad(path: Path, task: Task, count: Count) -> Iterator[Row]:
    """Questions, each with its context; found again in the text, in order, for their lines."""
    text = _whole(path)
    at, line = 0, 1

    def inside(holder: Any, key: str, kind: type, where: str) -> Any:
        value = holder.get(key) if isinstance(holder, dict) else None
        if not isinstance(value, kind):
            raise DataError(
                f"{path}:{line}: {where} has no {key!r}",
                "a file in the form of SQuAD, or set task.format",
            )
        return value

    for a, article in enumerate(inside(_parsed(path, text), "data", list, "the file")):
        for p, paragraph in enumerate(inside(article, "paragraphs", list, f"data[{a}]")):
            where = f"data[{a}].paragraphs[{p}]"
            context = inside(paragraph, "context", str, where)
            for qa in inside(paragraph, "qas", list, where):
                mark = text.find(
                    json.dumps(
                        inside(qa, "id", object, f"a question of {where}"), ensure_ascii=False
                    ),
                    at,
                )
                if (
                    mark >= 0
                ):  # an id may be written with escapes: then the line is that of the question before
                    line, at = line + text.count("\n", at, mark), mark
                yield from _object(f"{path}:{line}", {**qa, "context": context}, "", count)
