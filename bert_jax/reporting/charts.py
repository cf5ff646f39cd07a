"""Line charts as inline SVG: readable without a script, in the colours of the page's theme."""

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
LONG = 3  # an interval longer than so many medians is cut at the axis
MOST = 300  # points of a drawn line


@dataclass(frozen=True)
class Series:
    """Line of a chart: values, intervals (`band` or `whiskers`), and the values they average."""

    name: str
    points: Points
    colour: int | str = 1  # 1 to 5 of the page's palette, or the CSS class of a tone
    faint: bool = False  # for noisy values
    band: Sequence[tuple[float, float, float]] = ()  # (x, low, high)
    whiskers: Sequence[tuple[float, float, float]] = ()
    dots: Points = ()  # the single values that a point is the mean of

    @property
    def kind(self) -> str:
        """Return the CSS classes of the line."""
        tone = f"c{self.colour}" if isinstance(self.colour, int) else self.colour
        return f"{tone} faint" if self.faint else tone


@dataclass(frozen=True)
class Chart:
    """Description of a figure: lines over `x`, dashed horizontal baselines and a vertical mark."""

    title: str
    series: Sequence[Series]
    baselines: Sequence[tuple[str, float]] = field(default=())
    percent: bool = False
    zero: bool = False  # whether the axis of values starts at 0
    x: str = "step"
    ticks: Sequence[tuple[float, str]] = ()  # places and labels on the x axis; else round numbers
    rows: Sequence[str] = ()  # names of rows; then values go to the right and x counts the rows
    last: bool = True  # whether the legend shows the last value of each line
    mark: float | None = None
    note: str = ""


def draw(chart: Chart) -> str:
    """Draw a `<figure>`; return an empty string if no line has a point."""
    lines = [series for series in chart.series if series.points]
    if not lines:
        return ""
    values = y_range(chart)
    places = [x for series in lines for x, _ in series.points]
    places += [] if chart.mark is None else [chart.mark]
    places += [x for x, _ in chart.ticks]  # a tick without a value yet has its place too
    log = not chart.percent and min(values) > 0 and max(values) / min(values) > 100
    x_axis = Axis(places, LEFT, WIDTH - RIGHT, pad=0.035 if chart.ticks else 0.0)
    y_axis = Axis(values, HEIGHT - BOTTOM, TOP, pad=0.06, log=log)
    dashes, labels = _baselines(chart, y_axis)
    middle = (len(lines) - 1) / 2  # lines with whiskers stand side by side
    drawn = [
        (series.faint, _line(series, x_axis, y_axis, 5 * (i - middle) * bool(series.whiskers)))
        for i, series in enumerate(lines)
    ]
    drawn.sort(key=lambda pair: not pair[0])  # faint lines below
    name = escape(f"{chart.title} over {chart.x}")
    return (
        f'<figure class="chart" data-x="{x_axis.data()}" data-y="{y_axis.data()}" '
        f'data-percent="{int(chart.percent)}"{_read_off(chart, x_axis)}>'
        f"<figcaption>{escape(chart.title)}</figcaption>{legend(chart, lines)}"
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{name}">'
        f"{_grid(chart, x_axis, y_axis)}{''.join(dashes)}{''.join(text for _, text in drawn)}"
        f"{''.join(labels)}</svg>{note(chart.note)}</figure>"
    )


def y_range(chart: Chart) -> list[float]:
    """Return the values the axis must hold; of unusually long intervals only a part."""
    points = [y for series in chart.series for _, y in (*series.points, *series.dots)]
    points += [value for _, value in chart.baselines]
    points += [0.0] if chart.zero else []
    intervals = [
        (low, high)
        for series in chart.series
        for _, low, high in (*series.band, *series.whiskers)
        if math.isfinite(low + high)
    ]
    halves = sorted((high - low) / 2 for low, high in intervals)
    most = LONG * halves[len(halves) // 2] if halves else 0.0
    middles = [((low + high) / 2, min((high - low) / 2, most)) for low, high in intervals]
    return points + [middle + sign * half for middle, half in middles for sign in (-1, 1)]


def note(text: str) -> str:
    """Format the explanation below a figure."""
    return f'<p class="note">{escape(text)}</p>' if text else ""


def number(value: float, percent: bool = False) -> str:
    """Format a number for people: 1,234,567; 12.3; 0.0123; 1.2e-05; 45.6 %."""
    if percent:
        return f"{100 * value:.{1 if abs(value) >= 0.001 or value == 0 else 3}f}{SPACE}%"
    size = abs(value)
    if size >= 1000 or (float(value).is_integer() and size < 1e15):
        return f"{value:,.0f}"
    if size >= 100:
        return f"{value:.1f}"
    return f"{value:.2f}" if size >= 10 else f"{value:.3f}" if size >= 0.1 else f"{value:.3g}"


def thin(points: Points, most: int = MOST) -> list[tuple[float, float]]:
    """Reduce points to at most `most`: the first, means of equal stretches, and the last."""
    if len(points) <= most:
        return list(points)
    inner, stretches = points[1:-1], most - 2
    edges = [len(inner) * i // stretches for i in range(stretches + 1)]
    means = [
        (sum(x for x, _ in inner[a:b]) / (b - a), sum(y for _, y in inner[a:b]) / (b - a))
        for a, b in itertools.pairwise(edges)
    ]
    return [points[0], *means, points[-1]]


class Axis:
    """Linear or logarithmic map from values to coordinates of the picture."""

    def __init__(
        self, values: Sequence[float], start: float, stop: float, pad: float, log: bool = False
    ):
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
        """Return the coordinate of `value`."""
        share = (self._scale(value) - self.low) / (self.high - self.low)
        return self.start + share * (self.stop - self.start)

    def ticks(self, count: int) -> list[float]:
        """Return about `count` round values inside the axis."""
        if self.log:
            powers = [10.0**p for p in range(math.ceil(self.low), math.floor(self.high) + 1)]
            return powers[:: max(1, math.ceil(len(powers) / count))]
        raw = (self.high - self.low) / count
        base = 10.0 ** math.floor(math.log10(raw))
        step = base * next(m for m in (1, 2, 2.5, 5, 10) if m * base >= raw * 0.999)
        first = math.ceil(self.low / step - 1e-9)
        return [i * step for i in range(first, math.floor(self.high / step + 1e-9) + 1)]

    def data(self) -> str:
        """Format what the page's script needs to turn coordinates back into values."""
        return f"{self.low:.8g} {self.high:.8g} {self.start} {self.stop} {int(self.log)}"


def short(value: float, percent: bool, ticks: Sequence[float]) -> str:
    """Format the label of a tick, with as many decimals as its neighbours need."""
    if percent:
        value, ticks = 100 * value, [100 * t for t in ticks]
    gap = min((b - a for a, b in itertools.pairwise(ticks)), default=abs(value) or 1.0)
    for size, mark in ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if max(map(abs, ticks)) >= max(size, 1e4):
            return f"{value / size:.3g}{mark}" if value else "0"
    if 0 < max(map(abs, ticks)) < 1e-2:
        return f"{value:.3g}".replace("e-0", "e-") if value else "0"
    decimals = max(0, -math.floor(math.log10(gap) + 1e-9)) if gap else 0
    if gap and abs(round(gap, decimals) - gap) > 1e-9 * gap:
        decimals += 1  # steps of 2.5
    return f"{value:,.{decimals}f}{' %' if percent else ''}"


def legend(chart: Chart, lines: Sequence[Series]) -> str:
    """List the names of the lines, with their last values if the chart asks for them."""
    if not chart.last and len(lines) == 1 and not lines[0].name:
        return ""

    def entry(series: Series) -> str:
        last = f" <b>{number(series.points[-1][1], chart.percent)}</b>" if chart.last else ""
        return f'<span><i class="{series.kind}"></i>{escape(series.name)}{last}</span>'

    return f'<div class="legend">{"".join(map(entry, lines))}</div>'


# --- parts of the picture ----------------------------------------------------------------------


def _grid(chart: Chart, x_axis: Axis, y_axis: Axis) -> str:
    """Draw the grid, both axes with their labels, and the vertical mark."""
    parts = []
    ticks = y_axis.ticks(6)
    for tick in ticks:
        y = f"{y_axis.at(tick):.1f}"
        label = f"{tick:.4g}" if y_axis.log else short(tick, chart.percent, ticks)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>')
        y = f"{y_axis.at(tick) + 4:.1f}"
        parts.append(f'<text x="{LEFT - 7}" y="{y}" text-anchor="end">{label}</text>')
    whole = [tick for tick in x_axis.ticks(5) if float(tick).is_integer()]
    free = -math.inf  # where the next label may begin
    for tick, label in sorted(chart.ticks) or [(t, short(t, False, whole)) for t in whole]:
        x, half = x_axis.at(tick), 3.4 * len(label)
        if x - half < free:
            continue
        free = x + half + 4
        anchor = "end" if x + half > WIDTH else "middle"
        place = f'x="{x:.1f}" y="{HEIGHT - 8}" text-anchor="{anchor}"'
        parts.append(f"<text {place}>{escape(label)}</text>")
    base = HEIGHT - BOTTOM
    if chart.mark is not None:
        ends = f'x1="{x_axis.at(chart.mark):.1f}" x2="{x_axis.at(chart.mark):.1f}"'
        parts.append(f'<line class="baseline" {ends} y1="{TOP}" y2="{base}"/>')
    parts.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{base}" y2="{base}"/>')
    return "".join(parts)


def _read_off(chart: Chart, x_axis: Axis) -> str:
    """Name the places on the x axis for the page's script, unless they are steps."""
    if chart.x == "step":
        return ""
    labels = "|".join(f"{x_axis.at(tick):.1f} {label}" for tick, label in chart.ticks)
    return f' data-of="{escape(chart.x)}" data-ticks="{escape(labels)}"'


def _baselines(chart: Chart, y_axis: Axis) -> tuple[list[str], list[str]]:
    """Draw dashed lines, which lie below the curves, and their labels, which lie above them."""
    dashes, labels = [], []
    taken: list[float] = []
    for name, value in chart.baselines:
        y = y_axis.at(value)
        ends = f'x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"'
        dashes.append(f'<line class="baseline" {ends}/>')
        above = y > TOP + 16 and all(abs(y - 5 - other) > 13 for other in taken)
        taken.append(y - 5 if above else y + 14)
        text = f"{escape(name)} {number(value, chart.percent)}" if name else ""
        place = f'x="{WIDTH - RIGHT - 2}" y="{taken[-1]:.1f}" text-anchor="end"'
        labels.append(f'<text class="halo" {place}>{text}</text>')
    return dashes, labels


def _line(series: Series, x_axis: Axis, y_axis: Axis, shift: float) -> str:
    """Draw a line with its intervals and dots, moved to the right by `shift`."""

    def inside(y: float) -> float:  # intervals are cut where they leave the axis
        return min(max(y_axis.at(y), TOP), HEIGHT - BOTTOM)

    def at(x: float, y: float) -> str:
        return f"{x_axis.at(x) + shift:.1f},{inside(y):.1f}"

    def dot(kind: str, x: float, y: float, radius: float) -> str:
        x, y = x_axis.at(x) + shift, y_axis.at(y)
        return f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}"/>'

    points, kind = thin(series.points), series.kind
    parts = [dot(f"{kind} one", x, y, 2) for x, y in series.dots]
    if series.band:
        low = [at(x, y) for x, y in thin([(x, low) for x, low, _ in series.band])]
        high = [at(x, y) for x, y in thin([(x, high) for x, _, high in series.band])]
        parts.append(f'<polygon class="{kind}" points="{" ".join([*low, *reversed(high)])}"/>')
    text = " ".join(at(x, y) for x, y in points)
    parts.append(f'<polyline class="{kind}" data-name="{escape(series.name)}" points="{text}"/>')
    if len(points) == 1 or (len(points) <= 25 and not series.faint):
        parts += [dot(kind, x, y, 2.6) for x, y in points]
    for x, low_end, high_end in series.whiskers:
        place = f"{x_axis.at(x) + shift:.1f}"
        ends = f'y1="{inside(low_end):.1f}" y2="{inside(high_end):.1f}"'
        parts.append(f'<line class="whisker {kind}" x1="{place}" x2="{place}" {ends}/>')
    return "".join(parts)
