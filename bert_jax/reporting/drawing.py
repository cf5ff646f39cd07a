"""Draws figures by matplotlib, both for pages and for files.

    with use_style():
        canvas, readings = draw_figures([figure], captions=False)

The canvas is measured in points of 1/72 inch. It must also be saved within `use_style`, because
matplotlib reads some settings only then. A reading is (x, y, text): a place in the figure, and what
a page shows when the pointer is there.
"""

import contextlib
import math
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib import ticker
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import Rectangle

from bert_jax.reporting.figures import Chart, Figure, Heat, Intervals, Points, Series, is_drawable
from bert_jax.reporting.formats import HOLE, SPACE, exact, number
from bert_jax.reporting.palette import LIGHT

WIDTH, HEIGHT = 420, 240  # points of a chart without its legend; a matrix may need more
LINE = 15  # points: the height of a line of text
LETTER = 7.1  # points: the mean width of a letter
NAME, LONG = 20, 48  # letters in a line of a short and of a long name
MOST = 300  # points of a drawn line
MARKED = 25  # points of a line that has a dot at each
DECADES = 2  # values so many powers of ten apart stand on a logarithmic axis
WHISKER: dict[str, Any] = {"linewidth": 1.4, "alpha": 0.75}
DASHED: dict[str, Any] = {"color": LIGHT["soft"], "linestyle": "--", "linewidth": 1.2}
STYLE: dict[str, Any] = {
    "font.sans-serif": ["DejaVu Sans"],  # it comes with matplotlib
    "font.size": 12,
    "axes.axisbelow": True,
    "axes.edgecolor": LIGHT["soft"],
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.labelcolor": LIGHT["soft"],
    "axes.linewidth": 0.6,
    **{f"axes.spines.{side}": False for side in ("left", "right", "top")},
    "figure.titlesize": 13,
    "figure.titleweight": "bold",
    "grid.color": LIGHT["line"],
    "grid.linewidth": 1,
    "legend.borderaxespad": 0,
    "legend.frameon": False,
    "legend.handlelength": 1.3,
    "legend.labelcolor": LIGHT["soft"],
    "pdf.fonttype": 42,  # TrueType: publishers refuse the Type 3 of matplotlib's default
    "svg.fonttype": "none",
    "text.color": LIGHT["ink"],
    "text.parse_math": False,  # a dollar in a name is a dollar
    **{f"{axis}tick.color": LIGHT["soft"] for axis in "xy"},
    **{f"{axis}tick.{kind}.size": 0 for axis in "xy" for kind in ("major", "minor")},
}
Reading = tuple[float, float, str]  # place on the axes, and what a page shows near it
# Canvas of matplotlib, and the readings of each axes on it.
Drawing = tuple[Canvas, list[tuple[Axes, list[Reading]]]]


@contextlib.contextmanager
def use_style(**more: Any) -> Iterator[None]:
    """Use this package's style while figures are drawn and saved, whatever matplotlibrc says."""
    with matplotlib.rc_context(), warnings.catch_warnings():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE | more)  # type: ignore[arg-type]  # names of settings
        # A page has other fonts for what ours lacks; a file shows a box.
        warnings.filterwarnings("ignore", "Glyph .* missing", UserWarning)
        # Endless names leave no room for the axes.
        warnings.filterwarnings("ignore", "constrained_layout not applied", UserWarning)
        yield


def draw_figures(figures: Sequence[Figure], columns: int = 1, captions: bool = True) -> Drawing:
    """Draw figures that have values, side by side in `columns` columns.

    The result is the canvas, and for each figure its axes with the readings (x, y, text) of its
    values. Pages write titles and notes as HTML, so they draw without `captions`.
    """
    columns = min(columns, len(figures))
    sizes = [_measure_size(figure, captions) for figure in figures]
    width = max(width for width, _ in sizes)
    heights = [height for _, height in sizes]
    rows = [max(heights[start : start + columns]) for start in range(0, len(heights), columns)]
    canvas = Canvas((columns * width / 72, sum(rows) / 72), dpi=72, layout="constrained")
    parts = canvas.subfigures(len(rows), columns, squeeze=False, height_ratios=rows)
    readings = []
    for part, figure in zip(parts.flat, figures, strict=False):
        axes = part.add_subplot()
        draw: Any = _draw_heat if isinstance(figure, Heat) else _draw_chart
        readings.append((axes, draw(axes, figure)))
        if captions:
            part.suptitle(textwrap.fill(figure.title, NAME + NAME), x=0.01, ha="left")
            note = _wrap_note(figure.note, width)
            part.supxlabel(note, x=0.01, ha="left", fontsize=9, color=LIGHT["soft"])
    layout: Any = canvas.get_layout_engine()
    layout.execute(canvas)  # gives every text its place
    canvas.set_layout_engine(None)  # it would shrink the axes at every further drawing
    for axes in canvas.axes:
        _hide_overlaps(axes)
    return canvas, readings


def _measure_size(figure: Figure, captions: bool) -> tuple[float, float]:
    """Return the (width, height) of a figure in points."""
    width, height = float(WIDTH), float(HEIGHT)
    if isinstance(figure, Heat):
        widest = max(len(line) for name in figure.columns for line in textwrap.wrap(name, 12))
        width = max(width, 110 + (LETTER * max(widest, 6) + 10) * len(figure.columns))
        height = sum(max(26.0, LINE * _count_lines(name)) for name in figure.rows)
        height += LINE * (2 + max(_count_lines(name, 12) for name in figure.columns))
    elif isinstance(figure, Chart):
        if figure.rows:
            least = 14 + 15 * len(figure.series)
            height = sum(max(least, LINE * _count_lines(name) + 8) for name in figure.rows)
            height += 3 * LINE
        names = [_format_legend(figure, line) for line in figure.series if line.points]
        names += [f"{name} 1.234 ↑" for name, _ in figure.baselines if name]
        lines = sum(name.count("\n") + 1 for name in names if name)
        height += LINE * math.ceil(lines / _count_columns(names))
    if captions:
        height += 26 + 14 * (_wrap_note(figure.note, width).count("\n") + 1)
    return width, height


def _count_lines(name: str, letters: int = NAME) -> int:
    return len(textwrap.wrap(name, letters))


def _wrap_note(note: str, width: float) -> str:
    return textwrap.fill(note, int(width / 5.4))


def _hide_overlaps(axes: Axes) -> None:
    """Hide each label of the bottom axis that would overlap the label before it."""
    free = -math.inf
    for label in axes.get_xticklabels():
        box = label.get_window_extent()
        if box.width and box.x0 < free:
            label.set_visible(False)
        elif box.width:
            free = box.x1 + 4


# --- charts ------------------------------------------------------------------------------------


def _draw_chart(axes: Axes, chart: Chart) -> list[Reading]:
    """Draw a chart of lines, or of dots in rows; return a reading (x, y, text) of each value."""
    across, up = chart.x, chart.y
    if chart.rows:
        across, up = chart.y, "" if chart.x == "step" else chart.x
    axes.set(xlabel=textwrap.fill(across, LONG), ylabel=textwrap.fill(up, NAME + 4))
    prepare = _prepare_rows if chart.rows else _prepare_lines
    prepare(axes, chart)
    lines = [series for series in chart.series if series.points]
    readings = []
    for position, series in enumerate(lines):
        if chart.rows:
            aside = position - (len(lines) - 1) / 2
            readings += _draw_row_series(axes, chart, series, 0.8 * aside / len(lines))
        else:
            readings += _draw_line(axes, chart, series)
    _draw_baselines(axes, chart)
    handles, names = axes.get_legend_handles_labels()
    if names:
        above: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0, 1.02)}
        axes.legend(handles, names, ncols=_count_columns(names), **above)
    return readings


def _prepare_rows(axes: Axes, chart: Chart) -> None:
    """Set limits and ticks of the axes for a chart of rows, whose values go to the right."""
    axes.set_xlim(_find_limits(chart.values))
    axes.set_ylim(len(chart.rows) - 0.5, -0.5)
    names = [textwrap.fill(name, NAME) for name in chart.rows]
    axes.set_yticks(range(len(names)), names, color=LIGHT["ink"])
    axes.xaxis.set_major_locator(ticker.MaxNLocator(5))
    _label_numbers(axes.xaxis, chart.percent)
    axes.grid(True, axis="x")
    axes.grid(False, axis="y")
    for row in range(1, len(names)):
        axes.axhline(row - 0.5, color=LIGHT["line"], linewidth=1)


def _prepare_lines(axes: Axes, chart: Chart) -> None:
    """Set limits, ticks and scale of the axes for a chart of lines."""
    values = chart.values
    apart = chart.log and not chart.percent and min(values) > 0
    log = apart and math.log10(max(values)) - math.log10(min(values)) > DECADES
    axes.set_yscale("log" if log else "linear")
    axes.set_ylim(_find_limits(values, log))
    _label_numbers(axes.yaxis, chart.percent)
    places = [x for series in chart.series for x, _ in series.points]
    places += [x for x, _ in chart.ticks]  # a tick without a value yet has its place too
    if chart.mark is not None:
        places.append(chart.mark)
        axes.axvline(chart.mark, **DASHED)
    axes.set_xlim(_find_limits(places, pad=0.035 if chart.ticks else 0.01))
    if chart.ticks:
        axes.set_xticks([x for x, _ in chart.ticks], [label for _, label in chart.ticks])
    else:
        whole = all(float(x).is_integer() for x in places)
        axes.xaxis.set_major_locator(ticker.MaxNLocator(5, integer=whole))
        _label_numbers(axes.xaxis)


def _find_limits(
    values: Sequence[float], log: bool = False, pad: float = 0.06
) -> tuple[float, float]:
    """Choose the ends of an axis, with some room around all values; below 0 only if a value is."""
    low, high = min(values), max(values)
    if log:
        room = 10 ** (pad * math.log10(high / low))
        return low / room, high * room
    room = pad * (high - low)
    if high - low <= 1e-9 * max(abs(low), abs(high)):  # a single value
        room = abs(low) * 0.1 or 0.5
    return max(low - room, 0.0) if low >= 0 else low - room, high + room


def _label_numbers(axis: Any, percent: bool = False) -> None:
    """Write the ticks of an axis in short forms: 20 %, 0.01, 12.2k."""
    large = ticker.EngFormatter(sep="")

    def write(value: float, _: int) -> str:
        if percent:
            return f"{100 * value:.6g}{SPACE}%"
        return large(value) if 1e4 <= abs(value) < 1e15 else f"{value:.6g}"

    axis.set_minor_formatter(ticker.NullFormatter())
    axis.set_major_formatter(write)


def _count_columns(names: Sequence[str]) -> int:
    """Return how many names fit next to each other in a legend."""
    widest = max((len(line) for name in names for line in name.split("\n")), default=0)
    return max(1, int((WIDTH - 40) / (LETTER * widest + 40)))


def _format_legend(chart: Chart, series: Series) -> str:
    """Format a line's name, with its last value if it is a line over steps; may be empty."""
    name = textwrap.fill(series.name, LONG)
    if chart.x == "step":
        return f"{name} {number(series.points[-1][1], chart.percent)}".strip()
    return name


def _draw_baselines(axes: Axes, chart: Chart) -> None:
    """Draw dashed lines at the baselines, and name the baselines in the legend.

    A baseline beyond the ends of the axis is only named, with an arrow.
    """
    low, high = min(chart.values), max(chart.values)
    draw = axes.axvline if chart.rows else axes.axhline
    lower, higher = "←→" if chart.rows else "↓↑"
    for name, level in chart.baselines:
        label = f"{name} {number(level, chart.percent)}" if name and is_drawable(level) else ""
        if low <= level <= high:
            draw(level, label=label or None, **DASHED)
        elif label:
            axes.plot([], [], " ", label=f"{label} {higher if level > high else lower}")


def _draw_line(axes: Axes, chart: Chart, series: Series) -> list[Reading]:
    """Draw a line with its dots and intervals; return a reading (x, y, text) of each value.

    The line has a gap where a value is missing.
    """
    colour = LIGHT[series.colour]
    axes.vlines(*_split_intervals(series.whiskers), color=colour, **WHISKER)
    band = _split_intervals(series.band)
    band = band[:, :: max(1, band.shape[1] // MOST)]
    axes.fill_between(*band, color=colour, alpha=0.16, linewidth=0)
    points = _thin_points(series.points)  # [n, 2]
    label = _format_legend(chart, series) or None
    (line,) = axes.plot(*points.T, color=colour, label=label, linewidth=1.8)
    known = np.isfinite(points[:, 1])
    dotted = known
    if series.faint:
        line.set(linewidth=1.3, alpha=0.6, zorder=1.9)  # below other lines
    if len(points) > MARKED or series.faint:  # dots only where no line goes through a point
        beside = np.pad(known, 1)
        dotted = known & ~beside[:-2] & ~beside[2:]
    _draw_dots(axes, points[dotted], colour)
    singles = [(x, y) for x, y in series.dots if is_drawable(y)]
    _draw_dots(axes, singles, colour, single=True)
    return _read_all(chart, series, points[known].tolist(), singles)


def _thin_points(points: Sequence[tuple[float, float]]) -> np.ndarray:
    """Reduce a line to at most MOST points [n, 2]: its ends, and means of equal stretches."""
    known = np.array([(x, y if is_drawable(y) else math.nan) for x, y in points])
    if len(known) <= MOST:
        return known
    inner = [part.mean(0) for part in np.array_split(known[1:-1], MOST - 2)]
    return np.array([known[0], *inner, known[-1]])


def _split_intervals(intervals: Intervals) -> np.ndarray:
    """Return places, lower and upper ends of intervals [3, n]; leave out those without an end."""
    known = [edge for edge in intervals if is_drawable(edge[1]) and is_drawable(edge[2])]
    return np.reshape(known, (-1, 3)).T


def _draw_row_series(axes: Axes, chart: Chart, series: Series, shift: float) -> list[Reading]:
    """Draw a series in a chart of rows, lower by `shift`; return (x, y, text) of each value."""
    colour = LIGHT[series.colour]
    rows, low, high = _split_intervals(series.whiskers)
    axes.hlines(rows + shift, low, high, color=colour, **WHISKER)
    means = [(row, value) for row, value in series.points if is_drawable(value)]
    singles = [(row, value) for row, value in series.dots if is_drawable(value)]
    _draw_dots(axes, [(value, row + shift) for row, value in means], colour)
    _draw_dots(axes, [(value, row + shift) for row, value in singles], colour, single=True)
    if label := _format_legend(chart, series):
        axes.plot([], [], "o", color=colour, label=label)
    readings = _read_all(chart, series, means, singles)
    return [(value, row + shift, text) for row, value, text in readings]


def _draw_dots(axes: Axes, points: Any, colour: str, single: bool = False) -> None:
    """Draw filled dots, or empty circles for single values; no dot is cut by the axes."""
    look: dict[str, Any] = {"markersize": 5, "markeredgewidth": 0}
    if single:
        look = {"markersize": 4, "fillstyle": "none", "alpha": 0.5}
    # Without points the marks lie in the corner of the canvas, where the layout leaves them room.
    if len(points):
        axes.plot(*np.reshape(points, (-1, 2)).T, "o", clip_on=False, color=colour, **look)


def _read_all(chart: Chart, series: Series, points: Points, singles: Points) -> list[Reading]:
    """Return (x, y, text) of each value; the text has the place, exact value and interval."""
    ends = {x: (low, high) for x, low, high in _split_intervals([*series.band, *series.whiskers]).T}
    labels = dict(chart.ticks)
    readings = []
    for position, (x, y) in enumerate([*points, *singles]):
        if chart.rows:
            place = chart.rows[int(x)]
        else:
            label = labels.get(x) or exact(round(x) if abs(x) >= 100 else x)
            place = f"{chart.x.partition(' (')[0]} {label}"  # without the unit
        text = f"{', '.join(filter(None, [series.name, place]))}: {exact(y, chart.percent)}"
        if x in ends and position < len(points):
            low, high = (exact(end, chart.percent) for end in ends[x])
            text += f" ({low} to {high})"
        readings.append((x, y, text))
    return readings


# --- matrices ----------------------------------------------------------------------------------


def _draw_heat(axes: Axes, heat: Heat) -> list[Reading]:
    """Draw a matrix as shaded cells, the best ones framed; return (x, y, text) of each cell."""
    columns = [textwrap.fill(name, 12) for name in heat.columns]
    rows = [textwrap.fill(name, NAME) for name in heat.rows]
    axes.set(xlabel=textwrap.fill(heat.x, LONG), ylabel=textwrap.fill(heat.y, NAME + 4))
    axes.set(xlim=(-0.5, len(columns) - 0.5), ylim=(len(rows) - 0.5, -0.5))
    axes.set_xticks(range(len(columns)), columns, color=LIGHT["ink"])
    axes.set_yticks(range(len(rows)), rows, color=LIGHT["ink"])
    axes.tick_params(top=True, labeltop=True, bottom=False, labelbottom=False)
    axes.xaxis.set_label_position("top")
    axes.spines["bottom"].set_visible(False)
    axes.grid(False)
    readings = []
    for row, values in enumerate(heat.values):
        for column, value in enumerate(values):
            said = "none"
            if is_drawable(value):
                _draw_cell(axes, heat, row, column)
                said = exact(value, heat.percent)
            else:
                axes.text(column, row, HOLE, ha="center", va="center_baseline", color=LIGHT["c2"])
            text = f"{heat.rows[row]}, {heat.columns[column]}: {said}"
            readings.append((float(column), float(row), text))
    return readings


def _draw_cell(axes: Axes, heat: Heat, row: int, column: int) -> None:
    """Draw a cell of a matrix: its shade, its number, and a frame if it is among the best."""
    value = heat.values[row][column]
    shade = float(np.clip(heat.shades[row][column], 0, 1))
    cell: dict[str, Any] = {"xy": (column - 0.48, row - 0.46), "width": 0.96, "height": 0.92}
    # The layout asks for the size of everything that is drawn; a cell lies within the axes.
    cell["in_layout"] = False
    axes.add_artist(Rectangle(**cell, facecolor=LIGHT["shade"], alpha=0.55 * shade))
    said = f"{value:.3f}"
    if heat.percent or abs(value) < 0.1:
        said = number(value, heat.percent)
    text = axes.text(column, row, said, ha="center", va="center_baseline", in_layout=False)
    if (row, column) in heat.marks:
        text.set_fontweight("bold")
        axes.add_artist(Rectangle(**cell, fill=False, edgecolor=LIGHT["ink"], linewidth=1.4))
