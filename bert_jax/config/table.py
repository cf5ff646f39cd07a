"""The declarations as a table: find a knob by its path, check its value, read and write it as text.

A path such as `evals.mine.rate` names a knob of an entry. The table has it as `evals.*.rate`.
"""

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

from bert_jax.config.declare import Dropout, Positive, Share, Traits, read_sentences
from bert_jax.config.knobs import Config, Eval, Objective
from bert_jax.errors import ConfigError, suggest

ENTRIES: dict[str, type] = {"objectives": Objective, "evals": Eval}  # sections with named entries
KINDS = {  # what a knob without range and choices takes
    bool: "true, false",
    int: "a whole number",
    float: "a number",
    str: "text",
    dict: "names and texts",
    tuple: "phases",
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
    def is_tuple(self) -> bool:
        """True if the value has several items."""
        return typing.get_origin(self.plain) is tuple

    @property
    def item(self) -> Any:
        """The annotation of the value, or of each item if the value is a tuple."""
        return typing.get_args(self.plain)[0] if self.is_tuple else self.plain

    @property
    def type(self) -> type:
        """The Python type of the value, or of each item if the value is a tuple."""
        if self.choices:
            return str
        return getattr(self.item, "__origin__", self.item)

    @property
    def is_share(self) -> bool:
        """True if the value is a share of something, such as a rate of masking or of dropout."""
        return self.plain in (Share, Positive, Dropout)

    @property
    def choices(self) -> tuple[str, ...]:
        """The values to choose from; empty if there is no such list."""
        return typing.get_args(self.item) if typing.get_origin(self.item) is Literal else ()

    @property
    def values(self) -> str:
        """The values that the knob accepts, in words: its choices, its range, or its type."""
        limits = getattr(self.item, "__metadata__", ())
        if self.choices:
            return ", ".join(self.choices)
        if not limits:
            return KINDS[self.type]
        if limits[0].gt is not None:
            return f"above {limits[0].gt}, up to {limits[0].le}"
        low = _write_number(limits[0].ge)
        return f">={low}" if limits[0].le is None else f"{low}..{_write_number(limits[0].le)}"

    @property
    def sentence(self) -> str:
        """The comment that says what the knob does."""
        return read_sentences(self.section)[self.name]


def _write_number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


# --- finding --------------------------------------------------------------------------------------


@functools.cache
def read_section(section: Any) -> dict[str, Knob]:
    """Return {name: Knob} of a dataclass's fields, including fields that are sections."""
    kinds = typing.get_type_hints(section, include_extras=True)
    usual = section()
    found = {}
    for field in dataclasses.fields(section):
        name = field.name
        traits = field.metadata.get("traits", Traits())
        found[name] = Knob(section, name, kinds[name], getattr(usual, name), traits)
    return found


@functools.cache
def list_sections() -> Mapping[str, type]:
    """Return {name: dataclass} of the sections of a config.

    For a section with named entries, such as `evals`, it is the dataclass of one entry.
    """
    fields = read_section(Config)
    kinds = {name: ENTRIES.get(name, one.kind) for name, one in fields.items()}
    return {n: k for n, k in kinds.items() if isinstance(k, type) and dataclasses.is_dataclass(k)}


@functools.cache
def list_knobs() -> Mapping[str, Knob]:
    """Return {path: Knob} of all knobs; in a path, * stands for the name of any entry."""
    sections = list_sections()
    found = {name: knob for name, knob in read_section(Config).items() if name not in sections}
    for name, section in sections.items():
        prefix = f"{name}.*." if name in ENTRIES else f"{name}."
        for inner, knob in read_section(section).items():
            found[prefix + inner] = knob
    return found


def generalize(path: str) -> str:
    """Replace the name of an entry in a path by *: `evals.mine.rate` becomes `evals.*.rate`."""
    return re.sub(rf"^({'|'.join(ENTRIES)})\.[^.]+", r"\1.*", path)


def is_entry(path: str) -> bool:
    """Tell whether a path names an entry, such as `evals.mine`, and not a knob."""
    return generalize(path) in [f"{name}.*" for name in ENTRIES]


def find_knob(path: str) -> Knob:
    """Return the knob at a path.

    For a path without a knob, a ConfigError names the nearest knob, or says that it is a section.
    """
    first, *rest = path.split(".")
    knob = pick_field(Config, first, "config")
    if first not in list_sections() or path in ENTRIES:
        if rest:
            raise ConfigError(
                f"config.{first} has no knob {rest[0]!r}: it is a value", f"--config.{first}=VALUE"
            )
        return knob
    place = f"config.{first}"
    if first in ENTRIES and rest:
        place += f".{rest.pop(0)}"
    section = list_sections()[first]
    if not rest:
        fields = ", ".join(read_section(section))
        raise ConfigError(f"{place} is a section, not a value", f"set one of: {fields}")
    knob = pick_field(section, rest[0], place)
    if rest[1:] and knob.type is not dict:
        place += f".{rest[0]}"
        raise ConfigError(f"{place} has no knob {rest[1]!r}: it is a value", f"--{place}=VALUE")
    return knob


def pick_field(section: type, name: str, place: str) -> Knob:
    """Return the Knob of a section's field `name`; refuse a name that the section does not have."""
    fields = read_section(section)
    if name not in fields:
        raise ConfigError(f"{place} has no knob {name!r}", suggest(name, fields))
    return fields[name]


# --- checking -------------------------------------------------------------------------------------


def build_section(section: Any, values: Any, place: str) -> Any:
    """Build the dataclass of a section from plain values; check every name, type and range."""
    if not isinstance(values, dict):
        raise ConfigError(f"{place} must be a section, got {values!r}", "set its knobs one by one")
    built = {}
    for name, value in values.items():
        knob = pick_field(section, name, place)
        path = f"{place}.{name}"
        if section is not Config or name not in list_sections():
            built[name] = check_value(knob, value, path)
        elif name not in ENTRIES:
            built[name] = build_section(knob.kind, value, path)
        elif isinstance(value, dict):
            entry = ENTRIES[name]
            built[name] = {n: build_section(entry, one, f"{path}.{n}") for n, one in value.items()}
        else:
            raise ConfigError(f"{path} must be a section, got {value!r}", f"set {path}.NAME.KNOB")
    return section(**built)


def check_value(knob: Knob, value: Any, path: str) -> Any:
    """Convert a value to the knob's type; refuse a value of another type, range or choice."""
    plain = _make_plain(value)
    try:
        if isinstance(plain, float) and not math.isfinite(plain):
            raise msgspec.ValidationError("not finite")
        return msgspec.convert(plain, knob.kind)
    except msgspec.ValidationError as error:
        said = str(error)
    hint = f"{knob.values}: {knob.sentence}"
    if said.startswith("Invalid enum value") and knob.choices:
        listed = plain if knob.is_tuple else (plain,)
        unknown = next(one for one in listed if one not in knob.choices)
        raise ConfigError(f"{path} = {plain!r} is not a choice", suggest(unknown, knob.choices))
    if re.match(r"Expected `\w+` [<>]", said):
        raise ConfigError(f"{path} = {plain!r} is out of range", hint)
    if knob.is_tuple and isinstance(plain, tuple):
        raise ConfigError(f"{path} = {plain!r}: {said}", hint)
    several = "a tuple of " if knob.is_tuple else ""
    raise ConfigError(f"{path} must be {several}{knob.type.__name__}, got {value!r}", hint)


def _make_plain(value: Any) -> Any:
    """Convert numpy's values to Python's, and lists to tuples."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return tuple(_make_plain(item) for item in value)
    return value


# --- text -----------------------------------------------------------------------------------------


def is_switch(path: str) -> bool:
    """Tell whether the knob at a path is a bool; return False for an unknown path."""
    knob = list_knobs().get(generalize(path))
    return knob is not None and knob.type is bool


def read_text(path: str, text: str) -> Any:
    """Convert a text of the command line to a knob's value.

    Examples are `true`, `3`, `0.5`, `1,0,0`, `a,b`, `None` and words. The type and the range are
    checked later, with the whole config.
    """
    knob = find_knob(path)
    if knob.optional and text in ("None", "none", "null"):
        return None
    if knob.type is dict and path.endswith(f".{knob.name}"):
        return text or {}
    if knob.is_tuple and knob.type is str:
        # a,b,c or (a,b,c) or [a,b,c]; a label may have parentheses or brackets, too
        enclosed = r"\((?:[^()]|\([^()]*\))*\)|\[(?:[^][]|\[[^][]*\])*\]"
        names = (text[1:-1] if re.fullmatch(enclosed, text) else text).split(",")
        return tuple(name.strip(" '\"") for name in names if name.strip())
    if knob.type in (str, dict):
        return text
    if knob.is_tuple and not text:
        return ()
    try:
        value = ast.literal_eval({"true": "True", "false": "False"}.get(text.lower(), text))
    except (ValueError, SyntaxError):
        return text
    if not knob.is_tuple:
        return value
    return _make_plain(value) if isinstance(value, (tuple, list)) else (value,)


def write_flag(path: str, value: Any) -> str:
    """Write the command-line flag that sets a knob, quoted for a shell; `read_text` reads it."""
    text = "" if value == {} else str(value)
    if isinstance(value, (list, tuple)):
        nested = any(isinstance(item, (list, tuple)) for item in value)
        text = text.replace(" ", "") if nested else ",".join(map(str, value))
    return shlex.quote(f"--config.{path}={text}")
