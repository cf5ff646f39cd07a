"""Figures: every value in its place, exact on hover, and the same picture in pages and files."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import re
import subprocess
import sys
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.reporting import files, formats, layout, metric_names, page, scales, scene, svg
from bert_jax.reporting.figures import Bar, Bars, Chart, Heat, Series, thin
from bert_jax.reporting.layout import scene_of
from bert_jax.reporting.scene import Box, Dot, Line, Text
from bert_jax.studies.report.view import COLOURS
from bert_jax.studies.report.wording import format_large
from tests import chromium

FINITE = st.floats(-1e6, 1e6, allow_subnormal=False).filter(lambda v: v == 0 or abs(v) > 1e-6)
LINE = Chart(
    "t", [Series("s", [(10.0, 1.0), (20.0, 2.0), (40.0, 4.0)])], x="tokens", y="loss (nats)"
)
ROWS = Chart(
    "t",
    [
        Series(
            "s", [(0, 10.0), (1, 12.0), (2, 16.0)], whiskers=[(0, 9, 11), (1, 11, 13), (2, 15, 17)]
        )
    ],
    rows=[f"the name of row {i}, which is longer than a line of names" for i in range(3)],
    y="score (points)",
)
HEAT = Heat(
    "t",
    ["a", "b"],
    ["c", "d"],
    [[1.0, 2.0], [3.0, math.nan]],
    [[1.0, 0.5], [0.0, 0.0]],
    x="columns",
    y="rows",
    marks={(0, 0)},
)
BARS = Bars("t", [Bar(0.0, 1.0, 3.0, "0 to 1: 3"), Bar(1.0, 2.0, 6.0, "1 to 2: 6")], "x", "count")


def marks(figure, kind, role=""):
    drawn = scene_of(figure).marks
    return [mark for mark in drawn if isinstance(mark, kind) and mark.role.startswith(role)]


def lines(figure) -> list[list[tuple[float, float]]]:
    return [list(mark.points) for mark in marks(figure, Line, "line")]


# --- places ---------------------------------------------------------------------------------------


@given(st.lists(FINITE, min_size=1, max_size=60), st.booleans())
def test_lines_are_drawn_to_scale_and_inside(values, percent):
    points = [(10.0 * i, v) for i, v in enumerate(values, 1)]
    chart = Chart("t", [Series("s", points)], [("b", values[0])], percent=percent)
    left, top, right, base = scene_of(chart).frame
    (drawn,) = lines(chart)
    for x, y in drawn:
        assert left - 0.1 <= x <= right + 0.1
        assert top - 0.1 <= y <= base + 0.1
    log = not percent and scales.wide(values)
    linear = [math.log10(v) if log else v for v in values]
    first, last = min(linear), max(linear)
    if last - first > 1e-6 * max(abs(first), abs(last)):
        ends = [drawn[linear.index(end)][1] for end in (first, last)]
        for value, (_, y) in zip(linear, drawn, strict=True):
            share = (value - first) / (last - first)
            assert y == pytest.approx(ends[0] + share * (ends[1] - ends[0]), abs=0.01)
    for number, (x, _) in enumerate(drawn):
        share = number / max(len(drawn) - 1, 1)
        place = left + share * (right - left) if len(drawn) > 1 else (left + right) / 2
        assert x == pytest.approx(place)


def test_places_follow_from_values():
    (drawn,) = lines(LINE)
    (a, p), (b, q), (c, r) = drawn
    assert (c - b) / (b - a) == pytest.approx(2)
    assert (r - q) / (q - p) == pytest.approx(2)
    assert r < q < p  # larger values are higher up


def test_points_of_several_lines_stand_at_their_tick():
    """Whatever line they are of; only whiskers move, by less than anybody can read."""
    rates = (0.1, 0.15, 0.2, 0.3, 0.6)
    series = [
        Series(
            f"line {i}",
            [(rate, 5.0 - i / 4) for rate in rates],
            i + 1,
            whiskers=[(rate, 4.8 - i / 4, 5.2 - i / 4) for rate in rates],
            dots=[(rate, 4.9 - i / 4) for rate in rates],
        )
        for i in range(5)
    ]
    chart = Chart("t", series, x="rate", ticks=[(rate, f"{100 * rate:g}") for rate in rates])
    ticks = {mark.text: mark.x for mark in marks(chart, Text, "tick")}
    of_line = {x for drawn in lines(chart) for x, _ in drawn}
    assert (
        of_line == {mark.x for mark in marks(chart, Dot)} == {ticks[f"{100 * r:g}"] for r in rates}
    )
    whiskers = [mark.points[0][0] for mark in marks(chart, Line, "whisker")]
    assert len(set(whiskers)) == 5 * len(rates)  # none hides another
    assert max(min(abs(x - at) for at in of_line) for x in whiskers) < 3


def test_rows_are_drawn_to_scale():
    dots = [mark for mark in marks(ROWS, Dot, "dot") if mark.title]
    assert (dots[2].x - dots[1].x) / (dots[1].x - dots[0].x) == pytest.approx(2)
    assert [dot.y for dot in dots] == sorted(dot.y for dot in dots)
    for dot, whisker in zip(dots, marks(ROWS, Line, "whisker"), strict=True):
        (low, y), (high, _) = whisker.points
        assert (low + high) / 2 == pytest.approx(dot.x)
        assert (high - low) == pytest.approx(dots[1].x - dots[0].x)
        assert y == dot.y
    names = " ".join(mark.text for mark in marks(ROWS, Text, "name"))
    assert names.count("the name of row") == 3
    assert {mark.anchor for mark in marks(ROWS, Text, "name")} == {"end"}


def test_bars_stand_on_the_axis_and_are_as_high_as_their_values():
    first, second = marks(BARS, Box, "bar")
    assert second.height == pytest.approx(2 * first.height)
    assert first.y + first.height == pytest.approx(second.y + second.height)
    assert second.x - first.x == pytest.approx(first.width + 1)


def test_heat_maps_have_a_cell_for_every_number():
    cells = marks(HEAT, Box, "cell")
    assert [cell.strength for cell in cells] == [1.0, 0.5, 0.0, 0.0]
    assert len({cell.x for cell in cells}) == len({cell.y for cell in cells}) == 2
    (best,) = marks(HEAT, Box, "best")
    assert cells[0].x < best.x < best.x + best.width < cells[0].x + cells[0].width
    assert [mark.text for mark in marks(HEAT, Text, "hole")] == [formats.HOLE]


def test_axes_have_titles():
    for figure, titles in ((LINE, {"tokens", "loss (nats)"}), (ROWS, {"score (points)"})):
        assert {mark.text for mark in marks(figure, Text, "axistitle")} == titles
    for figure in (BARS, HEAT):
        assert {mark.text for mark in marks(figure, Text, "axistitle")} == {figure.x, figure.y}
    assert metric_names.axis_title("mlm_loss") == "MLM loss (nats)"
    assert metric_names.axis_title("tokens_per_second") == "Tokens per second (tokens/s)"
    assert metric_names.axis_title("pos/accuracy") == "POS accuracy"


NAMED = dataclasses.replace(
    LINE,
    series=[Series(f"a name {'that goes on ' * n}", [(1, 2), (2, 3)]) for n in range(0, 12, 3)],
)


@pytest.mark.parametrize("width", [layout.SLIM, layout.WIDTH, layout.BROAD])
@pytest.mark.parametrize("figure", [LINE, ROWS, BARS, HEAT, NAMED])
def test_nothing_is_outside_the_picture(figure, width):
    drawn = scene.captioned(
        scene_of(figure, width), "A title that takes more than one line. " * 4, "n " * 99
    )
    assert drawn.width >= width
    for mark in drawn.marks:
        if isinstance(mark, Text):
            size = float(svg.look(mark)["font-size"])
            width, height = scene.text_width(mark.text, size), size
            left = mark.x - width * {"start": 0, "middle": 0.5, "end": 1}[mark.anchor]
            box = (left, mark.y - height, left + width, mark.y)
            if mark.upright:
                box = (mark.x - height, mark.y - width / 2, mark.x, mark.y + width / 2)
        elif isinstance(mark, Box):
            box = (mark.x, mark.y, mark.x + mark.width, mark.y + mark.height)
        elif isinstance(mark, Dot):
            box = (mark.x, mark.y, mark.x, mark.y)
        else:
            xs, ys = zip(*mark.points, strict=True)
            box = (min(xs), min(ys), max(xs), max(ys))
        assert box[0] >= 0, mark
        assert box[1] >= 0, mark
        assert box[2] <= drawn.width + 0.01, mark
        assert box[3] <= drawn.height, mark


@given(st.text(max_size=60), st.floats(15, 200))
def test_wrapping_keeps_the_text_and_the_width(text, width):
    lines = scene.wrap(text, width)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")
    assert all(scene.text_width(line) <= width for line in lines)


def test_texts_of_an_axis_do_not_overlap():
    ticks = [(float(i), f"label {i}") for i in range(40)]
    chart = Chart("t", [Series("s", [(0.0, 1.0), (39.0, 2.0)])], ticks=ticks)
    labels = [mark for mark in marks(chart, Text, "tick") if mark.text.startswith("label")]
    assert 3 < len(labels) < 40
    for a, b in itertools.pairwise(labels):
        half = (scene.text_width(a.text) + scene.text_width(b.text)) / 2
        assert b.x - a.x >= half


def test_points_without_a_value_yet_have_their_place():
    ticks = [(rate, f"{100 * rate:g} %") for rate in (0.05, 0.15, 0.4, 0.8)]
    chart = Chart("t", [Series("", [(0.15, 1.0), (0.4, 2.0)])], x="rate", ticks=ticks)
    labels = [mark.text for mark in marks(chart, Text, "tick")]
    assert {label for _, label in ticks} <= set(labels)


def test_an_interval_much_longer_than_most_does_not_squash_the_rest():
    short = [(float(i), 1.0 + i / 10 - 0.1, 1.0 + i / 10 + 0.1) for i in range(5)]
    points = [(x, (low + high) / 2) for x, low, high in short]
    chart = Chart("t", [Series("s", points, whiskers=[*short[:-1], (4.0, -98.6, 101.4)])])
    assert max(chart.values()) < 2
    assert min(chart.values()) <= 0.9
    whole = dataclasses.replace(chart, cut=False).values()
    assert (min(whole), max(whole)) == (-98.6, 101.4)
    _, top, _, base = scene_of(chart).frame
    for whisker in marks(chart, Line, "whisker"):
        assert all(top <= y <= base for _, y in whisker.points)


def test_a_line_of_long_intervals_does_not_squash_another():
    points = [(float(i), 1.0 + i / 10) for i in range(4)]

    def line(half):
        return Series("", points, whiskers=[(x, y - half, y + half) for x, y in points])

    both = Chart("t", [line(0.2), line(50.0)]).values()
    assert max(both) - min(both) < 2
    alone = Chart("t", [line(50.0)]).values()
    assert max(alone) - min(alone) > 100


@pytest.mark.parametrize(
    ("level", "rows", "arrow"),
    [
        (60.0, (), "\N{UPWARDS ARROW}"),
        (-60.0, (), "\N{DOWNWARDS ARROW}"),
        (60.0, ("a", "b"), "\N{RIGHTWARDS ARROW}"),
        (-60.0, ("a", "b"), "\N{LEFTWARDS ARROW}"),
        (3.0, (), "\N{UPWARDS ARROW}"),
        (2.1, (), ""),
    ],
)
def test_a_far_baseline_is_named_at_the_edge_and_leaves_the_axis_to_the_values(level, rows, arrow):
    points = [(0.0, 1.0), (1.0, 2.0)]
    chart = Chart("t", [Series("s", points)], [("unigram", level)], rows=rows, edge=True)
    drawn = scene_of(chart)
    dashed = [mark.title for mark in marks(chart, Line, "baseline") if mark.title]
    assert dashed == ([] if arrow else [f"unigram {formats.exact(level)}"])
    texts = [mark.text for mark in marks(chart, Text)]
    assert (
        f"unigram {formats.number(level)} {arrow}".strip() in texts
        if rows or not arrow
        else ({arrow, f"unigram {formats.number(level)}"} <= {*texts})
    )
    whole = dataclasses.replace(chart, edge=False)  # without it the values make room
    apart = [
        abs(a.x - b.x) if rows else abs(a.y - b.y)
        for a, b in ([m for m in marks(one, Dot, "dot") if m.title] for one in (chart, whole))
    ]
    assert apart[0] == apart[1] if not arrow else apart[0] > 1.5 * apart[1]
    assert not arrow or apart[0] > 0.8 * (drawn.width / 2 if rows else layout._plot(drawn.width))


def test_the_name_of_a_baseline_hides_no_interval():
    whiskers = [(float(x), 0.0, 2.0) for x in range(40)]
    series = Series("", [(x, 1.0 + x / 99) for x, _, _ in whiskers], whiskers=whiskers)
    for level in (0.1, 1.0, 1.9, 2.2, 9.0):
        chart = Chart("t", [series], [("unigram", level)], edge=True, last=False)
        (name,) = (mark for mark in marks(chart, Text) if mark.text.startswith("unigram"))
        assert name.y < min(y for mark in marks(chart, Line, "whisker") for _, y in mark.points)


@pytest.mark.parametrize(
    ("series", "text"),
    [
        ([Series("training", [(1.0, 0.5), (2.0, 0.5)])], "t: 0.500 at all 2 points (training)."),
        ([Series("", [(1.0, 0.5)], dots=[(1.0, 0.5)])], "t: 0.500."),
        ([Series("", [(1.0, 0.5), (2.0, 0.6)])], None),
        ([Series("", [(1.0, 0.5)], whiskers=[(1.0, 0.4, 0.6)])], None),
        ([Series("", [(1.0, 0.5)], dots=[(1.0, 0.4), (1.0, 0.6)])], None),
    ],
)
def test_a_chart_of_one_value_is_a_line_of_text(series, text):
    drawn = svg.draw(Chart("t", series), wide=True)
    assert ("<svg" in drawn) == (text is None)
    assert text is None or "".join(ElementTree.fromstring(drawn).itertext()) == text


@given(st.lists(st.tuples(st.integers(0, 1000), FINITE), max_size=200), st.integers(3, 50))
def test_thinning_keeps_the_ends_the_order_and_the_mean(points, most):
    points = [(float(i), y) for i, (_, y) in enumerate(points)]
    thinned = thin(points, most)
    assert len(thinned) == min(len(points), most)
    assert thinned[:1] == points[:1]
    assert thinned[-1:] == points[-1:]
    assert [x for x, _ in thinned] == sorted(x for x, _ in thinned)
    if (
        len(points) > most and (len(points) - 2) % (most - 2) == 0
    ):  # equal runs: the mean of means is the mean
        means, inner = [y for _, y in thinned[1:-1]], [y for _, y in points[1:-1]]
        assert math.fsum(means) / len(means) == pytest.approx(
            math.fsum(inner) / len(inner), rel=1e-6, abs=1e-3
        )


# --- scales ---------------------------------------------------------------------------------------


@given(FINITE, FINITE, st.integers(2, 8))
def test_ticks_are_round_and_inside(a, b, count):
    axis = scales.Scale([a, b], 0, 100, pad=0.05)
    ticks = axis.ticks(count)
    assert 1 <= len(ticks) <= count + 1
    span = axis.high - axis.low
    assert all(axis.low - 1e-6 * span <= t <= axis.high + 1e-6 * span for t in ticks)
    assert ticks[0] - axis.low < 1.1 * span / count * 2.5  # and cover the range
    assert axis.high - ticks[-1] < 1.1 * span / count * 2.5
    for step in {
        round((y - x) / 10 ** math.floor(math.log10(y - x) + 1e-9), 6)
        for x, y in itertools.pairwise(ticks)
    }:
        assert step in (1, 2, 2.5, 5)


def test_logarithmic_scales():
    axis = scales.Scale([1e-3, 1e3], 0, 60, log=True)
    assert [axis.at(v) for v in (1e-3, 1.0, 1e3)] == pytest.approx([0, 30, 60])
    assert axis.ticks(7) == pytest.approx([10.0**p for p in range(-3, 4)])
    assert axis.ticks(3) == pytest.approx([1e-3, 1.0, 1e3])
    assert axis.at(0) == axis.at(-5) == 0  # which have no logarithm
    assert scales.Scale([2, 30], 0, 1, log=True).ticks(6) == pytest.approx([2, 5, 10, 20])
    assert scales.wide([1, 101])
    assert not scales.wide([1, 100])
    assert not scales.wide([0, 101])
    assert not scales.wide([])


EXTREME = [
    [-1e300, 1e300],
    [1e-300, 1e300],
    [5e-324],
    [1e300],
    [0.0],
    [1e15, 1e15 + 1],
    [-1e-12, 1e-12],
    [math.nan, math.inf, -math.inf, 1.0],
    [1e308, 1.0],
]


@pytest.mark.parametrize("values", EXTREME)
def test_extreme_values_are_drawn(values):
    points = [(float(i), v) for i, v in enumerate(values)]
    series = Series("s", points, dots=points, whiskers=[(0.0, -math.inf, math.nan)])
    chart = Chart("t", [series], [("b", values[0])])
    drawn = scene_of(chart)
    for mark in drawn.marks:
        if isinstance(mark, Line):
            assert all(math.isfinite(x + y) for x, y in mark.points)
        else:
            assert math.isfinite(mark.x + mark.y)
    assert len([mark for mark in drawn.marks if mark.role == "tick"]) >= 3
    assert scene_of(dataclasses.replace(chart, rows=[str(i) for i in range(len(values))]))
    assert scene_of(Bars("t", [Bar(i, i + 1, v, "") for i, v in points], "x", "y"))
    assert scene_of(
        Heat("t", ["r"], [str(v) for v in values], [values], [[math.nan] * len(values)])
    )


def test_a_gap_is_where_a_value_is_missing():
    points = [(float(i), math.nan if i == 2 else 1.0 + i) for i in range(5)]
    chart = Chart("t", [Series("s", points)])
    assert [len(line) for line in lines(chart)] == [2, 2]
    assert len(marks(chart, Dot, "dot")) == 4


@pytest.mark.parametrize(
    "empty",
    [
        Chart("t", []),
        Chart("t", [Series("s", [])], [("b", 1.0)]),
        Chart("t", [Series("s", [(1.0, math.nan)])]),
        Chart("t", [Series("s", [(0, math.inf)])], rows=["a"]),
        Bars("t", [], "x", "y"),
        Heat("t", ["a"], ["b"], [[math.nan]], [[0.0]]),
    ],
)
def test_no_values_no_figure(empty, tmp_path):
    assert scene_of(empty) is None
    assert svg.draw(empty) == ""
    assert files.write(tmp_path / "f", [empty]) == []


def test_a_single_point_is_a_dot_in_the_middle():
    chart = Chart("t", [Series("s", [(5.0, 3.0)])])
    (dot,) = (mark for mark in marks(chart, Dot, "dot") if mark.title)
    left, top, right, base = scene_of(chart).frame
    assert (dot.x, dot.y) == pytest.approx(((left + right) / 2, (top + base) / 2))


# --- numbers as text ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "percent", "text"),
    [
        (0, False, "0"),
        (1234567, False, "1,234,567"),
        (4.354, False, "4.354"),
        (1e-4, False, "0.0001"),
        (12.3, False, "12.30"),
        (-0.5, False, "-0.500"),
        (0.123, True, "12.3 %"),
        (0.0004, True, "0.040 %"),
    ],
)
def test_numbers_are_written_as_people_do(value, percent, text):
    assert formats.number(value, percent).replace(formats.SPACE, " ") == text


@given(st.floats(1, 1e14))
def test_large_numbers_are_no_powers_of_ten(value):
    texts = [formats.number(value), formats.exact(value), formats.rounded(value, 2)]
    for text in [*texts, format_large(value).partition(formats.SPACE)[0]]:
        assert re.fullmatch(r"\d{1,3}(,\d{3})*(\.\d+)?", text)
    assert float(texts[2].replace(",", "")) == pytest.approx(value, rel=0.05)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (999_600, "999,600"),
        (999_999_999, "1 G"),
        (1_254_000, "1.25 M"),
        (2e8, "200 M"),
        (3e21, "3,000 E"),
    ],
)
def test_amounts_are_short_and_in_plain_digits(value, text):
    assert format_large(value).replace(formats.SPACE, " ") == text


@given(st.floats(-1e300, 1e300, allow_nan=False))
def test_exact_numbers_have_six_digits(value):
    assert float(formats.exact(value).replace(",", "")) == pytest.approx(value, rel=1e-5)
    share = formats.exact(value, True).removesuffix(f"{formats.SPACE}%")
    assert float(share) == pytest.approx(100 * value, rel=1e-5)


# --- pages ----------------------------------------------------------------------------------------


@given(st.lists(FINITE, min_size=1, max_size=25), st.booleans())
def test_every_point_says_its_exact_value_on_hover(values, percent):
    points = [(float(i), v) for i, v in enumerate(values)]
    chart = Chart("t", [Series("a<b", points, whiskers=[(0.0, -1.0, 1.0)])], percent=percent)
    said = [mark.title for mark in marks(chart, Dot, "dot") if mark.title]
    for value, title in zip(values, said, strict=True):
        assert f": {formats.exact(value, percent)}" in title
        assert title.startswith("a<b, step ")
    assert f"({formats.exact(-1, percent)} to {formats.exact(1, percent)})" in said[0]
    root = ElementTree.fromstring(svg.draw(chart))
    assert said == [title.text for circle in root.iter("circle") for title in circle.iter("title")]
    (line,) = (one for one in root.iter("polyline") if one.get("data-readings"))
    readings = json.loads(line.get("data-readings"))
    assert [y for _, y in readings] == [title.partition(": ")[2] for title in said]
    assert line.get("data-name") == "a<b"
    assert len(line.get("points").split()) == len(readings)


def test_labels_of_users_cannot_break_the_readings():
    label = """a|b: 'c' "d" <e> & f"""
    chart = Chart("t", [Series(label, [(0.0, 1.0), (1.0, 2.0)])], x="x", ticks=[(0.0, label)])
    root = ElementTree.fromstring(svg.draw(chart))
    (line,) = (one for one in root.iter("polyline") if one.get("data-readings"))
    assert json.loads(line.get("data-readings")) == [[f"x {label}", "1"], ["x 1", "2"]]
    assert line.get("data-name") == label


def test_cells_rows_and_bars_say_their_values():
    assert [mark.title for mark in marks(HEAT, Box, "cell")] == [
        "a, c: 1",
        "a, d: 2",
        "b, c: 3",
        "b, d: none",
    ]
    assert marks(ROWS, Dot, "dot")[-1].title.endswith(": 16 (15 to 17)")
    assert [mark.title for mark in marks(BARS, Box)] == ["0 to 1: 3", "1 to 2: 6"]


def test_a_wide_figure_is_laid_out_for_broad_and_slim_cards():
    root = ElementTree.fromstring(svg.draw(LINE, wide=True))
    boxes = {div.get("class"): div[0].get("viewBox").split()[2] for div in root.iter("div")}
    assert boxes == {"broad": str(layout.BROAD), "slim": str(layout.SLIM)}
    assert len(list(root.iter("figcaption"))) == 1
    assert svg.draw(dataclasses.replace(LINE, series=[]), wide=True) == ""


def test_a_slim_matrix_has_short_numbers():
    texts = {
        width: [mark.text for mark in scene_of(HEAT, width).marks if mark.role == "value"]
        for width in (layout.SLIM, layout.WIDTH)
    }
    assert texts == {layout.SLIM: ["2.00", "3.00"], layout.WIDTH: ["2.000", "3.000"]}
    grid = [[5.125] * 10] * 3
    names = [f"{rate} %" for rate in range(10)]
    assert scene_of(Heat("t", names[:3], names, grid, grid), layout.SLIM).width <= 480


def test_pages_know_every_role_and_colour_in_both_themes():
    light, dark = svg.STYLE.split("@media (prefers-color-scheme: dark)")
    tones = [f"c{i}" for i in range(1, COLOURS + 1)] + [f"q{i}" for i in range(10)]
    for tone in tones:
        assert re.search(rf"\.{tone} \{{ color: ", light)
        assert re.search(rf"--{tone}: #|\.{tone} \{{ color: #", dark)
    assert svg.STYLE in page.STYLE
    for figure in (LINE, ROWS, BARS, HEAT):
        for mark in scene.captioned(scene_of(figure), "t", "n").marks:
            look = svg.look(mark)
            assert {"fill", "stroke"} & look.keys()
            assert not any("var(" in value or value == "currentColor" for value in look.values())


POINT = """<script>
const [svg, rows] = document.querySelectorAll('.chart svg'), box = svg.getBoundingClientRect();
const right = { clientX: box.right - 30, clientY: box.top + 30 };
svg.dispatchEvent(new PointerEvent('pointermove', right));
const dot = rows.querySelectorAll('.dot[aria-label]')[1].getBoundingClientRect();
rows.dispatchEvent(new PointerEvent('pointermove', { clientX: dot.left + 9, clientY: dot.top }));
</script></body>"""


def test_the_script_reads_all_lines_off_at_one_place(tmp_path):
    series = [
        Series("long", [(float(step), 1 / step) for step in range(1, 31)]),
        Series("short", [(10.0, 0.123456), (20.0, 0.654321)], 2),
    ]
    body = svg.draw(Chart("t", series, y="loss (nats)")) + svg.draw(ROWS)
    whole = chromium.document(tmp_path, page.page("t", body).replace("</body>", POINT))
    tip, nearest = re.findall(r'<div class="tip"[^>]*>(.*?)</div>', whole, re.DOTALL)
    assert nearest == f"s, {ROWS.rows[1]}: 12 (11 to 13)"  # of the dot that is nearest
    first, long, short = tip.split("\n")
    step = int(first.removeprefix("step "))
    assert 20 < step <= 30
    assert long == f"long  {formats.exact(1 / step)}"
    assert short == "short  0.654321 at step 20"


def test_faint_lines_lie_below():
    chart = Chart("t", [Series("a", [(0, 1), (1, 2)]), Series("b", [(0, 1), (1, 2)], faint=True)])
    names = [mark.title for mark in scene_of(chart).marks if getattr(mark, "readings", ())]
    assert names == ["b", "a"]


# --- files ----------------------------------------------------------------------------------------


def test_files_are_drawn_from_the_same_marks(tmp_path, monkeypatch):
    seen = []
    draw = files._draw
    monkeypatch.setattr(
        files, "_draw", lambda axes, mark, order: (seen.append(mark), draw(axes, mark, order))
    )
    written = files.write(tmp_path / "f", [LINE, HEAT], columns=2, source="who & when")
    assert [path.name for path in written] == ["f.png", "f.svg", "f.pdf"]
    root = ElementTree.fromstring((tmp_path / "f.svg").read_text())
    kinds = {"polyline": Line, "rect": Box, "circle": Dot, "text": Text}
    shapes = [one.tag.partition("}")[2] for one in root.iter()]
    shapes = [kinds[tag] for tag in shapes if tag in kinds][1:]  # without the ground
    assert shapes == [type(mark) for mark in seen]
    assert "var(" not in (tmp_path / "f.svg").read_text()


def test_files_name_their_source_without_drawing_it(tmp_path):
    png, vector, pdf = files.write(tmp_path / "f", [LINE], source="study x, 3 of 3 cells")
    assert b"study x, 3 of 3 cells" in png.read_bytes()
    assert b"study x, 3 of 3 cells" in pdf.read_bytes()
    root = ElementTree.fromstring(vector.read_text())
    assert root.find("{*}desc").text == "study x, 3 of 3 cells"
    assert "study x" not in "".join(text.text for text in root.iter("{*}text"))
    before = [path.read_bytes() for path in (png, vector, pdf)]
    files.write(tmp_path / "f", [LINE], source="study x, 3 of 3 cells")
    assert [path.read_bytes() for path in (png, vector, pdf)] == before


def test_fonts_in_a_pdf_are_those_that_publishers_take(tmp_path):
    (written,) = files.write(tmp_path / "f", [LINE], kinds=("pdf",))
    assert b"/CIDFontType2" in written.read_bytes()
    assert b"/Type3" not in written.read_bytes()


def test_a_pixel_of_the_png_is_where_the_scene_says(tmp_path):
    from matplotlib import image

    files.write(tmp_path / "f", [dataclasses.replace(HEAT, title="")], kinds=("png",))
    drawn = scene.captioned(scene_of(HEAT), "")
    pixels = image.imread(tmp_path / "f.png")
    per_point = files.DOTS / files.INCH
    assert pixels.shape[1] == pytest.approx(drawn.width * per_point, abs=1)
    for cell in (mark for mark in drawn.marks if mark.role == "cell"):
        row, column = (int(place * per_point) for place in (cell.y + 5, cell.x + 5))
        blue = 1 - 0.55 * cell.strength * (1 - 0x24 / 255)
        assert pixels[row, column, 0] == pytest.approx(blue, abs=0.01)


def test_a_name_with_dollars_is_no_formula(tmp_path):
    chart = Chart("a $x^2$ and $", [Series("$\\frac$", [(0, 1), (1, 2)])])
    assert len(files.write(tmp_path / "f", [chart])) == 3


def test_drawing_pages_needs_no_matplotlib():
    code = "import sys\nfrom bert_jax.reporting import files, svg\n"
    code += "print([m for m in ('jax', 'flax', 'matplotlib') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_name_of_any_characters_is_drawn(tmp_path):
    chart = Chart("a\x00b\x1b[0m <&>", [Series("\x07 長い名前", [(0, 1)])], rows=["長" * 40])
    files.write(tmp_path / "f", [chart], kinds=("svg",))
    root = ElementTree.fromstring((tmp_path / "f.svg").read_text())
    assert root.find("{*}title").text == "a b [0m <&>"
    dots = [mark for mark in marks(chart, Dot, "dot") if mark.title]
    assert 150 < dots[0].x < layout.WIDTH
    assert scene.text_width("長い") > scene.text_width("ab") * 1.5


def test_figures_side_by_side_keep_apart():
    one = scene_of(LINE)
    both = scene.side_by_side([one, one, one], 2)
    assert both.width == 2 * one.width + scene.GAP
    assert both.height == 2 * one.height + scene.GAP
    assert len(both.marks) == 3 * len(one.marks)
    assert one.width == layout.WIDTH
