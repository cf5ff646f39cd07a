"""Arrays of numbers as pictures: PNGs with transparent colours, for light and dark pages alike."""

from __future__ import annotations

import base64
import itertools
import json
import struct
import zlib
from collections.abc import Sequence
from html import escape

import numpy as np

from bert_jax.reporting import page
from bert_jax.reporting.figures import Bar, Bars
from bert_jax.reporting.formats import exact, number
from bert_jax.reporting.svg import draw

SCRIPT = page.asset(__file__, ".js")
# Colours of negative and positive numbers, both visible on light and on dark ground.
COLD, HOT = (47, 124, 214), (222, 105, 40)
BINS = 40  # of a histogram
LEVELS = 127  # on either side of 0, which is transparent


def png(values: np.ndarray) -> bytes:
    """Draw numbers from -1 to 1, a pixel each; the further from 0, the more opaque."""
    height, width = values.shape
    levels = np.rint(values * LEVELS).clip(-LEVELS, LEVELS).astype(np.int64) + LEVELS
    strength = np.abs(np.arange(-LEVELS, LEVELS + 1))
    colours = [COLD if i < LEVELS else HOT for i in range(2 * LEVELS + 1)]
    alphas = np.rint(255 * strength / LEVELS).astype(np.uint8)
    filters = np.zeros((height, 1), np.uint8)  # each line begins with its filter: none
    lines = np.concatenate([filters, levels.astype(np.uint8)], 1)
    head = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)  # 8 bits into a palette
    chunks = (
        (b"IHDR", head),
        (b"PLTE", bytes(c for colour in colours for c in colour)),
        (b"tRNS", alphas.tobytes()),
        (b"IDAT", zlib.compress(lines.tobytes(), 9)),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in chunks
    )


def picture(
    title: str,
    values: np.ndarray,
    axes: tuple[str, str],
    unit: str,
    *,
    end: float | None = None,
    names: Sequence[str] = (),
    below: str = "",
    square: bool = False,
) -> str:
    """Draw a `<figure>` of an array with a legend; a script reads its numbers off.

    Args:
      axes: what a row and a column are.
      unit: of the numbers.
      end: the largest number with a colour of its own; by default the 99.5 % quantile.
      names: of the rows; by default numbers from 0.
      below: explanation below the picture.
      square: pixels as high as wide; else the picture is as wide as the page allows.
    """
    values = np.nan_to_num(np.asarray(values, np.float64))
    end = float(np.quantile(np.abs(values), 0.995)) if end is None else end
    end = end or 1.0
    data = base64.b64encode(png(values / end)).decode()
    height, width = values.shape
    rows, columns = f"{axes[0]}, {height:,} down", f"{axes[1]}, {width:,} across"
    named = f' data-names="{escape(json.dumps(list(names)))}"' if names else ""
    note = f'<p class="note">{escape(below)}</p>' if below else ""
    return (
        f'<figure class="chart picture{" square" if square else ""}" data-end="{end:.9g}" '
        f'data-row="{escape(axes[0])}" data-column="{escape(axes[1])}"{named}>'
        f"<figcaption>{escape(title)}</figcaption>"
        f'<p class="note">{escape(rows)}; {escape(columns)}</p>'
        f'<div class="frame"><img src="data:image/png;base64,{data}" width="{width}" '
        f'height="{height}" style="--rows:{height}" '
        f'alt="{escape(f"{title}: {rows}, {columns}")}"></div>'
        f"{_legend(end, unit, both=bool((values < 0).any()))}"
        f'<p class="read note" aria-live="polite"></p>{note}</figure>'
    )


def _legend(end: float, unit: str, both: bool) -> str:
    """Draw the scale of colours from -end, or 0, to end."""
    kind, low = ("scale", number(-end)) if both else ("scale up", "0")
    text = f"{unit}; 0 is transparent" if both else unit
    ends = f"<span>{low}</span><i></i><span>{number(end)}</span>"
    return f'<div class="{kind}">{ends}<span>{escape(text)}</span></div>'


def histogram(title: str, values: np.ndarray, x: str, y: str, below: str = "") -> str:
    """Draw a `<figure>` of the histogram of values; `x` names them and `y` what is counted."""
    counts, edges = np.histogram(values, BINS)
    bars = [
        Bar(low, high, count, f"{x} {exact(low)} to {exact(high)}: {count:,} {y}")
        for count, (low, high) in zip(
            counts.tolist(), itertools.pairwise(edges.tolist()), strict=True
        )
    ]
    return draw(Bars(title, bars, x, y, note=below))
