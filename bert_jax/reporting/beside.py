"""Tables with a column for each of several runs or models, and the colours of these."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from bert_jax.reporting.figures import Series
from bert_jax.reporting.metric_names import lower_is_better
from bert_jax.reporting.terms import term

TONES: tuple[int | str, ...] = (1, 2, 3, 4, 5, "q0", "q4", "q6", "q8", "q9")  # of columns in turn
Line = tuple[str, str, Sequence[str], int | None]  # name, meaning, a cell a column, the best cell


def tone(number: int) -> str:
    """Return the name of the colour of a column."""
    return Series("", (), TONES[number % len(TONES)]).tone


def best_of(values: Sequence[float | None], name: str) -> int | None:
    """Find the best value of a metric; return None if all are equal, or there is only one."""
    known = [value for value in values if value is not None]
    best = min(known) if lower_is_better(name) else max(known)
    return values.index(best) if known.count(best) < len(known) else None


def table(columns: Iterable[str], corner: str, lines: Sequence[Line]) -> str:
    """Write a table of named columns; a name after a space belongs to the line above."""
    head = "".join(f"<th class=n><div>{escape(name)}</div></th>" for name in columns)
    body = ""
    for name, about, cells, best in lines:
        shown = "".join(
            f'<td class="n{" best" if i == best else ""}"><div>{escape(cell)}</div></td>'
            for i, cell in enumerate(cells)
        )
        below = " class=below" if name.startswith(" ") else ""
        body += f"<tr><td{below}>{term(name.strip(), about)}</td>{shown}</tr>"
    return (
        f'<div class="box"><div class="scroll"><table class="beside">'
        f"<tr><th>{escape(corner)}</th>{head}</tr>{body}</table></div></div>"
    )
