"""Conversion of plain values to the dataclasses of `knobs`, with checks of types and ranges."""

from __future__ import annotations

import ast
import dataclasses
import functools
import math
import shlex
import types
import typing
from collections.abc import Callable
from typing import Any

from bert_jax.config.knobs import Config
from bert_jax.errors import ConfigError, suggest

WRITTEN: dict[Any, str] = {  # how a value of each type is written, for hints
    float: "a finite number, such as 0.1",
    int: "a whole number, such as 3",
    bool: "true or false",
    str: "text",
    tuple[float, float, float]: "as many values with commas between, such as 0.8,0.1,0.1",
    tuple[int, ...]: "whole numbers with commas between, such as 8,16",
    tuple[str, ...]: "words with commas between, such as a,b",
    tuple[tuple[float, float, str], ...]: "\"((0.5,0.15,'step'),)\", in quotes for the shell",
}


# The types of a dataclass's fields; cached, for reading them dominates resolving.
_hints: Callable[[Any], dict[str, Any]] = functools.cache(typing.get_type_hints)


def build(kind: Any, value: Any, path: str, field: dataclasses.Field | None = None) -> Any:
    """Return `value` as a type annotation says, checked recursively."""
    if dataclasses.is_dataclass(kind):
        if not isinstance(value, dict):
            raise ConfigError(f"{path} must be a section, got {value!r}")
        hints = _hints(kind)
        fields = {f.name: f for f in dataclasses.fields(kind)}
        for name in value:
            _child_type(kind, name, path)
        values = {n: build(hints[n], v, f"{path}.{n}", fields[n]) for n, v in value.items()}
        return kind(**values)  # type: ignore[operator]  # a class
    if typing.get_origin(kind) is dict:
        if not isinstance(value, dict):
            raise ConfigError(f"{path} must be a section, got {value!r}")
        entry = typing.get_args(kind)[1]
        return {name: build(entry, item, f"{path}.{name}") for name, item in value.items()}
    former = field.metadata.get("formerly", {}) if field else {}
    checked = _check_type(kind, former.get(str(value).lower(), value), path)
    _check_range(checked, path, field)
    return checked


def _check_type(kind: Any, value: Any, path: str) -> Any:
    options = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    if value is None and type(None) in options:
        return None
    option = next(o for o in options if o is not type(None))
    if typing.get_origin(option) is tuple:
        parts = typing.get_args(option)
        if parts[-1] is Ellipsis and isinstance(value, (list, tuple)):
            parts = parts[:1] * len(value)
        if isinstance(value, (list, tuple)) and len(value) == len(parts):
            return tuple(_check_type(p, v, path) for p, v in zip(parts, value, strict=True))
    elif option is float:
        if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
            return float(value)
    elif isinstance(value, option) and not (option is int and isinstance(value, bool)):
        return value
    name = str(option) if typing.get_origin(option) else option.__name__
    raise ConfigError(
        f"{path} must be {name}, got {value!r}",
        f"write {WRITTEN[option]}",
    )


def _check_range(value: Any, path: str, field: dataclasses.Field | None) -> None:
    if field is None or value is None:
        return
    low, high, choices = (field.metadata.get(k) for k in ("low", "high", "choices"))
    for item in value if isinstance(value, tuple) else (value,):
        if (low is not None and item < low) or (high is not None and item > high):
            bounds = f"from {low} to {high}"
            if low is None or high is None:
                bounds = f"at least {low}" if high is None else f"at most {high}"
            raise ConfigError(
                f"{path} = {value!r} is out of range", f"{bounds}: {field.metadata['doc']}"
            )
        if choices and item not in choices:
            raise ConfigError(f"{path} = {value!r} is not a choice", suggest(str(item), choices))


def knob_at(path: str) -> tuple[Any, Any]:
    """Return the type of the knob at a path, and the field with its default and range."""
    kind: Any = Config
    field = None
    names = path.split(".")
    for depth, name in enumerate(names):
        parent, kind = kind, _child_type(kind, name, ".".join(["config", *names[:depth]]))
        fields = dataclasses.fields(parent) if dataclasses.is_dataclass(parent) else ()
        field = next((f for f in fields if f.name == name), None)
    return kind, field


def is_switch(kind: Any) -> bool:
    """Tell whether a type is bool, or bool or None."""
    return bool in (typing.get_args(kind) or (kind,))


def _child_type(kind: Any, name: str, path: str) -> Any:
    if typing.get_origin(kind) is dict:
        return typing.get_args(kind)[1]
    if not dataclasses.is_dataclass(kind):
        raise ConfigError(f"{path} has no knob {name!r}: it is a value")
    hints = _hints(kind)
    if name not in hints:
        raise ConfigError(f"{path} has no knob {name!r}", suggest(name, tuple(hints)))
    return hints[name]


def parse(text: str, kind: Any, path: str) -> Any:
    """Read `true`, `3`, `0.5`, `1,0,0`, `a,b`, `None`, nothing or a bare string as `kind`."""
    options = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    if text in ("None", "none", "null") and type(None) in options:
        return None
    if str in options:
        return text
    if typing.get_args(kind)[:1] == (str,) and "'" not in text and '"' not in text:
        names = text.strip("()").split(",")  # a,b,c or (a,b,c)
        return tuple(name.strip() for name in names if name.strip())
    if not text and typing.get_origin(kind) is tuple:
        return _check_type(kind, (), path)
    try:
        value = ast.literal_eval({"true": "True", "false": "False"}.get(text.lower(), text))
    except (ValueError, SyntaxError):
        value = text
    if kind == tuple[int, ...] and isinstance(value, int):
        value = (value,)
    return _check_type(kind, value, path)


def flag(path: str, value: Any) -> str:
    """Write the word of a command line that sets a knob, as a shell takes it; `parse` reads it."""
    text = "" if value == {} else str(value)
    if isinstance(value, (list, tuple)):
        nested = any(isinstance(item, (list, tuple)) for item in value)
        text = text.replace(" ", "") if nested else ",".join(map(str, value))
    return shlex.quote(f"--config.{path}={text}")
