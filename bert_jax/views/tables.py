"""Pictures of a model's embedding tables."""

from __future__ import annotations

from html import escape

import numpy as np

from bert_jax.interop.runs import TrainedModel
from bert_jax.models.positions import make_sinusoids
from bert_jax.reporting import page
from bert_jax.reporting.formats import number
from bert_jax.views.pictures import histogram, picture
from bert_jax.views.vectors import alike, pca, unit

ROWS = 256  # of the token table, at most
POSITIONS = 512  # rows of the position table, at most
PLACED = 8192  # rows of the token table in its PCA, at most
CELLS = (48, 72)  # rows and columns of the PCA's density
NONE = {
    "rotary": "This model has no position table: it rotates queries and keys by an angle that "
    "grows with the position.",
    "alibi": "This model has no position table: it lowers attention with the distance of tokens.",
    "relative": "This model has no position table: it compares tokens with vectors of distances.",
    "none": "This model has no positions: it reads its tokens as a set.",
}

NO_TYPES = '<p class="box">This model has no segment types.</p>'


def tables(run: TrainedModel) -> str:
    """Build the sections of the token, position and segment tables."""
    parts = run.params["encoder"]["embeddings"]
    token = np.asarray(parts["token"], np.float32)[: run.tokenizer.size]
    types = _segment(np.asarray(parts["type"], np.float32)) if "type" in parts else NO_TYPES
    return (
        page.section("Token table", _token(token, run.tokenizer.shown), "charts tables")
        + page.section("Position table", _position(run), "charts tables")
        + page.section("Segment table", types, "charts tables")
    )


def spread(count: int, most: int) -> np.ndarray:
    """Choose at most `most` of the numbers below `count`: evenly spaced, with first and last."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(np.int64))


def _token(table: np.ndarray, vocab: list[str]) -> str:
    rows = spread(len(table), ROWS)
    which = "every piece"
    if len(rows) < len(table):
        which = f"{len(rows):,} of {len(table):,} pieces, evenly spaced"
    vectors = picture(
        f"Token vectors: {which}",
        table[rows],
        ("piece", "dimension"),
        "vector entry, no unit",
        names=[vocab[row] for row in rows],
    )
    return vectors + _lengths(table, vocab) + _density(table)


def _lengths(table: np.ndarray, vocab: list[str]) -> str:
    """Draw the histogram of the lengths of the vocabulary's vectors."""
    norms = np.linalg.norm(table, axis=1)
    order = np.argsort(norms, kind="stable")

    def listed(ids: np.ndarray) -> str:
        return ", ".join(f"\u2068{vocab[i]}\u2069 {number(float(norms[i]))}" for i in ids)

    below = f"Shortest: {listed(order[:4])}. Longest: {listed(order[:-5:-1])}."
    return histogram("Lengths of token vectors", norms, "Euclidean norm", "vectors", below)


def _density(table: np.ndarray) -> str:
    """Draw the density of the vocabulary on the plane of its two largest principal components."""
    rows = spread(len(table), PLACED)
    if len(rows) < 3 or alike(table[rows]):
        return ""
    places, shares = pca(table[rows])
    counts = np.histogram2d(-places[:, 1], places[:, 0], CELLS)[0]
    axes = [f"PC{i + 1} ({number(float(share), True)})" for i, share in enumerate(shares)]
    return picture(
        f"Token vectors on a plane (PCA), {len(rows):,} of {len(table):,}",
        np.log1p(counts),
        (f"{axes[1]}, up", f"{axes[0]}, to the right"),
        "log(1 + vectors in a cell)",
        end=float(np.log1p(counts.max())),
        square=True,
    )


def _position(run: TrainedModel) -> str:
    """Draw the learned table or the sinusoids, and their cosines; or say that there is none."""
    model = run.config.model
    if model.position == "learned":
        table = np.asarray(run.params["encoder"]["embeddings"]["position"], np.float32)
        kind = "learned"
    elif model.position == "sinusoidal":
        table = make_sinusoids(run.config.sequence_length, model.table_width)
        kind = "sinusoids, computed and not learned"
    else:
        return f'<p class="box">{escape(NONE[model.position])}</p>'
    rows = spread(len(table), POSITIONS)
    names = [str(row) for row in rows] if len(rows) < len(table) else []
    which = f"{len(rows):,} of {len(table):,}, evenly spaced, " if names else ""
    first = model.first_position
    trained = min(run.config.sequence_length + first, len(table))
    fresh = not (run.meta.get("foreign") or run.config.init_from)
    note = f"Rows from {trained:,} on were never trained." if fresh and trained < len(table) else ""
    note += f" The first token reads row {first}." * bool(first)
    entries = picture(
        f"Position vectors ({which}{kind})",
        table[rows],
        ("position", "dimension"),
        "vector entry, no unit",
        names=names,
        below=note,
    )
    directions = unit(table[rows])
    cosines = picture(
        "Cosines of position vectors",
        directions @ directions.T,
        ("position", "position"),
        "cosine",
        end=1.0,
        names=names,
        square=True,
    )
    return entries + cosines


def _segment(table: np.ndarray) -> str:
    norms = [number(float(np.linalg.norm(row))) for row in table]
    note = f"Lengths: {', '.join(f'segment {i}: {norm}' for i, norm in enumerate(norms))}."
    if len(table) == 2:
        first, second = unit(table)
        note += f" Their cosine is {float(first @ second):.4f}."
    return picture(
        "Segment vectors", table, ("segment", "dimension"), "vector entry, no unit", below=note
    )
