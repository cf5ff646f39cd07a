"""Read JSON as a type, by msgspec; errors describe the fault in one line."""

import json
import math
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from bert_jax.errors import UserError
from bert_jax.system import disk, opening

T = TypeVar("T")
LIMIT = 1 << 28  # bytes of a file
SHOWN = 80  # characters of a foreign value in a message
HINT = "it is damaged, or of another program: restore it from where it came"


class Malformed(ValueError):
    """The fault of a JSON text, in one line; `line` is its line number, or 0 if unknown."""

    def __init__(self, message: str, line: int = 0):
        super().__init__(message)
        self.line = line


def read(path: Path | str, failure: type[UserError], kind: type[T], hint: str = HINT) -> T:
    """Read a JSON file as the type `kind`, such as a `msgspec.Struct`.

    Raises:
      UserError: the file cannot be read or does not fit the type. The class is `failure`.
    """
    data = opening.read_file(path, failure, LIMIT, hint)
    try:
        return fit(parse(data), kind)
    except Malformed as error:
        raise failure(f"{path}: {error}", hint) from error


def write(path: Path, value: Any) -> None:
    """Write a value as a JSON file, which replaces an existing file in one rename."""
    disk.write(path, json.dumps(value, indent=2) + "\n")


def parse(text: bytes | str, kind: Any = Any) -> Any:
    """Parse a JSON text as the type `kind`; raise Malformed if it does not fit."""
    try:
        decoded = text.decode("utf-8-sig") if isinstance(text, bytes) else text
        value = json.loads(decoded, object_pairs_hook=_refuse_repeats)
    except UnicodeDecodeError as error:
        raise Malformed(f"not UTF-8 at byte {error.start}") from error
    except json.JSONDecodeError as error:
        place = f"line {error.lineno} column {error.colno}"
        if "\n" not in decoded:  # often a line of a file, which the message names
            place = f"column {error.colno}"
        raise Malformed(f"not JSON: {error.msg}: {place}", error.lineno) from error
    except Malformed:
        raise
    except (RecursionError, ValueError) as error:  # nested too deeply, or too long a number
        raise Malformed(f"not JSON: {error}") from error
    return value if kind is Any else fit(value, kind)


def fit(value: Any, kind: type[T]) -> T:
    """Convert a parsed value to the type `kind`; raise Malformed if it does not fit."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise Malformed(str(error)) from error


def is_finite(value: Any) -> bool:
    """Tell whether a value is a number that a float can hold, and not NaN or infinite."""
    try:
        return isinstance(value, int | float) and math.isfinite(value)
    except OverflowError:  # a whole number of more than 308 digits
        return False


def show(value: Any) -> str:
    """Write a value of a user's file for a message: one short line, without control characters."""
    if isinstance(value, (dict, list)):
        return "an object" if isinstance(value, dict) else "a list"
    text = ascii(value)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."


def _refuse_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    items: dict[str, Any] = {}
    for name, value in pairs:
        if name in items:
            raise Malformed(f"key {show(name)} stands twice in an object")
        items[name] = value
    return items
