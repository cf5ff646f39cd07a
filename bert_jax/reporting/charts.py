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
LONG = 3  # times the median, an interval is drawn whole
MOST = 300  # points a drawn line has at most


@dataclass(frozen=True)
class Series:
    """One line; `faint` where it is noisy, `band` or `whiskers` for its interval, `dots` for what it averages."""

    name: str
    points: Points
    colour: int | str = 1  # 1 to 5, of the page's palette, or the class of a tone
    faint: bool = False
    band: Sequence[tuple[float, float, float]] = ()  # (x, low, high)
    whiskers: Sequence[tuple[float, float, float]] = ()
    dots: Points = ()

    @property
    def kind(self) -> str:
        """Its classes on the page."""
        tone = f"c{self.colour}" if isinstance(self.colour, int) else self.colour
        return f"{tone} faint" if self.faint else tone


@dataclass(frozen=True)
class Chart:
    """Lines over steps, or over what `x` says, with dashed horizontal baselines and a vertical mark."""

    title: str
    series: Sequence[Series]
    baselines: Sequence[tuple[str, float]] = field(default=())
    percent: bool = False
    zero: bool = False  # the axis starts at 0
    x: str = "step"
    ticks: Sequence[tuple[float, str]] = ()  # of x, where it has points of its own
    rows: Sequence[str] = ()  # drawn sideways by `plots.py`: x counts these from 0
    last: bool = True  # the legend tells the last value
    mark: float | None = None
    note: str = ""


def draw(chart: Chart) -> str:
    """One `<figure>`; nothing where no line has a point."""
    lines = [s for s in chart.series if s.points]
    if not lines:
        return ""
    values = y_range(chart)
    steps = [x for s in lines for x, _ in s.points] + (
        [chart.mark] if chart.mark is not None else []
    )
    steps += [x for x, _ in chart.ticks]  # also of what has no value yet
    log = not chart.percent and min(values) > 0 and max(values) / min(values) > 100
    x_axis = Axis(steps, LEFT, WIDTH - RIGHT, pad=0.035 if chart.ticks else 0.0)
    y_axis = Axis(values, HEIGHT - BOTTOM, TOP, pad=0.06, log=log)
    dashes, labels = _baselines(chart, y_axis)
    middle = (len(lines) - 1) / 2  # lines with whiskers stand beside each other
    drawn = [
        (s, _line(s, x_axis, y_axis, 5 * (i - middle) * bool(s.whiskers)))
        for i, s in enumerate(lines)
    ]
    return (
        f'<figure class="chart" data-x="{x_axis.data()}" data-y="{y_axis.data()}" data-percent="{int(chart.percent)}"'
        f"{_read_off(chart, x_axis)}><figcaption>{escape(chart.title)}</figcaption>{legend(chart, lines)}"
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(f"{chart.title} over {chart.x}")}">'
        f"{_grid(chart, x_axis, y_axis)}{''.join(dashes)}"
        f"{''.join(text for _, text in sorted(drawn, key=lambda pair: not pair[0].faint))}"
        f"{''.join(labels)}</svg>{note(chart.note)}</figure>"
    )


def y_range(chart: Chart) -> list[float]:
    """What the axis of values has to hold: of intervals that are much longer than most, only a part."""
    points = [y for s in chart.series for _, y in (*s.points, *s.dots)] + [
        v for _, v in chart.baselines
    ]
    points += [0.0] if chart.zero else []
    intervals = [(low, high) for s in chart.series for _, low, high in (*s.band, *s.whiskers)]
    intervals = [(low, high) for low, high in intervals if math.isfinite(low + high)]
    halves = sorted((high - low) / 2 for low, high in intervals)
    most = LONG * halves[len(halves) // 2] if halves else 0.0
    middles = [((low + high) / 2, min((high - low) / 2, most)) for low, high in intervals]
    return points + [middle + way * half for middle, half in middles for way in (-1, 1)]


def note(text: str) -> str:
    """What is said below a figure."""
    return f'<p class="note">{escape(text)}</p>' if text else ""


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
        """Where `value` lies."""
        return self.start + (self._scale(value) - self.low) / (self.high - self.low) * (
            self.stop - self.start
        )

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


def short(value: float, percent: bool, ticks: Sequence[float]) -> str:
    """A tick's label, with as many places as its neighbours need."""
    if percent:
        value, ticks = 100 * value, [100 * t for t in ticks]
    gap = min((b - a for a, b in itertools.pairwise(ticks)), default=abs(value) or 1.0)
    for size, mark in ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if max(map(abs, ticks)) >= max(size, 1e4):
            return f"{value / size:.3g}{mark}" if value else "0"
    if 0 < max(map(abs, ticks)) < 1e-2:
        return f"{value:.3g}".replace("e-0", "e-") if value else "0"
    places = max(0, -math.floor(math.log10(gap) + 1e-9)) if gap else 0
    if gap and abs(round(gap, places) - gap) > 1e-9 * gap:
        places += 1  # steps of 2.5
    return f"{value:,.{places}f}{' %' if percent else ''}"


def _grid(chart: Chart, x_axis: Axis, y_axis: Axis) -> str:
    parts = []
    ticks = y_axis.ticks(6)
    for tick in ticks:
        y = y_axis.at(tick)
        label = f"{tick:.4g}" if y_axis.log else short(tick, chart.percent, ticks)
        parts.append(
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        )
        parts.append(f'<text x="{LEFT - 7}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
    whole = [t for t in x_axis.ticks(5) if float(t).is_integer()]
    free = -math.inf
    for tick, label in sorted(chart.ticks) or [(t, short(t, False, whole)) for t in whole]:
        x, half = x_axis.at(tick), 3.4 * len(label)
        if x - half < free:
            continue
        free = x + half + 4
        anchor = "end" if x + half > WIDTH else "middle"
        parts.append(
            f'<text x="{x:.1f}" y="{HEIGHT - 8}" text-anchor="{anchor}">{escape(label)}</text>'
        )
    if chart.mark is not None:
        at = f'x1="{x_axis.at(chart.mark):.1f}" x2="{x_axis.at(chart.mark):.1f}"'
        parts.append(f'<line class="baseline" {at} y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>')
    base = HEIGHT - BOTTOM
    return (
        "".join(parts)
        + f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{base}" y2="{base}"/>'
    )


def _read_off(chart: Chart, x_axis: Axis) -> str:
    """What the page's script calls a place on the x axis, where that is not a step."""
    if chart.x == "step":
        return ""
    labels = "|".join(f"{x_axis.at(tick):.1f} {label}" for tick, label in chart.ticks)
    return f' data-of="{escape(chart.x)}" data-ticks="{escape(labels)}"'


def _baselines(chart: Chart, y_axis: Axis) -> tuple[list[str], list[str]]:
    """Dashed lines, to lie below the curves, and their labels, to lie above them."""
    dashes, labels = [], []
    taken: list[float] = []
    for name, value in chart.baselines:
        y = y_axis.at(value)
        dashes.append(
            f'<line class="baseline" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        )
        above = y > TOP + 16 and all(abs(y - 5 - other) > 13 for other in taken)
        taken.append(y - 5 if above else y + 14)
        text = f"{escape(name)} {number(value, chart.percent)}" if name else ""
        place = f'x="{WIDTH - RIGHT - 2}" y="{taken[-1]:.1f}" text-anchor="end"'
        labels.append(f'<text class="halo" {place}>{text}</text>')
    return dashes, labels


def _line(series: Series, x_axis: Axis, y_axis: Axis, aside: float = 0.0) -> str:
    def at(x: float, y: float) -> str:
        return f"{x_axis.at(x) + aside:.1f},{inside(y):.1f}"

    def inside(y: float) -> float:
        return min(
            max(y_axis.at(y), TOP), HEIGHT - BOTTOM
        )  # intervals are cut where they leave the axis

    points, kind = thin(series.points), series.kind
    text = " ".join(at(x, y) for x, y in points)
    drawn = f'<polyline class="{kind}" data-name="{escape(series.name)}" points="{text}"/>'
    if len(points) == 1 or (len(points) <= 25 and not series.faint):
        drawn += "".join(_dot(kind, x_axis.at(x) + aside, y_axis.at(y), 2.6) for x, y in points)
    if series.band:
        low = [at(x, a) for x, a in thin([(x, a) for x, a, _ in series.band])]
        high = [at(x, b) for x, b in thin([(x, b) for x, _, b in series.band])]
        drawn = f'<polygon class="{kind}" points="{" ".join([*low, *reversed(high)])}"/>' + drawn
    for x, a, b in series.whiskers:
        place = f"{x_axis.at(x) + aside:.1f}"
        drawn += f'<line class="whisker {kind}" x1="{place}" x2="{place}" y1="{inside(a):.1f}" y2="{inside(b):.1f}"/>'
    return (
        "".join(_dot(f"{kind} one", x_axis.at(x) + aside, y_axis.at(y), 2) for x, y in series.dots)
        + drawn
    )


def _dot(kind: str, x: float, y: float, radius: float) -> str:
    return f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}"/>'


def legend(chart: Chart, lines: Sequence[Series]) -> str:
    """Names of the lines, and their last values where they tell something."""
    if not chart.last and len(lines) == 1 and not lines[0].name:
        return ""
    items = (
        f'<span><i class="{s.kind}"></i>{escape(s.name)}'
        f"{f' <b>{number(s.points[-1][1], chart.percent)}</b>' if chart.last else ''}</span>"
        for s in lines
    )
    return f'<div class="legend">{"".join(items)}</div>'
