"""Sources of labelled rows: files in any of the formats, and TensorFlow Datasets without TensorFlow."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from bert_jax.config.knobs import FORMATS, Task
from bert_jax.data.labelled import conll, detect, formats
from bert_jax.data.labelled.formats import Count, Log, Row, pick
from bert_jax.data.text import tfds_text
from bert_jax.errors import DataError, MissingError

READERS: dict[str, Callable[[Path, Task, Count], Iterator[Row]]] = {
    "tsv": formats.tsv,
    "csv": formats.comma,
    "jsonl": formats.json_lines,
    "json": formats.json_file,
    "squad": formats.squad,
    "conll": conll.conll,
    "conllu": conll.conllu,
}
SUFFIXES = {  # of a file's name -> its format
    ".tsv": "tsv",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".json": "json",  # lines, an array, or that of SQuAD: the file says
    ".conll": "conll",
    ".iob2": "conll",
    ".conllu": "conllu",
    ".txt": "",  # anything: its first lines say
}
PACKED = (".gz", ".zst")
SPLITS = (
    *("train", "validation", "test"),
    *("validation_matched", "validation_mismatched", "test_matched", "test_mismatched"),
)
ALSO = {"validation": ("dev", "valid", "val")}  # what files call a split


def read(task: Task, split: str, log: Log, count: Count | None = None) -> Iterator[Row]:
    """The rows of a split; whoever gives a `count` checks it too."""
    mine = count or Count(task.on_bad_row)
    scheme, _, place = task.source.partition(":")
    if scheme == "tfds":
        yield from _tfds(task, place, split, mine)
    else:
        yield from _files(task, place, split, mine)
    if count is None:
        mine.check(log)


def check(task: Task, splits: Iterable[str]) -> None:
    """Refuse files that are not there; nothing is read, and a data set of TFDS is not asked for."""
    scheme, _, place = task.source.partition(":")
    path = Path(place).expanduser()
    if scheme == "files" and (path.is_dir() or not os.path.lexists(path)):
        for split in splits:
            _find(task, place, split)


def names_of(split: str) -> tuple[str, ...]:
    """A split's name and what files call it: validation_matched is dev_matched too."""
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
    """The file of a split."""
    tried = _candidates(task, place, split)
    found = next((path for path in tried if os.path.lexists(path)), None)
    if found:
        return found
    known = dict.fromkeys((*SPLITS, *task.files))
    have = [
        name for name in known if any(path.is_file() for path in _candidates(task, place, name))
    ]
    raise _missing(
        task,
        split,
        _described(dict.fromkeys(path for path in tried if path.suffix not in PACKED)),
        have,
    )


def _missing(task: Task, split: str, looked: str, have: list[str]) -> MissingError:
    there = f"it has: {', '.join(have)}" if have else "it has no split at all: is the path right?"
    return MissingError(
        f"{task.source} has no split {split!r}; looked for {looked or 'none'}", there
    )


def _described(paths: Iterable[Path]) -> str:
    """Paths with those that differ in their suffix alone written as one: dev.(tsv|csv)."""
    suffixes: dict[Path, list[str]] = {}
    for path in paths:
        suffixes.setdefault(path.with_suffix(""), []).append(path.suffix)
    written = [
        str(stem.with_suffix(found[0]))
        if len(found) == 1
        else f"{stem}.({'|'.join(s[1:] for s in found)})"
        for stem, found in suffixes.items()
    ]
    return ", ".join(written)


def _candidates(task: Task, place: str, split: str) -> list[Path]:
    """Where a split's file may be, likely places first."""
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
            raise DataError(
                f"task.files.{split} = {str(outside)!r} is outside the folder",
                "name files below it",
            )
        kinds = [
            suffix for suffix, kind in SUFFIXES.items() if task.format in ("auto", kind) or not kind
        ]
        usual = [Path(name + suffix) for name in names_of(split) for suffix in kinds]
        paths = [folder / path for name in listed for path in (name, Path(name.name))]
        paths += [folder / name for name in usual]
    return [Path(f"{path}{suffix}") for path in paths for suffix in ("", *PACKED)]


def _held_out(rows: list[Row], task: Task) -> list[bool]:
    """Return whether each row is held out: the share with the lowest hashes of their texts, so copies stay together.

    A text that more than half of the rows have stays in training, and so does the last one.
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
            f"{task.source}: all {len(rows):,} rows have the same text, which cannot be both trained on and held out",
            "is task.text (text_pair, options) the right column? or name two files: files:train=FILE,validation=FILE",
        )
    return [mark in held for mark in marks]


def _content(row: Row, task: Task) -> str:
    """What must not be in both parts; of questions about one context, that."""
    context, answers = (
        pick(knob, row.fields) for knob in (task.text_pair or "context", task.label)
    )
    if (
        context and answers and isinstance(row.fields[answers], list | dict)
    ):  # no class or number is one of these
        return str(row.fields[context])
    names = [pick(knob, row.fields) for knob in (task.text, task.text_pair, *task.options) if knob]
    return json.dumps([row.fields[name] for name in names if name], default=str)


# --- TensorFlow Datasets --------------------------------------------------------------------------


def _tfds(task: Task, name: str, split: str, count: Count) -> Iterator[Row]:
    """Rows with the names of classes in place of their numbers."""
    info = tfds_text.builder(name, task.tfds_dir, "config.task.source").info
    have = list(info.splits)
    actual = next((n for n in names_of(split) if n in have), "" if have else split)
    if not actual:
        raise _missing(task, split, ", ".join(names_of(split)), have)
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
    """numpy to Python; class -1 is no label."""
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
