"""Tables of numbers as pictures: PNGs whose colours are seen through to the page, so that one suits light and dark."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections.abc import Sequence
from html import escape

import numpy as np

from bert_jax.reporting.charts import (
    BOTTOM,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Axis,
    note,
    number,
    short,
)

COLD, HOT = (
    (47, 124, 214),
    (222, 105, 40),
)  # of negative and positive numbers, on light and on dark ground
BINS = 40  # of a histogram
LEVELS = 127  # on either side of 0, which is clear


def png(values: np.ndarray) -> bytes:
    """A picture of numbers from -1 to 1, a pixel each: the further from 0 the less of the page is seen through it."""
    height, width = values.shape
    levels = np.rint(values * LEVELS).clip(-LEVELS, LEVELS).astype(np.int64) + LEVELS
    strength = np.abs(np.arange(-LEVELS, LEVELS + 1))
    colours = [COLD if i < LEVELS else HOT for i in range(2 * LEVELS + 1)]
    alphas = np.rint(255 * strength / LEVELS).astype(np.uint8)
    lines = np.concatenate(
        [np.zeros((height, 1), np.uint8), levels.astype(np.uint8)], 1
    )  # each begins with its filter
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in (
            (
                b"IHDR",
                struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0),
            ),  # 8 bits into a palette
            (b"PLTE", bytes(c for colour in colours for c in colour)),
            (b"tRNS", alphas.tobytes()),
            (b"IDAT", zlib.compress(lines.tobytes(), 9)),
            (b"IEND", b""),
        )
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
    """A `<figure>` of a table: rows down, columns across, a legend, and numbers to be read off.

    Args:
      axes: what a row and a column are.
      unit: of the numbers.
      end: the largest number that has a colour of its own; else 199 of 200 lie below it.
      names: of the rows, where they are not numbers from 0.
      below: what is said below it.
      square: pixels as high as wide; else the picture is as wide as the page lets it.
    """
    values = np.nan_to_num(np.asarray(values, np.float64))
    end = float(np.quantile(np.abs(values), 0.995)) if end is None else end
    end = end or 1.0
    data = base64.b64encode(png(values / end)).decode()
    shades = legend(end, unit, both=bool((values < 0).any()))
    height, width = values.shape
    rows, columns = f"{axes[0]}, {height:,} down", f"{axes[1]}, {width:,} across"
    named = f' data-names="{escape(json.dumps(list(names)))}"' if names else ""
    return (
        f'<figure class="chart picture{" square" if square else ""}" data-end="{end:.9g}" data-row="{escape(axes[0])}" '
        f'data-column="{escape(axes[1])}"{named}><figcaption>{escape(title)}</figcaption>'
        f'<p class="note">{escape(rows)}; {escape(columns)}</p>'
        f'<div class="frame"><img src="data:image/png;base64,{data}" width="{width}" height="{height}" '
        f'style="--rows:{height}" alt="{escape(f"{title}: {rows}, {columns}")}"></div>{shades}'
        f'<p class="read note" aria-live="polite"></p>{note(below)}</figure>'
    )


def legend(end: float, unit: str, both: bool = True) -> str:
    """The colours of the numbers from -end, or 0, to end."""
    kind, low = ("scale", number(-end)) if both else ("scale up", "0")
    said = f"{unit}; 0 is clear" if both else unit
    return f'<div class="{kind}"><span>{low}</span><i></i><span>{number(end)}</span><span>{escape(said)}</span></div>'


def histogram(title: str, values: np.ndarray, x: str, y: str, below: str = "") -> str:
    """A `<figure>` of how many values lie where."""
    counts, edges = np.histogram(values, BINS)
    across = Axis([float(edges[0]), float(edges[-1])], LEFT, WIDTH - RIGHT, pad=0.02)
    up = Axis([0.0, float(counts.max())], HEIGHT - BOTTOM, TOP, pad=0.04)
    drawn = []
    ticks = up.ticks(5)
    for tick in ticks:
        at = up.at(tick)
        drawn.append(
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>'
        )
        drawn.append(
            f'<text x="{LEFT - 7}" y="{at + 4:.1f}" text-anchor="end">{short(tick, False, ticks)}</text>'
        )
    for tick in across.ticks(6):
        place = f'x="{across.at(tick):.1f}" y="{HEIGHT - 8}"'
        drawn.append(f'<text {place} text-anchor="middle">{number(tick)}</text>')
    for count, low, high in zip(
        counts.tolist(), edges[:-1].tolist(), edges[1:].tolist(), strict=True
    ):
        a, b, top = across.at(low), across.at(high), up.at(count)
        said = f"{x} {number(low)} to {number(high)}: {count:,} {y}"
        drawn.append(
            f'<rect class="c1" x="{a:.1f}" y="{top:.1f}" width="{max(b - a - 1, 0.5):.1f}" '
            f'height="{HEIGHT - BOTTOM - top:.1f}"><title>{escape(said)}</title></rect>'
        )
    base = f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{HEIGHT - BOTTOM}" y2="{HEIGHT - BOTTOM}"/>'
    return (
        f'<figure class="chart"><figcaption>{escape(title)}</figcaption><p class="note">{escape(f"{y} by {x}")}</p>'
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">{"".join(drawn)}{base}</svg>'
        f"{note(below)}</figure>"
    )
