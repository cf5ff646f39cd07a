"""Dot plots, one row a point, and heat maps as inline HTML in the page's colours, without script.

`draw` draws any figure, line charts included.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from html import escape

from bert_jax.reporting import charts
from bert_jax.reporting.charts import TOP, WIDTH, Axis, Chart, Series, number

ROW, EACH, FOOT = 16, 15, 28  # heights of a row without dots, of each dot in it, and of the axis
LONGEST = 22  # characters in a line of a row's name
GLYPH = 6.6  # width of a character
HOLE = "\N{EN DASH}"


@dataclass(frozen=True)
class Heat:
    """Description of a heat map: a table of numbers with shades from 0 to 1; NaN is a hole."""

    title: str
    corner: str  # what the rows and the columns are
    rows: Sequence[str]
    columns: Sequence[str]
    values: Sequence[Sequence[float]]
    shades: Sequence[Sequence[float]]
    marks: Collection[tuple[int, int]] = ()  # the best cells
    percent: bool = False
    note: str = ""


Figure = Chart | Heat


def draw(figure: Figure) -> str:
    """Draw a figure of any kind; return an empty string if it has no values."""
    if isinstance(figure, Heat):
        return _heat(figure)
    return _sideways(figure) if figure.rows else charts.draw(figure)


def _heat(heat: Heat) -> str:
    if not any(math.isfinite(value) for row in heat.values for value in row):
        return ""
    head = "".join(f'<th class="n" scope="col">{escape(name)}</th>' for name in heat.columns)
    body = ""
    for i, name in enumerate(heat.rows):
        cells = "".join(_shaded(heat, i, j) for j in range(len(heat.columns)))
        body += f'<tr><th scope="row">{escape(name)}</th>{cells}</tr>'
    return (
        f'<figure class="chart heat"><figcaption>{escape(heat.title)}</figcaption>'
        f'<div class="scroll"><table><tr><th>{escape(heat.corner)}</th>{head}</tr>{body}</table>'
        f"</div>{charts.note(heat.note)}</figure>"
    )


def _shaded(heat: Heat, i: int, j: int) -> str:
    value, shade = heat.values[i][j], heat.shades[i][j]
    if not math.isfinite(value):
        return f'<td class="n hole">{HOLE}</td>'
    text = number(value, heat.percent) if heat.percent or abs(value) < 0.1 else f"{value:.3f}"
    kind = "n best" if (i, j) in heat.marks else "n"
    return f'<td class="{kind}" style="--v:{shade:.3f}">{text}</td>'


# --- dot plots ---------------------------------------------------------------------------------


def _sideways(chart: Chart) -> str:
    """Draw values to the right, one row for each point; the series of a row are stacked."""
    lines = [series for series in chart.series if series.points]
    if not lines:
        return ""
    names = [textwrap.wrap(name, LONGEST) or [""] for name in chart.rows]
    left = max(len(line) for name in names for line in name) * GLYPH + 14
    heights = [max(ROW + EACH * len(lines), 15 * len(name) + 8) for name in names]
    tops = [TOP + sum(heights[:i]) for i in range(len(heights))]
    base = TOP + sum(heights)
    axis = Axis(charts.y_range(chart), left, WIDTH - 14, pad=0.05)
    parts = _scale(chart, axis, base)
    for top, height, name in zip(tops, heights, names, strict=True):
        first = top + height / 2 + 4 - 7.5 * (len(name) - 1)
        for i, line in enumerate(name):
            place = f'x="{left - 10:.1f}" y="{first + 15 * i:.1f}" text-anchor="end"'
            parts.append(f"<text {place}>{escape(line)}</text>")
        ends = f'x1="{left:.1f}" x2="{WIDTH}" y1="{top + height}" y2="{top + height}"'
        parts.append(f'<line class="grid" {ends}/>')
    for i, series in enumerate(lines):
        shift = EACH * (i - (len(lines) - 1) / 2)
        middles = [top + height / 2 + shift for top, height in zip(tops, heights, strict=True)]
        parts += _dots(chart, series, axis, middles)
    title = escape(chart.title)
    return (
        f'<figure class="chart"><figcaption>{title}</figcaption>{charts.legend(chart, lines)}'
        f'<svg viewBox="0 0 {WIDTH} {base + FOOT}" role="img" aria-label="{title}">'
        f"{''.join(parts)}</svg>{charts.note(chart.note)}</figure>"
    )


def _scale(chart: Chart, axis: Axis, base: float) -> list[str]:
    """Draw the grid, the labels of the axis and the baselines."""
    parts, free = [], -math.inf
    ticks = axis.ticks(5)
    for tick in ticks:
        x, label = axis.at(tick), charts.short(tick, chart.percent, ticks)
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{base}"/>')
        half = GLYPH / 2 * len(label)
        if x - half >= free:
            free = x + half + 6
            place = f'x="{min(x, WIDTH - half):.1f}" y="{base + 18}" text-anchor="middle"'
            parts.append(f"<text {place}>{label}</text>")
    for _, value in chart.baselines:
        x = axis.at(value)
        parts.append(f'<line class="baseline" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{base}"/>')
    return parts


def _dots(chart: Chart, series: Series, axis: Axis, middles: Sequence[float]) -> list[str]:
    """Draw the intervals, single values and means of a series; `middles` are the rows' heights."""
    kind, parts = series.kind, []
    intervals = {row: (low, high) for row, low, high in series.whiskers}
    for row, interval in intervals.items():
        middle = f"{middles[int(row)]:.1f}"
        x1, x2 = (f"{min(max(axis.at(end), axis.start), axis.stop):.1f}" for end in interval)
        place = f'x1="{x1}" x2="{x2}" y1="{middle}" y2="{middle}"'
        parts.append(f'<line class="whisker {kind}" {place}/>')
    for row, value in series.dots:
        x, y = axis.at(value), middles[int(row)]
        parts.append(f'<circle class="{kind} one" cx="{x:.1f}" cy="{y:.1f}" r="2"/>')
    for row, value in series.points:
        text = f"{series.name} {number(value, chart.percent)}".strip()
        if row in intervals:
            low, high = (number(end, chart.percent) for end in intervals[row])
            text += f" ({low} to {high})"
        place = f'cx="{axis.at(value):.1f}" cy="{middles[int(row)]:.1f}" r="3.6"'
        parts.append(f'<circle class="{kind}" {place}><title>{escape(text)}</title></circle>')
    return parts
