"""JSON whose faults are told in one line, and which may have to fit a schema.

A schema is a type, or made of schemas: {"a": T, "b": Maybe(U)} needs a key a and may have a key b,
{str: T} has any keys, [T] is a list, (T, U) a list of two.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from bert_jax.errors import UserError
from bert_jax.system import disk, opening

LIMIT = 1 << 28  # bytes of a file
SHOWN = 80  # characters of a foreign value in a message
NAMES: dict[type, str] = {
    dict: "an object",
    list: "a list",
    str: "a text",
    bool: "true or false",
    type(None): "null",
    int: "a whole number",
}
HINT = "it is damaged, or of another program: restore it from where it came"


class Malformed(ValueError):
    """The fault of a JSON text in words for one line, and its line number, or 0 if unknown."""

    def __init__(self, message: str, line: int = 1):
        super().__init__(message)
        self.line = line


def read(
    path: Path | str,
    kind: type[UserError],
    schema: Any = dict,
    *,
    hint: str = HINT,
    limit: int = LIMIT,
) -> Any:
    """Read the JSON of a file; raise `kind` if it cannot be read or does not fit."""
    data = opening.read_file(path, kind, limit, hint)
    try:
        return parse(data, schema)
    except Malformed as error:
        raise kind(f"{path}: {error}", hint) from error


def write(path: Path, value: Any) -> None:
    """Write JSON so that a reader never sees half of the file."""
    disk.write(path, json.dumps(value, indent=2) + "\n")


def parse(text: bytes | str, schema: Any = object) -> Any:
    """Parse a JSON text; raise Malformed if it does not fit the schema."""
    try:
        decoded = text.decode("utf-8-sig") if isinstance(text, bytes) else text
        value = json.loads(decoded, object_pairs_hook=_refuse_repeats)
    except UnicodeDecodeError as error:
        raise Malformed(f"not UTF-8 at byte {error.start}") from error
    except RecursionError as error:
        raise Malformed("lists and objects are nested too deeply") from error
    except json.JSONDecodeError as error:
        raise Malformed(f"not JSON: {error}", error.lineno) from error
    except Malformed:
        raise
    except ValueError as error:  # a number of more digits than Python converts
        raise Malformed(f"not JSON: {error}") from error
    if problem := wrong(value, schema):
        raise Malformed(problem)
    return value


def wrong(value: Any, schema: Any, at: str = "") -> str:
    """Describe a value that does not fit a schema, with its place; return "" if all fits."""
    if isinstance(schema, Maybe):
        return "" if value is None else wrong(value, schema.schema, at)
    place = at.lstrip(".") or "the whole"
    if isinstance(schema, (dict, list, tuple)):
        container = dict if isinstance(schema, dict) else list
        if not isinstance(value, container):
            return f"{place} is {show(value)}, not {NAMES[container]}"
        if isinstance(schema, tuple) and len(value) != len(schema):
            return f"{place} has {len(value)} values, not {len(schema)}"
        return next(filter(None, _find_wrong(value, schema, at)), "")
    kinds = getattr(schema, "__args__", (schema,))  # of a union
    if any(kind in (object, type(value)) for kind in kinds):  # a bool is an int to isinstance
        return ""
    allowed = " or ".join(NAMES[kind] for kind in kinds)
    return f"{place} is {show(value)}, not {allowed}"


def _find_wrong(value: Any, schema: Any, at: str) -> Iterator[str]:
    """Yield what is wrong with each item of a list or an object."""
    if isinstance(schema, list):
        schema = schema * len(value)
    if isinstance(schema, (list, tuple)):
        for index, item in enumerate(value):
            yield wrong(item, schema[index], f"{at}[{index}]")
    elif str in schema:
        for name, item in value.items():
            yield wrong(item, schema[str], f"{at}.{show(name)[1:-1]}")
    else:
        for name, inner in schema.items():
            if name not in value and not isinstance(inner, Maybe):
                yield f"{at.lstrip('.') or 'the whole'} has no {name!r}"
            yield wrong(value.get(name), inner, f"{at}.{name}")


def show(value: Any) -> str:
    """Show a foreign value in a message, as one short line without control characters."""
    if isinstance(value, (dict, list)):
        return NAMES[type(value)]
    text = ascii(value)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."


class Maybe(NamedTuple):
    """A value that may be absent or null."""

    schema: Any


def _refuse_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    items = dict(pairs)
    if len(items) < len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for name in names if names.count(name) > 1)
        raise Malformed(f"key {show(repeated)} stands twice in an object", line=0)
    return items
