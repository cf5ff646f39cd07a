"""Descriptions of figures: lines, rows of dots, bars and matrices. `drawing` draws them."""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
import statistics
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

Points = Sequence[tuple[float, float]]
Intervals = Sequence[tuple[float, float, float]]  # x, low, high

CONTROL = re.compile("[\x00-\x08\x0b-\x1f\ud800-\udfff\ufffe\uffff]")  # not allowed in XML
LONGEST = 3  # an interval longer than so many of a figure's medians is cut at the axis
NEAR = 0.15  # of the values' range, beyond them, where the axis still holds a baseline
MOST = 300  # points of a drawn line
LARGEST = 1e50  # of the values that are drawn: the arithmetic of axes overflows beyond
STILL = 1e-6  # of the largest value: values that vary by no more are constant but for rounding


@dataclass(frozen=True)
class Series:
    """Line of a chart: values, intervals (`band` or `whiskers`), and the values they average."""

    name: str
    points: Points
    colour: int | str = 1  # 1 to 6 of the page's palette, or a name of the palette
    faint: bool = False  # for noisy values
    band: Intervals = ()
    whiskers: Intervals = ()
    dots: Points = ()  # the single values that a point is the mean of

    @property
    def tone(self) -> str:
        """Name the colour in the palette."""
        return f"c{self.colour}" if isinstance(self.colour, int) else self.colour

    @property
    def intervals(self) -> list[tuple[float, float, float]]:
        """List the intervals that have both ends."""
        every = [*self.band, *self.whiskers]
        return [(x, low, high) for x, low, high in every if finite(low) and finite(high)]

    @property
    def singles(self) -> list[float]:
        """List the finite values of points and dots."""
        return [y for _, y in (*self.points, *self.dots) if finite(y)]


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

    @property
    def values(self) -> list[float]:
        """List the values that the axis must hold; empty without any."""
        singles = [value for series in self.series for value in series.singles]
        if not singles:
            return []
        values = [*singles, *self._interval_ends()]
        if self.zero:
            values.append(0.0)
        return values + [level for _, level in self.baselines if self._is_held(level, values)]

    def _interval_ends(self) -> Iterator[float]:
        """Yield the ends of all intervals; an end that is cut lies nearer to the middle."""
        intervals = [interval for series in self.series for interval in series.intervals]
        halves = [(high - low) / 2 for _, low, high in intervals if high > low]
        longest = LONGEST * statistics.median_low(halves) if halves and self.cut else math.inf
        for _, low, high in intervals:
            middle = (low + high) / 2
            half = min((high - low) / 2, longest)
            yield middle - half
            yield middle + half

    def _is_held(self, level: float, values: Sequence[float]) -> bool:
        """Tell whether the axis of some values holds a baseline."""
        low, high = min(values), max(values)
        if not finite(level):
            return False
        room = NEAR * (high - low) if self.edge and high > low else math.inf
        return low - room <= level <= high + room

    @property
    def constant(self) -> float | None:
        """Find the one value of all points, if there is nothing else to be seen; else None."""
        values = [y for series in self.series for _, y in (*series.points, *series.dots)]
        spread = any(high > low for series in self.series for _, low, high in series.intervals)
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


def finite(value: float) -> bool:
    """Tell whether a value has a place in a figure."""
    return abs(value) <= LARGEST  # which is false of NaN


def has_values(figure: Figure) -> bool:
    """Tell whether a figure shows anything."""
    if isinstance(figure, Heat):
        return any(finite(value) for row in figure.values for value in row)
    if isinstance(figure, Bars):
        return any(finite(bar.value) for bar in figure.bars)
    return any(finite(y) for series in figure.series for _, y in series.points)


def clean_texts(value: Any) -> Any:
    """Put a space in place of each character that no picture can hold, in all texts of a figure."""
    if isinstance(value, str):
        return CONTROL.sub(" ", value)
    if isinstance(value, list | tuple):
        return [clean_texts(part) for part in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = {name: clean_texts(part) for name, part in vars(value).items()}
        return dataclasses.replace(value, **parts)
    return value


def is_constant(values: Iterable[float]) -> bool:
    """Tell whether values, of which there are some, differ by no more than rounding."""
    known = list(values)
    return max(known) - min(known) <= STILL * max(map(abs, known))


def thin_points(points: Points, most: int = MOST) -> list[tuple[float, float]]:
    """Reduce points to at most `most`: the first, means of equal stretches, and the last."""
    if len(points) <= most:
        return list(points)
    inner, stretches = points[1:-1], most - 2
    edges = [len(inner) * i // stretches for i in range(stretches + 1)]
    thinned = [points[0]]
    for start, stop in itertools.pairwise(edges):
        xs, ys = zip(*inner[start:stop], strict=True)
        thinned.append((sum(xs) / len(xs), sum(ys) / len(ys)))
    return [*thinned, points[-1]]
