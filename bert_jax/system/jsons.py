"""Reading of JSON, checked against a schema: errors name the byte, type or number that is wrong.

A schema describes what a reader relies on; keys it does not name are allowed:

    str, bool, object    a text, true or false, anything; `str | None`, `str | list`: either
    int, float           a whole number, a finite number
    range(1, 10)         a whole number from 1 to 9
    {"on", "off"}        one of these texts
    [int]                a list of whole numbers
    (int, str)           a list of exactly these two
    {str: int}           an object with whole numbers, by any names
    {"a": int, "b": Maybe(str)}    an object with a whole number "a"; "b" may be absent or null
"""

from __future__ import annotations

import functools
import json
import logging
import math
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from bert_jax.errors import UserError
from bert_jax.system import opening

logger = logging.getLogger(__name__)

LIMIT = 1 << 28  # bytes of a file
DEPTH = 100  # lists and objects inside each other
DIGITS = 308  # of a whole number: a float can hold no more
SHOWN = 80  # characters of a foreign value in a message
DEEP = f"lists and objects are nested too deeply, in more than {DEPTH} levels"
HINT = "it is damaged, or of another program: restore it from where it came"
NAMES: dict[type, str] = {
    dict: "an object",
    list: "a list",
    str: "a text",
    bool: "true or false",
    type(None): "null",
    int: "a whole number",
    float: "a finite number",
    object: "anything",
}


class Maybe(NamedTuple):
    """A value that may be absent or null."""

    schema: Any


class Malformed(ValueError):
    """The fault of a JSON text in words for one line, and its line number, or 0 if unknown."""

    def __init__(self, message: str, line: int = 1, hint: str = ""):
        super().__init__(message)
        self.line = line
        self.hint = hint


def read(
    path: Path | str,
    kind: type[UserError],
    schema: Any = dict,
    *,
    hint: str = HINT,
    limit: int = LIMIT,
    strict: bool = False,
) -> Any:
    """Read the JSON of a regular file, checked against a schema.

    Raises `kind`, with the hint, if the file cannot be read, has more than `limit` bytes or does
    not fit; `strict`, for files of other projects, also refuses NaN and half surrogate pairs.
    """
    data = opening.read(path, kind, limit, hint)
    try:
        return parse(data, schema, strict=strict)
    except Malformed as error:
        raise kind(f"{path}: {error}", hint) from error


def lines(path: Path | str, kind: type[UserError], schema: Any = dict) -> Iterator[Any]:
    """Yield the values of a file of JSON lines; leave broken lines out with one warning.

    A last line without its newline was torn by a kill, or is being written: it is left out too.
    """
    bad, first = 0, ""
    with opening.regular(path, kind) as file:
        for number, line in enumerate(file, 1):
            try:
                yield parse(line, schema)
            except Malformed as error:
                if line.endswith(b"\n"):
                    bad, first = bad + 1, first or f"{path}:{number}: {error}"
    if bad:
        _warn(f"{first}; {bad} such line{'s are' * (bad > 1) or ' is'} left out")


def parse(
    text: bytes | str,
    schema: Any = object,
    *,
    strict: bool = False,
) -> Any:
    """Return the value of a JSON text; raise Malformed if it does not fit the schema."""
    try:
        text = text.decode("utf-8-sig") if isinstance(text, bytes) else text
        value = (STRICT if strict else LOOSE).decode(text)
    except UnicodeDecodeError as error:
        raise Malformed(f"not UTF-8 at byte {error.start}") from error
    except RecursionError as error:
        raise Malformed(DEEP) from error
    except Malformed:
        raise
    except ValueError as error:
        raise Malformed(f"not JSON: {error}", getattr(error, "lineno", 1)) from error
    if text.count("[") + text.count("{") > DEPTH and _is_deep(value):
        raise Malformed(DEEP)
    if strict and "\\ud" in text.lower() and (half := _half(value)):
        raise Malformed(f"half a character in {half}")
    if problem := wrong(value, schema):
        raise Malformed(problem)
    return value


def wrong(value: Any, schema: Any, at: str = "") -> str:
    """Describe a value that does not fit a schema, with its place; return "" if all fit."""
    if isinstance(schema, Maybe):
        return "" if value is None else wrong(value, schema.schema, at)
    place = at.lstrip(".") or "the whole"
    if isinstance(schema, (dict, list, tuple)):
        container = dict if isinstance(schema, dict) else list
        kind = type(value)
        if kind is not container:
            return f"{place} is {show(value)}, not {NAMES[container]}"
        if isinstance(schema, tuple) and len(value) != len(schema):
            return f"{place} has {len(value)} values, not {len(schema)}"
        if isinstance(schema, dict):
            return next(filter(None, _of_object(value, schema, at)), "")
        return next(filter(None, _of_list(value, schema, at)), "")
    if isinstance(schema, range):
        fits = type(value) is int and value in schema
        allowed = f"a whole number from {schema[0]:,} to {schema[-1]:,}"
    elif isinstance(schema, set):
        fits = isinstance(value, str) and value in schema
        allowed = " or ".join(sorted(schema))
    else:
        kinds = schema.__args__ if isinstance(schema, types.UnionType) else (schema,)
        fits = any(_is(value, kind) for kind in kinds)
        allowed = " or ".join(NAMES[kind] for kind in kinds)
    return "" if fits else f"{place} is {show(value)}, not {allowed}"


@functools.cache
def _warn(text: str) -> None:
    """Log a warning once, however often a file is read."""
    logger.warning(text)


def show(value: Any) -> str:
    """Return a foreign value for a message: one short line without control characters."""
    if isinstance(value, (dict, list)):
        return NAMES[type(value)]
    text = ascii(value)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."


def _of_object(value: dict[str, Any], schema: dict[Any, Any], at: str) -> Iterator[str]:
    for key, inner in schema.items():
        if key is str:
            for name, item in value.items():
                yield wrong(item, inner, f"{at}.{show(name)[1:-1]}")
        elif key in value or isinstance(inner, Maybe):
            yield wrong(value.get(key), inner, f"{at}.{key}")
        else:
            yield f"{at.lstrip('.') or 'the whole'} has no {key!r}"


def _of_list(value: list[Any], schema: list[Any] | tuple[Any, ...], at: str) -> Iterator[str]:
    schemas = schema * len(value) if isinstance(schema, list) else schema
    for index, (item, inner) in enumerate(zip(value, schemas, strict=True)):
        yield wrong(item, inner, f"{at}[{index}]")


def _is(value: Any, kind: type) -> bool:
    if kind is object:
        return True
    if kind is float:
        return type(value) in (int, float) and math.isfinite(value)
    return type(value) is kind  # a bool is an int to isinstance


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(DEPTH + 1):
        containers = [value for value in level if isinstance(value, (dict, list))]
        level = [
            inner
            for container in containers
            for inner in (container.values() if isinstance(container, dict) else container)
        ]
    return bool(level)


def _whole(digits: str) -> int:
    if len(digits) > DIGITS:
        raise Malformed(f"a number of {len(digits):,} digits: {digits[:12]}...")
    return int(digits)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    items: dict[str, Any] = {}
    for key, value in pairs:
        if key in items:
            problem = f"key {show(key)} stands twice in an object"
            raise Malformed(problem, line=0, hint="name each key once")
        items[key] = value
    return items


def _refuse(constant: str) -> None:
    raise Malformed(f"{constant} is not a JSON number")


def _half(value: Any) -> str:
    """Return the text around half a surrogate pair, which no file takes; empty without one."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        return show(error.object[max(0, error.start - 20) : error.end + 20])
    return ""


LOOSE = json.JSONDecoder(parse_int=_whole, object_pairs_hook=_unique)
STRICT = json.JSONDecoder(parse_int=_whole, parse_constant=_refuse, object_pairs_hook=_unique)
