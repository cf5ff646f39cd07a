"""Building blocks of report pages. A page is one file that can be read offline.

The template, style and script are page.html, page.css and page.js. All text is escaped here.
"""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import string
from collections.abc import Collection, Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from types import MappingProxyType
from typing import Any

from bert_jax import config as configs
from bert_jax.config import knobs
from bert_jax.config.table import find_knob
from bert_jax.errors import ConfigError, UserError
from bert_jax.reporting import palette
from bert_jax.system import disk

SEVERAL = 4  # sections of a page that has contents
NOTHING: Mapping[str, str] = MappingProxyType({})


def read_asset(module: str, ending: str) -> str:
    """Read the file next to a module with its name and another ending, such as ".css" or ".js".

    `module` is the module's `__file__`.
    """
    return Path(module).with_suffix(ending).read_text(encoding="utf-8")


def fill_template(module: str, **parts: str) -> str:
    """Fill HTML into the $names of the template (".html") next to a module."""
    return string.Template(read_asset(module, ".html")).substitute(parts)


def page(title: str, body: str, style: str = "", script: str = "") -> str:
    """Build a document that loads nothing; add style and script to those that all pages share."""
    style = palette.format_css() + read_asset(__file__, ".css") + style
    script = read_asset(__file__, ".js") + script
    return fill_template(__file__, title=escape(title), body=body, style=style, script=script)


def write_document(path: Path, html: str, named: bool = False) -> None:
    """Write a document in one move; replace each lone surrogate, which UTF-8 lacks, by a "?".

    `named` says that the user chose the path, which may then be a link or a device.
    """
    save = disk.write_output if named else disk.write
    save(path, html.encode(errors="replace"))


def explain_words(words: str, meaning: str) -> str:
    """Write words whose meaning is shown on hover, focus or touch; without a meaning only words."""
    if not meaning:
        return escape(words)
    return f'<span class="term" tabindex="0" data-means="{escape(meaning)}">{escape(words)}</span>'


def render_section(title: str, body: str, kind: str = "", about: str = "") -> str:
    """Put a heading over HTML; return "" if there is no HTML."""
    if not body:
        return ""
    if kind:
        body = wrap_body(body, kind)
    heading = f"<h2>{explain_words(title, about)}</h2>"
    return f'\n<section id="{name_anchor(title)}">{heading}{body}</section>'


def name_anchor(title: str) -> str:
    """Make the HTML id of a section from its title; no other element has an id of this form."""
    return f"to-{re.sub(r'[^a-z0-9]+', '-', title.lower()).strip('-')}"


def render_contents(body: str) -> str:
    """Render links to the sections of a page; return "" if it has fewer than SEVERAL."""
    found = re.findall(r'<section id="(.+?)">.*?<h2>(.*?)</h2>', body)
    links = [f'<a href="#{name}">{re.sub("<.*?>", "", title)}</a>' for name, title in found]
    if len(links) < SEVERAL:
        return ""
    return f'<nav class="contents">{" ".join(links)}</nav>'


def fold_body(heading: str, body: str) -> str:
    """Fold HTML under a heading that opens it; return "" if there is no HTML."""
    return f"<details><summary>{heading}</summary>{body}</details>" if body else ""


def render_warnings(texts: Iterable[str]) -> str:
    """Render warnings, a paragraph each."""
    return "".join(f'<p class="warning">{escape(text)}</p>' for text in texts)


def wrap_body(body: str, kind: str = "", tag: str = "div") -> str:
    """Put HTML into an element with a class; return "" if there is no HTML."""
    if not body:
        return ""
    return f'<{tag} class="{kind}">{body}</{tag}>'


def render_table(
    rows: Iterable[Sequence[str]],
    head: Sequence[str] = (),
    numbers: bool = False,
    about: Mapping[str, str] = NOTHING,
    best: Collection[tuple[str, int]] = (),
) -> str:
    """Render a table of plain text, whose first column holds names and the others code or numbers.

    Args:
      rows: cells; a name that begins with a space belongs to the row above.
      head: names of the columns. Cells repeat them for style sheets that stack cells.
      numbers: whether the cells are numbers, not code.
      about: what names of rows and columns mean.
      best: cells in bold, by the name of their row and the number of their column.
    """
    kind = "n" if numbers else "code"
    names = [
        f"<th{' class=n' if numbers and i else ''}>{explain_words(name, about.get(name, ''))}</th>"
        for i, name in enumerate(head)
    ]
    body = f"<tr>{''.join(names)}</tr>" if names else ""
    for name, *cells in rows:
        below = " class=below" if name.startswith(" ") else ""
        body += f"<tr><td{below}>{explain_words(name.strip(), about.get(name, ''))}</td>"
        for column, cell in enumerate(cells, 1):
            label = f' data-head="{escape(head[column])}"' if head else ""
            look = f"{kind} best" if (name, column) in best else kind
            body += f'<td class="{look}"{label}>{escape(cell)}</td>'
        body += "</tr>"
    return f'<div class="scroll"><table>{body}</table></div>'


def render_tile(name: str, value: str, below: str = "", about: str = "") -> str:
    """Render a number of the top of a page: a name with its meaning, the value, and HTML below."""
    value = f"<strong>{escape(value)}</strong>"
    return f'<div class="tile"><div>{explain_words(name, about)}</div>{value}<p>{below}</p></div>'


# --- config and environment --------------------------------------------------------------------


def render_config(recorded: dict[str, Any]) -> str:
    """Render a box with the knobs that differ from their defaults and, folded, all knobs."""
    if not recorded:
        return ""
    default = configs.to_dict(knobs.Config())
    chosen = {
        "model": {"size": (recorded.get("model") or {}).get("size")},
        "pairs": recorded.get("pairs"),
    }
    with contextlib.suppress(UserError):  # a config of another version meets the plain defaults
        default = configs.to_dict(configs.read_recorded(chosen))  # so that only choices differ
    changed = configs.differences(default, recorded)
    usual = {"model.size": knobs.Config().model.size, "pairs": knobs.Config().pairs}
    changed |= configs.differences(usual, {name: configs.flatten(chosen)[name] for name in usual})
    rows = [
        [path, format_value(new), format_value(old)] for path, (old, new) in sorted(changed.items())
    ]
    shown = "<p>All knobs are at their defaults.</p>"
    if rows:
        shown = render_table(rows, ["knob", "this run", "default"], about=read_knob_docs(changed))
    flat = configs.flatten(recorded)
    every = render_table(
        [[path, format_value(value)] for path, value in flat.items()], about=read_knob_docs(flat)
    )
    return f'<div class="box">{shown}{fold_body("All knobs", every)}</div>'


def read_knob_docs(paths: Iterable[str]) -> dict[str, str]:
    """Return the sentences that describe the knobs at some paths; "" for an unknown knob."""
    docs = dict.fromkeys(paths, "")
    for path in docs:
        with contextlib.suppress(ConfigError):
            docs[path] = find_knob(path).sentence
    return docs


def render_environment(environment: dict[str, Any]) -> str:
    """Render a box with versions, devices and the command; nested entries are folded."""
    if not environment:
        return ""
    if isinstance(command := environment.get("command"), list):
        environment = {**environment, "command": shlex.join(map(str, command))}
    rows = [[path, format_value(value)] for path, value in configs.flatten(environment).items()]
    plain = [row for row in rows if "." not in row[0]]
    nested = [row for row in rows if "." in row[0]]
    shown = render_table(plain)
    if nested:
        shown += fold_body(f"{len(nested)} more", render_table(nested))
    return f'<div class="box">{shown}</div>'


def format_value(value: Any) -> str:
    """Format a value of a config as text."""
    if isinstance(value, str) and value:
        return value
    return json.dumps(value, ensure_ascii=False)
