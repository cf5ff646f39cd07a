"""Primitives that a figure is drawn with, in points of 1/72 inch from the upper left corner.

Each has a role, which figure.css gives its stroke, filling and size, and maybe a tone, its colour.
"""

from __future__ import annotations

import dataclasses
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

SIZE = 12.5  # of text
NARROW, SLIM, BROAD = frozenset(" .,:;|!'ijl()[]-/"), frozenset("frtI*"), frozenset("mwMW%@")
GAP = 18  # between scenes side by side
MARGIN = 12  # around a figure in a file of its own


@dataclass(frozen=True, kw_only=True)
class Mark:
    """Anything drawn."""

    role: str
    tone: str = ""
    title: str = ""  # shown on hover; of a line, its name
    strength: float = 1.0  # opacity on top of the role's


@dataclass(frozen=True)
class Line(Mark):
    """Line through points, or the area inside; `readings` are the texts of x and y at each."""

    points: Sequence[tuple[float, float]]
    readings: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True)
class Box(Mark):
    """Rectangle."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True)
class Dot(Mark):
    """Circle."""

    x: float
    y: float
    radius: float


@dataclass(frozen=True)
class Text(Mark):
    """Line of text at its baseline; `anchor` is start, middle or end; upright text reads up."""

    x: float
    y: float
    text: str
    anchor: str = "middle"
    upright: bool = False


@dataclass(frozen=True)
class Scene:
    """Picture: its size, the marks in the order they are drawn, and the frame of the values.

    The frame is left, top, right and bottom of where the values are, if it has lines to read off.
    """

    width: float
    height: float
    marks: Sequence[Mark]
    frame: tuple[float, float, float, float] | None = None


def text_width(text: str, size: float = SIZE) -> float:
    """Estimate the width of a text in the widest of the usual fonts."""

    def share(c: str) -> float:
        if c in NARROW or c == "\N{NO-BREAK SPACE}":
            return 0.36
        if c in SLIM:
            return 0.42
        if unicodedata.east_asian_width(c) in "FW":
            return 1.0
        return 0.95 if c in BROAD else 0.7 if c.isupper() else 0.62

    return size * sum(map(share, text))


def wrap(text: str, width: float, size: float = SIZE) -> list[str]:
    """Break a text into lines of at most a width, at spaces or, if need be, inside words."""
    lines = [""]
    for word in text.split(" "):
        longer = f"{lines[-1]} {word}" if lines[-1] else word
        if text_width(longer, size) <= width:
            lines[-1] = longer
            continue
        lines += [""] if lines[-1] else []
        for character in word:
            if text_width(lines[-1] + character, size) > width:
                lines.append("")
            lines[-1] += character
    return lines


def moved(mark: Mark, right: float, down: float) -> Mark:
    """Return a mark in another place."""
    if isinstance(mark, Line):
        points = [(x + right, y + down) for x, y in mark.points]
        return dataclasses.replace(mark, points=points)
    assert isinstance(mark, Box | Dot | Text)
    return dataclasses.replace(mark, x=mark.x + right, y=mark.y + down)


def captioned(scene: Scene, title: str, note: str = "") -> Scene:
    """Put a title above a scene, a note below it, and a margin around all."""
    marks: list[Mark] = []
    top = 0.0
    for line in wrap(title, scene.width, 14) if title else []:
        top += 18
        marks.append(Text(0, top - 4, line, "start", role="heading"))
    top += 6 if title else 0
    marks += [moved(mark, 0, top) for mark in scene.marks]
    bottom = top + scene.height
    for line in wrap(note, scene.width, 10) if note else []:
        bottom += 14
        marks.append(Text(0, bottom, line, "start", role="note"))
    bottom += 4 if note else 0
    marks = [moved(mark, MARGIN, MARGIN) for mark in marks]
    return Scene(scene.width + 2 * MARGIN, bottom + 2 * MARGIN, marks)


def side_by_side(scenes: Sequence[Scene], columns: int) -> Scene:
    """Put scenes into a grid of so many columns."""
    rows = [scenes[i : i + columns] for i in range(0, len(scenes), columns)]
    width = max(scene.width for scene in scenes) + GAP
    marks, top = [], 0.0
    for row in rows:
        for i, scene in enumerate(row):
            marks += [moved(mark, i * width, top) for mark in scene.marks]
        top += max(scene.height for scene in row) + GAP
    return Scene(width * min(columns, len(scenes)) - GAP, top - GAP, marks)
