"""Small files that are whole at every moment, or whose torn part is passed over."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bert_jax.errors import DataError
from bert_jax.reporting import records
from bert_jax.system import disk, jsons, opening

TAIL = 20_000  # bytes from the end of a file that hold its last line


def read(path: Path, schema: Any = dict) -> dict[str, Any] | None:
    """Read a JSON file, checked against a schema; None where there is none."""
    try:
        return jsons.read(path, DataError, schema, hint="restore it, or remove the cell's folder")
    except DataError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None
        raise


def need(path: Path, schema: Any = dict) -> dict[str, Any]:
    """Read a JSON file that must be there."""
    found = read(path, schema)
    if found is None:
        raise DataError(f"no {path}", "`bert-jax study run` makes it")
    return found


def write(path: Path, value: Mapping[str, Any]) -> None:
    """Replaces a JSON file in one move: a reader never sees half of it."""
    write_text(path, json.dumps(value, indent=1) + "\n")


def write_text(path: Path, text: str) -> None:
    """The same of any text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    disk.write(path, text)


def append(path: Path, value: Mapping[str, Any]) -> None:
    """Adds a line of JSON, in one write: only where a machine goes down is it torn, and the next one is not."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with disk.room(path), path.open("a+b") as file:
        torn = b""
        if file.seek(0, os.SEEK_END):
            file.seek(-1, os.SEEK_END)
            torn = b"" if file.read(1) == b"\n" else b"\n"
        file.write(torn + json.dumps(value).encode() + b"\n")


def lines(path: Path, schema: Any = dict) -> list[dict[str, Any]]:
    """Read the whole lines of a file of JSON lines that are as a schema says; [] where there is none."""
    return list(jsons.lines(path, DataError, schema)) if os.path.lexists(path) else []


def last_step(path: Path) -> tuple[int, float]:
    """Step and time of the last whole line of a metrics file, read from its end; zeros before the first."""
    if not os.path.lexists(path):
        return 0, 0.0
    with opening.regular(path, DataError) as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL))
        tail = file.read().splitlines()
    for line in reversed(tail):
        try:
            found = jsons.parse(line, records.LINE)
        except jsons.Malformed:
            continue  # torn by a kill, or the first one cut by where reading began
        return found["step"], float(found.get("time") or 0.0)
    return 0, 0.0
