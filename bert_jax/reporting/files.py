"""Figures as PNG, SVG and PDF files for papers."""

from __future__ import annotations

import io
from collections.abc import Collection, Sequence
from pathlib import Path

from bert_jax.reporting.figures import Figure, clean_texts, has_values
from bert_jax.system import disk

KINDS = ("png", "svg", "pdf")
DOTS = 180  # per inch of a PNG
METADATA = {  # what title and source are called, and what differs every time
    "png": (("Title", "Description"), ("Software",)),
    "svg": (("Title", "Description"), ("Date", "Creator")),
    "pdf": (("Title", "Subject"), ("CreationDate", "Creator", "Producer")),
}


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
    from bert_jax.reporting import drawing  # matplotlib takes a while to load

    figures, source = clean_texts(figures), clean_texts(source)
    shown = [figure for figure in figures if has_values(figure)]
    if not shown:
        return []
    title = "; ".join(figure.title for figure in figures)
    path.parent.mkdir(parents=True, exist_ok=True)
    written = []
    with drawing.use_style({"svg.hashsalt": "bert_jax"}):
        canvas = drawing.draw_figures(shown, columns).canvas
        for kind in kinds:
            buffer = io.BytesIO()
            names, changing = METADATA[kind]
            metadata = dict(zip(names, (title, source), strict=True)) | dict.fromkeys(changing)
            canvas.savefig(buffer, format=kind, dpi=DOTS, metadata=metadata)
            file = path.with_name(f"{path.name}.{kind}")
            disk.write(file, buffer.getvalue())
            written.append(file)
    return written
