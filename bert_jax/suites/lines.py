"""Files of texts: one a line, or JSON lines, plain or gzipped."""

from __future__ import annotations

import glob
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bert_jax.data.row_formats import read_lines
from bert_jax.errors import ConfigError, DataError
from bert_jax.system import jsons

TEXTS = ("txt", "jsonl")  # endings of files that hold texts


def find_files(
    source: str, suite: str, example: str, endings: Sequence[str] = ("jsonl",)
) -> list[Path]:
    """Find the files of files:PATTERN, or of a path alone, sorted by name.

    A folder stands for its files with one of the endings, gzipped ones too.
    """
    kind, _, pattern = source.partition(":")
    if Path(source).exists():
        pattern = source
    elif kind != "files" or not pattern:
        raise ConfigError(
            f"suite {suite} cannot read --source={source!r}", f"for example --source={example}"
        )
    path = Path(pattern)
    if path.is_dir():
        names = [f"*.{ending}{packed}" for ending in endings for packed in ("", ".gz")]
        files = sorted(file for name in names for file in path.glob(name))
    else:
        files = [path] if path.is_file() else sorted(Path(name) for name in glob.glob(pattern))
    if not files:
        raise DataError(f"no files at {pattern}", f"for example --source={example}")
    return files


def read_texts(path: Path) -> Iterator[str]:
    """Yield the field `text` of JSON lines, or each line of a text that is not blank."""
    if _has_objects(path):
        return (row["text"] for _, row in read_objects(path, ["text"]))
    return (text for _, text in _read_every(path) if text.strip())


def read_documents(path: Path) -> Iterator[list[str]]:
    """Yield the lines of each document: of a row of JSON lines, or between two blank lines."""
    if _has_objects(path):
        yield from (text.split("\n") for text in read_texts(path))
        return
    for blank, lines in itertools.groupby(_read_every(path), key=lambda line: not line[1].strip()):
        if not blank:
            yield [text for _, text in lines]


def _has_objects(path: Path) -> bool:
    return ".jsonl" in path.suffixes or path.suffix == ".json"


def _read_every(path: Path) -> Iterator[tuple[str, str]]:
    """Yield FILE:LINE and the text of each line, blank ones too."""
    return ((f"{path}:{number}", text) for number, text in read_lines(path))


def read_objects(path: Path, needed: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield FILE:LINE and the JSON object of each line, in which the needed fields are texts."""
    for where, line in _read_every(path):
        if not line.strip():
            continue
        try:
            row = jsons.parse(line)
        except jsons.Malformed as error:
            raise DataError(f"{where}: {error}", "one object a line") from error
        yield where, check_fields(where, row, needed)


def check_fields(where: str, row: Any, needed: Sequence[str]) -> dict[str, Any]:
    """Return a row once the needed fields are known to be texts."""
    for name in needed:
        if not isinstance(row, dict) or not isinstance(row.get(name), str) or not row[name].strip():
            raise DataError(f"{where}: no text {name!r}", f"each row needs {', '.join(needed)}")
    return row
