"""Marks of a figure: lines, rows of dots, bars and cells, drawn on axes of matplotlib.

draw_marks(axes, figure)  -> (x, y, text): what a page shows when the pointer is near a place
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import Any

from matplotlib import ticker
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from matplotlib.transforms import ScaledTranslation

from bert_jax.reporting.figures import Bars, Chart, Figure, Heat, Series, finite, thin_points
from bert_jax.reporting.formats import HOLE, SPACE, exact, number
from bert_jax.reporting.palette import LIGHT

LETTER = 7.1  # points: the mean width of a letter
LEGEND = 380  # points: the width of a legend
ROW_NAME, COLUMN_NAME, AXIS_NAME, LINE_NAME = 20, 12, 24, 48  # letters in a line of a name
MARKED = 25  # points of a line that has a dot at each
ASIDE = 1.4  # points between whiskers at one place
DECADES = 2  # values so many powers of ten apart stand on a logarithmic axis
NARROW = 0.5  # of a power of ten: a logarithmic axis has plain ticks below
PAD = 0.06  # of the values' range, on either side of them
ARROWS = {  # to a baseline below or above the axis of values
    "lines": ("\N{DOWNWARDS ARROW}", "\N{UPWARDS ARROW}"),
    "rows": ("\N{LEFTWARDS ARROW}", "\N{RIGHTWARDS ARROW}"),
}
Reading = tuple[float, float, str]


def draw_marks(axes: Axes, figure: Figure) -> list[Reading]:
    """Draw the marks and the legend of a figure that has values; list its readings."""
    if isinstance(figure, Heat):
        return _draw_heat(axes, figure)
    if isinstance(figure, Bars):
        return _draw_bars(axes, figure)
    readings = _draw_rows(axes, figure) if figure.rows else _draw_lines(axes, figure)
    _draw_baselines(axes, figure)
    _draw_legend(axes, figure)
    return readings


def wrap_name(name: str, letters: int = ROW_NAME) -> list[str]:
    """Break a name into lines; an empty name has one empty line."""
    return textwrap.wrap(name, letters) or [""]


# --- axes and legends --------------------------------------------------------------------------


def _find_limits(
    values: Sequence[float], log: bool = False, pad: float = PAD
) -> tuple[float, float]:
    """Choose the ends of an axis: all values with some room; none below 0 without need."""
    low, high = min(values), max(values)
    if log:
        room = pad * math.log10(high / low) or 0.1
        return low / 10**room, high * 10**room
    if high - low <= 1e-9 * max(abs(low), abs(high)):  # a single value
        room = abs(low) * 0.1 or 0.5
    else:
        room = pad * (high - low)
    return (max(low - room, 0.0) if low >= 0 else low - room), high + room


def _label_values(
    axis: Any, values: Sequence[float], *, percent: bool = False, log: bool = False
) -> None:
    """Choose the ticks of an axis of numbers, and how their labels are written."""
    most = max(map(abs, values))
    axis.set_minor_formatter(ticker.NullFormatter())
    if log:
        parts = (1, 2, 5) if max(values) / min(values) < 10**DECADES else (1,)
        axis.set_major_locator(ticker.LogLocator(subs=parts, numticks=7))
    if percent:
        axis.set_major_formatter(lambda value, _: f"{100 * value:.6g}{SPACE}%")
    elif 1e4 <= most < 1e15:
        axis.set_major_formatter(ticker.EngFormatter(sep=""))  # 10k
    elif log or most < 1e-2 or most >= 1e15:
        axis.set_major_formatter(lambda value, _: f"{value:.3g}")
    else:
        plain = ticker.ScalarFormatter(useOffset=False)
        plain.set_scientific(False)
        axis.set_major_formatter(plain)


def _is_log(chart: Chart) -> bool:
    """Tell whether the axis of values is logarithmic: asked for, or for values far apart."""
    values = chart.values
    if min(values) <= 0 or chart.percent:
        return False
    decades = math.log10(max(values)) - math.log10(min(values))
    if chart.log is None:
        return decades > DECADES
    return chart.log and decades > NARROW


def _draw_legend(axes: Axes, chart: Chart) -> None:
    """Name lines and baselines above the axes."""
    handles, names = axes.get_legend_handles_labels()
    if names:
        axes.legend(
            handles,
            names,
            loc="lower left",
            bbox_to_anchor=(0, 1.02),
            ncols=_count_legend_columns(names),
            labelcolor=LIGHT["soft"],
        )


def _count_legend_columns(names: Sequence[str]) -> int:
    """Count the columns of names that fit into the width of a legend."""
    widest = max(len(line) for name in names for line in name.split("\n"))
    return max(1, int(LEGEND / (LETTER * widest + 36)))


def count_legend_lines(chart: Chart) -> int:
    """Count the lines of text in the legend of a chart."""
    names = [name for series in chart.series if (name := _write_legend(chart, series))]
    names += [f"{name} {HOLE * 6}" for name, _ in chart.baselines if name]  # and a number
    if not names:
        return 0
    lines = sum(name.count("\n") + 1 for name in names)
    return math.ceil(lines / _count_legend_columns(names))


def _write_legend(chart: Chart, series: Series) -> str:
    """Write a line's name, and its last value if the chart asks for it; empty without both."""
    if not series.points:
        return ""
    name = textwrap.fill(series.name, LINE_NAME)
    if chart.last:
        return f"{name} {number(series.points[-1][1], chart.percent)}".strip()
    return name


def _draw_baselines(axes: Axes, chart: Chart) -> None:
    """Draw dashed lines at baselines; the legend names them, with an arrow to a far one."""
    values = chart.values
    draw = axes.axvline if chart.rows else axes.axhline
    lower, higher = ARROWS["rows" if chart.rows else "lines"]
    for name, level in chart.baselines:
        if not finite(level):
            continue
        label = f"{name} {number(level, chart.percent)}" if name else None
        if min(values) <= level <= max(values):
            draw(level, label=label, color=LIGHT["soft"], linestyle="--", linewidth=1.2)
        elif label:
            arrow = higher if level > max(values) else lower
            axes.plot([], [], " ", label=f"{label} {arrow}")


# --- lines -------------------------------------------------------------------------------------


def _draw_lines(axes: Axes, chart: Chart) -> list[Reading]:
    """Draw lines over an axis at the bottom."""
    log, values = _is_log(chart), chart.values
    axes.set(xlabel=textwrap.fill(chart.x, LINE_NAME), ylabel=textwrap.fill(chart.y, AXIS_NAME))
    axes.set_yscale("log" if log else "linear")
    axes.set_ylim(_find_limits(values, log))
    _label_values(axes.yaxis, values, percent=chart.percent, log=log)
    lines = [series for series in chart.series if series.points]
    places = [x for series in lines for x, _ in series.points]
    places += [x for x, _ in chart.ticks]  # a tick without a value yet has its place too
    if chart.mark is not None:
        places.append(chart.mark)
        axes.axvline(chart.mark, color=LIGHT["soft"], linestyle="--", linewidth=1.2)
    axes.set_xlim(_find_limits(places, pad=0.035 if chart.ticks else 0.01))
    if chart.ticks:
        axes.set_xticks([x for x, _ in chart.ticks], [label for _, label in chart.ticks])
    else:
        whole = all(float(x).is_integer() for x in places)
        axes.xaxis.set_major_locator(ticker.MaxNLocator(5, integer=whole))
        _label_values(axes.xaxis, places)
    readings = []
    for position, series in enumerate(lines):
        aside = ASIDE * (position - (len(lines) - 1) / 2)
        _draw_intervals(axes, series, aside)
        readings += _draw_series(axes, chart, series)
    return readings


def _draw_intervals(axes: Axes, series: Series, aside: float) -> None:
    """Draw the band and the whiskers of a line; whiskers stand `aside`, so that none is hidden."""
    colour = LIGHT[series.tone]
    moved = ScaledTranslation(aside / 72, 0, axes.figure.dpi_scale_trans)
    bottom, top = axes.get_ylim()
    for x, low, high in series.whiskers:
        if not math.isnan(low + high):
            low, high = max(low, bottom), min(high, top)
            whisker = axes.vlines(x, low, high, color=colour, linewidth=1.4, alpha=0.75)
            whisker.set_transform(axes.transData + moved)
    band = [edge for edge in series.band if finite(edge[1]) and finite(edge[2])]
    if band:
        lows = thin_points([(x, low) for x, low, _ in band])
        highs = thin_points([(x, high) for x, _, high in band])
        edges = ([y for _, y in lows], [y for _, y in highs])
        axes.fill_between([x for x, _ in lows], *edges, color=colour, alpha=0.16, linewidth=0)


def _draw_series(axes: Axes, chart: Chart, series: Series) -> list[Reading]:
    """Draw a line and its dots; it has a gap where a value is missing."""
    colour = LIGHT[series.tone]
    label = _write_legend(chart, series) or None
    points = [(x, y if finite(y) else math.nan) for x, y in thin_points(series.points)]
    (line,) = axes.plot(*_split(points), color=colour, label=label, linewidth=1.8)
    if series.faint:
        line.set(linewidth=1.3, alpha=0.6, zorder=1.9)  # below other lines
    if len(points) > MARKED or series.faint:
        _draw_dots(axes, _find_lonely(points), colour)
    else:
        _draw_dots(axes, points, colour)
    singles = [(x, y) for x, y in series.dots if finite(y)]
    _draw_circles(axes, singles, colour)
    readings = [(x, y, _read_point(chart, series, x, y)) for x, y in points if finite(y)]
    return readings + [(x, y, _read_single(chart, series, x, y)) for x, y in singles]


def _split(points: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [x for x, _ in points], [y for _, y in points]


def _draw_dots(axes: Axes, points: Sequence[tuple[float, float]], colour: str) -> None:
    """Draw filled dots; a dot on the edge of the axes is whole."""
    look: dict[str, Any] = {"color": colour, "markersize": 5, "markeredgewidth": 0}
    axes.plot(*_split(points), "o", clip_on=False, **look)


def _draw_circles(axes: Axes, points: Sequence[tuple[float, float]], colour: str) -> None:
    """Draw circles, which stand for single values."""
    look: dict[str, Any] = {"color": colour, "markersize": 4, "fillstyle": "none", "alpha": 0.5}
    axes.plot(*_split(points), "o", clip_on=False, **look)


def _find_lonely(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """List points whose neighbours on both sides are missing: no line goes through them."""
    gap = (math.nan, math.nan)
    around = zip([gap, *points], points, [*points[1:], gap], strict=False)
    return [at for before, at, after in around if math.isnan(before[1]) and math.isnan(after[1])]


# --- rows --------------------------------------------------------------------------------------


def _draw_rows(axes: Axes, chart: Chart) -> list[Reading]:
    """Draw values to the right, a row for each point; the series of a row are stacked."""
    names = ["\n".join(wrap_name(name)) for name in chart.rows]
    title = "" if chart.x == "step" else textwrap.fill(chart.x, AXIS_NAME)
    axes.set(xlabel=textwrap.fill(chart.y, LINE_NAME), ylabel=title)
    axes.set_xlim(_find_limits(chart.values))
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_yticks(range(len(names)), names, color=LIGHT["ink"])
    axes.xaxis.set_major_locator(ticker.MaxNLocator(5))
    _label_values(axes.xaxis, chart.values, percent=chart.percent)
    axes.grid(True, axis="x")
    axes.grid(False, axis="y")
    for row in range(1, len(names)):
        axes.axhline(row - 0.5, color=LIGHT["line"], linewidth=1)
    lines = [series for series in chart.series if series.points]
    readings = []
    for position, series in enumerate(lines):
        shift = 0.8 * (position - (len(lines) - 1) / 2) / len(lines)
        readings += _draw_row_series(axes, chart, series, shift)
    return readings


def _draw_row_series(axes: Axes, chart: Chart, series: Series, shift: float) -> list[Reading]:
    """Draw the intervals, single values and means of a series, `shift` below the rows' middles."""
    colour = LIGHT[series.tone]
    left, right = axes.get_xlim()
    for row, low, high in series.whiskers:
        if not math.isnan(low + high):
            low, high = max(low, left), min(high, right)
            axes.hlines(row + shift, low, high, color=colour, linewidth=1.4, alpha=0.75)
    means = [(row, value) for row, value in series.points if finite(value)]
    singles = [(row, value) for row, value in series.dots if finite(value)]
    _draw_dots(axes, [(value, row + shift) for row, value in means], colour)
    _draw_circles(axes, [(value, row + shift) for row, value in singles], colour)
    if label := _write_legend(chart, series):
        axes.plot([], [], "o", color=colour, label=label)
    readings = [
        (value, row + shift, _read_point(chart, series, row, value)) for row, value in means
    ]
    return readings + [
        (value, row + shift, _read_single(chart, series, row, value)) for row, value in singles
    ]


# --- bars and matrices -------------------------------------------------------------------------


def _draw_bars(axes: Axes, figure: Bars) -> list[Reading]:
    """Draw bars that stand on the axis at the bottom."""
    bars = [bar for bar in figure.bars if finite(bar.value)]
    heights = [bar.value for bar in bars]
    places = [bar.low for bar in bars]
    widths = [0.94 * (bar.high - bar.low) for bar in bars]
    axes.bar(places, heights, widths, align="edge", color=LIGHT["c1"])
    axes.set(xlabel=figure.x, ylabel=textwrap.fill(figure.y, AXIS_NAME))
    axes.set_ylim(_find_limits([0.0, *heights]))
    axes.xaxis.set_major_locator(ticker.MaxNLocator(6))
    _label_values(axes.yaxis, [0.0, *heights])
    _label_values(axes.xaxis, [*places, *(bar.high for bar in bars)])
    return [((bar.low + bar.high) / 2, bar.value / 2, bar.text) for bar in bars]


def _draw_heat(axes: Axes, heat: Heat) -> list[Reading]:
    """Draw a matrix as shaded cells with their numbers; a frame marks the best cells."""
    columns = ["\n".join(wrap_name(name, COLUMN_NAME)) for name in heat.columns]
    rows = ["\n".join(wrap_name(name)) for name in heat.rows]
    axes.set(xlabel=textwrap.fill(heat.x, LINE_NAME), ylabel=textwrap.fill(heat.y, AXIS_NAME))
    axes.set_xlim(-0.5, len(columns) - 0.5)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xticks(range(len(columns)), columns, color=LIGHT["ink"])
    axes.set_yticks(range(len(rows)), rows, color=LIGHT["ink"])
    axes.tick_params(top=True, labeltop=True, bottom=False, labelbottom=False)
    axes.xaxis.set_label_position("top")
    axes.spines["bottom"].set_visible(False)
    axes.grid(False)
    readings = []
    for row, values in enumerate(heat.values):
        for column, value in enumerate(values):
            _draw_cell(axes, heat, row, column)
            said = exact(value, heat.percent) if finite(value) else "none"
            text = f"{heat.rows[row]}, {heat.columns[column]}: {said}"
            readings.append((float(column), float(row), text))
    return readings


def _draw_cell(axes: Axes, heat: Heat, row: int, column: int) -> None:
    """Draw a cell: its shade, its number, and a frame if it is the best."""
    value = heat.values[row][column]
    best = (row, column) in heat.marks
    shade = min(max(heat.shades[row][column], 0.0), 1.0) if finite(value) else 0.0
    cell = Rectangle((column - 0.48, row - 0.46), 0.96, 0.92)
    cell.set(facecolor=LIGHT["shade"], alpha=0.55 * shade)
    axes.add_patch(cell)
    if best:
        frame = Rectangle(cell.get_xy(), 0.96, 0.92, fill=False)
        frame.set(edgecolor=LIGHT["ink"], linewidth=1.4)
        axes.add_patch(frame)
    text = axes.text(column, row, write_cell(value, heat.percent))
    text.set(horizontalalignment="center", verticalalignment="center_baseline")
    text.set(fontweight="bold" if best else "normal")
    text.set(color=LIGHT["ink"] if finite(value) else LIGHT["c2"])


def write_cell(value: float, percent: bool) -> str:
    """Write the number of a cell of a matrix."""
    if not finite(value):
        return HOLE
    if percent or abs(value) < 0.1:
        return number(value, percent)
    return f"{value:.3f}"


# --- readings ----------------------------------------------------------------------------------


def _read_point(chart: Chart, series: Series, x: float, y: float) -> str:
    """Write the series, the place, the exact value and its interval."""
    text = _read_single(chart, series, x, y)
    for place, low, high in (*series.band, *series.whiskers):
        if place == x and not math.isnan(low + high):
            return f"{text} ({exact(low, chart.percent)} to {exact(high, chart.percent)})"
    return text


def _read_single(chart: Chart, series: Series, x: float, y: float) -> str:
    """Write the series, the place and the exact value."""
    if chart.rows:
        place = chart.rows[int(x)]
    else:
        label = dict(chart.ticks).get(x) or exact(round(x) if abs(x) >= 100 else x)
        place = f"{chart.x.partition(' (')[0]} {label}"  # without the unit
    return f"{', '.join(filter(None, [series.name, place]))}: {exact(y, chart.percent)}"
