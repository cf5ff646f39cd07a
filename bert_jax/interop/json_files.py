"""The JSON files of a model's folder: read with errors of one line, and written whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bert_jax.errors import CheckpointError, first_line
from bert_jax.system import disk

SHOWN = 80  # characters of a foreign value or name in a message
DAMAGED = "it is damaged, or of another program: restore it from where it came"


def read_json(file: Path, kind: type = dict) -> Any:
    """Read a file whose JSON is an object, or a list if `kind` is list."""
    try:
        value = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        problem = error.strerror if isinstance(error, OSError) else first_line(error)
        raise CheckpointError(f"{file} cannot be read: {problem}", DAMAGED) from error
    if not isinstance(value, kind):
        wanted = "a list" if kind is list else "an object"
        raise CheckpointError(f"{file} is {shorten(value)}, not {wanted}", DAMAGED)
    return value


def write_json(file: Path, value: Any) -> None:
    """Write JSON so that a reader never sees half of the file."""
    disk.write(file, json.dumps(value, indent=2) + "\n")


def shorten(value: Any) -> str:
    """Show a foreign value in a message, as one short line without control characters."""
    text = ascii(value)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."


def list_names(names: list[str], most: int = 6) -> str:
    """List a few names in a message, long names cut, and how many more there are."""
    shown = ", ".join(shorten(name)[1:].removesuffix("'") for name in names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown
