"""Figures of embedding tables: lengths of the tokens' vectors, cosines of the positions."""

from __future__ import annotations

import base64
import io
from html import escape

import numpy as np

from bert_jax.interop.runs import TrainedModel
from bert_jax.models.positions import make_sinusoids
from bert_jax.reporting import page
from bert_jax.reporting.figures import Chart, Series
from bert_jax.reporting.formats import number
from bert_jax.reporting.svg import draw
from bert_jax.views.vectors import scale_to_unit

POSITIONS = 512  # rows of the position table, at most
BINS = 40  # of a histogram
# Colours of negative and positive numbers, both visible on light and on dark ground.
COLD, HOT = (47, 124, 214), (222, 105, 40)
NONE = {
    "rotary": "This model has no position table: it rotates queries and keys by an angle that "
    "grows with the position.",
    "alibi": "This model has no position table: it lowers attention with the distance of tokens.",
    "relative": "This model has no position table: it compares tokens with vectors of distances.",
    "none": "This model has no positions: it reads its tokens as a set.",
}


def write_tables(run: TrainedModel) -> str:
    """Write the sections of the token table and of the position table."""
    table = np.asarray(run.params["encoder"]["embeddings"]["token"], np.float32)
    lengths = _draw_lengths(table[: run.tokenizer.size], run.tokenizer.shown)
    return page.section("Token table", lengths, "charts") + page.section(
        "Position table", _draw_positions(run), "charts"
    )


def _draw_lengths(table: np.ndarray, vocab: list[str]) -> str:
    """Draw the histogram of the lengths of the vocabulary's vectors."""
    norms = np.linalg.norm(table, axis=1)
    by_length = np.argsort(norms, kind="stable")

    def join(ids: np.ndarray) -> str:
        return ", ".join(f"\u2068{vocab[i]}\u2069 {number(float(norms[i]))}" for i in ids)

    counts, edges = np.histogram(norms, BINS)
    middles = (edges[:-1] + edges[1:]) / 2
    points = list(zip(middles.tolist(), counts.tolist(), strict=True))
    note = f"Vectors in each of {BINS} stretches. "
    note += f"Shortest: {join(by_length[:4])}. Longest: {join(by_length[:-5:-1])}."
    title, x = "Lengths of token vectors", "Euclidean norm"
    line = [Series("", points)]
    return draw(Chart(title, line, zero=True, log=False, x=x, y="vectors", last=False, note=note))


def _draw_positions(run: TrainedModel) -> str:
    """Draw the cosines of the learned positions or of the sinusoids; or say that there are none."""
    model = run.config.model
    if model.position == "learned":
        table = np.asarray(run.params["encoder"]["embeddings"]["position"], np.float32)
        kind = "learned"
    elif model.position == "sinusoidal":
        table = make_sinusoids(run.config.sequence_length, model.table_width)
        kind = "sinusoids, computed and not learned"
    else:
        return f'<p class="box">{escape(NONE[model.position])}</p>'
    count = min(len(table), POSITIONS)
    rows = np.linspace(0, len(table) - 1, count).round().astype(np.int64)
    directions = scale_to_unit(table[rows])
    first = model.first_position
    trained = min(run.config.sequence_length + first, len(table))
    note = f"{count:,} of {len(table):,} rows, {kind}. Orange: alike; blue: opposite."
    if trained < len(table) and not (run.meta.get("foreign") or run.config.init_from):
        note += f" Rows from {trained:,} on were never trained."
    if first:
        note += f" The first token reads row {first}."
    picture = _write_picture(directions @ directions.T, "cosines of the positions")
    return (
        '<figure class="chart"><figcaption>Cosines of position vectors</figcaption>'
        f'{picture}<p class="note">{escape(note)}</p></figure>'
    )


def _write_picture(values: np.ndarray, alt: str) -> str:
    """Draw numbers from -1 to 1 as pixels; the further from 0, the more opaque."""
    from matplotlib import image

    pixels = np.zeros((*values.shape, 4), np.uint8)
    pixels[..., :3] = np.where(values[..., None] < 0, COLD, HOT)
    pixels[..., 3] = np.rint(255 * np.abs(values).clip(0, 1))
    out = io.BytesIO()
    image.imsave(out, pixels, format="png")
    content = base64.b64encode(out.getvalue()).decode()
    return f'<img class="pixels" src="data:image/png;base64,{content}" alt="{escape(alt)}">'
