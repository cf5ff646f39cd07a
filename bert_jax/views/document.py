"""What the pages of a model share: filling a template, shaded tables, and texts."""

import base64
import unicodedata
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.errors import DataError
from bert_jax.interop import runs
from bert_jax.predictors.base import Line
from bert_jax.reporting.page import Cell, Table, render

JOINERS = "\u200c\u200d"  # control characters that are part of a word or an emoji
SIGNS = {"\n": "↵", "\t": "⇥"}


def render_page(
    page: str, run: runs.TrainedModel, facts: Sequence[str], data: Any, **values: Any
) -> str:
    """Fill the template views/PAGE.html; return the HTML of the page.

    `facts` are shown below the title, and the page's script reads `data`.
    """
    step = [] if "foreign" in run.meta else [f"step {run.step:,}"]
    model = Path(run.meta.get("foreign", run.folder)).resolve().name
    values |= {"page": page, "model": model, "facts": [*step, *facts], "data": data}
    return render(f"views/{page}.html", **values)


def check_count(rows: Sequence[Line], most: int) -> None:
    """Refuse to show no text, or more texts than fit next to each other on a page."""
    if not 0 < len(rows) <= most:
        raise DataError(f"{len(rows)} texts", f"a page shows 1 to {most} side by side")


def tabulate_shades(
    names: Sequence[str], values: np.ndarray, corner: str = "", digits: int = 3, **words: Any
) -> Table:
    """Make a table of numbers, shaded from the lowest to the highest, with numbered columns.

    NaN is an empty cell. With 0 digits the cells show only shades, and their numbers on hover.
    `words` are further fields of the table: its title or its note.
    """
    low = float(np.nanmin(values))
    spread = float(np.nanmax(values)) - low or 1.0
    rows: list[list[Any]] = []
    for name, row in zip(names, values.tolist(), strict=True):
        rows.append([name])
        for value in row:
            known = value == value
            said = f"{value:z.{digits or 3}f}" if known else ""
            share = (value - low) / spread if known else 0.0
            rows[-1].append(Cell(said if digits else "", share=share, said=said))
    head = [corner, *map(str, range(1, values.shape[1] + 1))]
    return Table(head, rows, look="tall shades", **words)


def pack_bytes(content: bytes) -> str:
    """Compress bytes and write them as base64, which document.js reads."""
    return base64.b64encode(zlib.compress(content, 9)).decode()


def make_visible(text: str) -> str:
    """Replace control characters, such as those that turn the writing direction, by signs."""
    shown = ""
    for c in text:
        control = unicodedata.category(c) in ("Cc", "Cf", "Cs") and c not in JOINERS
        shown += SIGNS.get(c, f"⟨U+{ord(c):04X}⟩") if control else c
    return shown


def cut_text(text: str, most: int) -> str:
    """Cut a text to at most `most` characters, with "…" behind it."""
    return text if len(text) <= most else f"{text[:most]}…"
