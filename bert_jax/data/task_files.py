"""Read the rows of a split of labelled data, from the files of its source or from TFDS.

A source is files:FOLDER, files:FILE, files:PATTERN with {split}, files:train=FILE,validation=FILE
or tfds:NAME. A share of the rows of a single file is held out.
"""

from __future__ import annotations

import collections
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from bert_jax.config.knobs import Task
from bert_jax.data import tfds
from bert_jax.data.row_formats import SUFFIXES, Row, pick_column, read_file
from bert_jax.errors import MissingError, suggest_path

SPLITS = (
    *("train", "validation", "test"),
    *("validation_matched", "validation_mismatched", "test_matched", "test_mismatched"),
)
ALSO = {"validation": ("dev", "valid", "val")}  # further names of a split in file names


def read_rows(task: Task, split: str) -> list[Row]:
    """Return the rows of a split; of a single file, those held out are for validation."""
    scheme, _, place = task.source.partition(":")
    path = Path(place).expanduser()
    if scheme == "tfds":
        rows = list(_read_tfds(task, place, split))
    elif path.is_dir() or not os.path.lexists(path):
        rows = read_file(_find_file(task, split), task)
    elif split not in ("train", "validation"):
        raise _describe_missing(task, split, "one file without {split}", ["train", "validation"])
    else:
        rows = read_file(path, task)
        held_out = _hold_out(rows, task)
        wanted = split == "validation"
        rows = [row for row, is_out in zip(rows, held_out, strict=True) if is_out == wanted]
    return rows


def check_files(task: Task, splits: Iterable[str]) -> None:
    """Refuse files that do not exist, without a look into files or at TFDS."""
    scheme, _, place = task.source.partition(":")
    path = Path(place).expanduser()
    if scheme == "files" and (path.is_dir() or not os.path.lexists(path)):
        for split in splits:
            _find_file(task, split)


def _find_file(task: Task, split: str) -> Path:
    """Return the file of a split."""
    looked_for = _list_files(task, split)
    if file := _find_first(looked_for, task):
        return file
    known = dict.fromkeys((*SPLITS, *task.files))
    splits = [name for name in known if _find_first(_list_files(task, name), task)]
    path = task.source.partition(":")[2]
    if not splits and Path(path).suffix in SUFFIXES and not re.search("[={]", path):
        raise MissingError(f"no file {path}", suggest_path(path) or "is the path right?")
    raise _describe_missing(task, split, ", ".join(looked_for), splits)


def _list_files(task: Task, split: str) -> list[str]:
    """Return the paths that a split's file may have, likely paths first. An end .* is any."""
    place = str(Path(task.source.partition(":")[2]).expanduser())
    names = _list_names(split)
    if "{split}" in place:
        return [place.replace("{split}", name) for name in names]
    if "=" in place and not os.path.isdir(place):
        pairs = [part.partition("=") for part in place.split(",")]
        return [os.path.expanduser(file) for name, _, file in pairs if name in names]
    paths = []
    for file in filter(None, task.files.get(split, "").split("|")):
        paths += [f"{place}/{file}", f"{place}/{Path(file).name}"]
    return paths + [f"{place}/{name}.*" for name in names]


def _list_names(split: str) -> list[str]:
    """Return the names of a split in file names: validation_matched is dev_matched too."""
    base, mark, rest = split.partition("_")
    return [name + mark + rest for name in (base, *ALSO.get(base, ()))]


def _find_first(paths: list[str], task: Task) -> Path | None:
    """Return the first file that is there, packed or not."""
    endings = [end for end, kind in SUFFIXES.items() if task.format in ("auto", kind)]
    for path in paths:
        stem = path.removesuffix(".*")
        for ending in [*endings, ".txt"] if stem != path else [""]:
            for file in (Path(f"{stem}{ending}{packed}") for packed in ("", ".gz", ".zst")):
                if os.path.lexists(file):
                    return file
    return None


def _describe_missing(task: Task, split: str, looked_for: str, splits: list[str]) -> MissingError:
    hint = f"it has: {', '.join(splits)}"
    if not splits:
        hint = "it has no split at all: is the path right?"
    message = f"{task.source} has no split {split!r}; looked for {looked_for or 'none'}"
    return MissingError(message, hint)


# --- a single file --------------------------------------------------------------------------------


def _hold_out(rows: list[Row], task: Task) -> list[bool]:
    """Return whether each row is held out: the share whose texts have the lowest hashes.

    So rows with the same text stay together. A text that more than half of the rows have stays in
    training, and training keeps at least one text.
    """
    marks = [_hash_text(row, task) for row in rows]
    copies = collections.Counter(marks)
    held: set[bytes] = set()
    size = 0
    if task.validation_fraction:
        size = min(max(1, round(task.validation_fraction * len(rows))), len(rows) - 1)
    count = 0
    for mark in sorted(copies):
        if count < size and copies[mark] <= len(rows) / 2 and count + copies[mark] < len(rows):
            held.add(mark)
            count += copies[mark]
    return [mark in held for mark in marks]


def _hash_text(row: Row, task: Task) -> bytes:
    """Hash the texts of a row, which training and validation must not share.

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


def _read_tfds(task: Task, name: str, split: str) -> Iterator[Row]:
    """Read rows of a TFDS data set, with the names of classes in place of their numbers."""
    info = tfds.builder(name, task.tfds_dir, "config.task.source").info
    splits = list(info.splits)
    actual = next((name for name in _list_names(split) if name in splits), None)
    if splits and not actual:
        raise _describe_missing(task, split, ", ".join(_list_names(split)), splits)
    classes = {key: getattr(feature, "names", None) for key, feature in info.features.items()}
    source = tfds.examples_of(name, task.tfds_dir, actual or split)
    for number in range(len(source)):
        fields = {
            key: _make_plain(value, classes.get(key)) for key, value in source[number].items()
        }
        yield Row(f"tfds:{name}/{split}, example {number}", fields, number=number)


def _make_plain(value: Any, names: list[str] | None) -> Any:
    """Convert values of numpy to Python's, and numbers of classes to names. -1 is no label."""
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
