"""Figures on a page: exact values on hover, colours of the theme, and no script from a text."""

from __future__ import annotations

import dataclasses
import json
import re
from xml.etree import ElementTree

import pytest

from bert_jax.reporting import palette, svg
from bert_jax.reporting.figures import Chart, Series
from bert_jax.reporting.formats import exact
from tests.reporting.shown import BARS, EMPTY, FIGURES, HEAT, LINE, ROWS


def read(figure):
    """The readings of a figure on a page, and its picture."""
    element = ElementTree.fromstring(svg.draw(figure))
    return json.loads(element.get("data-readings")), element.find("{*}svg")


@pytest.mark.parametrize("empty", EMPTY)
def test_no_values_no_figure(empty):
    assert svg.draw(empty) == ""


def test_every_mark_says_its_exact_value():
    texts = {id(figure): [text for *_, text in read(figure)[0]] for figure in FIGURES}
    assert texts[id(LINE)] == ["s, tokens 10: 1", "s, tokens 20: 2", "s, tokens 40: 4"]
    assert texts[id(ROWS)][2] == f"s, {ROWS.rows[2]}: 16 (15 to 17)"
    assert texts[id(ROWS)][3:] == [f"s, {ROWS.rows[0]}: {value}" for value in ("9.5", "10.5")]
    assert texts[id(HEAT)] == ["a, c: 1", "a, d: 2", "b, c: 3", "b, d: none"]
    assert texts[id(BARS)] == ["0 to 1: 3", "1 to 2: 6"]
    share = Chart("t", [Series("", [(0.0, 1 / 3), (1.0, 0.5)])], percent=True)
    assert read(share)[0][0][2] == f"step 0: {exact(1 / 3, True)}"


def test_readings_stand_where_the_dots_are():
    """The dots of the picture are the places of its readings, whatever matplotlib's margins."""
    readings, picture = read(LINE)
    dots = [(float(use.get("x")), float(use.get("y"))) for use in picture.findall(".//{*}use")]
    for place in readings:
        assert min(abs(place[0] - x) + abs(place[1] - y) for x, y in dots) < 0.2
    (x0, y0), (x1, y1), (x2, y2) = (place[:2] for place in readings)
    assert (x2 - x1) / (x1 - x0) == pytest.approx(2, rel=0.01)
    assert (y2 - y1) / (y1 - y0) == pytest.approx(2, rel=0.01)


def test_labels_of_users_are_inert():
    label = """font-family: x; #2467b3 0.12345</svg><script>alert(1)</script> 'c' "d" & $x^2$"""
    label += " \x00 \x1b[0m \ud800 長い"
    points = [(0.0, 1.0), (1.0, 2.0)]
    chart = Chart(label, [Series(label, points), Series("b", points)], [(label, 1.5)], x=label)
    heat = dataclasses.replace(HEAT, title=label, rows=[label, "b"], columns=["a", label])
    rows = Chart(label, [Series(label, points)], rows=[label, label], note=label)
    for figure in (chart, heat, rows):
        drawn = svg.draw(figure)
        assert "<script" not in drawn
        text = "".join(ElementTree.fromstring(drawn.encode(errors="replace")).itertext())
        assert "font-family: x; #2467b3 0.12345" in text


@pytest.mark.parametrize("figure", FIGURES)
def test_pictures_have_no_colour_but_the_themes(figure):
    drawn = svg.draw(figure)
    assert not re.search("#[0-9a-f]{6}", drawn)
    assert {*re.findall(r"var\(--(\w+)\)", drawn)} <= palette.LIGHT.keys() == palette.DARK.keys()


def test_pictures_are_alike_and_their_parts_apart():
    """The same figure gives the same text; two figures of a page share no name of a part."""
    assert svg.draw(LINE) == svg.draw(LINE)
    names = [
        {*re.findall(r'\bid="([^"]+)"', svg.draw(figure))}
        for figure in (LINE, dataclasses.replace(LINE, title="u"), ROWS)
    ]
    assert all(names)
    assert not names[0] & names[1] | names[0] & names[2]


@pytest.mark.parametrize(
    ("series", "text"),
    [
        ([Series("training", [(1.0, 0.5), (2.0, 0.5)])], "t: 0.500 at all 2 points (training)."),
        ([Series("", [(1.0, 0.5)], dots=[(1.0, 0.5)])], "t: 0.500."),
    ],
)
def test_a_chart_of_one_value_is_a_line_of_text(series, text):
    element = ElementTree.fromstring(svg.draw(Chart("t", series)))
    assert "".join(element.itertext()) == text
