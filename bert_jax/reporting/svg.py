"""Scenes as SVG: inside a page, in the colours of its theme, or as a document of its own."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable
from html import escape
from pathlib import Path

from bert_jax.reporting.figures import Chart, Figure, Heat
from bert_jax.reporting.formats import number
from bert_jax.reporting.layout import BROAD, SLIM, WIDTH, scene_of
from bert_jax.reporting.scales import finite
from bert_jax.reporting.scene import Box, Dot, Line, Mark, Scene, Text
from bert_jax.reporting.terms import term

STYLE = Path(__file__).with_name("figure.css").read_text(encoding="utf-8")
FONT = "DejaVu Sans, Verdana, Helvetica, Arial, sans-serif"
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\ud800-\udfff\ufffe\uffff]")  # not allowed in XML
Look = Callable[[Mark], str]  # the attributes that give a mark its colours and strokes


def draw(figure: Figure, wide: bool = False, about: str = "") -> str:
    """Draw a `<figure>` of a page, with exact values on hover; empty if there are no values.

    A chart of one value is a line of text.
    A wide one fills a broad card and is laid out a second time for a slim one; figure.css shows
    one of the two. `about` says what the title means.
    """
    if isinstance(figure, Chart) and (value := figure.constant()) is not None:
        return _line(figure, value, about) if finite(value) else ""
    widths = {"broad": BROAD, "slim": SLIM} if wide else {"": WIDTH}
    scenes = {kind: (scene_of(figure, width), width) for kind, width in widths.items()}
    drawn = "".join(
        _picture(figure, scene, kind, width)
        for kind, (scene, width) in scenes.items()
        if scene is not None
    )
    if not drawn:
        return ""
    below = f'<p class="note">{escape(figure.note)}</p>' if figure.note else ""
    return (
        f'<figure class="chart"><figcaption>{term(figure.title, about)}</figcaption>'
        f"{drawn}{below}</figure>"
    )


def _line(chart: Chart, value: float, about: str) -> str:
    """Write the one value of a chart, how often it is there, and of what it is."""
    count = sum(len(series.points) for series in chart.series)
    names = [series.name for series in chart.series if series.points and series.name]
    names += [f"{name} {number(level, chart.percent)}" for name, level in chart.baselines if name]
    often = f" at all {count:,} points" if count > 1 else ""
    of = f" ({'; '.join(names)})" if names else ""
    text = escape(f": {number(value, chart.percent)}{often}{of}. {chart.note}".rstrip())
    return f'<p class="flat"><b>{term(chart.title, about)}</b>{text}</p>'


def _picture(figure: Figure, scene: Scene, kind: str, width: float) -> str:
    """Draw a scene for cards of a kind; one that needs more than its width scrolls."""
    frame = " ".join(f"{edge:.1f}" for edge in scene.frame or ())
    read_off = f' data-frame="{frame}"' if frame else ""
    role = "group" if isinstance(figure, Heat) else "img"  # a matrix is read as text, too
    drawn = (
        f'<svg viewBox="0 0 {scene.width:.0f} {scene.height:.0f}" role="{role}"{read_off} '
        f'aria-label="{escape(figure.title)}">{_marks(scene, _classes)}</svg>'
    )
    if scene.width > width + 1:
        least = f"min-width:{0.7 * scene.width:.0f}px"
        drawn = f'<div class="scroll"><div style="{least}">{drawn}</div></div>'
    return f'<div class="{kind}">{drawn}</div>' if kind else drawn


def document(scene: Scene, title: str, source: str = "") -> str:
    """Write a scene as an SVG file on white ground; `source` is metadata, not drawn."""
    size = f'width="{scene.width:.0f}pt" height="{scene.height:.0f}pt"'
    text = (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} '
        f'viewBox="0 0 {scene.width:.0f} {scene.height:.0f}" font-family="{FONT}">'
        f"<title>{escape(title)}</title><desc>{escape(source)}</desc>"
        f'<rect width="100%" height="100%" fill="white"/>{_marks(scene, _attributes)}</svg>\n'
    )
    return CONTROL.sub(" ", text)


def _marks(scene: Scene, look: Look) -> str:
    return "".join(_element(mark, look(mark)) for mark in scene.marks)


def _element(mark: Mark, look: str) -> str:
    """Write a mark; a line's readings are for the page's script, all other hovers are titles."""
    inner = f"<title>{escape(mark.title)}</title>" if mark.title else ""
    if isinstance(mark, Line):
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in mark.points)
        tag, place = "polyline", f'points="{points}"'
        if mark.readings:
            readings = escape(json.dumps(mark.readings, ensure_ascii=False, separators=(",", ":")))
            readings = readings.replace("&quot;", '"')  # the attribute stands in single quotes
            place += f" data-name=\"{escape(mark.title)}\" data-readings='{readings}'"
            inner = ""
    elif isinstance(mark, Dot):
        tag, place = "circle", f'cx="{mark.x:.1f}" cy="{mark.y:.1f}" r="{mark.radius:g}"'
    elif isinstance(mark, Box):
        tag, place = "rect", f'x="{mark.x:.1f}" y="{mark.y:.1f}"'
        place += f' width="{mark.width:.1f}" height="{mark.height:.1f}"'
    else:
        assert isinstance(mark, Text)
        tag, inner = "text", inner + escape(mark.text)
        place = f'x="{mark.x:.1f}" y="{mark.y:.1f}" text-anchor="{mark.anchor}"'
        if mark.upright:
            place += f' transform="rotate(-90 {mark.x:.1f} {mark.y:.1f})"'
    return f"<{tag} {look} {place}>{inner}</{tag}>"


def _classes(mark: Mark) -> str:
    """Leave the look to the style sheet."""
    strength = f' style="opacity:{look(mark)["opacity"]}"' if mark.strength < 1 else ""
    return f'class="{f"{mark.role} {mark.tone}".strip()}"{strength}'


def _attributes(mark: Mark) -> str:
    """Write the look of the light theme out, for programs that know no variables of CSS."""
    return " ".join(f'{name}="{value}"' for name, value in look(mark).items())


def look(mark: Mark) -> dict[str, str]:
    """Return the properties of a mark in the light theme."""
    roles, tones = _light()
    properties = {name: tones.get(value, value) for name, value in roles[mark.role].items()}
    for name, value in properties.items():
        if value == "currentColor":
            properties[name] = tones[mark.tone]
    if mark.strength < 1:
        properties["opacity"] = f"{float(properties.get('opacity', 1)) * mark.strength:.3f}"
    return properties


@functools.cache
def _light() -> tuple[dict[str, dict[str, str]], dict[str, str]]:
    """Read the properties of each role, and the colour of each tone and variable."""
    light = STYLE.partition("@media")[0]
    tones = {f"var(--{name})": value for name, value in re.findall(r"--(\w+): ([^;]+);", light)}
    for name, value in re.findall(r"\.(\w\d) \{ color: ([^;]+);", light):
        tones[name] = tones.get(value, value)
    roles = {
        role: dict(re.findall(r"([\w-]+): ([^;]+?)(?:px)?;", body))
        for role, body in re.findall(r"svg \.(\w+) \{(.*?)\}", light, re.DOTALL)
    }
    return roles, tones
