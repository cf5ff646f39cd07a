"""Figures as PNG, SVG and PDF files for papers; matplotlib draws only what a scene says."""

from __future__ import annotations

import io
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bert_jax.reporting import svg
from bert_jax.reporting.figures import Figure
from bert_jax.reporting.layout import scene_of
from bert_jax.reporting.scene import Box, Dot, Line, Mark, Scene, Text, captioned, side_by_side
from bert_jax.system import disk

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

KINDS = ("png", "svg", "pdf")
DOTS = 180  # per inch of a PNG
INCH = 72  # points of a scene
FONTS: Any = {  # TrueType in a PDF: publishers refuse the Type 3 of matplotlib's default
    "font.family": "sans-serif",
    "savefig.bbox": None,
    "pdf.fonttype": 42,
}
METADATA = {  # what title and source are called; what is left out, as it differs every time
    "png": (("Title", "Description"), "Software"),
    "pdf": (("Title", "Subject"), "CreationDate"),
}
ANCHORS: Any = {"start": "left", "middle": "center", "end": "right"}


def write(
    path: Path,
    figures: Sequence[Figure],
    *,
    columns: int = 1,
    source: str = "",
    kinds: Collection[str] = KINDS,
) -> list[Path]:
    """Write figures side by side to `path` with the ending of each kind; none without values.

    `source` says where the values come from: it becomes metadata and is not drawn. The same
    values give the same bytes.
    """
    scenes = [
        captioned(scene, figure.title, figure.note)
        for figure in figures
        if (scene := scene_of(figure)) is not None
    ]
    if not scenes:
        return []
    title, scene = "; ".join(f.title for f in figures), side_by_side(scenes, columns)
    path.parent.mkdir(parents=True, exist_ok=True)
    written = {kind: path.with_name(f"{path.name}.{kind}") for kind in kinds}
    if "svg" in written:
        disk.write(written["svg"], svg.document(scene, title, source))
    if printed := [kind for kind in written if kind != "svg"]:
        from matplotlib import rc_context

        with rc_context(FONTS):
            canvas = _canvas(scene)
            for kind in printed:
                buffer = io.BytesIO()
                names, changing = METADATA[kind]
                metadata = dict(zip(names, (title, source), strict=True)) | {changing: None}
                canvas.savefig(buffer, format=kind, metadata=metadata)
                disk.write(written[kind], buffer.getvalue())
    return list(written.values())


def _canvas(scene: Scene) -> Canvas:
    from matplotlib.figure import Figure as Canvas

    size = scene.width / INCH, scene.height / INCH
    canvas = Canvas(figsize=size, dpi=DOTS, facecolor="white")
    canvas.set_layout_engine("none")  # whatever is set elsewhere: the scene says where all is
    axes = canvas.add_axes((0, 0, 1, 1), xlim=(0, scene.width), ylim=(scene.height, 0))
    axes.set_axis_off()
    for order, mark in enumerate(scene.marks):
        _draw(axes, mark, order)
    return canvas


def _draw(axes: Axes, mark: Mark, order: int) -> None:
    """Draw a mark, `order` above those before it."""
    from matplotlib import patches

    look = svg.look(mark)
    alpha, width = float(look.get("opacity", 1)), float(look.get("stroke-width", 1))
    if isinstance(mark, Text):
        axes.text(
            mark.x,
            mark.y,
            mark.text.replace("$", r"\$"),
            ha=ANCHORS[mark.anchor],
            va="baseline",
            rotation=90 if mark.upright else 0,
            rotation_mode="anchor",
            fontsize=float(look["font-size"]),
            fontweight=int(look.get("font-weight", 400)),
            color=look["fill"],
            zorder=order,
        )
        return
    dashes = [float(part) / width for part in look.get("stroke-dasharray", "").split()]
    style: dict[str, Any] = {
        "facecolor": look.get("fill", "none"),
        "edgecolor": look.get("stroke", "none"),
        "alpha": alpha,
        "linewidth": width,
        "linestyle": (0, dashes) if dashes else "solid",
        "joinstyle": "round" if isinstance(mark, Line) else "miter",
        "zorder": order,
        "clip_on": False,
    }
    if isinstance(mark, Line):
        axes.add_artist(patches.Polygon(mark.points, closed=False, **style))
    elif isinstance(mark, Box):
        axes.add_artist(patches.Rectangle((mark.x, mark.y), mark.width, mark.height, **style))
    else:
        assert isinstance(mark, Dot)
        axes.add_artist(patches.Circle((mark.x, mark.y), mark.radius, **style))
