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

KINDS = ("png", "svg", "pdf")
DOTS = 180  # per inch of a PNG
INCH = 72  # points of a scene
FONT: Any = {"font.family": "sans-serif", "pdf.fonttype": 42}  # of PDFs: text that can be searched
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
    written = [path.with_name(f"{path.name}.{kind}") for kind in kinds]
    for file, kind in zip(written, kinds, strict=True):
        if kind == "svg":
            disk.write(file, svg.document(scene, title, source))
        else:
            disk.write(file, _drawn(scene, title, source, kind))
    return written


def _drawn(scene: Scene, title: str, source: str, kind: str) -> bytes:
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.backends.backend_pdf import FigureCanvasPdf
    from matplotlib.figure import Figure as Canvas

    buffer = io.BytesIO()
    with rc_context(FONT):
        size = scene.width / INCH, scene.height / INCH
        canvas = Canvas(figsize=size, dpi=DOTS, facecolor="white")
        axes = canvas.add_axes((0, 0, 1, 1), xlim=(0, scene.width), ylim=(scene.height, 0))
        axes.set_axis_off()
        for order, mark in enumerate(scene.marks):
            _draw(axes, mark, order)
        if kind == "png":
            metadata = {"Title": title, "Description": source, "Software": None}
            FigureCanvasAgg(canvas).print_png(buffer, metadata=metadata)
        else:
            metadata = {"Title": title, "Subject": source, "CreationDate": None}
            FigureCanvasPdf(canvas).print_pdf(buffer, metadata=metadata)
    return buffer.getvalue()


def _draw(axes: Axes, mark: Mark, order: int) -> None:
    """Draw a mark, `order` above those before it."""
    from matplotlib import patches, patheffects

    look = svg.look(mark)
    alpha, width = float(look.get("opacity", 1)), float(look.get("stroke-width", 1))
    if isinstance(mark, Text):
        effects = []
        if "stroke" in look:
            effects = [patheffects.withStroke(linewidth=width, foreground=look["stroke"])]
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
            path_effects=effects,
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
        axes.add_patch(patches.Polygon(mark.points, closed=False, **style))
    elif isinstance(mark, Box):
        axes.add_patch(patches.Rectangle((mark.x, mark.y), mark.width, mark.height, **style))
    else:
        assert isinstance(mark, Dot)
        axes.add_patch(patches.Circle((mark.x, mark.y), mark.radius, **style))
