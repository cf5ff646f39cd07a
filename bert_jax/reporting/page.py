"""Pages that can be read offline, each one file, made by jinja2 from templates.

The template of a page is next to the module that fills it. page.html is the base of all pages, and
parts.html has what pages share, such as tables. Templates escape every value that is not a Markup.
Only text of this package is a Markup: style sheets, scripts, and figures (svg.py).
"""

import contextlib
import functools
import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from markupsafe import Markup

from bert_jax import config as configs
from bert_jax.config import knobs
from bert_jax.config.table import find_knob
from bert_jax.errors import ConfigError, UserError
from bert_jax.reporting import palette
from bert_jax.reporting.formats import number

if TYPE_CHECKING:
    from jinja2 import Environment

PACKAGE = Path(__file__).parents[1]


class Bold(str):
    """Text in bold, such as a significant difference."""

    tag = "b"


class Code(str):
    """Text in the font of code, such as a command."""

    tag = "code"


Text: TypeAlias = str | tuple[str, ...]


class Cell(NamedTuple):
    """A cell of a table that has more than a text, such as a shade or a text on hover."""

    text: Text
    kind: str = ""  # classes, in place of the usual class of the table's cells
    share: float | None = None  # how strong its shade is, or how long its bar
    said: str = ""  # on hover


@dataclass(frozen=True)
class Table:
    """A table: the first column holds names, the others numbers or, with `prose`, text."""

    head: Sequence[str]
    rows: Sequence[Sequence[Any]]  # of Text and Cell
    prose: bool = False
    about: Mapping[str, str] = field(default_factory=dict)  # what names mean
    look: str = ""  # classes of the style sheet, for a table whose names are heads too
    title: str = ""
    note: str = ""
    rest: "tuple[str, Table] | None" = None  # a further table, folded under a title

    def list_cells(self) -> Iterator[tuple[Text, list[Cell]]]:
        """Yield (name, cells) of each row."""
        for name, *cells in self.rows:
            yield name, [cell if isinstance(cell, Cell) else Cell(cell) for cell in cells]


# --- templates ---------------------------------------------------------------------------------


def render(template: str, **values: Any) -> str:
    """Fill the template at a path in the package with values, and return the text of the page."""
    return _open_templates().get_template(template).render(values)


@functools.cache
def _open_templates() -> "Environment":
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # takes a while to load

    opened = Environment(
        loader=FileSystemLoader(PACKAGE),
        autoescape=True,  # whatever a template's name ends with
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    opened.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "separators": (",", ":")}
    opened.globals.update(colours=palette.COLOURS, read_asset=read_asset)
    opened.filters.update(anchor=name_anchor, sections=find_sections)
    opened.filters.update(thousands="{:,}".format, percent=functools.partial(number, percent=True))
    return opened


def read_asset(name: str) -> Markup:
    """Read a style sheet or script by its path in the package; templates do not escape it."""
    return Markup((PACKAGE / name).read_text(encoding="utf-8"))


def name_anchor(title: str) -> str:
    """Make the HTML id of a section from its title; no other element has an id of this form."""
    words = re.sub(r"[\W_]+", "-", title.lower()).strip("-")
    return f"to-{words}"


def find_sections(body: str) -> list[tuple[str, str]]:
    """List (id, title) of each section in the HTML of a page."""
    found = re.findall(r'<section id="(.+?)">.*?<h2>(.*?)</h2>', body, re.DOTALL)
    return [(name, Markup(title).striptags()) for name, title in found]


# --- config and environment --------------------------------------------------------------------


def tabulate_knobs(recorded: dict[str, Any]) -> Table:
    """Tabulate the knobs that differ from their defaults; a folded table below has all knobs."""
    usual = knobs.Config()
    default = configs.to_dict(usual)
    chosen = {
        "model": {"size": (recorded.get("model") or {}).get("size")},
        "pairs": recorded.get("pairs"),
    }
    with contextlib.suppress(UserError):  # a config of another version meets the plain defaults
        default = configs.to_dict(configs.read_recorded(chosen))  # so that only choices differ
    default["model"]["size"] = usual.model.size
    default["pairs"] = usual.pairs
    changed = configs.differences(default, recorded)
    rows = [
        [path, format_value(new), format_value(old)] for path, (old, new) in sorted(changed.items())
    ]
    flat = configs.flatten(recorded)
    every = Table([], _list_values(flat), prose=True, about=read_knob_docs(flat))
    head = ["knob", "this run", "default"] if rows else []
    rows = rows or [["All knobs are at their defaults."]]
    about = read_knob_docs(changed)
    return Table(head, rows, prose=True, about=about, rest=("All knobs", every))


def _list_values(flat: Mapping[str, Any]) -> list[list[str]]:
    return [[path, format_value(value)] for path, value in flat.items()]


def read_knob_docs(paths: Iterable[str]) -> dict[str, str]:
    """Return {path: sentence that describes the knob}; the sentence of an unknown knob is ""."""
    docs = dict.fromkeys(paths, "")
    for path in docs:
        with contextlib.suppress(ConfigError):
            docs[path] = find_knob(path).sentence
    return docs


def tabulate_environment(environment: dict[str, Any]) -> Table:
    """Tabulate versions, devices and the command; a folded table below has nested entries."""
    if isinstance(command := environment.get("command"), list):
        environment = {**environment, "command": shlex.join(map(str, command))}
    flat = configs.flatten(environment)
    nested = {path: value for path, value in flat.items() if "." in path}
    plain = _list_values({path: value for path, value in flat.items() if path not in nested})
    more = Table([], _list_values(nested), prose=True)
    return Table([], plain, prose=True, rest=(f"{len(nested)} more", more))


def format_value(value: Any) -> str:
    """Format a value of a config as text."""
    if isinstance(value, str) and value:
        return value
    return json.dumps(value, ensure_ascii=False)
