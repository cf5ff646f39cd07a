"""Parts of a study's page: cards, folds that say what they hold, figures and sentences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from bert_jax.reporting import page
from bert_jax.reporting.figures import Figure
from bert_jax.reporting.svg import draw

LONG = 1_500  # characters of a section that is folded, though it has no figure and no table


def box(body: str, kind: str = "") -> str:
    """Put a table or text on a card."""
    return f'<div class="{f"box {kind}".strip()}">{body}</div>' if body else ""


def explain(text: str) -> str:
    """Fold a long explanation."""
    return page.fold("How to read this", say(text))


def fold(title: str, body: str) -> str:
    """Fold a body under a title and what it holds; empty without a body."""
    return _folded(escape(title), body)


def fold_section(title: str, body: str) -> str:
    """Build a section that is folded under its heading, if it is not short."""
    if not ("<table" in body or "<figure" in body or len(body) > LONG):
        return page.section(title, body)
    folded = _folded(f"<h2>{escape(title)}</h2>", body)
    return f'\n<section id="{page.anchor(title)}">{folded}</section>'


def _folded(heading: str, body: str) -> str:
    return page.fold(f'{heading} <span class="held">{_held(body)}</span>', body)


def _held(body: str) -> str:
    """Count the figures and tables of a body, and the rows of a table that is alone."""
    figures, tables = body.count("<figure"), body.count("<table")
    if tables == 1 and not figures:
        return _counted(body.count("<tr") - body.count("<tr><th"), "row")
    counts = [_counted(figures, "figure"), _counted(tables, "table")]
    return ", ".join(filter(None, counts))


def _counted(count: int, one: str) -> str:
    return f"{count} {one}{'s' * (count > 1)}" if count else ""


def charts(figures: Iterable[Figure], kind: str = "charts") -> str:
    """Draw figures side by side where there is room for it."""
    drawn = "".join(draw(figure, wide=True) for figure in figures)
    return f'<div class="{kind}">{drawn}</div>' if drawn else ""


def warn(texts: Sequence[str]) -> str:
    """List warnings."""
    listed = "".join(f"<li>{escape(text)}</li>" for text in texts)
    return f'<ul class="warned">{listed}</ul>' if listed else ""


def say(text: str) -> str:
    """Format a paragraph of explanation."""
    return f'<p class="say">{escape(text)}</p>' if text else ""
