"""`bert-jax knobs`: every knob with its default, its values, where it acts and what it does."""

import sys
import textwrap
from argparse import ArgumentParser
from collections.abc import Iterable
from typing import Any

from bert_jax import cli
from bert_jax.config import table
from bert_jax.config.conditions import read_condition
from bert_jax.config.knobs import Config
from bert_jax.errors import ConfigError, suggest

EXAMPLE = "masking"
WIDTH = 79  # columns of a terminal
PAGE = """# Knobs

Written by `bert-jax knobs --markdown > configs/KNOBS.md`. `--config.masking.rate=0.3` sets a knob,
as does `config.masking.rate = 0.3` in a file. A knob is refused if the condition in its last column
does not hold."""


def add_flags(parser: ArgumentParser) -> None:
    """Add the flags of the command."""
    names = ", ".join(table.list_sections())
    what = f"a section, or a knob such as masking.rate or rate (all); sections: {names}"
    parser.add_argument("section", metavar="SECTION", nargs="?", default="", help=what)
    page = "print the page configs/KNOBS.md"
    parser.add_argument("--markdown", action="store_true", help=page)


def main(call: cli.Call) -> None:
    """Run the command line."""
    form = format_markdown if call.args.markdown else format_text
    parts = [PAGE] if call.args.markdown else []
    found = find_knobs(call.args.section)
    for section in ("", *table.list_sections()):
        chosen = {path: knob for path, knob in found.items() if _section_of(path) == section}
        if chosen:
            parts.append(form(section, chosen))
    print("\n\n".join(parts))


def find_knobs(name: str) -> dict[str, table.Knob]:
    """Return {path: Knob} of the knobs in a section, or of this name; an empty name finds all."""
    knobs, path = table.list_knobs(), table.generalize(name)
    found = {
        known: knob
        for known, knob in knobs.items()
        if not name or path in (known, knob.name) or known.startswith(f"{path}.")
    }
    if not found:
        section = name.partition(".")[0]
        below = [known for known in knobs if known.startswith(f"{section}.")]
        options = below or [*table.list_sections(), *(known for known in knobs if "." not in known)]
        raise ConfigError(f"no section or knob {name!r}", suggest(path, options))
    return found


def _section_of(path: str) -> str:
    return path.partition(".")[0] if "." in path else ""


# --- from knobs to text ---------------------------------------------------------------------------


def describe_section(section: str) -> str:
    """Write a sentence about a section of knobs, with its conditions."""
    if not section:
        return "Knobs of the whole run."
    sentence = (table.list_sections()[section].__doc__ or "").partition("\n")[0]
    when = table.read_section(Config)[section].traits.when
    return f"{sentence} For {format_conditions(when)}." if when else sentence


def format_conditions(when: Iterable[str]) -> str:
    """Write the conditions of a knob as text; "" if the knob acts in every run."""
    return ", and ".join(read_condition(text).text for text in when)


def format_default(value: Any) -> str:
    """Write a default value in the form that the command line accepts."""
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, (tuple, dict)) else str(value)


def format_text(section: str, knobs: dict[str, table.Knob]) -> str:
    """Write the knobs of a section as text for a terminal."""
    parts = [textwrap.fill(f"{section or 'config'}: {describe_section(section)}", WIDTH)]
    for path, knob in knobs.items():
        lines = [f"{path} = {format_default(knob.default) or '(empty)'}", f"values: {knob.values}"]
        lines.append(knob.sentence)
        if when := format_conditions(knob.traits.when):
            lines.append(f"for {when}")
        wrapped = [textwrap.fill(line, WIDTH - 2, subsequent_indent="  ") for line in lines]
        parts.append(textwrap.indent("\n".join(wrapped), "  ").strip())
    return "\n\n".join(parts)


def format_markdown(section: str, knobs: dict[str, table.Knob]) -> str:
    """Write the knobs of a section as a Markdown heading and table."""
    lines = [f"## {section or 'The run'}\n\n{describe_section(section)}\n"]
    lines += ["|knob|default|values|what it does|for|", "|---|---|---|---|---|"]
    for knob in knobs.values():
        default = format_default(knob.default)
        cells = [f"`{knob.name}`", default and f"`{default}`", knob.values, knob.sentence]
        cells.append(format_conditions(knob.traits.when))
        lines.append("|" + "|".join(cell.replace("|", "\\|") for cell in cells) + "|")
    return "\n".join(lines)


if __name__ == "__main__":
    cli.main(["knobs", *sys.argv[1:]])
