"""Figures of a page: SVG in the colours of the reader's theme, with exact values on hover."""

import hashlib
import io
import re
from typing import Any

from markupsafe import Markup

from bert_jax.reporting.figures import Chart, Figure, clean_texts, has_values
from bert_jax.reporting.formats import number
from bert_jax.reporting.page import render
from bert_jax.reporting.palette import LIGHT

BALLAST = {  # in a tag of matplotlib's: pattern -> what is written in its place
    r"font-family: [^;]*; ": "",  # it is in page.css
    r' id="[\w.]+_\d+"': "",  # the same in every figure
    r' transform="rotate\(-0 [^"]*"': "",
    r"xlink:href": "href",
    r"\s+": " ",
    r"(\.\d\d)\d+": r"\1",
}
STILL = 1e-6  # of the largest value: values that vary by no more are constant but for rounding
COLOURS = {value: f"var(--{name})" for name, value in LIGHT.items()}


def draw_svg(figure: Figure, about: str = "") -> Markup:
    """Draw a figure as a `<figure>` of a page; return "" if it has no values.

    A chart whose values are all equal becomes a line of text. `about` says what the title means.
    """
    figure = clean_texts(figure)
    if not has_values(figure):
        return Markup()
    if isinstance(figure, Chart) and _has_one_value(figure):
        values: dict[str, Any] = {"picture": "", "said": _describe_value(figure)}
    else:
        values = _draw_picture(figure) | {"said": figure.note}
    return Markup(render("reporting/figure.html", title=figure.title, about=about, **values))


def _has_one_value(chart: Chart) -> bool:
    """Tell whether all points of a chart are equal up to rounding and have no intervals."""
    spread = any(line.band or line.whiskers for line in chart.series)
    values = chart.singles
    return not spread and max(values) - min(values) <= STILL * max(map(abs, values))


def _describe_value(chart: Chart) -> str:
    """Write the value of a constant chart, the number of its points, and the names of its lines."""
    lines = [line for line in chart.series if line.points]
    count = sum(len(line.points) for line in lines)
    names = [line.name for line in lines if line.name]
    names += [f"{name} {number(level, chart.percent)}" for name, level in chart.baselines if name]
    often = f" at all {count:,} points" if count > 1 else ""
    of = f" ({'; '.join(names)})" if names else ""
    return f"{number(chart.singles[-1], chart.percent)}{often}{of}. {chart.note}".rstrip()


def _draw_picture(figure: Figure) -> dict[str, Any]:
    """Draw a figure; return its size, the inside of its `<svg>`, and (x, y, text) of each value."""
    from bert_jax.reporting import drawing  # matplotlib takes a while to load

    # Two figures of a page must not share the names of their parts.
    salt = hashlib.sha256(repr(figure).encode()).hexdigest()
    out = io.StringIO()
    with drawing.use_style(**{"svg.hashsalt": salt}):
        canvas, drawn = drawing.draw_figures([figure], captions=False)
        canvas.savefig(out, format="svg", transparent=True, metadata={"Date": None})
    width, height = canvas.get_size_inches() * 72
    readings = []
    for axes, known in drawn:
        for x, y, text in known:
            right, up = axes.transData.transform((x, y))
            readings.append((round(right, 1), round(height - up, 1), text))
    svg = out.getvalue()
    content = svg[svg.index(">", svg.index("<svg")) + 1 : svg.rindex("</svg>")]
    content = re.sub("<(metadata|style).*?</\\1>", "", content, flags=re.DOTALL)
    content = re.sub("<[^>]+>", _shorten_tag, content)
    content = re.sub(r">\s+<", "><", content.strip()).replace("<g/>", "")
    return {
        "size": f"{width:g} {height:g}",
        "least": 0.7 * width if width > drawing.WIDTH else 0,  # a wide one scrolls in a slim card
        "picture": Markup(content),  # matplotlib has escaped the texts in it
        "readings": readings,
    }


def _shorten_tag(found: re.Match[str]) -> str:
    """Shorten a tag of matplotlib's SVG, and put variables of CSS in place of its colours."""
    tag = found[0]
    for pattern, text in BALLAST.items():
        tag = re.sub(pattern, text, tag)
    return re.sub("|".join(COLOURS), lambda colour: COLOURS[colour[0]], tag)
