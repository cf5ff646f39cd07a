"""Figures drawn by matplotlib, for pages and for files alike.

    with use_style():
        canvas, readings = draw_figures([figure], captions=False)

The canvas is measured in points of 1/72 inch. Whoever saves it does so within `use_style`, which
holds what matplotlib reads at that moment only.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import textwrap
import warnings
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.figure import SubFigure

from bert_jax.reporting.figures import Chart, Figure, Heat
from bert_jax.reporting.marks import (
    COLUMN_NAME,
    LETTER,
    Reading,
    count_legend_lines,
    draw_marks,
    wrap_name,
    write_cell,
)
from bert_jax.reporting.palette import LIGHT

WIDTH = 420  # points of a figure; a matrix may need more
HEIGHT = 240  # of a chart, without its legend
ROW, EACH = 14, 15  # heights of a row without dots, and of each dot in it
CELL, BESIDE = 26, 110  # height of a cell, and width of the names of rows and the axis
LINE = 15  # height of a line of text
STYLE: dict[str, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # it comes with matplotlib
    "font.size": 12,
    "axes.axisbelow": True,
    "axes.edgecolor": LIGHT["soft"],
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.labelcolor": LIGHT["soft"],
    "axes.labelsize": 12,
    "axes.linewidth": 0.6,
    "axes.spines.left": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 13,
    "figure.titlesize": 13,
    "figure.titleweight": "bold",
    "figure.constrained_layout.h_pad": 4 / 72,
    "figure.constrained_layout.w_pad": 4 / 72,
    "grid.color": LIGHT["line"],
    "grid.linewidth": 1,
    "legend.borderaxespad": 0,
    "legend.borderpad": 0.3,
    "legend.columnspacing": 1.2,
    "legend.frameon": False,
    "legend.handlelength": 1.3,
    "legend.handletextpad": 0.5,
    "lines.solid_joinstyle": "round",
    "pdf.fonttype": 42,  # TrueType: publishers refuse the Type 3 of matplotlib's default
    "svg.fonttype": "none",
    "text.color": LIGHT["ink"],
    "text.parse_math": False,  # a dollar in a name is a dollar
    "xtick.color": LIGHT["soft"],
    "xtick.major.size": 0,
    "xtick.minor.size": 0,
    "ytick.color": LIGHT["soft"],
    "ytick.major.size": 0,
    "ytick.minor.size": 0,
}


class Drawing(NamedTuple):
    """Canvas of matplotlib, and the readings of each axes on it."""

    canvas: Canvas
    readings: list[tuple[Axes, list[Reading]]]


@contextlib.contextmanager
def use_style(more: Mapping[str, Any] = MappingProxyType({})) -> Iterator[None]:
    """Set our style while figures are drawn and saved, whatever a user's matplotlibrc says."""
    with matplotlib.rc_context(), warnings.catch_warnings():
        matplotlib.rcdefaults()
        rc: Any = matplotlib.rcParams
        rc.update(STYLE | dict(more))
        # A page has other fonts for what ours lacks; a file shows a box.
        warnings.filterwarnings("ignore", "Glyph .* missing", UserWarning)
        # Endless names leave no room for the axes.
        warnings.filterwarnings("ignore", "constrained_layout not applied", UserWarning)
        yield


def draw_figures(figures: Sequence[Figure], columns: int = 1, captions: bool = True) -> Drawing:
    """Draw figures that have values, side by side in so many columns.

    Pages write titles and notes themselves, and draw without `captions`.
    """
    sizes = [_size(figure, captions) for figure in figures]
    rows = [sizes[start : start + columns] for start in range(0, len(sizes), columns)]
    heights = [max(height for _, height in row) for row in rows]
    width = max(width for width, _ in sizes)
    columns = min(columns, len(figures))
    canvas = Canvas((columns * width / 72, sum(heights) / 72), dpi=72, layout="constrained")
    parts = canvas.subfigures(len(rows), columns, squeeze=False, height_ratios=heights)
    readings = []
    for part, figure in zip(parts.flat, figures, strict=False):
        axes = part.add_subplot()
        readings.append((axes, draw_marks(axes, figure)))
        if captions:
            _write_captions(part, figure, width)
    canvas.draw_without_rendering()  # gives every text its place
    for axes in canvas.axes:
        _hide_overlaps(axes)
    return Drawing(canvas, readings)


def _size(figure: Figure, captions: bool) -> tuple[float, float]:
    """Tell the width and height of a figure in points."""
    width, height = float(WIDTH), float(HEIGHT)
    if isinstance(figure, Heat):
        columns = [wrap_name(name, COLUMN_NAME) for name in figure.columns]
        texts = [write_cell(value, figure.percent) for row in figure.values for value in row]
        widest = max(map(len, itertools.chain(texts, *columns)))
        width = max(width, BESIDE + (LETTER * widest + 10) * len(columns))
        height = LINE * (2 + max(map(len, columns)))
        height += sum(max(CELL, LINE * len(wrap_name(name))) for name in figure.rows)
    elif isinstance(figure, Chart):
        if figure.rows:
            least = ROW + EACH * sum(bool(series.points) for series in figure.series)
            height = 3.0 * LINE
            height += sum(max(least, LINE * len(wrap_name(row)) + 8) for row in figure.rows)
        height += LINE * count_legend_lines(figure)
    if captions:
        height += 22 + 14 * len(_note_lines(figure.note, width))
    return width, height


def _write_captions(part: SubFigure, figure: Figure, width: float) -> None:
    """Write the title above a figure and the note below it."""
    title = textwrap.fill(figure.title, int(width / 8.5))
    part.suptitle(title, x=0.01, ha="left")
    if figure.note:
        note = "\n".join(_note_lines(figure.note, width))
        part.supxlabel(note, x=0.01, ha="left", fontsize=9, color=LIGHT["soft"])


def _note_lines(note: str, width: float) -> list[str]:
    return textwrap.wrap(note, int(width / 5.4))


def _hide_overlaps(axes: Axes) -> None:
    """Hide labels of the axis at the bottom that would overlap the label before."""
    free = -math.inf
    for label in axes.get_xticklabels():
        box = label.get_window_extent()
        if box.width and box.x0 < free:
            label.set_visible(False)
        elif box.width:
            free = box.x1 + 4
