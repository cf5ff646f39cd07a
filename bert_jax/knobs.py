"""`bert-jax knobs`: every knob with its default, its values, where it acts and what it does."""

from __future__ import annotations

import dataclasses
import sys
import textwrap
import typing
from argparse import ArgumentParser
from typing import Any

from bert_jax import cli
from bert_jax.config import effects
from bert_jax.config.knobs import Config
from bert_jax.errors import ConfigError, suggest

EXAMPLE = "masking"
WIDTH = 79  # columns of a terminal
KINDS = {  # what a knob without range and choices takes
    bool: "true, false",
    int: "a whole number",
    float: "a number",
    str: "text",
    tuple[str, ...]: "words",
    dict[str, str]: "names and texts",
    tuple[tuple[float, float, str], ...]: "phases",
}
PAGE = """# Knobs

Written by `bert-jax knobs --markdown > configs/KNOBS.md`. `--config.masking.rate=0.3` sets a knob,
as does `config.masking.rate = 0.3` in a file. It acts only for what stands in its last column, and
is refused elsewhere.
"""


class Knob(typing.NamedTuple):
    """A knob as its declaration describes it."""

    path: str  # such as masking.rate, or evals.*.rate of each evaluation
    default: str
    values: str  # its range, its choices, or what kind of value it is
    condition: str  # what it is for; empty if it acts in every run of its section
    sentence: str


class Section(typing.NamedTuple):
    """The knobs of a section of the config."""

    name: str  # empty for knobs outside of sections
    condition: str
    sentence: str
    knobs: list[Knob]


def flags(parser: ArgumentParser) -> None:
    """Add the flags of the command."""
    names = ", ".join(section.name for section in read_sections() if section.name)
    what = f"a section, or a knob such as masking.rate or rate (all); sections: {names}"
    parser.add_argument("section", metavar="SECTION", nargs="?", default="", help=what)
    page = "print the page configs/KNOBS.md"
    parser.add_argument("--markdown", action="store_true", help=page)


def main(call: cli.Call) -> None:
    """Run the command line."""
    sections = find_knobs(call.args.section)
    if call.args.markdown:
        print(PAGE + "".join(map(write_markdown, sections)), end="")
    else:
        print("\n\n".join(map(write_text, sections)))


# --- from declarations to rows --------------------------------------------------------------------


def read_sections() -> list[Section]:
    """Return all knobs in the order of their declarations."""
    alone: list[Knob] = []
    sections = [Section("", "", "Knobs of the whole run.", alone)]
    hints = typing.get_type_hints(Config)
    for field in dataclasses.fields(Config):
        kind, path = hints[field.name], field.name
        if path in effects.NAMED:
            kind, path = typing.get_args(kind)[1], f"{path}.*"
        if not dataclasses.is_dataclass(kind):
            alone.append(read_knob(path, field, kind))
            continue
        inner = typing.get_type_hints(kind)
        knobs = [
            read_knob(f"{path}.{one.name}", one, inner[one.name])
            for one in dataclasses.fields(kind)
        ]
        sentence = (kind.__doc__ or "").partition("\n")[0]
        sections.append(Section(field.name, _condition(field.name), sentence, knobs))
    return sections


def read_knob(path: str, field: dataclasses.Field, kind: Any) -> Knob:
    """Return the row of a knob from its dataclass field and its type."""
    default = field.default
    if field.default_factory is not dataclasses.MISSING:
        default = field.default_factory()
    settings = field.metadata
    values = ", ".join(settings["choices"]) or _write_range(settings["low"], settings["high"])
    if not values:
        values = next(KINDS[option] for option in (kind, *typing.get_args(kind)) if option in KINDS)
    return Knob(path, _write_default(default), values, _condition(path), settings["doc"])


def find_knobs(name: str) -> list[Section]:
    """Return the sections that have a name, or a knob of this name, without their other knobs."""
    sections = read_sections()
    if not name:
        return sections
    found = []
    for section in sections:
        names = (section.name, f"{section.name}.*")
        path = effects.general(name)
        chosen = [k for k in section.knobs if path in (*names, k.path, k.path.rpartition(".")[2])]
        if chosen:
            found.append(section._replace(knobs=chosen))
    if not found:
        raise ConfigError(f"no section or knob {name!r}", _suggest_name(name, sections))
    return found


def _suggest_name(name: str, sections: list[Section]) -> str:
    """Return the hint for a name that is neither a section nor a knob."""
    options = [section.name for section in sections if section.name]
    options += [knob.path for knob in sections[0].knobs]
    for section in sections:
        if section.name == name.partition(".")[0]:
            options = [knob.path for knob in section.knobs]
    return suggest(effects.general(name), options)


def _condition(path: str) -> str:
    """Name the condition of a knob or a section; empty if it acts in every run."""
    where = effects.EFFECTS.get(path, effects.ALWAYS)
    if where is effects.ALWAYS:
        return ""
    return where.text


def _write_range(low: float | None, high: float | None) -> str:
    """Return the range of a number in words; empty if it has no limits."""
    if low is None and high is None:
        return ""
    if high is None:
        return f"at least {_write_limit(low)}"
    return f"{_write_limit(low)} to {_write_limit(high)}"


def _write_limit(limit: float | None) -> str:
    if isinstance(limit, int):
        return f"{limit:,}"
    return f"{limit:g}"


def _write_default(value: Any) -> str:
    """Return a value as a command line takes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (tuple, dict)):
        return ",".join(map(str, value))
    return str(value)


# --- from rows to text ----------------------------------------------------------------------------


def write_text(section: Section) -> str:
    """Return the knobs of a section for a terminal."""
    title = f"{section.name or 'config'}: {_introduce(section)}"
    parts = [textwrap.fill(title, WIDTH)]
    for knob in section.knobs:
        lines = [f"{knob.path} = {knob.default or '(empty)'}", f"values: {knob.values}"]
        lines.append(knob.sentence)
        if knob.condition:
            lines.append(f"for {knob.condition}")
        wrapped = [textwrap.fill(line, WIDTH - 2, subsequent_indent="  ") for line in lines]
        parts.append(textwrap.indent("\n".join(wrapped), "  ").strip())
    return "\n\n".join(parts)


def _introduce(section: Section) -> str:
    """Describe a section, and name its condition."""
    if not section.condition:
        return section.sentence
    return f"{section.sentence} For {section.condition}."


def write_markdown(section: Section) -> str:
    """Return the knobs of a section as a heading and a table."""
    lines = [f"\n## {section.name or 'The run'}\n\n{_introduce(section)}\n"]
    lines += ["|knob|default|values|what it does|for|", "|---|---|---|---|---|"]
    for knob in section.knobs:
        name = f"`{knob.path.rpartition('.')[2]}`"
        default = knob.default and f"`{knob.default}`"
        cells = [name, default, knob.values, knob.sentence, knob.condition]
        lines.append("|" + "|".join(cell.replace("|", "\\|") for cell in cells) + "|")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    cli.main(["knobs", *sys.argv[1:]])
