"""Read and write the JSON files of a study; a write replaces the file in one move."""

import datetime
import os
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from bert_jax.errors import DataError
from bert_jax.system import disk, jsons

AGAIN = "the command of the study, `bert-jax study run` or `sweep`, makes it again"  # what is gone
T = TypeVar("T")


def read_json(path: Path, kind: type[T], damaged: str = "the cell's folder") -> T | None:
    """Read a JSON file as a type; return None if the file does not exist.

    Args:
      path: the file.
      kind: the type of the content, such as a `msgspec.Struct`.
      damaged: what an error tells the user to remove if the file is damaged. The study makes it
        again.
    """
    if not os.path.lexists(path):
        return None
    hint = f"restore it, or remove {damaged}: {AGAIN}"
    return jsons.read(path, DataError, kind, hint)


def write_json(path: Path, value: Any) -> None:
    """Write a value to a JSON file, in one move; make its folder if needed."""
    write_text(path, msgspec.json.format(msgspec.json.encode(value), indent=1).decode() + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a text file in one move; make its folder if needed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    disk.write(path, text)


def tell_time() -> str:
    """Return the local time in ISO format, to the second."""
    return datetime.datetime.now().astimezone().isoformat(timespec="seconds")
