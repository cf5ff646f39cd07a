"""Vectors of texts or words at every layer, their projection to a plane, and nearest neighbours."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import io
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.batch import Batch
from bert_jax.data.tokenizer import Tokenizer
from bert_jax.errors import ConfigError, DataError
from bert_jax.models.encoder import read_layers
from bert_jax.predictors.base import OfText, Row, Work
from bert_jax.predictors.stream import compute as compute_rows

MOST = 2000  # points on a page
ROWS = 16  # texts per batch
BLOCK = 256  # points whose cosines with the whole vocabulary are computed at once
# Tokens whose mean is the vector of a text: its own; with [CLS] and [SEP]; [CLS] alone.
POOLINGS = ("tokens", "mean", "cls")
METHODS = {"pca": "", "tsne": "sklearn", "umap": "umap"}  # projection -> the library it needs
PACKAGES = {"sklearn": "scikit-learn", "umap": "umap-learn"}
ITERATIONS = 1000  # of t-SNE
RARE = 0.05  # how often a random vector has a neighbour that is not left out
ALIKE = 1e-10  # a variance below this share of the mean square is rounding


@dataclasses.dataclass(frozen=True)
class Points:
    """Points of the page: texts, or the words in them."""

    names: list[str]
    rows: np.ndarray  # int64 [N], the text of each point
    pieces: list[list[int]]  # token ids of each point
    poolings: tuple[str, ...]
    # float32 [layers + 2, poolings, N, D]: rows of the token table, then layers from 0
    vectors: np.ndarray
    cut: int  # number of texts whose end was cut off


Spans = list[tuple[int, int]]  # half-open ranges of the positions of a text


def points(reader: OfText, rows: Sequence[Row], words: bool = False) -> Points:
    """Compute the vectors of texts by each pooling, or of words as the mean of their pieces."""
    tokenizer = reader.model.run.tokenizer
    texts = [row.fields["text"] for row in rows]
    encoded = tokenizer.encode_with_offsets(texts)
    if empty := [row.number for row, (ids, _) in zip(rows, encoded, strict=True) if not ids]:
        raise DataError(f"text {empty[0]} has no tokens", "leave it out")
    parts = [reader.fit(row, [ids]) for row, (ids, _) in zip(rows, encoded, strict=True)]
    ids_of = [list(part[0]) for part in parts]
    cut = sum(len(ids) < len(whole) for ids, (whole, _) in zip(ids_of, encoded, strict=True))
    if not words:
        _check_count(len(texts))
        spans = [[(1, 1 + len(ids)), (0, 2 + len(ids)), (0, 1)] for ids in ids_of]  # as in POOLINGS
        vectors = np.stack(_vectors(reader, parts, spans), 2)
        return Points(texts, np.arange(len(rows)), ids_of, POOLINGS, vectors, cut)
    spans = [_words(tokenizer, ids) for ids in ids_of]
    row_of = np.repeat(np.arange(len(rows)), list(map(len, spans)))
    _check_count(len(row_of))
    names, pieces = [], []
    for row, text in enumerate(texts):
        offsets = encoded[row][1]
        for start, end in spans[row]:  # position 0 is [CLS]
            names.append(text[offsets[start - 1][0] : offsets[end - 2][1]])
            pieces.append(ids_of[row][start - 1 : end - 1])
    vectors = np.concatenate(_vectors(reader, parts, spans), 1)[:, None]
    return Points(names, row_of, pieces, ("tokens",), vectors, cut)


def _check_count(count: int) -> None:
    """Refuse more points than a page holds, and fewer than define a plane."""
    if count > MOST:
        raise DataError(f"{count:,} points, and a page holds {MOST:,}", "take some of the texts")
    if count < 3:
        raise DataError(
            f"{count} points, and a plane takes 3", "give more texts with --text or --input"
        )


def _words(tokenizer: Tokenizer, ids: list[int]) -> Spans:
    """Return the positions of each word of a text; of each token if the vocabulary has no words."""
    starts = [i for i, piece in enumerate(ids) if i == 0 or not tokenizer.continuation[piece]]
    return [(1 + a, 1 + b) for a, b in zip(starts, [*starts[1:], len(ids)], strict=True)]


def _vectors(
    reader: OfText, parts: Sequence[list[list[int]]], spans: Sequence[Spans]
) -> list[np.ndarray]:
    """Compute the mean over each span at every layer: float32 [layers + 2, spans, D] per text."""
    run = reader.model.run
    params = jax.device_put(run.params["encoder"])

    @jax.jit
    def means(params: Any, batch: Batch, weights: jax.Array) -> jax.Array:
        inside = read_layers(run.config.model, run.tokenizer.size, params, batch)
        tokens = jnp.take(inside.embedding_table, batch["tokens"], axis=0)  # [B, L, D]
        if "projection" in params:
            tokens = jnp.matmul(tokens, params["projection"]["kernel"], precision="highest")
        layers = inside.hidden.astype(jnp.float32)
        every = jnp.concatenate([tokens[None], layers])  # [layers + 2, B, L, D]
        return jnp.einsum("bsl,vbld->bvsd", weights, every, precision="highest")

    def compute(chosen: np.ndarray, length: int, size: int) -> jax.Array:
        most = max(len(spans[row]) for row in chosen)
        most = most if most <= len(POOLINGS) else length  # few shapes, few compilations
        weights = np.zeros((size, most, length), np.float32)  # [B, S, L]
        for k, row in enumerate(chosen):
            for s, (start, end) in enumerate(spans[row]):
                weights[k, s, start:end] = 1 / (end - start)
        return means(params, reader.batch([parts[row] for row in chosen], length, size), weights)

    rows = compute_rows(Work(reader.count_tokens(parts), compute, iter), ROWS)
    return [row[:, : len(known)] for row, known in zip(rows, spans, strict=True)]


# --- projection --------------------------------------------------------------------------------


def check(method: str) -> None:
    """Refuse a method whose library is missing, before anything is computed."""
    library = METHODS[method]
    if library and importlib.util.find_spec(library) is None:
        raise ConfigError(
            f"--method={method} needs {library}",
            f"pip install {PACKAGES[library]}, or --method=pca",
        )


def alike(vectors: np.ndarray) -> bool:
    """Return whether all vectors are equal up to rounding."""
    wide = vectors.astype(np.float64)
    return bool(np.mean(np.var(wide, 0)) <= ALIKE * np.mean(wide**2))


def pca(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Project on the first two principal components [N, 2]; return their shares of variance [2].

    The point farthest out along a component is on its positive side.
    """
    centred = vectors.astype(np.float64) - vectors.mean(0, dtype=np.float64)
    count, width = centred.shape
    gram = centred @ centred.T if count <= width else centred.T @ centred  # the smaller of the two
    values, directions = np.linalg.eigh(gram)
    values, directions = values[:-3:-1].clip(0), directions[:, :-3:-1]
    placed = directions * np.sqrt(values) if count <= width else centred @ directions
    farthest = placed[np.abs(placed).argmax(0), np.arange(placed.shape[1])]
    return placed * np.where(farthest < 0, -1, 1), values / max(float(np.trace(gram)), 1e-300)


def settings(method: str, count: int) -> dict[str, Any]:
    """Return what decides a projection of `count` points besides the points, by name."""
    if method == "tsne":
        return {"perplexity": min(30.0, (count - 1) / 3), "seed": 0}
    return {"neighbours": min(15, count - 1), "seed": 0} if method == "umap" else {}


def project(
    vectors: np.ndarray, method: str, progress: Callable[[int], None] = lambda _: None
) -> tuple[np.ndarray, np.ndarray | None]:
    """Project to a plane [N, 2]; of a PCA return the two axes' shares of variance, else None.

    `progress` is called now and then with the iterations of t-SNE so far.
    """
    if alike(vectors):
        return np.zeros((len(vectors), 2)), None
    if method == "pca":
        return pca(vectors)
    check(method)
    chosen = settings(method, len(vectors))
    if method == "tsne":
        from sklearn.manifold import TSNE

        model = TSNE(
            perplexity=chosen["perplexity"],
            init="pca",
            random_state=chosen["seed"],
            max_iter=ITERATIONS,
            verbose=2,
        )
        # scikit-learn tells how far it is by printing alone.
        with contextlib.redirect_stdout(Iterations(progress)):
            return model.fit_transform(unit(vectors)), None
    from umap import UMAP

    start = "random" if len(vectors) < 10 else "spectral"  # which fails on fewer points
    near, seed = chosen["neighbours"], chosen["seed"]
    model = UMAP(n_neighbors=near, init=start, random_state=seed, n_jobs=1)
    return model.fit_transform(unit(vectors)), None


class Iterations(io.TextIOBase):
    """A stream that reads the numbers of iterations off what scikit-learn's t-SNE prints."""

    def __init__(self, progress: Callable[[int], None]):
        self.progress = progress

    def write(self, text: str) -> int:
        if found := re.search(r"Iteration (\d+):", text):
            self.progress(int(found[1]))
        return len(text)


# --- cosines -----------------------------------------------------------------------------------


def unit(vectors: np.ndarray) -> np.ndarray:
    """Scale vectors to length 1, float32; zero stays zero."""
    size = np.linalg.norm(vectors.astype(np.float64), axis=-1, keepdims=True)
    return (vectors / np.maximum(size, 1e-12)).astype(np.float32)


def chance(count: int, width: int) -> float:
    """Return the cosine that the nearest of `count` random vectors reaches 5 times in 100.

    The cosine c of two random vectors makes c sqrt((D - 1) / (1 - c^2)) follow Student's t with
    D - 1 degrees of freedom.
    """
    from scipy import stats  # slow to import

    freedom = max(width - 1, 1)
    t = float(stats.t.isf(RARE / count, freedom))
    return t / math.sqrt(freedom + t * t)


def nearest(
    vectors: np.ndarray, table: np.ndarray, count: int, barred: Sequence[Sequence[int]]
) -> tuple[np.ndarray, np.ndarray]:
    """Find the rows of a table with the largest cosine to each vector, best first.

    Args:
      vectors: of length 1.
      table: rows of length 1.
      count: neighbours of each vector; fewer if the table has fewer.
      barred: for each vector, the rows that are no neighbours.

    Returns:
      Row numbers and cosines [N, count].
    """
    count = min(count, len(table) - max(map(len, barred)))
    ids = np.zeros((len(vectors), count), np.int64)
    cosines = np.zeros((len(vectors), count), np.float32)
    for first in range(0, len(vectors), BLOCK):
        block = slice(first, first + BLOCK)
        every = vectors[block] @ table.T  # [block, rows]
        for k, rows in enumerate(barred[block]):
            every[k, list(rows)] = -np.inf
        best = np.argpartition(-every, count - 1, axis=1)[:, :count]
        values = np.take_along_axis(every, best, 1)
        order = np.lexsort((best, -values), axis=1)
        ids[block] = np.take_along_axis(best, order, 1)
        cosines[block] = np.take_along_axis(values, order, 1)
    return ids, cosines.clip(-1, 1)
