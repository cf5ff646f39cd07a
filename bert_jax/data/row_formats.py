"""Read the rows of one file of labelled data: tables, JSON, words in columns, and parquet.

The end of a file's name, or `task.format`, says the format. Files may be compressed as .gz or .zst.
Only a newline ends a line.

    read_file(Path("dev.tsv"), task)[0]    -> Row("dev.tsv:2", {"text": "It rains.", "label": "1"})
"""

from __future__ import annotations

import csv
import dataclasses
import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from bert_jax.config.knobs import LINE, Task
from bert_jax.data.files import open_packed
from bert_jax.errors import DataError
from bert_jax.system import jsons

CONLLU = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")


class BadRow(DataError):
    """A row that cannot be used, by file and line."""

    def __init__(self, where: str, problem: object, hint: str = "repair it, or leave it out"):
        super().__init__(f"{where}: {problem}", hint)


@dataclasses.dataclass(slots=True)
class Row:
    """A row as its file has it."""

    where: str  # FILE:LINE, for messages
    fields: dict[str, Any]
    lines: tuple[int, ...] = ()  # conll, conllu: the line of each word
    problem: str = ""  # why there are no fields
    number: int = 0  # in its file, from 0


def pick_column(knob: str, names: Iterable[str]) -> str | None:
    """Return the column that a knob means: the knob itself, else the first of `a|b` that exists.

    An empty alternative, as in `a|`, allows for no column: the result is then "".

    >>> pick_column("sentence1|#1 String", ["Quality", "#1 String"])
    '#1 String'
    """
    if knob in names:
        return knob
    return next((name for name in knob.split("|") if not name or name in names), None)


# --- tables ---------------------------------------------------------------------------------------


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the number, from 1, and the text of each line."""
    number = 0
    try:
        with open_packed(str(path)) as stream:
            for number, data in enumerate(stream, 1):
                line = data.removesuffix(b"\n").removesuffix(b"\r").decode()
                yield number, line.removeprefix("\ufeff") if number == 1 else line
    except UnicodeDecodeError as error:
        problem = f"{path}:{number}: invalid UTF-8 at byte {error.start} of the line"
        hint = "convert the file, for example: iconv -f LATIN1 -t UTF-8 FILE"
        raise DataError(problem, hint) from error
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}", "check task.source") from error


def _read_tsv(path: Path, task: Task) -> Iterator[Row]:
    """Read fields between tabs, in which quotes have no meaning."""
    return _read_table(path, task, ((n, line.split("\t")) for n, line in read_lines(path) if line))


def _read_csv(path: Path, task: Task) -> Iterator[Row]:
    """Read fields between commas. Double quotes hold a field together."""
    return _read_table(path, task, _split_csv(path))


def _split_csv(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the first line and the fields of each record."""
    csv.field_size_limit(LINE)  # of the process; it ends a quote that is never closed
    records = csv.reader((line + "\n" for _, line in read_lines(path)), strict=True)
    line = 1
    try:
        for fields in records:
            if fields:
                yield line, fields
            line = records.line_num + 1
    except csv.Error as error:
        hint = 'a field with a comma or a quote is written "like ""this"""'
        raise DataError(f"{path}:{line}: not CSV: {error}", hint) from error


def _read_table(path: Path, task: Task, records: Iterator[tuple[int, list[str]]]) -> Iterator[Row]:
    """Yield rows by column name. The first line is a header if it has the needed columns."""
    first = next(records, None)
    if first is None:
        return
    line, names = first
    needed = [knob for knob in (task.text, task.text_pair, *task.options) if knob]
    missing = [knob for knob in needed if pick_column(knob, names) is None]
    if missing and not task.columns:
        listed = ", ".join(names)[:300]
        hint = f"set --config.task.text (text_pair, options) to one of: {listed}; or columns"
        raise DataError(f"{path}:{line}: no column {missing[0]!r}", hint)
    if missing:  # the first line is a row
        records = itertools.chain([first], records)
        names = list(task.columns)
    for line, fields in records:
        problem = ""
        if len(fields) != len(names):
            problem = f"{len(fields)} columns, not {len(names)}"
        named = {} if problem else dict(zip(names, fields, strict=True))
        yield Row(f"{path}:{line}", named, problem=problem)


# --- JSON -----------------------------------------------------------------------------------------


def _read_jsonl(path: Path, task: Task) -> Iterator[Row]:
    """Read one object a line."""
    for number, line in read_lines(path):
        where = f"{path}:{number}"
        try:
            if line.strip():
                yield _make_row(where, jsons.parse(line))
        except jsons.Malformed as error:
            raise BadRow(where, error) from error


def _make_row(where: str, fields: Any) -> Row:
    if not isinstance(fields, dict):
        raise BadRow(where, f"a JSON {type(fields).__name__}, not an object")
    return Row(where, fields)


def _read_json(path: Path, task: Task) -> Iterator[Row]:
    """Read an array of objects, data in the form of SQuAD, or one object a line."""
    value: Any = {}
    try:
        value = jsons.parse("\n".join(line for _, line in read_lines(path)))
    except jsons.Malformed as error:
        if "Extra data" not in str(error):  # what Python says of one value after another
            raise DataError(f"{path}:{error.line}: {error}", "repair the file") from error
    if isinstance(value, list):
        yield from (_make_row(f"{path}: row {n}", fields) for n, fields in enumerate(value))
    elif isinstance(value, dict) and isinstance(value.get("data"), list):
        yield from _read_squad(path, value["data"])
    else:
        yield from _read_jsonl(path, task)


def _read_squad(path: Path, data: list[Any]) -> Iterator[Row]:
    """Read SQuAD's questions, each with its context."""
    where = f"{path}: data"
    try:
        for a, article in enumerate(data):
            for p, paragraph in enumerate(article["paragraphs"]):
                where = f"{path}: data[{a}].paragraphs[{p}]"
                for question in paragraph["qas"]:
                    fields = {**question, "context": paragraph["context"]}
                    yield Row(f"{path}: question {question['id']}", fields)
    except KeyError as error:
        raise DataError(f"{where} has no {error}", "a file in the form of SQuAD") from error
    except TypeError as error:
        raise DataError(f"{where} is not as in SQuAD: {error}", "repair the file") from error


# --- words ----------------------------------------------------------------------------------------


def _read_conll(path: Path, task: Task) -> Iterator[Row]:
    """Read columns that tabs part, else blanks, as "0", "1", … and from the last "-1", "-2", ….

    "text" is the first column and "label" the last. If `task.text` and `task.label` both count from
    0, columns after them may be missing. Lines such as "# text = It rains" are comments.
    """
    last = None  # column to read up to
    if task.text.isdigit() and task.label.isdigit():
        last = 1 + max(int(task.text), int(task.label))
    for lines, columns in _read_sentences(path, r"-DOCSTART-|#\s*\w[^\t]* = ", last):
        fields = {"text": columns[0]}
        if len(columns) > 1:
            fields["label"] = columns[-1]
        for number, column in enumerate(columns):
            fields[str(number)] = column
            fields[str(number - len(columns))] = column
        yield Row(f"{path}:{lines[0]}", fields, lines)


def _read_conllu(path: Path, task: Task) -> Iterator[Row]:
    """Read columns by name, without multiword tokens (1-2) and empty nodes (1.1)."""
    for lines, columns in _read_sentences(path, r"#|\d+[-.]\d", width=len(CONLLU)):
        fields = dict(zip(CONLLU, columns, strict=True))
        fields |= {"text": fields["form"], "label": fields["upos"]}
        yield Row(f"{path}:{lines[0]}", fields, lines)


def _read_sentences(
    path: Path, skipped: str, last: int | None = None, width: int = 0
) -> Iterator[tuple[tuple[int, ...], list[list[str]]]]:
    """Yield the line numbers and the columns of the words between blank lines.

    Lines that begin as the expression `skipped` are left out. All words have `width` columns, or as
    many as the first word.
    """
    expression = re.compile(skipped)
    for is_blank, lines in itertools.groupby(read_lines(path), lambda line: not line[1].strip()):
        numbers: list[int] = []
        rows: list[list[str]] = []
        for number, line in lines:
            if is_blank or expression.match(line):
                continue
            cells = line.split("\t") if "\t" in line else list(filter(None, line.split(" ")))
            width = width or len(cells[:last])
            if len(cells[:last]) != width:
                raise BadRow(f"{path}:{number}", f"{len(cells)} columns, not {width}")
            numbers.append(number)
            rows.append(cells[:last])
        if rows:
            yield tuple(numbers), [list(column) for column in zip(*rows, strict=True)]


# --- the table of formats -------------------------------------------------------------------------


def _read_parquet(path: Path, task: Task) -> Iterator[Row]:
    from pyarrow import ArrowException, parquet  # slow to import

    try:
        batches = parquet.ParquetFile(path).iter_batches()
        rows = itertools.chain.from_iterable(batch.to_pylist() for batch in batches)
        yield from (Row(f"{path}: row {number}", fields) for number, fields in enumerate(rows))
    except (OSError, ArrowException) as error:
        raise DataError(f"{path} cannot be read: {error}", "fetch it again") from error


READERS: dict[str, Callable[[Path, Task], Iterator[Row]]] = {
    "tsv": _read_tsv,
    "csv": _read_csv,
    "jsonl": _read_jsonl,
    "json": _read_json,
    "conll": _read_conll,
    "conllu": _read_conllu,
    "parquet": _read_parquet,
}
SUFFIXES = {f".{name}": name for name in READERS} | {".iob2": "conll"}


def read_file(path: Path, task: Task) -> list[Row]:
    """Return the rows of a file whose format the task, or else its name says."""
    named = [SUFFIXES[end.lower()] for end in path.suffixes if end.lower() in SUFFIXES]
    if task.format == "auto" and not named:
        raise DataError(
            f"{path}: its name does not say what format it has",
            f"--config.task.format=NAME: {', '.join(READERS)}",
        )
    read = READERS[named[-1] if task.format == "auto" else task.format]
    rows = list(read(path, task))
    for number, row in enumerate(rows):
        row.number = number
    return rows
