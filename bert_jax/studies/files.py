"""Read and write a study's JSON files, atomically or tolerating a torn last line."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bert_jax.errors import DataError
from bert_jax.reporting import records
from bert_jax.system import disk, jsons, opening

AGAIN = "the command of the study, `bert-jax study run` or `sweep`, makes it again"  # what is gone
TAIL = 20_000  # bytes at the end of a file that certainly hold its last line


def read(
    path: Path, schema: Any = dict, damaged: str = "the cell's folder"
) -> dict[str, Any] | None:
    """Read a JSON file and check it against a schema; return None if it does not exist.

    Args:
      path: the file.
      schema: what it holds.
      damaged: what to remove where the file is damaged, so that the study makes it again.
    """
    try:
        hint = f"restore it, or remove {damaged}: {AGAIN}"
        return jsons.read(path, DataError, schema, hint=hint)
    except DataError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None
        raise


def need(path: Path, schema: Any = dict, damaged: str = "the cell's folder") -> dict[str, Any]:
    """Read a JSON file that must exist."""
    content = read(path, schema, damaged)
    if content is None:
        raise DataError(f"no {path}", AGAIN)
    return content


def write(path: Path, value: Mapping[str, Any]) -> None:
    """Replace a JSON file atomically: a reader never sees half of it."""
    write_text(path, json.dumps(value, indent=1) + "\n")


def write_text(path: Path, text: str) -> None:
    """Replace a text file atomically, making its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    disk.write(path, text)


def append(path: Path, value: Mapping[str, Any]) -> None:
    """Append a line of JSON in one write.

    Only a crash of the machine can tear the line; the next line then starts after the torn one.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with disk.reporting_full_disk(path), path.open("a+b") as file:
        torn = b""
        if file.seek(0, os.SEEK_END):
            file.seek(-1, os.SEEK_END)
            torn = b"" if file.read(1) == b"\n" else b"\n"
        file.write(torn + json.dumps(value).encode() + b"\n")


def lines(path: Path, schema: Any = dict) -> list[dict[str, Any]]:
    """Read the complete lines of a JSON lines file, by a schema; return [] if it does not exist."""
    return list(jsons.lines(path, DataError, schema)) if os.path.lexists(path) else []


def last_step(path: Path) -> tuple[int, float]:
    """Return step and time of the last complete line of a metrics file; zeros if it has none."""
    for metrics in _from_the_end(path):
        return metrics["step"], float(metrics.get("time") or 0.0)
    return 0, 0.0


def seconds_per_step(path: Path) -> float | None:
    """Return the recent time of an update, from the end of a metrics file; None if unknown."""
    times = {
        line["step"]: float(line.get("time") or 0.0)
        for line in _from_the_end(path)
        if "branch_from" not in line  # after which comes the compilation
    }
    first, last = min(times, default=0), max(times, default=0)
    return (times[last] - times[first]) / (last - first) if last > first else None


def last_value(path: Path, name: str) -> float | None:
    """Return the last value of a metric in the end of a metrics file; None if it has none."""
    return next((line[name] for line in _from_the_end(path) if line.get(name) is not None), None)


def _from_the_end(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the complete lines in the last part of a metrics file, the last first."""
    if not os.path.lexists(path):
        return
    with opening.regular(path, DataError) as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL))
        tail = file.read().splitlines()
    for line in reversed(tail):
        with contextlib.suppress(jsons.Malformed):  # torn by a kill, or cut by where reading began
            yield jsons.parse(line, records.LINE)
