"""Files of texts: one a line, or JSON lines, plain or gzipped."""

from __future__ import annotations

import glob
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bert_jax.data.labelled import formats
from bert_jax.errors import ConfigError, DataError
from bert_jax.system import jsons


def find(source: str, suite: str, example: str) -> list[Path]:
    """Find the files of files:PATTERN, sorted by name; a folder stands for its JSON lines."""
    kind, _, pattern = source.partition(":")
    if kind != "files" or not pattern:
        raise ConfigError(
            f"suite {suite} cannot read --source={source!r}", f"for example --source={example}"
        )
    path = Path(pattern)
    if path.is_dir():
        files = sorted(file for ending in ("*.jsonl", "*.jsonl.gz") for file in path.glob(ending))
    else:
        files = [path] if path.is_file() else sorted(Path(name) for name in glob.glob(pattern))
    if not files:
        raise DataError(f"no files at {pattern}", f"for example --source={example}")
    return files


def read(path: Path) -> Iterator[tuple[str, str]]:
    """Yield FILE:LINE and the text of each line that is not blank."""
    for number, text, problem in formats.lines(path):
        if problem:
            raise DataError(
                f"{path}:{number}: {problem}", "convert the file, for example with iconv"
            )
        if text.strip():
            yield f"{path}:{number}", text


def objects(path: Path, needed: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield FILE:LINE and the JSON object of each line, in which the needed fields are texts."""
    for where, line in read(path):
        try:
            row = jsons.parse(line)
        except jsons.Malformed as error:
            raise DataError(f"{where}: {error}", "one object a line") from error
        yield where, checked(where, row, needed)


def checked(where: str, row: Any, needed: Sequence[str]) -> dict[str, Any]:
    """Return a row once the needed fields are known to be texts."""
    for name in needed:
        if not isinstance(row, dict) or not isinstance(row.get(name), str) or not row[name].strip():
            raise DataError(f"{where}: no text {name!r}", f"each row needs {', '.join(needed)}")
    return row
