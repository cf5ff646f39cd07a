"""Sources of labelled rows: files in any format, and TensorFlow Datasets without TensorFlow."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from bert_jax.config.data_knobs import FORMATS, Task
from bert_jax.data.labelled import conll, detect, formats
from bert_jax.data.labelled.formats import Count, Log, Row, pick
from bert_jax.data.text import tfds_text
from bert_jax.errors import DataError, MissingError, suggest_path

READERS: dict[str, Callable[[Path, Task, Count], Iterator[Row]]] = {
    "tsv": formats.tsv,
    "csv": formats.comma,
    "jsonl": formats.json_lines,
    "json": formats.json_file,
    "squad": formats.squad,
    "conll": conll.conll,
    "conllu": conll.conllu,
}
SUFFIXES = {  # suffix of a file's name -> its format
    ".tsv": "tsv",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".json": "json",  # lines, an array or SQuAD's: its content decides
    ".conll": "conll",
    ".iob2": "conll",
    ".conllu": "conllu",
    ".txt": "",  # any: its first lines decide
}
PACKED = (".gz", ".zst")
SPLITS = (
    *("train", "validation", "test"),
    *("validation_matched", "validation_mismatched", "test_matched", "test_mismatched"),
)
ALSO = {"validation": ("dev", "valid", "val")}  # further names of a split in file names


def read(task: Task, split: str, log: Log, count: Count | None = None) -> Iterator[Row]:
    """Yield the rows of a split; a caller that gives a `count` checks it itself."""
    counted = count or Count(task.on_bad_row)
    scheme, _, place = task.source.partition(":")
    if scheme == "tfds":
        yield from _tfds(task, place, split, counted)
    else:
        yield from _files(task, place, split, counted)
    if count is None:
        counted.check(log)


def check(task: Task, splits: Iterable[str]) -> None:
    """Refuse files that do not exist; no file is read, and TFDS data sets are not looked up."""
    scheme, _, place = task.source.partition(":")
    path = Path(place).expanduser()
    if scheme == "files" and (path.is_dir() or not os.path.lexists(path)):
        for split in splits:
            _find(task, place, split)


def names_of(split: str) -> tuple[str, ...]:
    """Return the names of a split in file names: validation_matched is dev_matched too."""
    base, _, rest = split.partition("_")
    return tuple(f"{name}_{rest}" if rest else name for name in (base, *ALSO.get(base, ())))


# --- files ----------------------------------------------------------------------------------------


def _files(task: Task, place: str, split: str, count: Count) -> Iterator[Row]:
    path = Path(place).expanduser()
    if path.is_dir() or not os.path.lexists(path):
        yield from _read(_find(task, place, split), task, count)
        return
    rows = list(_read(path, task, count))
    if split not in ("train", "validation"):
        raise _missing(task, split, "one file without {split}", ["train", "validation"])
    if split == "validation" and not task.validation_fraction:
        raise DataError(f"{path}: task.validation_fraction = 0 holds no rows out", "raise it")
    held_out = _held_out(rows, task)
    yield from (
        row for row, out in zip(rows, held_out, strict=True) if out == (split == "validation")
    )


def _read(path: Path, task: Task, count: Count) -> Iterator[Row]:
    suffixes = [s.lower() for s in path.suffixes][::-1]
    named = next((SUFFIXES[s] for s in suffixes if SUFFIXES.get(s)), "")
    kind = task.format if task.format != "auto" else named or detect.kind(path, task)
    if not kind:
        raise DataError(
            f"{path}: neither its name nor its first lines say what format it has",
            f"--config.task.format=NAME: {', '.join(FORMATS[1:])}",
        )
    return READERS[kind](path, task, count)


def _find(task: Task, place: str, split: str) -> Path:
    """Return the file of a split."""
    candidates = _candidates(task, place, split)
    file = next((path for path in candidates if os.path.lexists(path)), None)
    if file:
        return file
    splits = [
        name
        for name in dict.fromkeys((*SPLITS, *task.files))
        if any(path.is_file() for path in _candidates(task, place, name))
    ]
    if not splits and Path(place).suffix in SUFFIXES and not re.search("[={]", place):
        raise MissingError(f"no file {place}", suggest_path(place) or "is the path right?")
    unpacked = dict.fromkeys(path for path in candidates if path.suffix not in PACKED)
    raise _missing(task, split, _described(unpacked), splits)


def _missing(task: Task, split: str, looked_for: str, splits: list[str]) -> MissingError:
    hint = (
        f"it has: {', '.join(splits)}" if splits else "it has no split at all: is the path right?"
    )
    message = f"{task.source} has no split {split!r}; looked for {looked_for or 'none'}"
    return MissingError(message, hint)


def _described(paths: Iterable[Path]) -> str:
    """Return paths as text, those that differ in their suffix alone as one: dev.(tsv|csv)."""
    by_stem: dict[Path, list[str]] = {}
    for path in paths:
        by_stem.setdefault(path.with_suffix(""), []).append(path.suffix)
    return ", ".join(
        f"{stem}{suffixes[0]}"
        if len(suffixes) == 1
        else f"{stem}.({'|'.join(suffix[1:] for suffix in suffixes)})"
        for stem, suffixes in by_stem.items()
    )


def _candidates(task: Task, place: str, split: str) -> list[Path]:
    """Return the paths a split's file may have, likely ones first."""
    folder = Path(place).expanduser()
    named = re.findall(r"(?:^|,)(\w+)=([^,]+)", place)
    if "{split}" in place:
        paths = [Path(place.replace("{split}", name)).expanduser() for name in names_of(split)]
    elif named and not folder.is_dir():
        paths = [Path(file).expanduser() for name, file in named if name in names_of(split)]
    else:
        listed = [Path(name) for name in task.files.get(split, "").split("|") if name]
        outside = next((name for name in listed if name.is_absolute() or ".." in name.parts), None)
        if outside:
            message = f"task.files.{split} = {str(outside)!r} is outside the folder"
            raise DataError(message, "name files below it")
        suffixes = [
            suffix for suffix, kind in SUFFIXES.items() if task.format in ("auto", kind) or not kind
        ]
        usual = [Path(name + suffix) for name in names_of(split) for suffix in suffixes]
        paths = [folder / path for name in listed for path in (name, Path(name.name))]
        paths += [folder / name for name in usual]
    return [Path(f"{path}{suffix}") for path in paths for suffix in ("", *PACKED)]


def _held_out(rows: list[Row], task: Task) -> list[bool]:
    """Return whether each row is held out: the share whose texts have the lowest hashes.

    So rows with the same text stay together. A text that more than half of the rows have stays in
    training, and training keeps at least one text.
    """
    marks = [
        hashlib.blake2b(_content(row, task).encode("utf-8", "replace")).digest() for row in rows
    ]
    size = min(max(1, round(task.validation_fraction * len(rows))), len(rows) - 1)
    if not task.validation_fraction or size < 1:
        return [False] * len(rows)
    copies = Counter(marks)
    held: set[bytes] = set()
    count = 0
    for mark in sorted(copies):
        if count < size and copies[mark] <= len(rows) / 2 and count + copies[mark] < len(rows):
            held.add(mark)
            count += copies[mark]
    if not held:
        raise DataError(
            f"{task.source}: all {len(rows):,} rows have the same text, which cannot be both "
            "trained on and held out",
            "is task.text (text_pair, options) the right column? or name two files: "
            "files:train=FILE,validation=FILE",
        )
    return [mark in held for mark in marks]


def _content(row: Row, task: Task) -> str:
    """Return the texts of a row, which training and validation must not share.

    Of questions about a context, that is the context.
    """
    context = pick(task.text_pair or "context", row.fields)
    label = pick(task.label, row.fields)
    # A list or dictionary is answers: no class or number is written as one.
    if context and label and isinstance(row.fields[label], list | dict):
        return str(row.fields[context])
    names = [pick(knob, row.fields) for knob in (task.text, task.text_pair, *task.options) if knob]
    return json.dumps([row.fields[name] for name in names if name], default=str)


# --- TensorFlow Datasets --------------------------------------------------------------------------


def _tfds(task: Task, name: str, split: str, count: Count) -> Iterator[Row]:
    """Read rows of a TFDS data set, with the names of classes in place of their numbers."""
    info = tfds_text.builder(name, task.tfds_dir, "config.task.source").info
    splits = list(info.splits)
    actual = next((n for n in names_of(split) if n in splits), "" if splits else split)
    if not actual:
        raise _missing(task, split, ", ".join(names_of(split)), splits)
    classes = {key: f.names for key, f in info.features.items() if getattr(f, "names", None)}
    source = tfds_text.examples_of(name, task.tfds_dir, actual)
    for number in range(len(source)):
        where = f"tfds:{name}/{split}, example {number}"
        count.rows += 1
        try:
            fields = {key: _plain(value, classes.get(key)) for key, value in source[number].items()}
        except UnicodeDecodeError as error:
            count.refuse(where, f"invalid UTF-8 at byte {error.start}")
            continue
        yield Row(where, number, fields)


def _plain(value: Any, classes: list[str] | None) -> Any:
    """Convert numpy values to Python's; class -1 is no label."""
    if isinstance(value, dict):
        return {key: _plain(part, None) for key, part in value.items()}
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list):
        return [_plain(part, classes) for part in value]
    if isinstance(value, bytes):
        return value.decode()
    if classes and isinstance(value, int):
        return classes[value] if value >= 0 else None
    return value
