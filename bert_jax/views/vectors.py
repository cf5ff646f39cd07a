"""Vectors of texts, or of the words in them, at every layer; their places on a plane; what lies nearest."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.batch import Batch
from bert_jax.data.tokenizer import Tokenizer
from bert_jax.errors import ConfigError, DataError
from bert_jax.models.bert import Bert
from bert_jax.predictors.asking import compute as compute_rows
from bert_jax.predictors.base import OfText, Row, Work, lengths

MOST = 2000  # points of a page
ROWS = 16  # texts a step
BLOCK = 256  # points whose cosines with a whole vocabulary are held at once
POOLINGS = (
    "tokens",
    "mean",
    "cls",
)  # of a text: its own tokens; all, with [CLS] and [SEP]; [CLS] alone
METHODS = {"pca": "", "tsne": "sklearn", "umap": "umap"}  # -> the library it needs
PACKAGES = {"sklearn": "scikit-learn", "umap": "umap-learn"}
ALIKE = 1e-10  # of the mean square: a variance below it is rounding


@dataclasses.dataclass(frozen=True)
class Points:
    """What stands on the page: texts, or the words in them."""

    names: list[str]
    rows: np.ndarray  # int64 [N], the text each is, or lies in
    pieces: list[list[int]]  # ids of each
    poolings: tuple[str, ...]
    vectors: (
        np.ndarray
    )  # float32 [layers + 2, poolings, N, D]: rows of the token table, then layers from 0
    cut: int  # texts that lost their end


Spans = list[tuple[int, int]]  # of the columns of a row: first, and behind the last


def points(asking: OfText, rows: Sequence[Row], words: bool = False) -> Points:
    """The vectors of texts by each pooling, or of their words, which are the mean of their pieces."""
    tokenizer = asking.model.run.tokenizer
    texts = [row.fields["text"] for row in rows]
    found = tokenizer.encode_with_offsets(texts)
    if empty := [row.number for row, (ids, _) in zip(rows, found, strict=True) if not ids]:
        raise DataError(f"text {empty[0]} has no tokens", "leave it out")
    parts = [asking.fit(row, [ids]) for row, (ids, _) in zip(rows, found, strict=True)]
    ids = [list(part[0]) for part in parts]
    own = [_words(tokenizer, one) if words else [(1, 1 + len(one))] for one in ids]
    row_of = np.repeat(np.arange(len(rows)), [len(one) for one in own])
    if len(row_of) > MOST:
        raise DataError(
            f"{len(row_of):,} points, and a page holds {MOST:,}", "take some of the texts"
        )
    if len(row_of) < 3:
        raise DataError(
            f"{len(row_of)} points, and a plane takes 3", "give more texts with --text or --input"
        )
    names, pieces = texts, ids
    if words:
        offsets = [places for _, places in found]
        names = [
            texts[r][offsets[r][a - 1][0] : offsets[r][b - 2][1]]
            for r, one in enumerate(own)
            for a, b in one
        ]
        pieces = [ids[r][a - 1 : b - 1] for r, one in enumerate(own) for a, b in one]
    pools = (
        own if words else [[(1, 1 + len(one)), (0, 2 + len(one)), (0, 1)] for one in ids]
    )  # as in POOLINGS
    made = _vectors(asking, parts, pools)  # a row: [layers + 2, its spans, D]
    vectors = np.concatenate(made, 1)[:, None] if words else np.stack(made, 2)
    cut = sum(len(part) < len(whole) for part, (whole, _) in zip(ids, found, strict=True))
    return Points(names, row_of, pieces, ("tokens",) if words else POOLINGS, vectors, cut)


def _words(tokenizer: Tokenizer, ids: list[int]) -> Spans:
    """Columns of each word of a text; without words in the vocabulary, of each token."""
    starts = [i for i, piece in enumerate(ids) if i == 0 or not tokenizer.continuation[piece]]
    return [(1 + a, 1 + b) for a, b in zip(starts, [*starts[1:], len(ids)], strict=True)]


def _vectors(
    asking: OfText, parts: Sequence[list[list[int]]], pools: Sequence[Spans]
) -> list[np.ndarray]:
    """The mean over each span at every layer: float32 [layers + 2, spans, D] a text."""
    run = asking.model.run
    encoder = Bert(run.config.model, run.tokenizer.size, pool=False, capture=True)
    params = jax.device_put(run.params["encoder"])

    @jax.jit
    def means(params: Any, batch: Batch, weights: jax.Array) -> jax.Array:
        encoded: Any = encoder.apply({"params": params}, batch)
        given = jnp.take(encoded.embedding_table, batch["tokens"], axis=0)  # [B, L, D]
        layers = encoded.layers[:-1].astype(jnp.float32)
        every = jnp.concatenate([given[None], layers, encoded.hidden[None].astype(jnp.float32)])
        return jnp.einsum("bsl,vbld->bvsd", weights, every, precision="highest")

    def compute(chosen: np.ndarray, length: int, size: int) -> jax.Array:
        most = max(len(pools[row]) for row in chosen)
        weights = np.zeros(
            (size, most if most <= len(POOLINGS) else length, length), np.float32
        )  # [B, S, L]
        for k, row in enumerate(chosen):
            for s, (start, end) in enumerate(pools[row]):
                weights[k, s, start:end] = 1 / (end - start)
        return means(params, asking.batch([parts[row] for row in chosen], length, size), weights)

    made = compute_rows(Work(lengths(parts), compute, iter), ROWS)
    return [one[:, : len(spans)] for one, spans in zip(made, pools, strict=True)]


# --- on a plane -----------------------------------------------------------------------------------------------------


def check(method: str) -> None:
    """Says that a method's library is missing before anything is computed."""
    library = METHODS[method]
    if library and importlib.util.find_spec(library) is None:
        raise ConfigError(
            f"--method={method} needs {library}",
            f"pip install {PACKAGES[library]}, or --method=pca",
        )


def alike(vectors: np.ndarray) -> bool:
    """Whether all are one vector but for rounding."""
    wide = vectors.astype(np.float64)
    return bool(np.mean(np.var(wide, 0)) <= ALIKE * np.mean(wide**2))


def pca(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Places along the two directions of largest variance [N, 2], and their shares of it [2].

    The point that lies farthest out in a direction is on its positive side.
    """
    centred = vectors.astype(np.float64) - vectors.mean(0, dtype=np.float64)
    count, width = centred.shape
    gram = centred @ centred.T if count <= width else centred.T @ centred  # the smaller of the two
    values, directions = np.linalg.eigh(gram)
    values, directions = values[:-3:-1].clip(0), directions[:, :-3:-1]
    placed = directions * np.sqrt(values) if count <= width else centred @ directions
    farthest = placed[np.abs(placed).argmax(0), np.arange(placed.shape[1])]
    return placed * np.where(farthest < 0, -1, 1), values / max(float(np.trace(gram)), 1e-300)


def project(vectors: np.ndarray, method: str) -> tuple[np.ndarray, np.ndarray | None]:
    """Places on a plane [N, 2], and what share of the variance the two axes of a PCA hold."""
    if alike(vectors):
        return np.zeros((len(vectors), 2)), None
    if method == "pca":
        return pca(vectors)
    check(method)
    if method == "tsne":
        from sklearn.manifold import TSNE

        made = TSNE(perplexity=min(30.0, (len(vectors) - 1) / 3), init="pca", random_state=0)
    else:
        from umap import UMAP

        few = len(vectors) < 10  # of which its spectral start cannot be computed
        near = min(15, len(vectors) - 1)
        made = UMAP(
            n_neighbors=near, init="random" if few else "spectral", random_state=0, n_jobs=1
        )
    return made.fit_transform(unit(vectors)), None


# --- cosines --------------------------------------------------------------------------------------------------------


def unit(vectors: np.ndarray) -> np.ndarray:
    """Vectors of length 1, float32; a zero stays zero."""
    size = np.linalg.norm(vectors.astype(np.float64), axis=-1, keepdims=True)
    return (vectors / np.maximum(size, 1e-12)).astype(np.float32)


def nearest(
    vectors: np.ndarray, table: np.ndarray, count: int, barred: Sequence[Sequence[int]]
) -> tuple[np.ndarray, np.ndarray]:
    """The rows of a table with the largest cosine to each vector, best first: numbers and cosines [N, count].

    Args:
      vectors, table: of length 1.
      barred: rows that are no answer for each vector.
    """
    count = min(count, len(table) - max(map(len, barred)))
    ids, cosines = (
        np.zeros((len(vectors), count), np.int64),
        np.zeros((len(vectors), count), np.float32),
    )
    for first in range(0, len(vectors), BLOCK):
        some = slice(first, first + BLOCK)
        found = vectors[some] @ table.T  # [block, rows]
        for k, rows in enumerate(barred[some]):
            found[k, list(rows)] = -np.inf
        best = np.argpartition(-found, count - 1, axis=1)[:, :count]
        values = np.take_along_axis(found, best, 1)
        order = np.lexsort((best, -values), axis=1)
        ids[some], cosines[some] = (
            np.take_along_axis(best, order, 1),
            np.take_along_axis(values, order, 1),
        )
    return ids, cosines.clip(-1, 1)
