"""A report as a list of blocks, which is rendered as Markdown and as HTML.

    blocks = [Title("masking_rate", "Which rate is best?"), Section("Answer", [Paragraph("40 %.")])]
    render_markdown(blocks)
    render_html(blocks)

The summary (Markdown) and the page (HTML) come from the same blocks, so they cannot differ. Details
are folded on the page and left out of the summary.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from markupsafe import Markup

from bert_jax.reporting.figures import Figure
from bert_jax.reporting.formats import escape_markdown
from bert_jax.reporting.page import Bold, Code, Table, Text, render
from bert_jax.reporting.svg import draw_svg


class Link(str):
    """Text that links to a file, whose path is relative to the folder of the report."""

    path: str

    def __new__(cls, words: str, path: str) -> "Link":
        """Make a link from a text and the path of a file."""
        link = super().__new__(cls, words)
        link.path = path
        return link


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
class Figures:
    """Figures by the names of their files; the page shows each figure only once."""

    figures: Mapping[str, Figure]


@dataclass(frozen=True)
class Section:
    """Blocks under a heading.

    With `detail` the page folds them, and the summary leaves them out.
    """

    title: str
    blocks: "Sequence[Block]" = field(default=())
    detail: bool = False


Block: TypeAlias = Title | Paragraph | Bullets | Table | Figures | Section
# From the name of a figure to the address of its file; None if there is no such file.
FindPicture: TypeAlias = Callable[[str], str | None]


def find_figures(blocks: Iterable[Block]) -> dict[str, Figure]:
    """Return all figures of a report, as {name of the file: figure}."""
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
    """Render blocks as Markdown.

    `find_picture` returns the path of a figure's picture, or None to leave the figure out. `level`
    is the level of a section's heading.
    """
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


# --- HTML ---------------------------------------------------------------------------------------


def render_html(blocks: Sequence[Block]) -> str:
    """Render blocks as an HTML page; the first block is the title.

    A figure that several blocks have is shown only in the first of them.
    """
    shown: set[str] = set()

    def draw(figures: Mapping[str, Figure]) -> list[Markup]:
        drawn = [draw_svg(figure) for name, figure in figures.items() if name not in shown]
        shown.update(figures)
        return drawn

    title, *sections = blocks
    return render("studies/report/blocks.html", head=title, sections=sections, draw=draw)
