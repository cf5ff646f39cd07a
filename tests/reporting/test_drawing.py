"""Drawings: every value is in its place, and every text inside the picture."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.text import Text

from bert_jax.reporting import drawing
from bert_jax.reporting.figures import Bar, Bars, Chart, Heat, Series
from tests.reporting.shown import BARS, FIGURES, HEAT, LINE, ROWS

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
        return drawing.draw_figures([figure], **options).canvas.axes[0]


def lines(axes, style="-"):
    """The points of every line of a style."""
    return [line.get_xydata() for line in axes.get_lines() if line.get_linestyle() == style]


def dots(axes):
    """The points that stand alone, filled ones and circles."""
    drawn = [line.get_xydata() for line in axes.get_lines() if line.get_marker() == "o"]
    return [points for points in drawn if len(points)]


def labels(axis):
    return [label.get_text() for label in axis.get_ticklabels() if label.get_visible()]


@settings(max_examples=15, deadline=None)
@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=60), st.booleans())
def test_lines_are_drawn_whole_and_inside(values, percent):
    points = [(10.0 * i, value) for i, value in enumerate(values, 1)]
    axes = draw(Chart("t", [Series("s", points)], [("b", values[0])], percent=percent))
    np.testing.assert_array_equal(lines(axes)[0], points)
    low, high = axes.get_ylim()
    assert low <= min(values)
    assert max(values) <= high


def test_points_of_several_lines_stand_at_their_tick():
    rates = (0.1, 0.15, 0.2, 0.3, 0.6)
    series = [
        Series(
            f"line {i}",
            [(rate, 5.0 - i / 4) for rate in rates],
            i + 1,
            whiskers=[(rate, 4.8 - i / 4, 5.2 - i / 4) for rate in rates],
        )
        for i in range(5)
    ]
    chart = Chart("t", series, x="rate", ticks=[(rate, f"{100 * rate:g}") for rate in rates])
    axes = draw(chart)
    assert {x for line in lines(axes) for x, _ in line} == {*rates} == {*axes.get_xticks()}
    places = [c.get_transform().transform(c.get_segments()[0])[0, 0] for c in axes.collections]
    true = [axes.transData.transform((rate, 0))[0] for rate in rates] * 5
    assert len({*np.round(places, 3)}) == 25  # none hides another
    assert np.abs(np.subtract(places, true)).max() < 3  # points


def test_intervals_are_drawn_and_cut_at_the_axis():
    points = [(float(i), 1.0 + i / 10) for i in range(5)]
    whiskers = [(x, y - 0.1, y + 0.1) for x, y in points[:-1]] + [(4.0, -98.6, 101.4)]
    axes = draw(Chart("t", [Series("s", points, whiskers=whiskers)]))
    ends = [c.get_segments()[0][:, 1] for c in axes.collections]
    np.testing.assert_allclose(ends[0], [0.9, 1.1])
    np.testing.assert_allclose(ends[4], axes.get_ylim())
    axes = draw(Chart("t", [Series("s", points, band=[(x, y - 1, y + 1) for x, y in points])]))
    band = axes.collections[0].get_paths()[0].vertices[:, 1]
    assert (band.min(), band.max()) == pytest.approx((0.0, 2.4))


def test_rows_are_stacked_under_their_names():
    axes = draw(ROWS)
    means, singles = dots(axes)[:2]
    np.testing.assert_array_equal(means, [(10, 0), (12, 1), (16, 2)])
    np.testing.assert_array_equal(singles, [(9.5, 0), (10.5, 0)])
    assert axes.yaxis_inverted()
    names = " ".join(labels(axes.yaxis)).replace("\n", " ")
    assert names == " ".join(ROWS.rows)
    two = dataclasses.replace(ROWS, series=[*ROWS.series, dataclasses.replace(ROWS.series[0])])
    heights = [points[0, 1] for points in dots(draw(two))[::2]]
    assert heights[0] < 0 < heights[1]


def test_bars_are_as_high_as_their_values():
    first, second = draw(BARS).patches
    assert (first.get_height(), second.get_height()) == (3, 6)
    assert (first.get_x(), second.get_x()) == (0, 1)


def test_a_matrix_has_a_cell_for_every_number():
    axes = draw(HEAT)
    assert [text.get_text() for text in axes.texts] == ["1.000", "2.000", "3.000", "\N{EN DASH}"]
    cells = [patch for patch in axes.patches if patch.get_fill()]
    (frame,) = (patch for patch in axes.patches if not patch.get_fill())
    assert [cell.get_alpha() for cell in cells] == pytest.approx([0.55, 0.275, 0, 0])
    assert frame.get_xy() == cells[0].get_xy()
    assert (labels(axes.xaxis), labels(axes.yaxis)) == (["c", "d"], ["a", "b"])


@pytest.mark.parametrize("captions", [False, True])
@pytest.mark.parametrize("figure", [*FIGURES, NAMED])
def test_nothing_is_outside_the_picture(figure, captions):
    with drawing.use_style():
        canvas = drawing.draw_figures([figure], captions=captions).canvas
        width, height = canvas.get_size_inches() * 72
        axes = canvas.axes[0]
        beyond = [  # matplotlib does not draw ticks outside the axes
            label
            for axis in (axes.xaxis, axes.yaxis)
            for tick in axis.get_major_ticks()
            if not min(axis.get_view_interval()) <= tick.get_loc() <= max(axis.get_view_interval())
            for label in (tick.label1, tick.label2)
        ]
        for text in canvas.findobj(Text):
            if text.get_visible() and text.get_text() and text not in beyond:
                box = text.get_window_extent()
                assert box.x0 >= -1, text
                assert box.y0 >= -1, text
                assert box.x1 <= width + 1, text
                assert box.y1 <= height + 1, text


def test_axes_have_titles():
    for figure in FIGURES:
        axes = draw(figure)
        across, up = (figure.y, "") if figure is ROWS else (figure.x, figure.y)
        assert (axes.get_xlabel(), axes.get_ylabel()) == (across, up)


def test_labels_of_an_axis_do_not_overlap():
    ticks = [(float(i), f"label {i}") for i in range(40)]
    axes = draw(Chart("t", [Series("s", [(0.0, 1.0), (39.0, 2.0)])], ticks=ticks))
    shown = [label for label in axes.get_xticklabels() if label.get_visible()]
    boxes = [label.get_window_extent() for label in shown]
    assert 3 < len(boxes) < 40
    assert all(a.x1 < b.x0 for a, b in itertools.pairwise(boxes))


def test_a_tick_without_a_value_has_its_place():
    ticks = [(rate, f"{100 * rate:g} %") for rate in (0.05, 0.15, 0.4, 0.8)]
    axes = draw(Chart("t", [Series("", [(0.15, 1.0), (0.4, 2.0)])], x="rate", ticks=ticks))
    assert labels(axes.xaxis) == [label for _, label in ticks]
    assert axes.get_xlim()[0] < 0.05 < 0.8 < axes.get_xlim()[1]


@pytest.mark.parametrize(
    ("level", "rows", "arrow"),
    [
        (60.0, (), " \N{UPWARDS ARROW}"),
        (-60.0, (), " \N{DOWNWARDS ARROW}"),
        (60.0, ("a", "b"), " \N{RIGHTWARDS ARROW}"),
        (-60.0, ("a", "b"), " \N{LEFTWARDS ARROW}"),
        (1.5, (), ""),
        (1.5, ("a", "b"), ""),
    ],
)
def test_the_legend_names_baselines(level, rows, arrow):
    series = [Series("s", [(0.0, 1.0), (1.0, 2.0)])]
    axes = draw(Chart("t", series, [("unigram", level)], rows=rows, edge=True, last=False))
    names = [text.get_text() for text in axes.get_legend().texts]
    number = "1.500" if level == 1.5 else f"{level:g}"
    assert names == (["s", f"unigram {number}{arrow}"])
    assert bool(lines(axes, "--")) == (not arrow)
    assert axes.get_ylim()[1] < 3 or rows


def test_the_legend_shows_last_values_if_asked():
    shares = [Series("training", [(0, 0.1), (1, 0.25)]), Series("", [(0, 0.5), (1, 0.75)])]
    axes = draw(Chart("t", shares, percent=True))
    names = [text.get_text().replace("\N{NO-BREAK SPACE}", " ") for text in axes.get_legend().texts]
    assert names == ["training 25.0 %", "75.0 %"]
    assert draw(Chart("t", shares[1:], last=False)).get_legend() is None


@pytest.mark.parametrize(
    ("values", "log", "scale"),
    [
        ([0.01, 2.0], None, "log"),
        ([0.1, 2.0], None, "linear"),
        ([0.01, 2.0], False, "linear"),
        ([0.1, 2.0], True, "log"),
        ([1.0, 1.5], True, "linear"),
        ([0.0, 2.0], True, "linear"),
    ],
)
def test_values_far_apart_have_a_logarithmic_axis(values, log, scale):
    chart = Chart("t", [Series("s", [*enumerate(values)])], log=log)
    assert draw(chart).get_yscale() == scale


@pytest.mark.parametrize(
    ("values", "percent", "label"),
    [
        ([0.1, 0.5], True, "20\N{NO-BREAK SPACE}%"),
        ([12_000.0, 12_600.0], False, "12.2k"),
        ([0.0, 1e-4], False, "2e-05"),
        ([1.0, 4.0], False, "2.0"),
        ([0.001, 1.0], False, "0.01"),
    ],
)
def test_ticks_are_written_as_people_do(values, percent, label):
    axes = draw(Chart("t", [Series("s", [*enumerate(values)])], percent=percent))
    assert label in labels(axes.yaxis)


@pytest.mark.parametrize("values", EXTREME)
def test_extreme_values_are_drawn(values):
    points = [(float(i), value) for i, value in enumerate(values)]
    series = Series("s", points, dots=points, whiskers=[(0.0, -math.inf, math.nan)])
    chart = Chart("t", [series], [("b", values[0])])
    bars = Bars("t", [Bar(i, i + 1, value, "") for i, value in points], "x", "y")
    names = [str(value) for value in values]
    heat = Heat("t", ["r"], names, [values], [[1.0] * len(values)])
    for figure in (chart, dataclasses.replace(chart, rows=names), bars, heat):
        axes = draw(figure)
        assert np.isfinite([*axes.get_xlim(), *axes.get_ylim()]).all()


def test_a_gap_is_where_a_value_is_missing():
    points = [(float(i), math.nan if i in (1, 3) else 1.0 + i) for i in range(40)]
    axes = draw(Chart("t", [Series("s", points)]))
    assert np.isnan(lines(axes)[0][[1, 3], 1]).all()
    (alone,) = dots(axes)
    np.testing.assert_array_equal(alone, [points[0], points[2]])  # no line goes through them


def test_faint_lines_lie_below():
    chart = Chart("t", [Series("a", [(0, 1), (1, 2)]), Series("b", [(0, 1), (1, 2)], faint=True)])
    bold, faint = (line for line in draw(chart).get_lines() if line.get_linestyle() == "-")
    assert faint.get_zorder() < bold.get_zorder()


def test_figures_stand_side_by_side():
    with drawing.use_style():
        one = drawing.draw_figures([LINE]).canvas.get_size_inches()
        four = drawing.draw_figures([LINE] * 4, columns=2).canvas
    np.testing.assert_allclose(four.get_size_inches(), 2 * one)
    assert len(four.axes) == 4


def test_a_users_matplotlibrc_changes_nothing():
    import matplotlib

    with matplotlib.rc_context({"font.size": 30, "axes.grid": False}):
        axes = draw(LINE)
        assert matplotlib.rcParams["font.size"] == 30
    assert axes.xaxis.label.get_size() == 12
