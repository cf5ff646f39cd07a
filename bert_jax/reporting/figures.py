"""Descriptions of figures: charts of lines, charts of rows, and matrices. `drawing` draws them."""

import dataclasses
import re
import statistics
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

Points = Sequence[tuple[float, float]]
Intervals = Sequence[tuple[float, float, float]]  # x, low, high

CONTROL = re.compile("[\x00-\x08\x0b-\x1f\ud800-\udfff\ufffe\uffff]")  # not allowed in XML
LONGEST = 3  # an interval longer than so many of a figure's medians is cut at the axis
NEAR = 0.15  # of the values' range, beyond them, where the axis still holds a baseline
LARGEST = 1e50  # of the values that are drawn: the arithmetic of axes overflows beyond


@dataclass(frozen=True)
class Series:
    """A line of a chart: values, their intervals, and the single values that they average."""

    name: str
    points: Points
    colour: str = "c1"  # a name of the palette
    faint: bool = False  # for noisy values
    band: Intervals = ()
    whiskers: Intervals = ()
    dots: Points = ()  # the single values that a point is the mean of


@dataclass(frozen=True)
class Chart:
    """A chart of lines over `x`, or of dots in named rows, with baselines and a vertical mark."""

    title: str
    series: Sequence[Series]
    baselines: Sequence[tuple[str, float]] = field(default=())
    percent: bool = False
    log: bool = True  # whether values that lie far apart have a logarithmic axis
    zero: bool = False  # whether the axis of values starts at 0
    x: str = "step"  # title of the axis, with its unit; over steps the legend has the last values
    y: str = ""  # title of the axis of values, with its unit
    ticks: Sequence[tuple[float, str]] = ()  # places and labels on the x axis; else round numbers
    rows: Sequence[str] = ()  # names of rows; then values go to the right and x counts the rows
    mark: float | None = None
    edge: bool = False  # whether the axis follows the values, and a far baseline is only named
    note: str = ""

    @property
    def singles(self) -> list[float]:
        """List the finite values of all points and dots."""
        pairs = [pair for line in self.series for pair in (*line.points, *line.dots)]
        return [y for _, y in pairs if is_drawable(y)]

    @property
    def values(self) -> list[float]:
        """List the values that the axis must hold: points, intervals and baselines near them."""
        singles = self.singles
        if not singles:
            return []
        values = [*singles, *self._list_ends(), *([0.0] if self.zero else [])]
        low, high = min(values), max(values)
        room = NEAR * (high - low)
        for _, level in self.baselines:
            near = not self.edge or low == high or low - room <= level <= high + room
            if is_drawable(level) and near:
                values.append(level)
        return values

    def _list_ends(self) -> list[float]:
        """List the ends of all intervals as they are drawn; very long intervals are cut."""
        every = [edge for line in self.series for edge in (*line.band, *line.whiskers)]
        known = [(low, high) for _, low, high in every if is_drawable(low) and is_drawable(high)]
        halves = [(high - low) / 2 for low, high in known]
        longest = LONGEST * statistics.median_low(halves) if halves else 0.0
        ends = []
        for (low, high), half in zip(known, halves, strict=True):
            shown = min(half, longest) if longest else half
            ends += [(low + high) / 2 - shown, (low + high) / 2 + shown]
        return ends


@dataclass(frozen=True)
class Heat:
    """A matrix of numbers, each with a shade from 0 to 1; NaN is an empty cell."""

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


Figure = Chart | Heat


def is_drawable(value: float) -> bool:
    """Tell whether a value can be drawn: it is finite and not too large for the axes."""
    return abs(value) <= LARGEST  # which is false of NaN


def has_values(figure: Figure) -> bool:
    """Tell whether a figure has a value to show."""
    if isinstance(figure, Heat):
        return any(is_drawable(value) for row in figure.values for value in row)
    return any(is_drawable(y) for series in figure.series for _, y in series.points)


def clean_texts(value: Any) -> Any:
    """Replace each character that a picture cannot hold by a space, in all texts of a figure."""
    if isinstance(value, str):
        return CONTROL.sub(" ", value)
    if isinstance(value, list | tuple):
        return [clean_texts(part) for part in value]
    if isinstance(value, Series | Figure):
        parts = {name: clean_texts(part) for name, part in vars(value).items()}
        return dataclasses.replace(value, **parts)
    return value
