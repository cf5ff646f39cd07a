"""The declarations as a table: find a knob by its path, check its value, read and write it as text.

A path such as `evals.mine.rate` names a knob of an entry; `evals.*.rate` is that knob's row.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import math
import re
import shlex
import typing
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from bert_jax.config.declare import Traits, read_sentences
from bert_jax.config.knobs import Config, Eval, Objective
from bert_jax.errors import ConfigError, suggest

ENTRIES: dict[str, type] = {"objectives": Objective, "evals": Eval}  # sections with named entries
# Form of a value -> the name of its type, and how to write it.
FORMS = {
    "float": ("float", "a finite number, such as 0.1"),
    "int": ("int", "a whole number, such as 3"),
    "bool": ("bool", "true or false"),
    "str": ("str", "text"),
    "floats": (
        "tuple[float, float, float]",
        "as many values with commas between, such as 0.8,0.1,0.1",
    ),
    "ints": ("tuple[int, ...]", "whole numbers with commas between, such as 8,16"),
    "strs": ("tuple[str, ...]", "words with commas between, such as a,b"),
    "phases": (
        "tuple[tuple[float, float, str], ...]",
        "\"((0.5,0.15,'step'),)\", in quotes for the shell",
    ),
    "dict": ("dict[str, str]", "a dict of texts, in a file"),
}


@dataclasses.dataclass(frozen=True)
class Knob:
    """One knob, or one section, as its dataclass declares it."""

    section: type
    name: str
    kind: Any  # the annotation
    default: Any
    traits: Traits

    @property
    def optional(self) -> bool:
        """True if the knob may be None."""
        return type(None) in typing.get_args(self.kind)

    @property
    def plain(self) -> Any:
        """The annotation without None."""
        return typing.get_args(self.kind)[0] if self.optional else self.kind

    @property
    def item(self) -> Any:
        """The annotation of the value, or of each item of a tuple."""
        is_tuple = typing.get_origin(self.plain) is tuple
        return typing.get_args(self.plain)[0] if is_tuple else self.plain

    @property
    def choices(self) -> tuple[str, ...]:
        """The values to choose from; empty if there is no such list."""
        return typing.get_args(self.item) if typing.get_origin(self.item) is Literal else ()

    @property
    def limits(self) -> tuple[float | None, float | None]:
        """The lowest and the highest number."""
        found = getattr(self.item, "__metadata__", ())
        return (found[0].ge, found[0].le) if found else (None, None)

    @property
    def form(self) -> str:
        """The row of FORMS."""
        origin = typing.get_origin(self.plain)
        if origin is dict:
            return "dict"
        if typing.get_origin(self.item) is tuple:
            return "phases"
        kind = typing.get_args(self.item)[0] if self.limits != (None, None) else self.item
        name = "str" if self.choices else kind.__name__
        return f"{name}s" if origin is tuple else name

    @property
    def sentence(self) -> str:
        """The comment that says what the knob does."""
        return read_sentences(self.section)[self.name]


def is_section(kind: Any) -> bool:
    """Tell whether an annotation is a section, and not a knob's."""
    return dataclasses.is_dataclass(kind)


# --- finding --------------------------------------------------------------------------------------


@functools.cache
def read_section(section: Any) -> dict[str, Knob]:
    """Return the fields of a dataclass by name; fields that are sections are among them."""
    kinds = typing.get_type_hints(section, include_extras=True)
    found = {}
    for field in dataclasses.fields(section):
        default = field.default
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        traits = field.metadata.get("traits", Traits())
        found[field.name] = Knob(section, field.name, kinds[field.name], default, traits)
    return found


@functools.cache
def list_knobs() -> Mapping[str, Knob]:
    """Return every knob by its path, with * for the name of an entry."""
    found = {}
    for name, field in read_section(Config).items():
        section = ENTRIES.get(name, field.kind)
        prefix = f"{name}.*." if name in ENTRIES else f"{name}."
        if not is_section(section):
            found[name] = field
            continue
        for inner, knob in read_section(section).items():
            found[f"{prefix}{inner}"] = knob
    return found


def generalize(path: str) -> str:
    """Return a path with * for the name of an entry."""
    return re.sub(rf"^({'|'.join(ENTRIES)})\.[^.]+", r"\1.*", path)


def find_knob(path: str) -> Knob:
    """Return the knob at a path; a ConfigError names the nearest one, or says it is a section."""
    section: Any = Config
    place = "config"
    names = path.split(".")
    for depth, name in enumerate(names):
        if depth == 1 and names[0] in ENTRIES:
            section = ENTRIES[names[0]]
        elif section is not None:
            knob = _pick(section, name, place)
            section = knob.kind if is_section(knob.kind) else None
        elif knob.form != "dict":
            raise ConfigError(f"{place} has no knob {name!r}: it is a value")
        place = f"{place}.{name}"
    if section is None:
        return knob
    fields = ", ".join(read_section(section))
    raise ConfigError(f"{place} is a section, not a value", f"set one of: {fields}")


def _pick(section: type, name: str, place: str) -> Knob:
    """Return the field of a section; refuse a name that the section does not have."""
    fields = read_section(section)
    if name not in fields:
        raise ConfigError(f"{place} has no knob {name!r}", suggest(name, fields))
    return fields[name]


def is_switch(path: str) -> bool:
    """Tell whether the knob at a path is true or false; an unknown path is refused later."""
    try:
        return find_knob(path).form == "bool"
    except ConfigError:
        return False


# --- checking -------------------------------------------------------------------------------------


def build_section(section: Any, values: Any, place: str) -> Any:
    """Return a dataclass of plain values, with every name, type and range checked."""
    if not isinstance(values, dict):
        raise ConfigError(f"{place} must be a section, got {values!r}")
    built = {}
    for name, value in values.items():
        knob = _pick(section, name, place)
        built[name] = _build_field(knob, value, f"{place}.{name}")
    return section(**built)


def _build_field(knob: Knob, value: Any, path: str) -> Any:
    """Return a section, the entries of a section, or a knob's value."""
    if is_section(knob.kind):
        return build_section(knob.kind, value, path)
    if knob.section is not Config or knob.name not in ENTRIES:
        return check_value(knob, value, path)
    if not isinstance(value, dict):
        raise ConfigError(f"{path} must be a section, got {value!r}")
    entry = ENTRIES[knob.name]
    return {name: build_section(entry, one, f"{path}.{name}") for name, one in value.items()}


def check_value(knob: Knob, value: Any, path: str) -> Any:
    """Return a value as the knob's type; refuse what is out of the type, range or choices."""
    plain = _make_plain(value)
    try:
        if isinstance(plain, float) and not math.isfinite(plain):
            raise msgspec.ValidationError("not finite")
        return msgspec.convert(plain, knob.kind)
    except msgspec.ValidationError as error:
        said = str(error)
    if said.startswith("Invalid enum value") and knob.choices:
        listed = plain if isinstance(plain, tuple) else (plain,)
        unknown = next(one for one in listed if one not in knob.choices)
        raise ConfigError(f"{path} = {plain!r} is not a choice", suggest(unknown, knob.choices))
    if re.match(r"Expected `\w+` [<>]", said):
        shown = float(plain) if knob.form == "float" else plain
        raise ConfigError(
            f"{path} = {shown!r} is out of range", f"{_write_limits(knob)}: {knob.sentence}"
        )
    name, written = FORMS[knob.form]
    raise ConfigError(f"{path} must be {name}, got {value!r}", f"write {written}")


def _make_plain(value: Any) -> Any:
    """Return a value without numpy's floats, and with tuples for lists."""
    if isinstance(value, (list, tuple)):
        return tuple(_make_plain(item) for item in value)
    return float(value) if isinstance(value, float) else value


def _write_limits(knob: Knob) -> str:
    low, high = knob.limits
    if low is None:
        return f"at most {high}"
    return f"at least {low}" if high is None else f"from {low} to {high}"


# --- text -----------------------------------------------------------------------------------------


def read_text(path: str, text: str) -> Any:
    """Return the value of a command line: `true`, `3`, `0.5`, `1,0,0`, `a,b`, `None` or words.

    Types and ranges are checked with the whole config.
    """
    knob = find_knob(path)
    if knob.form == "dict" and path.endswith(knob.name):
        if not text and path not in ENTRIES:
            return {}
        hint = f"set {path}.NAME.KNOB, or {path} in the file"
        raise ConfigError(f"config.{path} is a section, not a value", hint)
    if knob.optional and text in ("None", "none", "null"):
        return None
    if knob.form in ("str", "dict"):
        return text
    if knob.form == "strs" and not re.search("['\"]", text):
        names = text.strip("()").split(",")  # a,b,c or (a,b,c)
        return tuple(name.strip() for name in names if name.strip())
    if knob.form in ("floats", "ints", "strs", "phases") and not text:
        return ()
    try:
        value = ast.literal_eval({"true": "True", "false": "False"}.get(text.lower(), text))
    except (ValueError, SyntaxError):
        return text
    return (value,) if knob.form == "ints" and isinstance(value, int) else value


def write_flag(path: str, value: Any) -> str:
    """Write the word of a command line that sets a knob, quoted for a shell; see `read_text`."""
    text = "" if value == {} else str(value)
    if isinstance(value, (list, tuple)):
        nested = any(isinstance(item, (list, tuple)) for item in value)
        text = text.replace(" ", "") if nested else ",".join(map(str, value))
    return shlex.quote(f"--config.{path}={text}")
