"""PNG files of a report's figures: the page's descriptions and colours, drawn by matplotlib."""

from __future__ import annotations

import itertools
import math
import re
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bert_jax.reporting import charts, plots
from bert_jax.reporting.charts import Chart, Series, number
from bert_jax.reporting.page import STYLE
from bert_jax.reporting.plots import HOLE, Heat
from bert_jax.system import disk

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DOTS = 160  # per inch
WIDTH, HEAD, FOOT = 7.2, 0.45, 1.05  # inches
GLYPH = 0.085  # inches of a character
INK, SOFT, LINE = "#1c2430", "#5b6675", "#dfe4ea"
# The style names each colour twice; the first one, which wins here, is of the light page.
COLOURS = dict(reversed(re.findall(r"\b([cq]\d)\b[^#;]{1,12}(#[0-9a-f]{6})", STYLE)))
FONT: Any = {"font.family": "sans-serif", "font.size": 10, "text.color": INK}
DASHED: dict[str, Any] = {"color": SOFT, "linestyle": (0, (4, 3)), "linewidth": 1}
SINGLE: dict[str, Any] = {  # dots of single seeds
    "markersize": 3,
    "alpha": 0.6,
    "fillstyle": "none",
    "markeredgewidth": 0.8,
}


def write(folder: Path, figures: Mapping[str, plots.Figure], source: str) -> list[Path]:
    """Write NAME.png for every figure with values; `source` stands below each."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, figure in figures.items():
        if not plots.draw(figure):
            continue
        path = folder / f"{name}.png"
        with rc_context(FONT), disk.replacing(path) as file:
            drawn = _heat(figure) if isinstance(figure, Heat) else _chart(figure)
            _caption(drawn, figure.title, " ".join(filter(None, [figure.note, source])))
            # Without metadata the same data give the same bytes.
            FigureCanvasAgg(drawn).print_png(file, metadata={"Software": ""})
        written.append(path)
    return written


def _new(height: float, left: float, above: float = 0.0) -> tuple[Figure, Axes]:
    """Make a figure with `left` inches for names and `above` inches over the axes; empty axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, height + FOOT + HEAD + above), dpi=DOTS, facecolor="white")
    total = figure.get_figheight()
    axes = figure.add_axes(
        (left / WIDTH, FOOT / total, (WIDTH - left - 0.25) / WIDTH, height / total)
    )
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(SOFT)
    axes.tick_params(colors=SOFT, length=0)
    axes.set_axisbelow(True)
    return figure, axes


def _caption(figure: Figure, title: str, below: str) -> None:
    """Write the title above the axes and the note and source below."""
    x, height = 0.12 / WIDTH, figure.get_figheight()
    figure.text(x, 1 - 0.12 / height, title, va="top", fontsize=12, fontweight="bold")
    for row, line in enumerate(reversed(textwrap.wrap(below, 124, max_lines=3))):
        y = (0.1 + 0.16 * row) / height
        figure.text(x, y, line, va="bottom", fontsize=8, color=SOFT)


# --- lines and dots ----------------------------------------------------------------------------


def _chart(chart: Chart) -> Figure:
    lines = [series for series in chart.series if series.points]
    names = [textwrap.fill(name, 26) for name in chart.rows]
    height = (0.2 * len(lines) + 0.2) * len(chart.rows) if chart.rows else 3.1
    left = 0.3 + GLYPH * max((len(line) for name in names for line in name.split("\n")), default=5)
    several = len(lines) > 1 or bool(lines[0].name)
    above = 0.2 * math.ceil(len(lines) / 5) + 0.05 if several else 0.0
    figure, axes = _new(height, left, above)
    apart = 0.2 if chart.rows else 0.012 * _span(chart) if chart.ticks else 0.0
    for i, series in enumerate(lines):
        _series(axes, chart, series, (i - (len(lines) - 1) / 2) * apart)
    _scales(axes, chart, names)
    for name, value in chart.baselines:
        (axes.axvline if chart.rows else axes.axhline)(value, **DASHED)
        if name and not chart.rows:
            text, place = f"{name} {number(value, chart.percent)}", axes.get_yaxis_transform()
            axes.annotate(text, (1, value), (0, 3), place, "offset points", ha="right", color=SOFT)
    if chart.mark is not None:
        axes.axvline(chart.mark, **DASHED)
    if several:
        axes.legend(
            loc="lower left",
            bbox_to_anchor=(-left / (WIDTH - left), 1.0),
            borderaxespad=0.2,
            ncols=5,
            frameon=False,
            fontsize=9,
        )
    return figure


def _scales(axes: Axes, chart: Chart, names: list[str]) -> None:
    """Set limits, ticks, labels and grid of both axes."""
    axis = charts.Axis(charts.y_range(chart), 0, 1, pad=0.06)
    ticks = axis.ticks(6)
    labels = [charts.short(tick, chart.percent, ticks) for tick in ticks]
    if chart.rows:
        axes.set_xlim(axis.low, axis.high)
        axes.set_xticks(ticks, labels)
        axes.set_yticks(range(len(chart.rows)), names, color=INK)
        axes.set_ylim(len(chart.rows) - 0.5, -0.5)
        axes.grid(axis="x", color=LINE)
        return
    axes.set_ylim(axis.low, axis.high)
    axes.set_yticks(ticks, labels)
    axes.grid(axis="y", color=LINE)
    axes.set_xlabel(chart.x, color=SOFT)
    if chart.ticks:
        axes.set_xticks(*zip(*_apart(chart), strict=True))
    else:
        axes.xaxis.set_major_formatter(
            lambda x, _: charts.short(x, False, axes.get_xticks().tolist())
        )


def _series(axes: Axes, chart: Chart, series: Series, shift: float) -> None:
    """Draw a line or a column of dots, moved by `shift`, with intervals and single seeds."""
    colour = COLOURS[series.kind.split()[0]]
    xs, ys = [x + shift for x, _ in series.points], [y for _, y in series.points]
    dots = [x + shift for x, _ in series.dots], [y for _, y in series.dots]
    whiskers = [(x + shift, low, high) for x, low, high in series.whiskers]
    if chart.rows:
        axes.plot(ys, xs, "o", color=colour, markersize=5, label=series.name)
        axes.plot(dots[1], dots[0], "o", color=colour, **SINGLE)
        for row, low, high in whiskers:
            axes.hlines(row, low, high, color=colour, linewidth=1.2, alpha=0.8)
        return
    style = "o-" if len(xs) <= 25 else "-"
    axes.plot(xs, ys, style, color=colour, markersize=4, linewidth=1.6, label=series.name)
    axes.plot(*dots, "o", color=colour, **SINGLE)
    if whiskers:
        axes.vlines(*zip(*whiskers, strict=True), color=colour, linewidth=1.2, alpha=0.8)
    if series.band:
        places, lows, highs = zip(*series.band, strict=True)
        axes.fill_between(places, lows, highs, color=colour, alpha=0.15, linewidth=0)


def _span(chart: Chart) -> float:
    places = [x for x, _ in chart.ticks]
    return max(places) - min(places)


def _apart(chart: Chart) -> list[tuple[float, str]]:
    """Choose ticks whose labels do not overlap."""
    kept: list[tuple[float, str]] = []
    for tick, label in sorted(chart.ticks):
        if not kept or tick - kept[-1][0] > _span(chart) * 0.007 * (len(label) + len(kept[-1][1])):
            kept.append((tick, label))
    return kept


# --- heat maps ---------------------------------------------------------------------------------


def _heat(heat: Heat) -> Figure:
    from matplotlib.colors import LinearSegmentedColormap

    figure, axes = _new(0.34 * len(heat.rows), 0.3 + GLYPH * max(map(len, heat.rows)), 0.3)
    shades = [
        [shade if math.isfinite(value) else math.nan for shade, value in zip(*row, strict=True)]
        for row in zip(heat.shades, heat.values, strict=True)
    ]
    colours = LinearSegmentedColormap.from_list("page", ["#ffffff", COLOURS["c1"]])
    axes.imshow(shades, cmap=colours, vmin=0, vmax=1.25, aspect="auto")
    small = 9 if len(heat.columns) <= 8 else 8
    for i, j in itertools.product(range(len(heat.rows)), range(len(heat.columns))):
        value, best = heat.values[i][j], (i, j) in heat.marks
        text = HOLE
        if math.isfinite(value):
            text = f"{number(value, heat.percent)}{' *' if best else ''}"
        axes.text(
            j,
            i,
            text,
            ha="center",
            va="center",
            fontsize=small,
            fontweight="bold" if best else "normal",
            color="w" if math.isfinite(value) and heat.shades[i][j] > 0.75 else INK,
        )
    axes.set_xticks(range(len(heat.columns)), heat.columns)
    axes.set_yticks(range(len(heat.rows)), heat.rows)
    axes.set_title(heat.corner, loc="left", fontsize=9, color=SOFT)
    return figure
