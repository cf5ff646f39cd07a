"""`bert-jax knobs`: every knob with its default, its values, where it acts and what it does."""

from __future__ import annotations

import sys
import textwrap
from argparse import ArgumentParser
from typing import Any, NamedTuple

from bert_jax import cli
from bert_jax.config import conditions, table
from bert_jax.config.knobs import Config
from bert_jax.errors import ConfigError, suggest

EXAMPLE = "masking"
WIDTH = 79  # columns of a terminal
FORMS = {  # what a knob without range and choices takes
    "bool": "true, false",
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "strs": "words",
    "dict": "names and texts",
    "phases": "phases",
}
PAGE = """# Knobs

Written by `bert-jax knobs --markdown > configs/KNOBS.md`. `--config.masking.rate=0.3` sets a knob,
as does `config.masking.rate = 0.3` in a file. It acts only for what stands in its last column, and
is refused elsewhere.
"""


class Row(NamedTuple):
    """A knob as its declaration describes it."""

    path: str  # such as masking.rate, or evals.*.rate of each evaluation
    default: str
    values: str  # its range, its choices, or what kind of value it is
    condition: str  # what it is for; empty if it acts in every run of its section
    sentence: str


class Section(NamedTuple):
    """The knobs of a section of the config."""

    name: str  # empty for knobs outside of sections
    condition: str
    sentence: str
    knobs: list[Row]


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
    alone: list[Row] = []
    sections = [Section("", "", "Knobs of the whole run.", alone)]
    for name, field in table.read_section(Config).items():
        kind = table.ENTRIES.get(name, field.kind)
        if not table.is_section(kind):
            alone.append(read_row(name, field))
            continue
        prefix = f"{name}.*." if name in table.ENTRIES else f"{name}."
        rows = [read_row(prefix + one.name, one) for one in table.read_section(kind).values()]
        sentence = (kind.__doc__ or "").partition("\n")[0]
        sections.append(Section(name, _write_conditions(field), sentence, rows))
    return sections


def read_row(path: str, knob: table.Knob) -> Row:
    """Return the row of a knob."""
    values = ", ".join(knob.choices) or _write_range(*knob.limits) or FORMS[knob.form]
    return Row(path, _write_default(knob.default), values, _write_conditions(knob), knob.sentence)


def find_knobs(name: str) -> list[Section]:
    """Return the sections that have a name, or a knob of this name, without their other knobs."""
    sections = read_sections()
    if not name:
        return sections
    found = []
    for section in sections:
        names = (section.name, f"{section.name}.*")
        path = table.generalize(name)
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
    return suggest(table.generalize(name), options)


def _write_conditions(knob: table.Knob) -> str:
    """Name the conditions of a knob or a section; empty if it acts in every run."""
    return ", and ".join(conditions.read_condition(text).text for text in knob.traits.when)


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
