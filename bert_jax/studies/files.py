"""Read and write a study's JSON files, atomically or tolerating a torn last line."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from bert_jax.errors import DataError
from bert_jax.system import disk, opening

AGAIN = "the command of the study, `bert-jax study run` or `sweep`, makes it again"  # what is gone
TAIL = 20_000  # bytes at the end of a file that certainly hold its last line
LIMIT = 1 << 28  # bytes of a file
T = TypeVar("T")


def read_json(path: Path, kind: type[T], damaged: str = "the cell's folder") -> T | None:
    """Read a JSON file as a type; return None if it does not exist.

    Args:
      path: the file.
      kind: the type of its content, such as a `msgspec.Struct`.
      damaged: what to remove if the file is damaged, so that the study makes it again.
    """
    if not os.path.lexists(path):
        return None
    hint = f"restore it, or remove {damaged}: {AGAIN}"
    content = opening.read(path, DataError, LIMIT, hint)
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DataError(f"{path}: {error}", hint) from error


def write_json(path: Path, value: Mapping[str, Any] | msgspec.Struct) -> None:
    """Replace a JSON file atomically: a reader never sees half of it."""
    write_text(path, json.dumps(msgspec.to_builtins(value), indent=1) + "\n")


def write_text(path: Path, text: str) -> None:
    """Replace a text file atomically, making its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    disk.write(path, text)


def read_last_metrics(path: Path) -> dict[str, Any]:
    """Read the newest value of every metric in the end of a metrics file."""
    newest: dict[str, Any] = {}
    if not os.path.lexists(path):
        return newest
    with opening.regular(path, DataError) as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL))
        tail = file.read().splitlines()
    for line in tail:
        with contextlib.suppress(ValueError):  # torn by a kill, or cut by where reading began
            row = json.loads(line)
            if isinstance(row, dict) and isinstance(row.get("step"), int):
                newest |= {name: value for name, value in row.items() if value is not None}
    return newest


def tell_time() -> str:
    """Return the local time in ISO format, to the second."""
    return datetime.datetime.now().astimezone().isoformat(timespec="seconds")
