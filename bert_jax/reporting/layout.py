"""Layout of figures: every part of a description gets its place, once for pages and files."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence

from bert_jax.reporting.figures import Bars, Chart, Figure, Heat, Points, Series, thin
from bert_jax.reporting.formats import HOLE, SPACE, exact, number, tick
from bert_jax.reporting.hovers import Hovers
from bert_jax.reporting.scales import Scale, finite, wide
from bert_jax.reporting.scene import Box, Dot, Line, Mark, Scene, Text, moved, text_width, wrap

WIDTH = 460  # of a figure in a file, and on a page that draws it once
BROAD, SLIM = 640, 400  # of a figure that a page draws for a broad card and for a slim one
RIGHT, TOP = 12, 10  # room beside and above the values
LABELS, TITLE = 20, 19  # heights of the labels and of the title of an axis
ROW, EACH = 14, 15  # heights of a row without dots, and of each dot in it
LINE = 15  # height of a line of text
NAME, SHORT = 150, 80  # width of the name of a row, at most, and of a slim figure
CELL, WIDEST = 26, 90  # height of a cell, and width of the name of a column, at most
KEY = ((0.0, -4.0), (14.0, -4.0))  # line of a legend, from the foot of its text
MARKED = 25  # points of a line that has a dot at each
ASIDE = 1.4  # between whiskers at one place: their width


def scene_of(figure: Figure, width: float = WIDTH) -> Scene | None:
    """Lay a figure out; return None if it has no values. Only a matrix may need more width."""
    if isinstance(figure, Heat):
        return _heat(figure, width)
    if isinstance(figure, Bars):
        return _bars(figure, width) if any(finite(bar.value) for bar in figure.bars) else None
    if not any(finite(y) for series in figure.series for _, y in series.points):
        return None
    return _rows(figure, width) if figure.rows else _lines(figure, width)


def _plot(width: float) -> float:
    """Return the height of the values of a chart."""
    return 205 + max(width - WIDTH, 0) / 5


# --- axes --------------------------------------------------------------------------------------


def _legend(chart: Chart, width: float) -> tuple[list[Mark], float]:
    """List the lines, with their last values if the chart asks for them; return the height too."""
    marks: list[Mark] = []
    x, y = 0.0, 13.0
    for name, last, key in _entries(chart):
        wide_last = text_width(last)
        names = wrap(name, width - 24 - wide_last)
        if x and x + 24 + text_width(name) + wide_last > width:
            x, y = 0.0, y + 18
        marks.append(moved(key, x, y))
        for k, line in enumerate(names):
            marks.append(Text(x + 19, y + LINE * k, line, "start", role="tick"))
        y += LINE * (len(names) - 1)
        x += 19 + text_width(names[-1])
        if last:
            marks.append(Text(x + 5, y, last, "start", role="last"))
        x += (5 + wide_last if last else 0) + 14
    return marks, y + 5 if marks else 0


def _entries(chart: Chart) -> Iterator[tuple[str, str, Mark]]:
    """Yield what a legend says: a name, a last value, and a key that is drawn beside them.

    A baseline beyond the axis has an arrow in place of a dashed line. Rows name theirs elsewhere.
    """
    lines = [series for series in chart.series if series.points]
    alone = not chart.last and len(lines) == 1 and not lines[0].name
    for series in [] if alone else lines:
        last = number(series.points[-1][1], chart.percent) if chart.last else ""
        strength = 0.5 if series.faint else 1.0
        key: Mark = Line(KEY, role="swatch", tone=series.tone, strength=strength)
        if chart.rows:
            key = Dot(8, -4, 3.6, role="dot", tone=series.tone)
        yield series.name, last, key
    held = chart.values()
    for name, level in chart.baselines:
        if not name or not finite(level) or chart.rows:
            continue
        key = Line(KEY, role="baseline")
        if not min(held) <= level <= max(held):
            arrow = "\N{UPWARDS ARROW}" if level > max(held) else "\N{DOWNWARDS ARROW}"
            key = Text(7, 0, arrow, role="tick", title=f"{name} {exact(level, chart.percent)}")
        yield f"{name} {number(level, chart.percent)}", "", key


def _below(axis: Scale, ticks: Sequence[tuple[float, str]], base: float, title: str) -> list[Mark]:
    """Label the axis at the bottom; labels that would overlap the one before are left out."""
    edge = axis.stop + RIGHT
    marks: list[Mark] = []
    free = -math.inf
    for value, label in sorted(ticks):
        half = text_width(label) / 2
        x = max(min(axis.at(value), edge - half), half)
        if x - half >= free:
            free = x + half + 6
            marks.append(Text(x, base + 17, label, role="tick"))
    if title:
        half = text_width(title) / 2
        x = max(min((axis.start + axis.stop) / 2, edge - half), half)
        marks.append(Text(x, base + LABELS + 14, title, role="axistitle"))
    return marks


def _beside(title: str, top: float, base: float) -> tuple[list[Mark], float]:
    """Write the title of the upright axis, in lines of its length; return their width, too."""
    longest = max(map(text_width, title.split()), default=0.0)  # no word is broken
    lines = wrap(title, max(base - top, longest)) if title else []
    marks: list[Mark] = [
        Text(11 + LINE * i, (top + base) / 2, line, upright=True, role="axistitle")
        for i, line in enumerate(lines)
    ]
    return marks, LINE * len(lines) + 3 * bool(lines)


def _values_up(up: Scale, percent: bool, title: str, right: float) -> tuple[list[Mark], float]:
    """Draw the grid and labels of the axis of values; return where the values begin, too."""
    ticks = up.ticks(6)
    labels = [tick(value, percent, ticks if up.even else [value]) for value in ticks]
    marks, begin = _beside(title, up.stop, up.start)
    left = begin + max(map(text_width, labels), default=0) + 8
    for value, label in zip(ticks, labels, strict=True):
        y = up.at(value)
        marks.append(Line([(left, y), (right, y)], role="grid"))
        marks.append(Text(left - 7, y + 4, label, "end", role="tick"))
    return marks, left


def _rounded(axis: Scale) -> list[tuple[float, str]]:
    """Label the axis at the bottom with whole numbers, or with others where there are none."""
    ticks = axis.ticks(5)
    ticks = [value for value in ticks if float(value).is_integer()] or ticks
    return [(value, tick(value, False, ticks)) for value in ticks]


# --- lines -------------------------------------------------------------------------------------


def _lines(chart: Chart, width: float) -> Scene:
    """Lay out lines over an axis at the bottom."""
    lines = [series for series in chart.series if series.points]
    marks, top = _legend(chart, width)
    top += TOP
    base, right = top + _plot(width), width - RIGHT
    values = chart.values()
    log = not chart.percent and wide(values) if chart.log is None else chart.log
    up = Scale(values, base, top, pad=0.06, log=log)
    grid, left = _values_up(up, chart.percent, chart.y, right)
    places = [x for series in lines for x, _ in series.points]
    places += [] if chart.mark is None else [chart.mark]
    places += [x for x, _ in chart.ticks]  # a tick without a value yet has its place too
    across = Scale(places, left, right, pad=0.035 if chart.ticks else 0.0)
    marks += grid + _below(across, chart.ticks or _rounded(across), base, chart.x)
    if chart.mark is not None:
        x = across.at(chart.mark)
        marks.append(Line([(x, top), (x, base)], role="baseline"))
    marks.append(Line([(left, base), (right, base)], role="axis"))
    marks += [*_baselines(chart, up, left, right), *_whiskers(lines, across, up)]
    for series in sorted(lines, key=lambda series: not series.faint):  # faint lines below
        marks += _series(chart, series, across, up)
    height = base + LABELS + (TITLE if chart.x else 0)
    return Scene(width, height, marks, (left, top, right, base))


def _baselines(chart: Chart, up: Scale, left: float, right: float) -> Iterator[Mark]:
    """Draw dashed lines at the baselines that the axis holds; the legend names them."""
    held = chart.values()
    for name, level in chart.baselines:
        if finite(level) and min(held) <= level <= max(held):
            title = f"{name} {exact(level, chart.percent)}".strip()
            y = up.inside(level)
            yield Line([(left, y), (right, y)], role="baseline", title=title)


def _pieces(points: Points) -> Iterator[list[tuple[float, float]]]:
    """Yield stretches of points that have a place."""
    for known, piece in itertools.groupby(points, lambda point: finite(point[1])):
        if known:
            yield list(piece)


def _whiskers(lines: Sequence[Series], across: Scale, up: Scale) -> list[Mark]:
    """Draw the intervals of all lines; those of one place touch, so that none hides another."""
    places: dict[float, list[tuple[float, float, str]]] = defaultdict(list)
    for series in lines:
        for x, low, high in series.whiskers:
            if not math.isnan(low + high):
                places[x].append((up.inside(low), up.inside(high), series.tone))
    marks: list[Mark] = []
    for x, several in places.items():
        for i, (low, high, tone) in enumerate(several):
            at = across.at(x) + ASIDE * (i - (len(several) - 1) / 2)
            marks.append(Line([(at, low), (at, high)], role="whisker", tone=tone))
    return marks


def _series(chart: Chart, series: Series, across: Scale, up: Scale) -> list[Mark]:
    """Draw a line with its band and dots."""
    tone, hovers = series.tone, Hovers(chart, series)
    marks: list[Mark] = []

    def at(x: float, y: float) -> tuple[float, float]:  # intervals are cut where they leave it
        return across.at(x), up.inside(y)

    marks += [
        Dot(*at(x, y), 2, role="single", tone=tone, title=hovers.single(x, y))
        for x, y in series.dots
        if finite(y)
    ]
    low = thin([(x, low) for x, low, high in series.band if finite(low) and finite(high)])
    high = thin([(x, high) for x, low, high in series.band if finite(low) and finite(high)])
    if low:
        corners = [at(x, y) for x, y in [*low, *reversed(high)]]
        marks.append(Line(corners, role="band", tone=tone))
    points = thin(series.points)
    role = "faint" if series.faint else "line"
    for piece in _pieces(points):
        readings = [(hovers.place(x), hovers.value(x, y)) for x, y in piece]
        places = [at(x, y) for x, y in piece]
        marks.append(Line(places, readings, role=role, tone=tone, title=series.name))
    dotted = len(points) <= MARKED and not series.faint
    marks += [
        Dot(*at(x, y), 2.6, role="dot", tone=tone, title=hovers.point(x, y))
        for piece in _pieces(points)
        for x, y in piece
        if dotted or len(piece) == 1
    ]
    return marks


# --- rows --------------------------------------------------------------------------------------


def _rows(chart: Chart, width: float) -> Scene:
    """Lay out values to the right, one row for each point; the series of a row are stacked."""
    lines = [series for series in chart.series if series.points]
    marks, top = _legend(chart, width)
    top += TOP + LINE * any(label for label, _ in chart.baselines)
    title = "" if chart.x == "step" else chart.x
    names = [wrap(name, NAME if width >= WIDTH else SHORT) for name in chart.rows]
    heights = [max(ROW + EACH * len(lines), LINE * len(name) + 8) for name in names]
    tops = [top + sum(heights[:i]) for i in range(len(heights))]
    base = top + sum(heights)
    beside, begin = _beside(title, top, base)
    left = begin + max(text_width(line) for name in names for line in name) + 12
    right = width - RIGHT
    axis = Scale(chart.values(), left, right, pad=0.05)
    ticks = axis.ticks(5)
    for value in ticks:
        marks.append(Line([(axis.at(value), top), (axis.at(value), base)], role="grid"))
    marks += _below(axis, [(v, tick(v, chart.percent, ticks)) for v in ticks], base, chart.y)
    marks += beside
    held = chart.values()
    for label, value in chart.baselines:
        if not finite(value):
            continue
        x, said = axis.inside(value), f"{label} {exact(value, chart.percent)}".strip()
        text = f"{label} {number(value, chart.percent)}"
        if min(held) <= value <= max(held):
            marks.append(Line([(x, top), (x, base)], role="baseline", title=said))
        else:
            right_of = value > max(held)
            text += " \N{RIGHTWARDS ARROW}" if right_of else " \N{LEFTWARDS ARROW}"
        if label:
            half = text_width(text) / 2
            place = min(max(x, half), width - half)
            marks.append(Text(place, top - 5, text, role="tick", title=said))
    for first, height, name in zip(tops, heights, names, strict=True):
        marks += _named(name, left - 9, first + height / 2)
        marks.append(Line([(left, first + height), (right, first + height)], role="grid"))
    for i, series in enumerate(lines):
        shift = EACH * (i - (len(lines) - 1) / 2)
        middles = [first + height / 2 + shift for first, height in zip(tops, heights, strict=True)]
        marks += _dots(chart, series, axis, middles)
    return Scene(width, base + LABELS + (TITLE if chart.y else 0), marks)


def _named(lines: Sequence[str], x: float, middle: float) -> list[Mark]:
    """Write the name of a row to the left of `x`."""
    first = middle + 4 - LINE / 2 * (len(lines) - 1)
    return [Text(x, first + LINE * i, line, "end", role="name") for i, line in enumerate(lines)]


def _dots(chart: Chart, series: Series, axis: Scale, middles: Sequence[float]) -> list[Mark]:
    """Draw the intervals, single values and means of a series; `middles` are the rows' heights."""
    tone, hovers = series.tone, Hovers(chart, series)
    marks: list[Mark] = []
    for row, low, high in series.whiskers:
        if not math.isnan(low + high):
            y = middles[int(row)]
            ends = [(axis.inside(low), y), (axis.inside(high), y)]
            marks.append(Line(ends, role="whisker", tone=tone))
    kinds = (
        (series.dots, "single", 2.0, hovers.single),
        (series.points, "dot", 3.6, hovers.point),
    )
    for points, role, radius, said in kinds:
        for row, value in points:
            if finite(value):
                place = axis.at(value), middles[int(row)]
                marks.append(Dot(*place, radius, role=role, tone=tone, title=said(row, value)))
    return marks


# --- bars --------------------------------------------------------------------------------------


def _bars(figure: Bars, width: float) -> Scene:
    """Lay out bars that stand on the axis at the bottom."""
    top, base, right = TOP, TOP + _plot(width), width - RIGHT
    known = [bar for bar in figure.bars if finite(bar.value)]
    up = Scale([0.0, *(bar.value for bar in known)], base, top, pad=0.04)
    marks, left = _values_up(up, False, figure.y, right)
    across = Scale([end for bar in known for end in (bar.low, bar.high)], left, right, pad=0.02)
    ticks = across.ticks(6)
    labels = [(value, tick(value, False, ticks)) for value in ticks]
    marks += _below(across, labels, base, figure.x)
    for bar in known:
        x, y = across.at(bar.low), up.at(bar.value)
        zero, broad = up.at(0.0), max(across.at(bar.high) - x - 1, 0.5)
        place = (x, min(y, zero), broad, abs(zero - y))
        marks.append(Box(*place, role="bar", tone="c1", title=bar.text))
    marks.append(Line([(left, up.at(0.0)), (right, up.at(0.0))], role="axis"))
    return Scene(width, base + LABELS + (TITLE if figure.x else 0), marks)


# --- heat maps ---------------------------------------------------------------------------------


def _heat(heat: Heat, across: float) -> Scene | None:
    """Lay out a matrix as shaded cells with their numbers, shorter ones where it is slim."""
    if not any(finite(value) for row in heat.values for value in row):
        return None
    slim = across < WIDTH
    rows = [wrap(name, SHORT if slim else NAME) for name in heat.rows]
    columns = [wrap(name, WIDEST / 2 if slim else WIDEST) for name in heat.columns]
    texts = [_cell_text(value, heat.percent, slim) for row in heat.values for value in row]
    top = (TITLE if heat.x else 0) + LINE * max(map(len, columns)) + 5
    heights = [max(CELL, LINE * len(name) + 4) for name in rows]
    tops = [top + sum(heights[:i]) for i in range(len(heights))]
    base = top + sum(heights)
    marks, begin = _beside(heat.y, top, base)
    left = begin + max(text_width(line) for name in rows for line in name) + 12
    widest = max(map(text_width, [*texts, *(line for name in columns for line in name)]))
    width = max(widest + (4 if slim else 10), (across - left) / len(columns))
    end = left + width * len(columns)
    if heat.x:
        marks.append(Text((left + end) / 2, 13, heat.x, role="axistitle"))
    for j, name in enumerate(columns):
        for k, line in enumerate(reversed(name)):
            x, y = left + width * (j + 0.5), top - 6 - LINE * k
            marks.append(Text(x, y, line, role="name"))
    for i, (above, height, name) in enumerate(zip(tops, heights, rows, strict=True)):
        marks += _named(name, left - 8, above + height / 2)
        for j in range(len(columns)):
            marks += _cell(heat, i, j, (left + width * j, above, width, height), slim)
    return Scene(end, base + 4, marks)


def _cell(
    heat: Heat, i: int, j: int, place: tuple[float, float, float, float], slim: bool
) -> list[Mark]:
    """Draw a cell: its shade, its number, and a frame around the best."""
    x, y, width, height = place
    value, best = heat.values[i][j], (i, j) in heat.marks
    known = finite(value)
    said = exact(value, heat.percent) if known else "none"
    said = f"{heat.rows[i]}, {heat.columns[j]}: {said}"
    shade = max(min(heat.shades[i][j], 1.0), 0.0) if known else 0.0
    inside = (x + 1, y + 1, width - 2, height - 2)
    marks: list[Mark] = [Box(*inside, role="cell", title=said, strength=shade)]
    if best:
        marks.append(Box(x + 2, y + 2, width - 4, height - 4, role="best"))
    role = "strong" if best else "value" if known else "hole"
    text = _cell_text(value, heat.percent, slim)
    return [*marks, Text(x + width / 2, y + height / 2 + 4, text, role=role, title=said)]


def _cell_text(value: float, percent: bool, slim: bool) -> str:
    if not finite(value):
        return HOLE
    if percent or abs(value) < 0.1:
        text = number(value, percent)
        return text.removesuffix(f"{SPACE}%") if slim else text
    return f"{value:.{2 if slim else 3}f}"
