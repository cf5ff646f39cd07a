"""Rows of labelled data, from the files of a task's source or from TFDS.

A source is files:FOLDER, files:FILE, files:PATTERN with {split}, files:train=FILE,validation=FILE
or tfds:NAME. The end of a file's name, or `task.format`, says its format. Files may be compressed
as .gz or .zst. A share of the rows of a single file is held out for validation.

    read_rows(task, "validation")[0]
        -> TableRow("dev.tsv:2", {"text": "It rains.", "label": "1"})
"""

import collections
import csv
import dataclasses
import hashlib
import itertools
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

from bert_jax.config.knobs import LINE, Task
from bert_jax.data import tfds
from bert_jax.data.files import PACKED, open_packed, parse_rows, read_parquet
from bert_jax.errors import DataError, MissingError, suggest_path
from bert_jax.system import jsons, opening

ALSO = {"validation": ("dev", "valid", "val")}  # further names of a split in file names
CONLLU = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")


class BadRow(DataError):
    """A row that cannot be used; the message names its file and line."""

    def __init__(self, where: str, problem: object, hint: str = "repair it, or leave it out"):
        super().__init__(f"{where}: {problem}", hint)


@dataclasses.dataclass(slots=True)
class TableRow:
    """A row of labelled data, with the fields of its file."""

    where: str  # FILE:LINE, for messages
    fields: dict[str, Any]
    lines: tuple[int, ...] = ()  # conll, conllu: the line of each word
    problem: str = ""  # why there are no fields
    number: int = 0  # in its file, from 0


def pick_column(knob: str, names: Iterable[str]) -> str | None:
    """Return the name among `names` that a knob means; None if there is none.

    The knob is a name, or alternatives `a|b`, of which the first that exists is taken. An empty
    alternative, as in `a|`, means that there may be no column: the result is then "".
    """
    if knob in names:
        return knob
    return next((name for name in knob.split("|") if not name or name in names), None)


# --- the files of a source ------------------------------------------------------------------------


def read_rows(task: Task, split: str) -> list[TableRow]:
    """Read the rows of a split.

    If one file holds all splits, its held-out rows are the validation split.
    """
    scheme, _, place = task.source.partition(":")
    is_single = scheme == "files" and _is_single(place)
    if scheme == "tfds":
        rows = list(_read_tfds(task, place, split))
    elif is_single:
        rows = list(_read_file(opening.expand_home(place), task))
    else:
        rows = list(_read_file(_find_file(task, split), task))
    for number, row in enumerate(rows):
        row.number = number
    if not is_single:
        return rows
    if split not in ("train", "validation"):
        raise MissingError(f"{task.source} has no split {split!r}", "one file: train, validation")
    wanted = split == "validation"
    held_out = _hold_out(rows, task)
    return [row for row, is_out in zip(rows, held_out, strict=True) if is_out == wanted]


def check_files(task: Task, splits: Iterable[str]) -> None:
    """Refuse a task whose files do not exist; no file is opened."""
    scheme, _, place = task.source.partition(":")
    if scheme == "files" and not _is_single(place):
        for split in splits:
            _find_file(task, split)


def _is_single(place: str) -> bool:
    path = opening.expand_home(place)
    return os.path.lexists(path) and not path.is_dir()


def _find_file(task: Task, split: str) -> Path:
    """Return the file of a split: the first of the possible paths that exists, packed or not."""
    place = str(opening.expand_home(task.source.partition(":")[2]))
    names = _list_names(split)
    if "{split}" in place:
        paths = [place.replace("{split}", name) for name in names]
    elif "=" in place and not os.path.isdir(place):
        pairs = [part.partition("=") for part in place.split(",")]
        paths = [os.path.expanduser(file) for name, _, file in pairs if name in names]
    else:
        listed = [file for file in task.files.get(split, "").split("|") if file]
        endings = [end for end, kind in SUFFIXES.items() if task.format in ("auto", kind)]
        paths = [f"{place}/{form}" for file in listed for form in (file, Path(file).name)]
        paths += [f"{place}/{name}{end}" for name in names for end in (*endings, ".txt")]
    for path, packed in itertools.product(paths, ("", *PACKED)):
        if os.path.lexists(path + packed):
            return Path(path + packed)
    message = f"{task.source} has no split {split!r}"
    if not paths:
        raise MissingError(message, f"add it: {task.source},{split}=FILE")
    near = suggest_path(place) or suggest_path(paths[0])
    raise MissingError(
        f"{message}; looked for {', '.join(paths[:3])}", near or "is the path right?"
    )


def _list_names(split: str) -> list[str]:
    """Return the names of a split in file names, such as validation_matched and dev_matched."""
    base, mark, rest = split.partition("_")
    return [name + mark + rest for name in (base, *ALSO.get(base, ()))]


def _hold_out(rows: list[TableRow], task: Task) -> list[bool]:
    """Tell for each row whether it is held out for validation.

    The rows whose texts have the lowest hashes are held out, so rows with the same text stay
    together. A text that more than half of the rows have stays in training, and training keeps at
    least one text.
    """
    marks = [_hash_text(row, task) for row in rows]
    copies = collections.Counter(marks)
    size = 0
    if task.validation_fraction:
        size = min(max(1, round(task.validation_fraction * len(rows))), len(rows) - 1)
    held: set[bytes] = set()
    count = 0
    for mark in sorted(copies):
        if count < size and copies[mark] <= len(rows) / 2 and count + copies[mark] < len(rows):
            held.add(mark)
            count += copies[mark]
    return [mark in held for mark in marks]


def _hash_text(row: TableRow, task: Task) -> bytes:
    """Hash the texts of a row; rows with the same hash go to the same split.

    A question with answers is hashed by its context, so questions about one context stay together.
    """
    context = pick_column(task.text_pair or "context", row.fields)
    label = pick_column(task.label, row.fields)
    # A list or dictionary is answers: no class or number is written as one.
    if context and label and isinstance(row.fields[label], list | dict):
        content = str(row.fields[context])
    else:
        knobs = [knob for knob in (task.text, task.text_pair, *task.options) if knob]
        columns = [pick_column(knob, row.fields) for knob in knobs]
        content = json.dumps([row.fields[name] for name in columns if name], default=str)
    return hashlib.blake2b(content.encode("utf-8", "replace")).digest()


# --- TensorFlow Datasets --------------------------------------------------------------------------


def _read_tfds(task: Task, name: str, split: str) -> Iterator[TableRow]:
    """Read rows of a TFDS data set, with the names of classes in place of their numbers."""
    info = tfds.builder(name, task.tfds_dir, "config.task.source").info
    splits = list(info.splits)
    actual = next((name for name in _list_names(split) if name in splits), split)
    if splits and actual not in splits:
        raise MissingError(
            f"{task.source} has no split {split!r}; looked for {', '.join(_list_names(split))}",
            f"it has: {', '.join(splits)}",
        )
    classes = {key: getattr(feature, "names", None) for key, feature in info.features.items()}
    source = tfds.examples_of(name, task.tfds_dir, actual)
    for number in range(len(source)):
        example = source[number].items()
        fields = {key: _make_plain(value, classes.get(key)) for key, value in example}
        yield TableRow(f"tfds:{name}/{split}, example {number}", fields)


def _make_plain(value: Any, names: list[str] | None) -> Any:
    """Convert numpy's values to Python's, and the numbers of classes to their names.

    The number -1 is no class, and becomes None.
    """
    if isinstance(value, dict):
        return {key: _make_plain(part, None) for key, part in value.items()}
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list):
        return [_make_plain(part, names) for part in value]
    if isinstance(value, bytes):
        return value.decode()
    if names and isinstance(value, int):
        return names[value] if value >= 0 else None
    return value


# --- formats --------------------------------------------------------------------------------------


def read_lines(
    path: Path, most: int = LINE, errors: Literal["strict", "replace"] = "strict"
) -> Iterator[tuple[int, str]]:
    """Yield (number from 1, text) of each line; refuse a line of more than `most` bytes.

    Only a newline ends a line. `errors` says whether bytes that are no UTF-8 are refused or
    replaced.
    """
    number = 0
    try:
        with open_packed(str(path)) as stream:
            while data := stream.readline(most + 2):
                number += 1
                data = data.removesuffix(b"\n").removesuffix(b"\r")
                if len(data) > most:
                    raise BadRow(f"{path}:{number}", f"more than {most:,} bytes", "divide the line")
                line = data.decode(errors=errors)
                yield number, line.removeprefix("\ufeff") if number == 1 else line
    except UnicodeDecodeError as error:
        problem = f"{path}:{number}: invalid UTF-8 at byte {error.start} of the line"
        hint = "convert the file, for example: iconv -f LATIN1 -t UTF-8 FILE"
        raise DataError(problem, hint) from error
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}", "check task.source") from error


def _read_table(path: Path, task: Task, kind: str) -> Iterator[TableRow]:
    """Read rows of tab- or comma-separated fields.

    The first line is a header if it has the columns that the task needs. Otherwise `task.columns`
    names the columns.
    """
    records = _split_csv(path)
    if kind == "tsv":  # in which quotes have no meaning
        records = ((number, line.split("\t")) for number, line in read_lines(path) if line)
    names: list[str] = []
    needed = [knob for knob in (task.text, task.text_pair, *task.options) if knob]
    for line, fields in records:
        where = f"{path}:{line}"
        if not names:
            missing = [knob for knob in needed if pick_column(knob, fields) is None]
            names = list(task.columns) if missing else fields
            if missing and not names:
                listed = ", ".join(fields)[:300]
                hint = f"set --config.task.text (text_pair, options) to one of: {listed}"
                raise DataError(f"{where}: no column {missing[0]!r}", hint)
            if not missing:
                if twice := [name for name in names if name and names.count(name) > 1]:
                    raise BadRow(where, f"column {twice[0]!r} stands twice", "rename one of them")
                continue
        if len(fields) == len(names):
            yield TableRow(where, dict(zip(names, fields, strict=True)))
        else:
            yield TableRow(where, {}, problem=f"{len(fields)} columns, not {len(names)}")


def _split_csv(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of the first line of each record, and the record's fields.

    A field in double quotes may contain commas and newlines.
    """
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


def _read_lines_of_json(path: Path, task: Task, kind: str) -> Iterator[TableRow]:
    """Read a file with a JSON object in each line."""
    for where, fields in parse_rows(read_lines(path), path):
        yield TableRow(where, fields)


def _read_json(path: Path, task: Task, kind: str) -> Iterator[TableRow]:
    """Read a JSON file: an array of objects, or SQuAD's form, or an object on each line."""
    try:
        lines = read_lines(path, sys.maxsize - 2)  # SQuAD is one line
        value = jsons.parse("\n".join(line for _, line in lines))
    except jsons.Malformed as error:
        if "Extra data" not in str(error):  # what Python says of one value after another
            where = f"{path}:{error.line}" if error.line else path
            raise DataError(f"{where}: {error}", "repair the file") from error
        value = {}
    if isinstance(value, list):
        try:
            value = jsons.fit(value, list[dict])
        except jsons.Malformed as error:
            raise DataError(f"{path}: {error}", "repair the file") from error
        return (TableRow(f"{path}, row {n}", fields) for n, fields in enumerate(value, 1))
    if isinstance(value, dict) and isinstance(value.get("data"), list):
        return _read_squad(path, value["data"])
    return _read_lines_of_json(path, task, kind)


def _read_squad(path: Path, data: list[Any]) -> Iterator[TableRow]:
    """Read the questions of SQuAD, each with its context."""
    where = f"{path}: data"
    try:
        for a, article in enumerate(data):
            for p, paragraph in enumerate(article["paragraphs"]):
                where = f"{path}: data[{a}].paragraphs[{p}]"
                for question in paragraph["qas"]:
                    fields = {**question, "context": paragraph["context"]}
                    yield TableRow(f"{path}: question {question['id']}", fields)
    except (KeyError, TypeError) as error:
        raise DataError(f"{where} is not as in SQuAD: {error!r}", "repair the file") from error


def _read_words(path: Path, task: Task, kind: str) -> Iterator[TableRow]:
    """Read sentences with one word a line, and a blank line after each sentence.

    The columns of conll are separated by tabs, or else by blanks. The columns are named "0", "1", …
    and from the last on "-1", "-2", …. The first is also "text", and the last "label". If
    `task.text` and `task.label` both count from 0, columns after them may be missing. Lines such as
    "# text = It rains" are comments. The columns of conllu have names. In conllu, multiword tokens
    (1-2) and empty nodes (1.1) are left out.
    """
    skipped = re.compile(r"-DOCSTART-|#\s*\w[^\t]* = ")
    width = 0
    if kind == "conllu":
        skipped = re.compile(r"#|\d+[-.]\d")
        width = len(CONLLU)
    last = None  # column to read up to
    if task.text.isdigit() and task.label.isdigit():
        last = 1 + max(int(task.text), int(task.label))
    for is_blank, lines in itertools.groupby(read_lines(path), lambda line: not line[1].strip()):
        words: dict[int, list[str]] = {}  # the cells of each word, by line
        for number, line in lines:
            if is_blank or skipped.match(line):
                continue
            cells = line.split("\t") if "\t" in line else list(filter(None, line.split(" ")))
            width = width or len(cells[:last])
            if len(cells[:last]) != width:
                raise BadRow(f"{path}:{number}", f"{len(cells)} columns, not {width}")
            words[number] = cells[:last]
        if words:
            columns = [list(column) for column in zip(*words.values(), strict=True)]
            yield TableRow(f"{path}:{min(words)}", _name_columns(columns, kind), tuple(words))


def _name_columns(columns: list[list[str]], kind: str) -> dict[str, Any]:
    """Return {column name: words} of a sentence; a column may have several names."""
    if kind == "conllu":
        fields = dict(zip(CONLLU, columns, strict=True))
        return fields | {"text": fields["form"], "label": fields["upos"]}
    fields = {"text": columns[0]}
    if len(columns) > 1:
        fields["label"] = columns[-1]
    for number, column in enumerate(columns):
        fields[str(number)] = column
        fields[str(number - len(columns))] = column
    return fields


def _read_parquet(path: Path, task: Task, kind: str) -> Iterator[TableRow]:
    for number, fields in enumerate(read_parquet(str(path)), 1):
        yield TableRow(f"{path}, row {number}", fields)


READERS: dict[str, Callable[[Path, Task, str], Iterator[TableRow]]] = {
    "tsv": _read_table,
    "csv": _read_table,
    "jsonl": _read_lines_of_json,
    "json": _read_json,
    "conll": _read_words,
    "conllu": _read_words,
    "parquet": _read_parquet,
}
SUFFIXES = {f".{name}": name for name in READERS} | {".iob2": "conll"}


def _read_file(path: Path, task: Task) -> Iterator[TableRow]:
    """Read the rows of a file; `task.format` or the end of its name says the format."""
    named = [SUFFIXES[end.lower()] for end in path.suffixes if end.lower() in SUFFIXES]
    kind = task.format if task.format != "auto" else "".join(named[-1:])
    if not kind:
        hint = f"--config.task.format=NAME: {', '.join(READERS)}"
        raise DataError(f"{path}: its name does not say what format it has", hint)
    return READERS[kind](path, task, kind)
