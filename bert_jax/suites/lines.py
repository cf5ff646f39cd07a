"""Files of texts: a line each, or JSON lines, plain or gzipped."""

from __future__ import annotations

import glob
import gzip
import json
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bert_jax.errors import ConfigError, DataError


def find(source: str, suite: str, example: str) -> list[Path]:
    """The files of files:PATTERN, in order of their names; a folder stands for its JSON lines."""
    kind, _, pattern = source.partition(":")
    if kind != "files" or not pattern:
        raise ConfigError(f"suite {suite} cannot read --source={source!r}", f"for example --source={example}")
    place = Path(pattern)
    if place.is_dir():
        found = sorted(file for ending in ("*.jsonl", "*.jsonl.gz") for file in place.glob(ending))
    else:
        found = [place] if place.is_file() else sorted(Path(name) for name in glob.glob(pattern))
    if not found:
        raise DataError(f"no files at {pattern}", f"for example --source={example}")
    return found


def read(path: Path) -> Iterator[tuple[str, str]]:
    """FILE:LINE and text of each line that is not blank."""
    opener: Any = gzip.open if path.suffix == ".gz" else open
    number = 0
    try:
        with opener(path, "rb") as stream:
            for number, line in enumerate(stream, 1):
                text = line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
                if text.strip():
                    yield f"{path}:{number}", text
    except UnicodeDecodeError as error:
        raise DataError(f"{path}:{number}: not UTF-8: {error.reason}", "convert it, for example with iconv") from error
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path} is damaged: {error}", "it may be cut short; fetch it again") from error


def objects(path: Path, needed: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The JSON object of each line, in which these fields are texts."""
    for where, line in read(path):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{where}: not JSON: {error}", "one object a line") from error
        for name in needed:
            if not isinstance(row, dict) or not isinstance(row.get(name), str) or not row[name].strip():
                raise DataError(f"{where}: no text {name!r}", f"each line needs {', '.join(needed)}")
        yield row
