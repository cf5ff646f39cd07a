"""Write figures as PNG, SVG and PDF files for papers."""

import io
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from bert_jax.reporting.figures import Figure, clean_texts, has_values
from bert_jax.system import disk

KINDS = ("png", "svg", "pdf")


def write_figures(
    path: Path,
    figures: Sequence[Figure],
    *,
    columns: int = 1,
    source: str = "",
    kinds: Collection[str] = KINDS,
) -> list[Path]:
    """Draw figures side by side and write a file of each kind; return their paths.

    The name of a file is `path` with the ending of its kind. If no figure has values, nothing is
    written. `source` says where the values come from. It becomes metadata of the file and is not
    drawn.
    """
    from bert_jax.reporting import drawing  # matplotlib takes a while to load

    shown = [figure for figure in clean_texts(list(figures)) if has_values(figure)]
    if not shown:
        return []
    path.parent.mkdir(parents=True, exist_ok=True)
    said = clean_texts(source)
    # What differs every time is None, so that the same values give the same bytes.
    metadata: dict[str, dict[str, Any]] = {
        "png": {"Description": said, "Software": None},
        "svg": {"Description": said, "Date": None, "Creator": None},
        "pdf": {"Subject": said, "CreationDate": None, "Creator": None, "Producer": None},
    }
    written = []
    with drawing.use_style(**{"svg.hashsalt": "bert_jax"}):
        canvas, _ = drawing.draw_figures(shown, columns)
        for kind in kinds:
            buffer = io.BytesIO()
            canvas.savefig(buffer, format=kind, dpi=180, metadata=metadata[kind])
            written.append(path.with_name(f"{path.name}.{kind}"))
            disk.write(written[-1], buffer.getvalue())
    return written
