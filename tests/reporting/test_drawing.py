"""Drawings: every value is in its place, and every text inside the picture."""

import dataclasses
import itertools
import math
from collections.abc import Iterator

import numpy as np
import pytest

from bert_jax.reporting import drawing
from bert_jax.reporting.figures import Chart, Heat, Series
from tests.reporting.kinds import FIGURES, HEAT, LINE, ROWS

LONG = [Series(f"a name {'that goes on ' * n}", [(1, 2), (2, 3)]) for n in range(0, 12, 3)]
NAMED = dataclasses.replace(LINE, series=LONG, note="a note " * 60)
EXTREME = [
    [-1e300, 1e300, 1.0],
    [1e-300, 1e300, 1.0],
    [5e-324],
    [1e40, 1.0],
    [0.0],
    [1e15, 1e15 + 1],
    [-1e-12, 1e-12],
    [math.nan, math.inf, -math.inf, 1.0],
]


def draw(figure, **options):
    """The axes of a figure, drawn."""
    with drawing.use_style():
        return drawing.draw_figures([figure], **options)[0].axes[0]


def describe(figure) -> Iterator[str]:
    """Yield lines on what is drawn, and where, and on what a page shows there."""
    with drawing.use_style():
        ((axes, readings),) = drawing.draw_figures([figure])[1]

    def write(numbers) -> str:
        return " ".join(f"{number:.4g}" for number in np.ravel(numbers))

    yield f"x {write(axes.get_xlim())}, y {write(axes.get_ylim())}, {axes.get_yscale()}"
    for axis in (axes.xaxis, axes.yaxis):
        labels = [label.get_text() for label in axis.get_ticklabels() if label.get_visible()]
        yield f"{axis.get_label_text()}: {' | '.join(labels)}"
    for line in axes.get_lines():
        yield f"{line.get_linestyle()} {line.get_marker()} {write(line.get_xydata())}"
    for lines in axes.collections:
        yield f"{type(lines).__name__} {write([path.vertices for path in lines.get_paths()])}"
    for patch in axes.patches:
        yield f"filled {patch.get_fill()} {patch.get_alpha()} at {write(patch.get_xy())}"
    legend = axes.get_legend()
    for text in [*axes.texts, *(legend.texts if legend else ())]:
        yield text.get_text()
    for x, y, text in readings:
        yield f"at {write([x, y])}: {text}"


def rise(low: float, **options) -> Chart:
    """A line from a value to 2."""
    return Chart("t", [Series("s", [(0.0, low), (1.0, 2.0)])], **options)


POINTS = [(float(i), 1.0 + i / 10) for i in range(5)]
WHISKERS = [(x, y - 0.1, y + 0.1) for x, y in POINTS[:-1]] + [(4.0, -98.6, 101.4)]
BAND = [(x, y - 50, y + 50) for x, y in POINTS]
HOLES = [(float(i), math.nan if i in (1, 3) else 1.0 + i) for i in range(40)]
CHARTS = {
    "dots at the points of a short line": LINE,
    "rows": ROWS,
    "rows of two lines": dataclasses.replace(ROWS, series=[*ROWS.series, *ROWS.series]),
    "matrix with an empty cell": HEAT,
    "shares": Chart("t", [Series("", [(0.0, 1 / 3), (1.0, 0.5)])], percent=True),
    "values far apart": rise(0.01),
    "values not so far apart": rise(0.1),
    "values far apart on a linear axis": rise(0.01, log=False),
    "values from zero": rise(0.0),
    "one interval is cut": Chart("t", [Series("s", POINTS, whiskers=WHISKERS)]),
    "long intervals that are alike": Chart("t", [Series("s", POINTS, band=BAND)]),
    "a gap, and dots where no line goes": Chart("t", [Series("s", HOLES)]),
    **{
        f"baseline {level}, {'rows' if rows else 'line'}": rise(
            1.0, baselines=[("b", level), ("", math.nan)], rows=rows, edge=True
        )
        for level in (60.0, -60.0, 1.5)
        for rows in ((), ("a", "b"))
    },
    "baseline far off, to which the axis reaches": rise(1.0, baselines=[("b", 60.0)]),
}


def test_axes_have_what_is_frozen(check_frozen):
    lines = [line for name, c in CHARTS.items() for line in (f"# {name}", *describe(c))]
    check_frozen(lines, "axes")


def test_long_lines_keep_ends_order_and_mean():
    values = np.random.default_rng(0).normal(size=2 + 298 * 3)  # stretches of equal length
    axes = draw(Chart("t", [Series("s", [*enumerate(values.tolist())])]))
    line = axes.get_lines()[0].get_xydata()
    assert len(line) == 300
    assert (line[0, 1], line[-1, 1]) == (values[0], values[-1])
    assert (np.diff(line[:, 0]) > 0).all()
    assert line[1:-1, 1].mean() == pytest.approx(np.mean(values[1:-1]), abs=1e-3)


@pytest.mark.parametrize("figure", [*FIGURES, NAMED])
def test_nothing_is_outside_the_picture(figure):
    with drawing.use_style():
        canvas = drawing.draw_figures([figure])[0]
        width, height = canvas.get_size_inches()
        drawn = canvas.get_tightbbox()
    assert min(drawn.x0, drawn.y0) >= -1 / 72
    assert drawn.x1 <= width + 1 / 72
    assert drawn.y1 <= height + 1 / 72


def test_labels_of_an_axis_do_not_overlap():
    ticks = [(float(i), f"label {i}") for i in range(40)]
    axes = draw(Chart("t", [Series("s", [(0.0, 1.0), (39.0, 2.0)])], ticks=ticks))
    shown = [label for label in axes.get_xticklabels() if label.get_visible()]
    boxes = [label.get_window_extent() for label in shown]
    assert 3 < len(boxes) < 40
    assert all(a.x1 < b.x0 for a, b in itertools.pairwise(boxes))


@pytest.mark.parametrize("values", EXTREME)
def test_extreme_values_are_drawn(values):
    points = [(float(i), value) for i, value in enumerate(values)]
    series = Series("s", points, dots=points, whiskers=[(0.0, -math.inf, math.nan)])
    chart = Chart("t", [series], [("b", values[0])])
    names = [str(value) for value in values]
    heat = Heat("t", ["r"], names, [values], [[1.0] * len(values)])
    for figure in (chart, dataclasses.replace(chart, rows=names), heat):
        axes = draw(figure)
        assert np.isfinite([*axes.get_xlim(), *axes.get_ylim()]).all()
