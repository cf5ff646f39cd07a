"""A report as a list of blocks, and its two renderings: Markdown for a summary, HTML for a page.

    blocks = [Title("masking_rate", "Which rate is best?"), Section("Answer", [Paragraph("40 %.")])]
    render_markdown(blocks)
    render_html(blocks)

Both renderings come from the same blocks, so they cannot differ. The summary leaves out sections
that are details.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from typing import TypeAlias

from bert_jax.reporting import page, text_table
from bert_jax.reporting.figures import Figure
from bert_jax.reporting.svg import draw
from bert_jax.studies.report.wording import format_count


@dataclass(frozen=True)
class Bold:
    """Words in bold, such as a significant difference."""

    text: str


@dataclass(frozen=True)
class Code:
    """Words as they are typed."""

    text: str


Span: TypeAlias = str | Bold | Code
Text: TypeAlias = Span | tuple[Span, ...]


@dataclass(frozen=True)
class Title:
    """The name of a study and its question."""

    name: str
    question: str = ""


@dataclass(frozen=True)
class Paragraph:
    """Some sentences; `lead` marks the answer."""

    text: Text
    lead: bool = False


@dataclass(frozen=True)
class Bullets:
    """A list of facts, or of warnings."""

    items: Sequence[Text]
    warning: bool = False


@dataclass(frozen=True)
class Table:
    """Rows under a head; the first column holds names, the others numbers or `prose`."""

    head: Sequence[str]
    rows: Sequence[Sequence[Text]]
    prose: bool = False


@dataclass(frozen=True)
class Figures:
    """Figures by the names of their files."""

    figures: Mapping[str, Figure]


@dataclass(frozen=True)
class Html:
    """A part of the page that another room has written as HTML; the summary leaves it out."""

    html: str


@dataclass(frozen=True)
class Section:
    """Blocks under a heading. The page may fold them; the summary leaves out `detail`."""

    title: str
    blocks: Sequence[Block] = field(default=())
    folded: bool = False
    detail: bool = False


Block: TypeAlias = Title | Paragraph | Bullets | Table | Figures | Html | Section
# From the name of a figure to the address of its file; None if there is no such file.
FindPicture: TypeAlias = Callable[[str], str | None]


def add_detail(title: str, blocks: Sequence[Block]) -> Section:
    """Make a folded section that only the page has."""
    return Section(title, blocks, folded=True, detail=True)


def find_figures(blocks: Iterable[Block]) -> dict[str, Figure]:
    """Return all figures of a report by the names of their files."""
    found: dict[str, Figure] = {}
    for block in blocks:
        if isinstance(block, Section):
            found |= find_figures(block.blocks)
        elif isinstance(block, Figures):
            found |= block.figures
    return found


def drop_repeated(blocks: Iterable[Block], shown: set[str]) -> list[Block]:
    """Leave out figures that an earlier block shows; `shown` has their names and gets further."""
    kept: list[Block] = []
    for block in blocks:
        if isinstance(block, Section):
            kept.append(replace(block, blocks=drop_repeated(block.blocks, shown)))
        elif isinstance(block, Figures):
            new = {name: one for name, one in block.figures.items() if name not in shown}
            shown.update(new)
            kept.append(Figures(new))
        else:
            kept.append(block)
    return kept


# --- Markdown -----------------------------------------------------------------------------------


def render_markdown(
    blocks: Iterable[Block], find_picture: FindPicture = lambda name: None, level: int = 2
) -> str:
    """Render blocks as Markdown, paragraphs with a line for each.

    Args:
      blocks: of the report.
      find_picture: gives the address of a figure's file.
      level: of the heading of a section.
    """
    parts = [_render_block(block, find_picture, level) for block in blocks]
    return "\n\n".join(filter(None, parts))


def _render_block(block: Block, find_picture: FindPicture, level: int) -> str:
    match block:
        case Title(name, question):
            return "\n\n".join(
                filter(None, [f"# {escape_markdown(name)}", escape_markdown(question)])
            )
        case Paragraph(text):
            return _markdown(text)
        case Bullets(items):
            return "\n".join(f"- {_markdown(item)}" for item in items)
        case Table(head, rows):
            return _render_table(head, rows)
        case Figures(figures):
            found = {name: find_picture(name) for name in figures}
            shown = [
                f"![{escape_markdown(figures[n].title)}]({at})" for n, at in found.items() if at
            ]
            return "\n\n".join(shown)
        case Section(title, inner, detail=False):
            body = render_markdown(inner, find_picture, level + 1)
            return f"{'#' * level} {escape_markdown(title)}\n\n{body}" if body else ""
    return ""


def _render_table(head: Sequence[str], rows: Sequence[Sequence[Text]]) -> str:
    lines = [
        [escape_markdown(name) for name in head],
        *([_markdown(cell) for cell in r] for r in rows),
    ]
    first, *others = (f"| {' | '.join(line)} |" for line in lines)
    return "\n".join([first, f"|---|{'---:|' * (len(head) - 1)}", *others])


def _markdown(text: Text) -> str:
    match text:
        case tuple():
            return "".join(map(_markdown, text))
        case Bold(words):
            return f"**{escape_markdown(words)}**"
        case Code(words):
            return format_code(words)
    return escape_markdown(text)


def escape_markdown(text: str) -> str:
    """Escape a user's text so that Markdown and HTML show it as it is, on one line."""
    text = re.sub(r"\s+", " ", escape(text, quote=False))
    text = re.sub(r"[\\`*\[\]|~]|(?<![^\W_])_|_(?![^\W_])", r"\\\g<0>", text)
    return re.sub(
        r"^(#+|[-+]|\d+(?=[.)]))(?=[.)]?(\s|$))",
        lambda mark: f"{mark[0][:-1]}&#{ord(mark[0][-1])};",
        text,
    )


def format_code(text: str) -> str:
    """Format a span of code, whatever backticks are in it."""
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}{text}{fence}" if len(fence) == 1 else f"{fence} {text} {fence}"


def render_text(table: Table) -> str:
    """Render a table for a terminal."""
    return text_table.table([table.head, *([str(cell) for cell in row] for row in table.rows)])


# --- HTML ---------------------------------------------------------------------------------------

LONG = 1_500  # characters of a section that is folded, though it has no figure and no table


def render_html(blocks: Sequence[Block]) -> str:
    """Render blocks as the body of a page, with its contents after the title."""
    titles = [block for block in blocks if isinstance(block, Title)]
    others = [block for block in blocks if not isinstance(block, Title)]
    body = _render_all(others, 0)
    return _render_all(titles, 0) + page.contents(body) + body


def _render_all(blocks: Sequence[Block], depth: int) -> str:
    return "".join(_render(block, depth) for block in blocks)


def _render(block: Block, depth: int) -> str:
    match block:
        case Title(name, question):
            below = f'<p class="sub"><b>{escape(name)}</b></p>' if question else ""
            return f"<h1>{escape(question or name)}</h1>{below}"
        case Paragraph(text, lead):
            return f'<p class="{"lead" if lead else "say"}">{_html(text)}</p>' if text else ""
        case Bullets(items, warning):
            listed = "".join(f"<li>{_html(item)}</li>" for item in items)
            return f'<ul class="{"warned" if warning else "facts"}">{listed}</ul>' if items else ""
        case Table():
            return _render_card(block)
        case Figures(figures):
            drawn = "".join(draw(figure) for figure in figures.values())
            return f'<div class="charts">{drawn}</div>' if drawn else ""
        case Html(html):
            return html
        case Section():
            return _render_section(block, depth)


def _render_section(section: Section, depth: int) -> str:
    body = _render_all(section.blocks, depth + 1)
    if not body:
        return ""
    title = escape(section.title)
    if depth:
        return _fold(title, body) if section.folded else f"<h3>{title}</h3>{body}"
    heading = f"<h2>{title}</h2>"
    long = "<table" in body or "<figure" in body or len(body) > LONG
    content = _fold(heading, body) if section.folded and long else heading + body
    return f'\n<section id="{page.anchor(section.title)}">{content}</section>'


def _fold(heading: str, body: str) -> str:
    """Fold a body under its heading and a count of the figures and tables that it holds."""
    figures, tables = body.count("<figure"), body.count("<table")
    counts = [format_count(figures, "figure")] if figures else []
    if tables == 1 and not figures:
        counts = [format_count(body.count("<tr") - body.count("<tr><th"), "row")]
    elif tables:
        counts.append(format_count(tables, "table"))
    return page.fold(f'{heading} <span class="held">{", ".join(counts)}</span>', body)


def _render_card(table: Table) -> str:
    """Put a table on a card; each cell also names its column, for slim screens."""
    kind = "code" if table.prose else "n"
    heads = [f' data-head="{escape(name)}"' for name in table.head[1:]]
    top = "".join(
        f"<th{' class=n' if i and not table.prose else ''}>{escape(name)}</th>"
        for i, name in enumerate(table.head)
    )
    body = ""
    for name, *cells in table.rows:
        numbers = "".join(
            f'<td class="{kind}"{head}>{_html(cell)}</td>'
            for cell, head in zip(cells, heads, strict=True)
        )
        body += f"<tr><td>{_html(name)}</td>{numbers}</tr>"
    card = "box prose" if table.prose else "box"
    return (
        f'<div class="{card}"><div class="scroll"><table><tr>{top}</tr>{body}</table></div></div>'
    )


def _html(text: Text) -> str:
    match text:
        case tuple():
            return "".join(map(_html, text))
        case Bold(words):
            return f"<b>{escape(words)}</b>"
        case Code(words):
            return f"<code>{escape(words)}</code>"
    return escape(text)
