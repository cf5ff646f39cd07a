"""A report as a list of blocks, which is rendered as Markdown and as HTML.

    blocks = [Title("masking_rate", "Which rate is best?"), Section("Answer", [Paragraph("40 %.")])]
    render_markdown(blocks)
    render_html(blocks)

The summary (Markdown) and the page (HTML) come from the same blocks, so they cannot differ. Details
are folded on the page and left out of the summary.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import TypeAlias

from bert_jax.reporting import page
from bert_jax.reporting.figures import Figure
from bert_jax.reporting.svg import draw_svg


class Bold(str):
    """Text in bold, such as a significant difference."""


class Code(str):
    """Text in the font of code, such as a command."""


class Link(str):
    """Text that links to a file, whose path is relative to the folder of the report."""

    path: str

    def __new__(cls, words: str, path: str) -> Link:
        """Make a link from a text and the path of a file."""
        link = super().__new__(cls, words)
        link.path = path
        return link


Text: TypeAlias = str | tuple[str, ...]


@dataclass(frozen=True)
class Title:
    """The name of a study and its question."""

    name: str
    question: str = ""


@dataclass(frozen=True)
class Paragraph:
    """A paragraph of text; `lead` marks the answer of the study."""

    text: Text
    lead: bool = False


@dataclass(frozen=True)
class Bullets:
    """A list of facts, or of warnings."""

    items: Sequence[Text]
    warning: bool = False


@dataclass(frozen=True)
class Table:
    """A table: the first column holds names, the others numbers or, with `prose`, text."""

    head: Sequence[str]
    rows: Sequence[Sequence[Text]]
    prose: bool = False


@dataclass(frozen=True)
class Figures:
    """Figures by the names of their files; the page shows each figure only once."""

    figures: Mapping[str, Figure]


@dataclass(frozen=True)
class Html:
    """HTML for the page that was written elsewhere; the summary leaves it out."""

    html: str


@dataclass(frozen=True)
class Section:
    """Blocks under a heading; a `detail` is folded on the page."""

    title: str
    blocks: Sequence[Block] = field(default=())
    detail: bool = False


Block: TypeAlias = Title | Paragraph | Bullets | Table | Figures | Html | Section
# From the name of a figure to the address of its file; None if there is no such file.
FindPicture: TypeAlias = Callable[[str], str | None]


def find_figures(blocks: Iterable[Block]) -> dict[str, Figure]:
    """Return all figures of a report, by the names of their files."""
    found: dict[str, Figure] = {}
    for block in blocks:
        if isinstance(block, Section):
            found |= find_figures(block.blocks)
        elif isinstance(block, Figures):
            found |= block.figures
    return found


def _render_spans(text: Text, style: Callable[[str], str]) -> str:
    return "".join(map(style, text if isinstance(text, tuple) else (text,)))


# --- Markdown -----------------------------------------------------------------------------------


def render_markdown(
    blocks: Iterable[Block], find_picture: FindPicture = lambda name: None, level: int = 2
) -> str:
    """Render blocks as Markdown; `level` is the level of a section's heading."""
    parts = [_render_block(block, find_picture, level) for block in blocks]
    return "\n\n".join(filter(None, parts))


def _render_block(block: Block, find_picture: FindPicture, level: int) -> str:
    match block:
        case Title(name, question):
            return "\n\n".join(filter(None, [f"# {_style(name)}", _style(question)]))
        case Paragraph(text):
            return _render_spans(text, _style)
        case Bullets(items):
            return "\n".join(f"- {_render_spans(item, _style)}" for item in items)
        case Table(head, rows):
            lines = [[_render_spans(cell, _style) or " " for cell in row] for row in (head, *rows)]
            first, *others = (f"|{'|'.join(line)}|" for line in lines)
            return "\n".join([first, f"|---|{'---:|' * (len(head) - 1)}", *others])
        case Figures(figures):
            found = {name: find_picture(name) for name in figures}
            shown = (f"![{_style(figures[n].title)}]({at})" for n, at in found.items() if at)
            return "\n\n".join(shown)
        case Section(title, inner, detail=False):
            body = render_markdown(inner, find_picture, level + 1)
            return f"{'#' * level} {_style(title)}\n\n{body}" if body else ""
    return ""


def _style(text: str) -> str:
    """Write a piece of text as Markdown."""
    if isinstance(text, Code):
        fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
        return f"{fence}{text}{fence}" if len(fence) == 1 else f"{fence} {text} {fence}"
    safe = escape_markdown(text)
    if isinstance(text, Link):
        return f"[{safe}]({text.path})"
    return f"**{safe}**" if isinstance(text, Bold) else safe


def escape_markdown(text: str) -> str:
    """Escape a text so that Markdown and HTML show it unchanged, and put it on one line."""
    text = re.sub(r"\s+", " ", escape(text, quote=False))
    text = re.sub(r"[\\`*\[\]|~]|(?<![^\W_])_|_(?![^\W_])", r"\\\g<0>", text)
    return re.sub(
        r"^(#+|[-+]|\d+(?=[.)]))(?=[.)]?(\s|$))",
        lambda mark: f"{mark[0][:-1]}&#{ord(mark[0][-1])};",
        text,
    )


# --- HTML ---------------------------------------------------------------------------------------


def render_html(blocks: Sequence[Block]) -> str:
    """Render blocks as HTML with a list of contents; the first block is the title."""
    shown: set[str] = set()
    title, *others = (_render_part(block, 0, shown) for block in blocks)
    body = "".join(others)
    return title + page.render_contents(body) + body


def _render_part(block: Block, depth: int, shown: set[str]) -> str:
    """Render a block as HTML.

    `shown` holds the names of figures that the page has already; names are added to it.
    """
    match block:
        case Title(name, question):
            below = f'<p class="sub"><b>{escape(name)}</b></p>' if question else ""
            return f"<h1>{escape(question or name)}</h1>{below}"
        case Paragraph(text, lead):
            said = _render_spans(text, _mark_up)
            return f'<p class="{"lead" if lead else "say"}">{said}</p>' if text else ""
        case Bullets(items, warning):
            listed = "".join(f"<li>{_render_spans(item, _mark_up)}</li>" for item in items)
            return f'<ul class="{"warned" if warning else "facts"}">{listed}</ul>' if items else ""
        case Table():
            return _render_table(block)
        case Figures(figures):
            drawn = [draw_svg(figure) for name, figure in figures.items() if name not in shown]
            shown.update(figures)
            return page.wrap_body("".join(drawn), "charts")
        case Html(html):
            return html
        case Section():
            return _render_section(block, depth, shown)


def _render_section(section: Section, depth: int, shown: set[str]) -> str:
    body = "".join(_render_part(block, depth + 1, shown) for block in section.blocks)
    if not body:
        return ""
    heading = escape(section.title)
    if not depth:
        heading = f"<h2>{heading}</h2>"
    elif not section.detail:
        heading = f"<h3>{heading}</h3>"
    content = page.fold_body(heading, body) if section.detail else heading + body
    if depth:
        return content
    return f'\n<section id="{page.name_anchor(section.title)}">{content}</section>'


def _render_table(table: Table) -> str:
    """Render a table as HTML; each cell also names its column, for narrow screens."""
    kind = "code" if table.prose else "n"
    first, *others = map(escape, table.head)
    heads = "".join(f'<th class="{kind}">{name}</th>' for name in others)
    body = f"<tr><th>{first}</th>{heads}</tr>"
    for name, *cells in table.rows:
        body += f"<tr><td>{_render_spans(name, _mark_up)}</td>"
        for head, cell in zip(others, cells, strict=True):
            said = f"<span>{_render_spans(cell, _mark_up)}</span>" if cell else ""
            body += f'<td class="{kind}" data-head="{head}">{said}</td>'
        body += "</tr>"
    box = "box prose" if table.prose else "box"
    return f'<div class="{box}"><div class="scroll"><table>{body}</table></div></div>'


def _mark_up(text: str) -> str:
    """Write a piece of text as HTML."""
    if isinstance(text, Link):
        return f'<a href="{escape(text.path)}">{escape(text)}</a>'
    tag = {Bold: "b", Code: "code"}.get(type(text))
    return f"<{tag}>{escape(text)}</{tag}>" if tag else escape(text)
