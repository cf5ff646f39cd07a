"""What the pages of a model share: a document of template, data and script, and parts of it."""

from __future__ import annotations

import base64
import json
import unicodedata
import zlib
from collections.abc import Iterable
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.interop import runs
from bert_jax.reporting import page as pages

JOINERS = "\u200c\u200d"  # control characters that are part of a word or an emoji
SIGNS = {"\n": "↵", "\t": "⇥"}


def build_page(module: str, title: str, data: Any, **parts: str) -> str:
    """Build a page from the .html, .css and .js next to its module.

    `data` becomes JSON in the page, escaped so that it cannot end its element. The script reads it.
    """
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":  # in JSON they occur only in strings
        text = text.replace(character, f"\\u{ord(character):04x}")
    body = pages.fill_template(module, **parts)
    body += f'<script type="application/json" id="data">{text}</script>'
    style = pages.read_asset(__file__, ".css") + pages.read_asset(module, ".css")
    script = pages.read_asset(__file__, ".js") + pages.read_asset(module, ".js")
    return pages.page(title, body, style, script)


def name_model(run: runs.TrainedModel) -> str:
    """Return the name of the model's folder."""
    return Path(run.meta.get("foreign", run.folder)).resolve().name


def render_facts(run: runs.TrainedModel, facts: Iterable[str]) -> str:
    """Render the line under a page's title: the model's name, its step, and further facts."""
    step = [] if "foreign" in run.meta else [f"step {run.step:,}"]
    name = f"<b><bdi>{escape(name_model(run))}</bdi></b>"
    return " · ".join([name, *map(escape, [*step, *facts])])


def render_options(names: Iterable[Any], chosen: int = 0) -> str:
    """Render the options of a <select>; the value of an option is its number."""
    return "".join(
        f'<option value="{i}"{" selected" if i == chosen else ""}>{escape(str(name))}</option>'
        for i, name in enumerate(names)
    )


def render_shades(
    rows: Iterable[str], values: np.ndarray, corner: str = "", digits: int = 3
) -> str:
    """Render a table of numbers, shaded from the lowest to the highest, with numbered columns.

    NaN is an empty cell. With 0 digits the cells show only shades, and their numbers on hover.
    """
    low = float(np.nanmin(values))
    spread = float(np.nanmax(values)) - low or 1.0
    head = "".join(f"<th class=n>{number + 1}</th>" for number in range(values.shape[1]))
    lines = ""
    for name, row in zip(rows, values.tolist(), strict=True):
        cells = ""
        for value in row:
            share = (value - low) / spread if value == value else 0.0
            said = f"{value:z.{digits or 3}f}" if value == value else ""
            shown = said if digits else ""
            cells += f'<td class=n style="--w:{share:.3f}" title="{said}">{shown}</td>'
        lines += f'<tr><th scope=row><bdi dir="auto">{escape(name)}</bdi></th>{cells}</tr>'
    table = f'<table class="shades"><tr><th>{corner}</th>{head}</tr>{lines}</table>'
    return f'<div class="scroll tall">{table}</div>'


def pack_bytes(content: bytes) -> str:
    """Compress bytes and write them as base64, which document.js reads."""
    return base64.b64encode(zlib.compress(content, 9)).decode()


def make_visible(text: str) -> str:
    """Replace control characters, such as those that turn the writing direction, by signs."""
    shown = ""
    for c in text:
        control = unicodedata.category(c) in ("Cc", "Cf") and c not in JOINERS
        shown += SIGNS.get(c, f"⟨U+{ord(c):04X}⟩") if control else c
    return shown


def cut_text(text: str, most: int) -> str:
    """Cut a text to at most `most` characters, with "…" behind it."""
    return text if len(text) <= most else f"{text[:most]}…"
