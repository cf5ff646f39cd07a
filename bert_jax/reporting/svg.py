"""Figures inside a page: SVG in the colours of the reader's theme, with exact values on hover."""

from __future__ import annotations

import hashlib
import io
import json
import re
from html import escape

from bert_jax.reporting.figures import Chart, Figure, Heat, clean_texts, finite, has_values
from bert_jax.reporting.formats import number
from bert_jax.reporting.palette import LIGHT
from bert_jax.reporting.terms import term

UNDATED = dict.fromkeys(("Creator", "Date", "Format", "Type"))
BALLAST = {  # in a tag of matplotlib's: pattern -> what is written in its place
    r"font-family: [^;]*; ": "",  # it is in page.css
    r' id="[\w.]+_\d+"': "",  # the same in every figure
    r' transform="rotate\(-0 [^"]*"': "",
    r"xlink:href": "href",
    r"\s+": " ",
    r"(\.\d\d)\d+": r"\1",
}
COLOURS = {value: f"var(--{name})" for name, value in LIGHT.items()}


def draw(figure: Figure, about: str = "") -> str:
    """Draw a `<figure>` of a page; empty if there are no values.

    A chart of one value is a line of text. `about` says what the title means.
    """
    figure = clean_texts(figure)
    if isinstance(figure, Chart) and (value := figure.constant) is not None:
        return _write_line(figure, value, about) if finite(value) else ""
    if not has_values(figure):
        return ""
    picture, readings = _draw_picture(figure)
    below = f'<p class="note">{escape(figure.note)}</p>' if figure.note else ""
    said = escape(json.dumps(readings, ensure_ascii=False, separators=(",", ":")))
    return (
        f'<figure class="chart" data-readings="{said}">'
        f"<figcaption>{term(figure.title, about)}</figcaption>{picture}{below}</figure>"
    )


def _write_line(chart: Chart, value: float, about: str) -> str:
    """Write the one value of a chart, how often it is there, and of what it is."""
    count = sum(len(series.points) for series in chart.series)
    names = [series.name for series in chart.series if series.points and series.name]
    names += [f"{name} {number(level, chart.percent)}" for name, level in chart.baselines if name]
    often = f" at all {count:,} points" if count > 1 else ""
    of = f" ({'; '.join(names)})" if names else ""
    text = escape(f": {number(value, chart.percent)}{often}{of}. {chart.note}".rstrip())
    return f'<p class="flat"><b>{term(chart.title, about)}</b>{text}</p>'


def _draw_picture(figure: Figure) -> tuple[str, list[tuple[float, float, str]]]:
    """Draw the `<svg>` of a figure, and list its readings: x, y and text."""
    from bert_jax.reporting import drawing  # matplotlib takes a while to load

    # Two figures of a page must not share the names of their parts.
    salt = hashlib.sha256(repr(figure).encode(errors="replace")).hexdigest()
    with drawing.use_style({"svg.hashsalt": salt}):
        drawn = drawing.draw_figures([figure], captions=False)
        out = io.StringIO()
        drawn.canvas.savefig(out, format="svg", transparent=True, metadata=UNDATED)
    width, height = drawn.canvas.get_size_inches() * 72
    readings = []
    for axes, known in drawn.readings:
        for x, y, text in known:
            right, up = axes.transData.transform((x, y))
            readings.append((round(right, 1), round(height - up, 1), text))
    content = _shorten(out.getvalue())
    role = "group" if isinstance(figure, Heat) else "img"  # a matrix is read as text, too
    picture = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
        f'role="{role}" aria-label="{escape(figure.title)}">{content}'
    )
    if width > drawing.WIDTH:  # it scrolls in a slim card
        picture = (
            f'<div class="scroll"><div style="min-width:{0.7 * width:.0f}px">{picture}</div></div>'
        )
    return picture, readings


def _shorten(svg: str) -> str:
    """Take what is inside the `<svg>` of matplotlib, in the theme's colours and without ballast."""
    content = svg[svg.index(">", svg.index("<svg")) + 1 :]
    content = re.sub("<style.*?</style>", "", content, flags=re.DOTALL)  # it is in page.css
    content = re.sub("<[^>]+>", _shorten_tag, content)
    return re.sub(r">\s+<", "><", content.strip()).replace("<g/>", "")


def _shorten_tag(found: re.Match[str]) -> str:
    """Rewrite a tag, and no text between tags."""
    tag = found[0]
    for pattern, text in BALLAST.items():
        tag = re.sub(pattern, text, tag)
    return re.sub("|".join(COLOURS), lambda colour: COLOURS[colour[0]], tag)
