"""Drawings: every value is in its place, and every text inside the picture."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_jax.reporting import drawing
from bert_jax.reporting.figures import Chart, Heat, Series
from tests import EXAMPLES
from tests.reporting.kinds import FIGURES, HEAT, LINE, ROWS

NAMED = dataclasses.replace(
    LINE,
    series=[Series(f"a name {'that goes on ' * n}", [(1, 2), (2, 3)]) for n in range(0, 12, 3)],
    note="a note " * 60,
)
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


def find_lines(axes, style="-"):
    """The points of every line of a style."""
    return [line.get_xydata() for line in axes.get_lines() if line.get_linestyle() == style]


def find_dots(axes):
    """The points that stand alone, filled ones and circles."""
    drawn = [line.get_xydata() for line in axes.get_lines() if line.get_marker() == "o"]
    return [points for points in drawn if len(points)]


def find_labels(axis):
    return [label.get_text() for label in axis.get_ticklabels() if label.get_visible()]


@settings(max_examples=EXAMPLES or 10)
@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=60), st.booleans())
def test_lines_are_drawn_whole_and_inside(values, percent):
    points = [(10.0 * i, value) for i, value in enumerate(values, 1)]
    axes = draw(Chart("t", [Series("s", points)], [("b", values[0])], percent=percent))
    np.testing.assert_array_equal(find_lines(axes)[0], points)
    low, high = axes.get_ylim()
    assert low <= min(values)
    assert max(values) <= high


def test_long_lines_keep_ends_order_and_mean():
    values = np.random.default_rng(0).normal(size=2 + 298 * 3)  # stretches of equal length
    line = find_lines(draw(Chart("t", [Series("s", [*enumerate(values.tolist())])])))[0]
    assert len(line) == 300
    assert (line[0, 1], line[-1, 1]) == (values[0], values[-1])
    assert (np.diff(line[:, 0]) > 0).all()
    assert line[1:-1, 1].mean() == pytest.approx(np.mean(values[1:-1]), abs=1e-3)


def test_values_far_apart_have_a_logarithmic_axis():
    for low, log, scale in (
        (0.01, True, "log"),
        (0.1, True, "linear"),
        (0.01, False, "linear"),
        (0.0, True, "linear"),
    ):
        chart = Chart("t", [Series("s", [(0, low), (1, 2.0)])], log=log)
        assert draw(chart).get_yscale() == scale


def test_long_intervals_do_not_squash_the_rest():
    points = [(float(i), 1.0 + i / 10) for i in range(5)]
    whiskers = [(x, y - 0.1, y + 0.1) for x, y in points[:-1]] + [(4.0, -98.6, 101.4)]
    axes = draw(Chart("t", [Series("s", points, whiskers=whiskers)]))
    (bars,) = (bars for bars in axes.collections if len(bars.get_paths()) == 5)
    np.testing.assert_allclose(bars.get_segments()[0][:, 1], [0.9, 1.1])
    assert np.ptp(axes.get_ylim()) < 2
    wide = Series("s", points, band=[(x, y - 50, y + 50) for x, y in points])
    assert np.ptp(draw(Chart("t", [wide])).get_ylim()) > 100


def test_rows_are_stacked_under_their_names():
    axes = draw(ROWS)
    means, singles = find_dots(axes)[:2]
    np.testing.assert_array_equal(means, [(10, 0), (12, 1), (16, 2)])
    np.testing.assert_array_equal(singles, [(9.5, 0), (10.5, 0)])
    assert axes.yaxis_inverted()
    assert " ".join(find_labels(axes.yaxis)).replace("\n", " ") == " ".join(ROWS.rows)
    two = dataclasses.replace(ROWS, series=[*ROWS.series, dataclasses.replace(ROWS.series[0])])
    heights = [points[0, 1] for points in find_dots(draw(two))[::2]]
    assert heights[0] < 0 < heights[1]


def test_matrix_has_a_cell_for_every_number():
    axes = draw(HEAT)
    assert [text.get_text() for text in axes.texts] == ["1.000", "2.000", "3.000", "\N{EN DASH}"]
    cells = [patch for patch in axes.patches if patch.get_fill()]
    (frame,) = (patch for patch in axes.patches if not patch.get_fill())
    assert [cell.get_alpha() for cell in cells] == pytest.approx([0.55, 0.275, 0])
    assert frame.get_xy() == cells[0].get_xy()
    assert (find_labels(axes.xaxis), find_labels(axes.yaxis)) == (["c", "d"], ["a", "b"])


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


@pytest.mark.parametrize(
    ("level", "up", "right"),
    [(60.0, "60 ↑", "60 →"), (-60.0, "-60 ↓", "-60 ←"), (1.5, "1.500", "1.500")],
)
def test_legend_names_baselines(level, up, right):
    """One far off has an arrow in place of a line, unless the axis is to reach it."""
    series = [Series("s", [(0.0, 1.0), (1.0, 2.0)])]
    for rows, said in (((), up), (("a", "b"), right)):
        chart = Chart("t", series, [("unigram", level), ("", math.nan)], rows=rows, edge=True)
        axes = draw(dataclasses.replace(chart, last=False))
        names = [text.get_text() for text in axes.get_legend().texts]
        assert names == ["s", f"unigram {said}"]
        assert bool(find_lines(axes, "--")) == (level == 1.5)
        assert level in dataclasses.replace(chart, edge=False).values


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


def test_gap_is_where_a_value_is_missing():
    points = [(float(i), math.nan if i in (1, 3) else 1.0 + i) for i in range(40)]
    axes = draw(Chart("t", [Series("s", points)]))
    assert np.isnan(find_lines(axes)[0][[1, 3], 1]).all()
    (alone,) = find_dots(axes)
    np.testing.assert_array_equal(alone, [points[0], points[2]])  # no line goes through them
