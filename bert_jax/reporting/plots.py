"""Figures that are no lines: dot plots, one row a point, and heat maps; inline, in the page's colours, no script."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from html import escape

from bert_jax.reporting import charts
from bert_jax.reporting.charts import TOP, WIDTH, Axis, Chart, Series, number

ROW, EACH, FOOT = 16, 15, 28  # heights: of a row without its dots, of each of them, of the axis
LONGEST = 22  # characters of a line of a row's name
GLYPH = 6.6  # width of a character
HOLE = "\N{EN DASH}"


@dataclass(frozen=True)
class Heat:
    """A table of numbers, shaded from 0 to 1; NaN is a hole."""

    title: str
    corner: str  # what the rows are, and the columns
    rows: Sequence[str]
    columns: Sequence[str]
    values: Sequence[Sequence[float]]
    shades: Sequence[Sequence[float]]
    marks: Collection[tuple[int, int]] = ()
    percent: bool = False
    note: str = ""


Figure = Chart | Heat


def draw(figure: Figure) -> str:
    """Any figure; nothing where there is nothing to show."""
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
        f'<figure class="chart heat"><figcaption>{escape(heat.title)}</figcaption><div class="scroll">'
        f"<table><tr><th>{escape(heat.corner)}</th>{head}</tr>{body}</table></div>{charts.note(heat.note)}</figure>"
    )


def _shaded(heat: Heat, i: int, j: int) -> str:
    value, shade = heat.values[i][j], heat.shades[i][j]
    if not math.isfinite(value):
        return f'<td class="n hole">{HOLE}</td>'
    text = number(value, heat.percent) if heat.percent or abs(value) < 0.1 else f"{value:.3f}"
    kind = "n best" if (i, j) in heat.marks else "n"
    return f'<td class="{kind}" style="--v:{shade:.3f}">{text}</td>'


def _sideways(chart: Chart) -> str:
    """Values to the right, one row for each point; series of a row stand below each other."""
    lines = [s for s in chart.series if s.points]
    if not lines:
        return ""
    names = [textwrap.wrap(name, LONGEST) or [""] for name in chart.rows]
    left = max(len(line) for name in names for line in name) * GLYPH + 14
    height = ROW + EACH * len(lines)
    heights = [max(height, 15 * len(name) + 8) for name in names]
    tops = [TOP + sum(heights[:i]) for i in range(len(heights))]
    base = TOP + sum(heights)
    axis = Axis(charts.y_range(chart), left, WIDTH - 14, pad=0.05)
    parts = _scale(chart, axis, base)
    for top, tall, name in zip(tops, heights, names, strict=True):
        first = top + tall / 2 + 4 - 7.5 * (len(name) - 1)
        parts += [
            f'<text x="{left - 10:.1f}" y="{first + 15 * i:.1f}" text-anchor="end">{escape(line)}</text>'
            for i, line in enumerate(name)
        ]
        parts.append(
            f'<line class="grid" x1="{left:.1f}" x2="{WIDTH}" y1="{top + tall}" y2="{top + tall}"/>'
        )
    for number_, series in enumerate(lines):
        aside = EACH * (number_ - (len(lines) - 1) / 2)
        parts.append(
            _dots(
                chart, series, axis, [t + h / 2 + aside for t, h in zip(tops, heights, strict=True)]
            )
        )
    return (
        f'<figure class="chart"><figcaption>{escape(chart.title)}</figcaption>{charts.legend(chart, lines)}'
        f'<svg viewBox="0 0 {WIDTH} {base + FOOT}" role="img" aria-label="{escape(chart.title)}">{"".join(parts)}</svg>'
        f"{charts.note(chart.note)}</figure>"
    )


def _scale(chart: Chart, axis: Axis, base: float) -> list[str]:
    parts, free = [], -math.inf
    ticks = axis.ticks(5)
    for tick in ticks:
        x, label = axis.at(tick), charts.short(tick, chart.percent, ticks)
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{base}"/>')
        half = GLYPH / 2 * len(label)
        if x - half >= free:
            free = x + half + 6
            parts.append(
                f'<text x="{min(x, WIDTH - half):.1f}" y="{base + 18}" text-anchor="middle">{label}</text>'
            )
    for _, value in chart.baselines:
        x = axis.at(value)
        parts.append(f'<line class="baseline" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{base}"/>')
    return parts


def _dots(chart: Chart, series: Series, axis: Axis, heights: Sequence[float]) -> str:
    left, right, kind = axis.start, axis.stop, series.kind
    parts = []
    for row, low, high in series.whiskers:
        y, ends = (
            heights[int(row)],
            [min(max(axis.at(value), left), right) for value in (low, high)],
        )
        parts.append(
            f'<line class="whisker {kind}" x1="{ends[0]:.1f}" x2="{ends[1]:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>'
        )
    for row, value in series.dots:
        x, y = axis.at(value), heights[int(row)]
        parts.append(f'<circle class="{kind} one" cx="{x:.1f}" cy="{y:.1f}" r="2"/>')
    ends_of = {row: (low, high) for row, low, high in series.whiskers}
    for row, value in series.points:
        said = f"{series.name} {number(value, chart.percent)}".strip()
        if row in ends_of:
            said += " ({} to {})".format(*(number(end, chart.percent) for end in ends_of[row]))
        place = f'cx="{axis.at(value):.1f}" cy="{heights[int(row)]:.1f}" r="3.6"'
        parts.append(f'<circle class="{kind}" {place}><title>{escape(said)}</title></circle>')
    return "".join(parts)
