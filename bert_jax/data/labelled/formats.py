"""Readers of labelled files: tsv, csv, JSON lines and SQuAD's JSON.

Any file may be compressed as .gz or .zst. Only a newline ends a line. Rows that cannot be read go
to `Count.refuse`.
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
from bert_jax.data.text.readers import BROKEN, Pieces, opened
from bert_jax.data.text.sentences import PIECE
from bert_jax.errors import DataError
from bert_jax.system import jsons

WHOLE = 1 << 30  # bytes of a .json file that is one value, at most
BAD_ROWS = 0.01  # share of bad rows that on_bad_row=skip accepts; one is always accepted
# Of .csv files: programs write semicolons in countries with a decimal comma.
DELIMITERS = (",", ";", "\t", "|")
BETWEEN = re.compile(r"[\s,]*")  # what separates the values of an array
LONGER = (
    "--config.task.extra_columns=true leaves further columns out; --config.task.on_bad_row=skip "
    "such rows"
)
Log = Callable[[str], None]


class Row(NamedTuple):
    """Row as its file has it."""

    where: str  # FILE:LINE
    number: int  # in its file, from 0, bad rows counted
    fields: dict[str, Any]
    lines: tuple[int, ...] = ()  # conll, conllu: of each word


@dataclass
class Count:
    """Numbers of rows read and refused, under the policy `on_bad_row`."""

    policy: str
    rows: int = 0
    bad: int = 0
    first: str = ""
    longer: int = 0  # rows whose extra columns are left out

    def refuse(self, where: str, problem: str, hint: str = "", rows: int = 1) -> None:
        """Raise, or count bad rows as left out."""
        if self.policy == "fail":
            mend = "convert the file, for example: iconv -f LATIN1 -t UTF-8 FILE"
            mend = mend if "UTF-8" in problem else "repair it"
            hint = hint or f"{mend}, or set --config.task.on_bad_row=skip"
            raise DataError(f"{where}: {problem}", hint)
        self.bad += rows
        self.first = self.first or f"{where}: {problem}"

    def check(self, log: Log) -> None:
        """Raise if too many rows were left out; log if a few were."""
        if self.bad > max(1, BAD_ROWS * self.rows):
            hint = (
                f"task.on_bad_row=skip accepts {BAD_ROWS:.0%}; are task.format, text and label "
                "right?"
            )
            raise DataError(f"{self.first} ({self.bad} bad rows of {self.rows:,})", hint)
        if self.bad:
            log(f"warning: {self.bad} of {self.rows:,} rows are left out, first {self.first}")
        if self.longer:
            log(
                f"{self.longer:,} of {self.rows:,} rows have more columns than are named: these "
                "are left out"
            )


def pick(knob: str, names: Iterable[str]) -> str | None:
    """Return the column a knob means: the knob itself, else the first of `a|b` that exists.

    An empty alternative, as in `a|`, allows for none: the result is then "".

    >>> pick("sentence1|#1 String", ["Quality", "#1 String"])
    '#1 String'
    """
    if knob in names:
        return knob
    return next((name for name in knob.split("|") if not name or name in names), None)


# --- lines ----------------------------------------------------------------------------------------


def lines(path: Path, limit: int = LINE) -> Iterator[tuple[int, str, str]]:
    """Yield (number from 1, text, problem) of each line; a line over the limit has no text."""
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
                    problem = f"invalid UTF-8 at byte {error.start} of the line"
                    yield number, data.decode(errors="replace"), problem
                else:
                    yield number, text, "a NUL character: is it UTF-8?" if "\0" in text else ""
    except BROKEN as error:
        hint = "it may be cut short; fetch it again"
        raise DataError(f"{path} is damaged: {error}", hint) from error
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}", "check task.source") from error


def _utf8(stream: BinaryIO) -> BinaryIO:
    """Return the stream in UTF-8; one that begins with a mark of UTF-16 is converted.

    Spreadsheets export UTF-16.
    """
    begin = stream.peek(2)[:2]  # type: ignore[attr-defined]  # `opened` returns buffered streams
    if begin in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        return io.BufferedReader(Pieces(stream, _recoded(stream)))
    return stream


def _recoded(stream: BinaryIO) -> Iterator[bytes]:
    """Yield UTF-16 as UTF-8; incomplete characters become bytes that are not valid UTF-8.

    These are half a surrogate pair, or half a character at the end of the file.
    """
    decoder = codecs.getincrementaldecoder("utf-16")("surrogatepass")
    while packed := stream.read(PIECE):
        yield decoder.decode(packed).encode("utf-8", "surrogatepass")
    if decoder.getstate()[0]:
        yield b"\xff"


def _whole(path: Path) -> str:
    """Return the text of a file that is one value, which a single bad line makes unreadable."""
    texts = []
    for number, text, problem in lines(path, WHOLE):
        if problem:
            raise DataError(f"{path}:{number}: {problem}", "repair the file")
        texts.append(text)
    return "\n".join(texts)


# --- tables ---------------------------------------------------------------------------------------


def tsv(path: Path, task: Task, count: Count) -> Iterator[Row]:
    """Read fields between tabs; quotes have a meaning with `task.quoting` alone."""
    return _table(path, task, count, _quoted(path, "\t") if task.quoting else _split(path))


def comma(path: Path, task: Task, count: Count) -> Iterator[Row]:
    """Read fields between commas, or another delimiter of the first line; fields may be quoted."""
    first = next((text for _, text, _ in lines(path) if text.strip()), "")
    return _table(path, task, count, _quoted(path, delimiter(first, task)))


def needed(task: Task) -> list[str]:
    """Return the knobs that name the columns no row can do without."""
    return [knob for knob in (task.text, task.text_pair, *task.options) if knob]


def delimiter(first: str, task: Task) -> str:
    """Return the delimiter of a table, from its first line.

    It divides the line into the columns that are needed, or into as many as are named. If none
    does, it is the one that divides the line most, so that an error can list the columns.
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
    """Yield (first line, lines, fields, problem) of each record; fields may have newlines."""
    problems: dict[int, str] = {}

    def texts() -> Iterator[str]:
        for number, text, problem in lines(path):
            if problem:
                problems[number] = problem
            yield text + "\n"

    # The limit is the process's own. It admits whole documents, and not a quote that is never
    # closed.
    csv.field_size_limit(LINE)
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
        span = reader.line_num + 1 - start  # an open quote takes in all lines up to the end
        of_lines = (problems[n] for n in range(start, start + span) if n in problems)
        problem = problem or next(of_lines, "")
        if fields or problem:
            yield start, span, fields, problem


def _table(
    path: Path, task: Task, count: Count, records: Iterable[tuple[int, int, list[str], str]]
) -> Iterator[Row]:
    """Yield rows by column name; the first line is a header if it has the needed columns."""
    names: list[str] = []
    for line, span, fields, problem in records:
        where = f"{path}:{line}"
        if not names and problem:
            raise DataError(f"{where}: {problem}", "repair the file")
        if not names:
            names = _names(where, fields, task)
            if not _missing(fields, task):
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


def _missing(fields: list[str], task: Task) -> list[str]:
    return [knob for knob in needed(task) if pick(knob, fields) is None]


def _names(where: str, first: list[str], task: Task) -> list[str]:
    """Return the names of a table's columns: its first line, else `task.columns`."""
    missing = _missing(first, task)
    names = list(task.columns) if missing else first
    if not names:
        hint = (
            f"set --config.task.text (text_pair, options) to one of: {', '.join(first)[:300]}; or "
            "columns"
        )
        raise DataError(f"{where}: no column {missing[0]!r}", hint)
    columns = [pick(knob, names) for knob in (*needed(task), task.label)]
    twice = [name for name in columns if name and names.count(name) > 1]
    if twice:
        raise DataError(f"{where}: two columns {twice[0]!r}", "name each column once")
    return names


# --- JSON -----------------------------------------------------------------------------------------


def json_lines(path: Path, task: Task, count: Count) -> Iterator[Row]:
    """Read one object a line."""
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
    """Read a .json file: an array of objects, data in the form of SQuAD, or JSON lines."""
    first = next((text.strip() for _, text, _ in lines(path, WHOLE) if text.strip()), "")
    if first.startswith("["):
        return _array(path, count)
    try:
        value = jsons.parse(first, decoder=jsons.REPEATING)
    except jsons.Malformed:
        value = {"data": []}  # an object over several lines can be SQuAD's alone
    nested = isinstance(value, dict) and isinstance(value.get("data"), list)
    return (squad if nested else json_lines)(path, task, count)


def _array(path: Path, count: Count) -> Iterator[Row]:
    text = _whole(path)
    # Repeated keys are left for the second look, which knows the line of each row.
    values = _parsed(path, text, jsons.REPEATING)
    at, start, line = text.index("[") + 1, 0, 1
    for value in values:
        at = BETWEEN.match(text, at).end()  # type: ignore[union-attr]  # it also matches nothing
        line += text.count("\n", start, at)
        start, (_, at) = at, jsons.REPEATING.raw_decode(text, at)
        problem = ""
        try:
            jsons.parse(text[start:at])
        except jsons.Malformed as error:
            problem = str(error)
        yield from _object(f"{path}:{line}", value, problem, count)


def _parsed(path: Path, text: str, decoder: json.JSONDecoder = jsons.LOOSE) -> Any:
    try:
        return jsons.parse(text, decoder=decoder)
    except jsons.Malformed as error:
        where = f"{path}:{error.line}" if error.line else path
        raise DataError(f"{where}: {error}", "repair the file") from error


def squad(path: Path, task: Task, count: Count) -> Iterator[Row]:
    """Read SQuAD's questions, each with its context; a search for their ids finds their lines."""
    text = _whole(path)
    at, line = 0, 1

    def member(parent: Any, key: str, kind: type, where: str) -> Any:
        value = parent.get(key) if isinstance(parent, dict) else None
        if not isinstance(value, kind):
            hint = "a file in the form of SQuAD, or set task.format"
            raise DataError(f"{path}:{line}: {where} has no {key!r}", hint)
        return value

    for a, article in enumerate(member(_parsed(path, text), "data", list, "the file")):
        for p, paragraph in enumerate(member(article, "paragraphs", list, f"data[{a}]")):
            where = f"data[{a}].paragraphs[{p}]"
            context = member(paragraph, "context", str, where)
            for qa in member(paragraph, "qas", list, where):
                name = member(qa, "id", object, f"a question of {where}")
                place = text.find(json.dumps(name, ensure_ascii=False), at)
                # An id written with escapes is not found, and keeps the line of the one before.
                if place >= 0:
                    line, at = line + text.count("\n", at, place), place
                yield from _object(f"{path}:{line}", {**qa, "context": context}, "", count)
