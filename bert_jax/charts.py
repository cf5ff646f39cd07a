"""Line charts as inline SVG: no script is needed to read them, and colours follow the page's theme."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

Points = Sequence[tuple[float, float]]

WIDTH, HEIGHT = 460, 250
LEFT, RIGHT, TOP, BOTTOM = 52, 12, 10, 28
SPACE = "\N{NO-BREAK SPACE}"
MOST = 300  # points a drawn line has at most


@dataclass(frozen=True)
class Series:
    """One line; `faint` for what is noisy, `band` for an interval around it."""

    name: str
    points: Points
    colour: int = 1  # 1 to 5, of the page's palette
    faint: bool = False
    band: Sequence[tuple[float, float, float]] = ()  # (x, low, high)


@dataclass(frozen=True)
class Chart:
    """Lines over steps, with dashed horizontal baselines."""

    title: str
    series: Sequence[Series]
    baselines: Sequence[tuple[str, float]] = field(default=())
    percent: bool = False
    zero: bool = False  # the axis starts at 0


def draw(chart: Chart) -> str:
    """One `<figure>`; nothing where no line has a point."""
    lines = [s for s in chart.series if s.points]
    if not lines:
        return ""
    values = [y for s in lines for _, y in s.points] + [v for _, v in chart.baselines]
    values += [edge for s in lines for _, low, high in s.band for edge in (low, high)]
    values += [0.0] if chart.zero else []
    steps = [x for s in lines for x, _ in s.points]
    log = not chart.percent and min(values) > 0 and max(values) / min(values) > 100
    x_axis, y_axis = Axis(steps, LEFT, WIDTH - RIGHT, pad=0.0), Axis(values, HEIGHT - BOTTOM, TOP, pad=0.06, log=log)
    dashes, labels = _baselines(chart, y_axis)
    return (
        f'<figure class="chart" data-x="{x_axis.data()}" data-y="{y_axis.data()}" data-percent="{int(chart.percent)}">'
        f"<figcaption>{escape(chart.title)}</figcaption>{_legend(chart, lines)}"
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(chart.title)} over steps">'
        f"{_grid(x_axis, y_axis, chart.percent)}{''.join(dashes)}"
        f"{''.join(_line(s, x_axis, y_axis) for s in sorted(lines, key=lambda s: not s.faint))}"
        f"{''.join(labels)}</svg></figure>"
    )


def number(value: float, percent: bool = False) -> str:
    """A number as a person writes it: 1,234,567; 12.3; 0.0123; 1.2e-05; 45.6 %."""
    if percent:
        return f"{100 * value:.{1 if abs(value) >= 0.001 or value == 0 else 3}f}{SPACE}%"
    size = abs(value)
    if size >= 1000 or (float(value).is_integer() and size < 1e15):
        return f"{value:,.0f}"
    if size >= 100:
        return f"{value:.1f}"
    return f"{value:.2f}" if size >= 10 else f"{value:.3f}" if size >= 0.1 else f"{value:.3g}"


def thin(points: Points, most: int = MOST) -> list[tuple[float, float]]:
    """At most `most` points: means of equal runs of neighbours, first and last point as they are."""
    if len(points) <= most:
        return list(points)
    inner, runs = points[1:-1], most - 2
    edges = [len(inner) * i // runs for i in range(runs + 1)]
    means = [
        (sum(x for x, _ in inner[a:b]) / (b - a), sum(y for _, y in inner[a:b]) / (b - a))
        for a, b in itertools.pairwise(edges)
    ]
    return [points[0], *means, points[-1]]


class Axis:
    """Values to picture coordinates, linear or logarithmic."""

    def __init__(self, values: Sequence[float], start: float, stop: float, pad: float, log: bool = False):
        self.log, self.start, self.stop = log, start, stop
        low, high = self._scale(min(values)), self._scale(max(values))
        if high - low <= 1e-9 * max(abs(low), abs(high)):  # a constant gets room around it
            low, high = low - (abs(low) * 0.1 or 0.5), high + (abs(high) * 0.1 or 0.5)
        self.low, self.high = low - pad * (high - low), high + pad * (high - low)
        if not log and min(values) >= 0:
            self.low = max(self.low, 0.0)

    def _scale(self, value: float) -> float:
        return math.log10(value) if self.log else float(value)

    def at(self, value: float) -> float:
        """Where `value` lies."""
        return self.start + (self._scale(value) - self.low) / (self.high - self.low) * (self.stop - self.start)

    def ticks(self, count: int) -> list[float]:
        """About `count` round values inside the axis."""
        if self.log:
            powers = [10.0**p for p in range(math.ceil(self.low), math.floor(self.high) + 1)]
            return powers[:: max(1, math.ceil(len(powers) / count))]
        raw = (self.high - self.low) / count
        base = 10.0 ** math.floor(math.log10(raw))
        step = base * next(m for m in (1, 2, 2.5, 5, 10) if m * base >= raw * 0.999)
        first = math.ceil(self.low / step - 1e-9)
        return [i * step for i in range(first, math.floor(self.high / step + 1e-9) + 1)]

    def data(self) -> str:
        """What the page's script needs to read a value off the picture."""
        return f"{self.low:.8g} {self.high:.8g} {self.start} {self.stop} {int(self.log)}"


def _short(value: float, percent: bool, ticks: Sequence[float]) -> str:
    """A tick's label, with as many places as its neighbours need."""
    if percent:
        value, ticks = 100 * value, [100 * t for t in ticks]
    gap = min((b - a for a, b in itertools.pairwise(ticks)), default=abs(value) or 1.0)
    for size, mark in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if max(map(abs, ticks)) >= max(size, 1e4):
            return f"{value / size:.3g}{mark}" if value else "0"
    if 0 < max(map(abs, ticks)) < 1e-2:
        return f"{value:.3g}".replace("e-0", "e-") if value else "0"
    places = max(0, -math.floor(math.log10(gap) + 1e-9)) if gap else 0
    if gap and abs(round(gap, places) - gap) > 1e-9 * gap:
        places += 1  # steps of 2.5
    return f"{value:,.{places}f}{' %' if percent else ''}"


def _grid(x_axis: Axis, y_axis: Axis, percent: bool) -> str:
    parts = []
    ticks = y_axis.ticks(6)
    for tick in ticks:
        y = y_axis.at(tick)
        label = f"{tick:.4g}" if y_axis.log else _short(tick, percent, ticks)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{LEFT - 7}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
    ticks = [t for t in x_axis.ticks(5) if float(t).is_integer()]
    for tick in ticks:
        x = x_axis.at(tick)
        anchor = "end" if x > WIDTH - RIGHT - 14 else "middle"
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - 8}" text-anchor="{anchor}">{_short(tick, False, ticks)}</text>')
    base = HEIGHT - BOTTOM
    return "".join(parts) + f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{base}" y2="{base}"/>'


def _baselines(chart: Chart, y_axis: Axis) -> tuple[list[str], list[str]]:
    """Dashed lines, to lie below the curves, and their labels, to lie above them."""
    dashes, labels = [], []
    taken: list[float] = []
    for name, value in chart.baselines:
        y = y_axis.at(value)
        dashes.append(f'<line class="baseline" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        above = y > TOP + 16 and all(abs(y - 5 - other) > 13 for other in taken)
        taken.append(y - 5 if above else y + 14)
        text = f"{escape(name)} {number(value, chart.percent)}"
        place = f'x="{WIDTH - RIGHT - 2}" y="{taken[-1]:.1f}" text-anchor="end"'
        labels.append(f'<text class="halo" {place}>{text}</text>')
    return dashes, labels


def _line(series: Series, x_axis: Axis, y_axis: Axis) -> str:
    points = thin(series.points)
    text = " ".join(f"{x_axis.at(x):.1f},{y_axis.at(y):.1f}" for x, y in points)
    kind = f"c{series.colour}{' faint' if series.faint else ''}"
    drawn = f'<polyline class="{kind}" data-name="{escape(series.name)}" points="{text}"/>'
    if len(points) == 1 or (len(points) <= 25 and not series.faint):
        drawn += "".join(
            f'<circle class="{kind}" cx="{x_axis.at(x):.1f}" cy="{y_axis.at(y):.1f}" r="2.6"/>' for x, y in points
        )
    if series.band:
        low = [f"{x_axis.at(x):.1f},{y_axis.at(a):.1f}" for x, a in thin([(x, a) for x, a, _ in series.band])]
        high = [f"{x_axis.at(x):.1f},{y_axis.at(b):.1f}" for x, b in thin([(x, b) for x, _, b in series.band])]
        drawn = f'<polygon class="{kind}" points="{" ".join([*low, *reversed(high)])}"/>' + drawn
    return drawn


def _legend(chart: Chart, lines: Sequence[Series]) -> str:
    items = (
        f'<span><i class="c{s.colour}{" faint" if s.faint else ""}"></i>{escape(s.name)} '
        f"<b>{number(s.points[-1][1], chart.percent)}</b></span>"
        for s in lines
    )
    return f'<div class="legend">{"".join(items)}</div>'
