"""Descriptions of figures: what is shown, and not where. `layout` gives every part its place."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from bert_jax.reporting.scales import finite

Points = Sequence[tuple[float, float]]
Intervals = Sequence[tuple[float, float, float]]  # x, low, high

LONG = 3  # an interval longer than so many of a line's medians is cut at the axis
NEAR = 0.15  # of the values' range, beyond them, where the axis still holds a baseline
MOST = 300  # points of a drawn line
STILL = 1e-6  # of the largest value: values that vary by no more are constant but for rounding


def is_constant(values: Iterable[float]) -> bool:
    """Tell whether values, of which there are some, differ by no more than rounding."""
    known = list(values)
    return max(known) - min(known) <= STILL * max(map(abs, known))


@dataclass(frozen=True)
class Series:
    """Line of a chart: values, intervals (`band` or `whiskers`), and the values they average."""

    name: str
    points: Points
    colour: int | str = 1  # 1 to 6 of the page's palette, or the name of a tone
    faint: bool = False  # for noisy values
    band: Intervals = ()
    whiskers: Intervals = ()
    dots: Points = ()  # the single values that a point is the mean of

    @property
    def tone(self) -> str:
        """Return the name of the colour."""
        return f"c{self.colour}" if isinstance(self.colour, int) else self.colour

    def middles(self) -> list[tuple[float, float]]:
        """Return the middle and half the length of each interval that has both ends."""
        ends = [(low, high) for _, low, high in (*self.band, *self.whiskers)]
        known = [(low, high) for low, high in ends if finite(low) and finite(high)]
        return [((low + high) / 2, (high - low) / 2) for low, high in known]

    def median_half(self) -> float:
        """Return the median of half the length of the intervals; 0 without any."""
        halves = sorted(half for _, half in self.middles())
        return halves[len(halves) // 2] if halves else 0.0


@dataclass(frozen=True)
class Chart:
    """Lines over `x`, or dots in rows that have names; dashed baselines and a vertical mark."""

    title: str
    series: Sequence[Series]
    baselines: Sequence[tuple[str, float]] = field(default=())
    percent: bool = False
    log: bool | None = None  # axis of values; None: logarithmic if they lie far apart
    zero: bool = False  # whether the axis of values starts at 0
    x: str = "step"  # title of the axis, with its unit
    y: str = ""  # title of the axis of values, with its unit
    ticks: Sequence[tuple[float, str]] = ()  # places and labels on the x axis; else round numbers
    rows: Sequence[str] = ()  # names of rows; then values go to the right and x counts the rows
    last: bool = True  # whether the legend shows the last value of each line
    mark: float | None = None
    cut: bool = True  # whether unusually long intervals are cut at the axis
    edge: bool = False  # whether the axis follows the values, and a far baseline is only named
    note: str = ""

    def values(self) -> list[float]:
        """Return the values the axis must hold; of intervals that are cut only a part."""
        points = [y for series in self.series for _, y in (*series.points, *series.dots)]
        points += [0.0] if self.zero else []
        middles = [middle for series in self.series for middle in series.middles()]
        medians = sorted(median for series in self.series if (median := series.median_half()))
        most = LONG * medians[(len(medians) - 1) // 2] if medians and self.cut else math.inf
        points += [at + sign * min(half, most) for at, half in middles for sign in (-1, 1)]
        points = list(filter(finite, points))
        low, high = min(points, default=0.0), max(points, default=0.0)
        near = NEAR * (high - low) if self.edge and high > low else math.inf
        levels = [level for _, level in self.baselines if finite(level)]
        return points + [level for level in levels if low - near <= level <= high + near]

    def constant(self) -> float | None:
        """Return the one value of all points, where nothing else is to be seen; else None."""
        values = [y for series in self.series for _, y in (*series.points, *series.dots)]
        spread = any(high > low for s in self.series for _, low, high in (*s.band, *s.whiskers))
        return values[-1] if values and is_constant(values) and not spread else None


@dataclass(frozen=True)
class Bar:
    """Bar from 0 to `value` over the stretch of the x axis from `low` to `high`."""

    low: float
    high: float
    value: float
    text: str  # of its hover


@dataclass(frozen=True)
class Bars:
    """Bars, such as those of a histogram."""

    title: str
    bars: Sequence[Bar]
    x: str
    y: str
    note: str = ""


@dataclass(frozen=True)
class Heat:
    """Matrix of numbers with shades from 0 to 1; NaN is a hole."""

    title: str
    rows: Sequence[str]
    columns: Sequence[str]
    values: Sequence[Sequence[float]]
    shades: Sequence[Sequence[float]]
    x: str = ""  # what the columns are
    y: str = ""  # what the rows are
    marks: Collection[tuple[int, int]] = ()  # the best cells
    percent: bool = False
    note: str = ""


Figure = Chart | Bars | Heat


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
