"""Figures on a page: exact values on hover, colours of the theme, and no script from a text."""

import dataclasses
import json
import re
from xml.etree import ElementTree

import pytest

from bert_jax.reporting import svg
from bert_jax.reporting.figures import Chart, Series
from tests.reporting.kinds import FIGURES, HEAT, LINE, ROWS


def test_readings_stand_where_the_dots_are():
    element = ElementTree.fromstring(svg.draw_svg(LINE))
    readings, picture = json.loads(element.get("data-readings")), element.find(".//{*}svg")
    dots = [(float(use.get("x")), float(use.get("y"))) for use in picture.findall(".//{*}use")]
    for place in readings:
        assert min(abs(place[0] - x) + abs(place[1] - y) for x, y in dots) < 0.2
    (x0, y0), (x1, y1), (x2, y2) = (place[:2] for place in readings)
    assert (x2 - x1) / (x1 - x0) == pytest.approx(2, rel=0.01)
    assert (y2 - y1) / (y1 - y0) == pytest.approx(2, rel=0.01)


@pytest.mark.fault(18)
def test_labels_of_users_are_inert():
    label = """font-family: x; #2467b3 0.12345</svg><script>alert(1)</script> 'c' "d" & $x^2$"""
    label += " \x00 \x1b[0m \ud800 長い"
    points = [(0.0, 1.0), (1.0, 2.0)]
    chart = Chart(label, [Series(label, points), Series("b", points)], [(label, 1.5)], x=label)
    heat = dataclasses.replace(HEAT, title=label, rows=[label, "b"], columns=["a", label])
    rows = Chart(label, [Series(label, points)], rows=[label, label], note=label)
    for figure in (chart, heat, rows):
        drawn = svg.draw_svg(figure)
        assert "<script" not in drawn
        text = "".join(ElementTree.fromstring(drawn).itertext())
        assert "font-family: x; #2467b3 0.12345" in text


def test_figures_share_no_names_of_parts():
    assert svg.draw_svg(LINE) == svg.draw_svg(LINE)
    drawn = "".join(map(svg.draw_svg, FIGURES))
    assert not re.search("#[0-9a-f]{6}", drawn), "colours of the theme"
    figures = (LINE, dataclasses.replace(LINE, title="u"), ROWS)
    names = [{*re.findall(r'\bid="([^"]+)"', svg.draw_svg(figure))} for figure in figures]
    assert all(names)
    assert not names[0] & (names[1] | names[2])


def test_chart_of_one_value_is_a_line_of_text():
    """Values are equal but for rounding; a value with an interval is drawn."""
    points = [(1.0, 0.5), (2.0, 0.5 + 1e-9)]
    element = ElementTree.fromstring(svg.draw_svg(Chart("t", [Series("training", points)])))
    assert element.tag == "p"
    assert "".join(element.itertext()) == "t: 0.500 at all 2 points (training)."
    with_interval = Series("", points, whiskers=[(1.0, 0.4, 0.6)])
    for series in (with_interval, Series("", [*points, (3.0, 0.6)])):
        assert ElementTree.fromstring(svg.draw_svg(Chart("t", [series]))).tag == "figure"
