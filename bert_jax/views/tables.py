"""Figures of the embedding tables: lengths of the tokens' vectors, and cosines of positions."""

import base64
import io

import numpy as np
from markupsafe import Markup

from bert_jax.interop.runs import TrainedModel
from bert_jax.models.positions import make_sinusoids
from bert_jax.reporting.figures import Chart, Series
from bert_jax.reporting.formats import number
from bert_jax.reporting.svg import draw_svg
from bert_jax.views.vectors import scale_to_unit

POSITIONS = 512  # rows of the position table, at most
BINS = 40  # of a histogram
# Colours of negative and positive numbers, both visible on light and on dark ground.
COLD, HOT = (47, 124, 214), (222, 105, 40)


def draw_lengths(run: TrainedModel) -> Markup:
    """Draw a histogram of the lengths of the vocabulary's vectors."""
    vocab = run.tokenizer.shown
    table = np.asarray(run.params["encoder"]["embeddings"]["token"], np.float32)
    table = table[: run.tokenizer.size]
    norms = np.linalg.norm(table, axis=1)
    order = np.argsort(norms, kind="stable")
    ends = []
    for ids in (order[:4], order[:-5:-1]):
        ends.append(", ".join(f"\u2068{vocab[i]}\u2069 {number(float(norms[i]))}" for i in ids))
    counts, edges = np.histogram(norms, BINS)
    middles = (edges[:-1] + edges[1:]) / 2
    line = [Series("", list(zip(middles.tolist(), counts.tolist(), strict=True)))]
    chart = Chart(
        "Lengths of token vectors",
        line,
        zero=True,
        log=False,
        x="Euclidean norm",
        y="vectors",
        note=f"In {BINS} equal stretches. Shortest: {ends[0]}. Longest: {ends[1]}.",
    )
    return draw_svg(chart)


def draw_positions(run: TrainedModel) -> tuple[str, str]:
    """Draw the cosines of the position vectors; return a PNG in base64, and a note.

    Without a table of positions the PNG is "", and the note says so.
    """
    model = run.config.model
    if model.position == "learned":
        table = np.asarray(run.params["encoder"]["embeddings"]["position"], np.float32)
        note = "Learned."
    elif model.position == "sinusoidal":
        table = make_sinusoids(run.config.sequence_length, model.table_width)
        note = "Sinusoids, computed and not learned."
    else:
        said = f"This model has no position table (model.position = {model.position})."
        return "", said
    count = min(len(table), POSITIONS)
    directions = scale_to_unit(table[np.linspace(0, len(table) - 1, count).round().astype(int)])
    note += f" {count:,} of {len(table):,} rows. Orange: alike; blue: opposite."
    if model.first_position:
        note += f" The first token reads row {model.first_position}."
    return _draw_pixels(directions @ directions.T), note


def _draw_pixels(cosines: np.ndarray) -> str:
    """Draw numbers from -1 to 1 as a PNG in base64, a pixel for each; 0 is transparent."""
    from matplotlib import image

    pixels = np.zeros((*cosines.shape, 4), np.uint8)
    pixels[..., :3] = np.where(cosines[..., None] < 0, COLD, HOT)
    pixels[..., 3] = np.rint(255 * np.abs(cosines).clip(0, 1))
    out = io.BytesIO()
    image.imsave(out, pixels, format="png")
    return base64.b64encode(out.getvalue()).decode()
