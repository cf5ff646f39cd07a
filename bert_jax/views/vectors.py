"""Vectors of texts or words at every layer, their projection to a plane, and nearest neighbours."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.batch import Batch
from bert_jax.data.tokenizer import Tokenizer
from bert_jax.errors import DataError
from bert_jax.models.encoder import compute_layers
from bert_jax.predictors.base import Line, OfText, Work

MOST = 2000  # points on a page
ROWS = 16  # texts per batch
# Tokens whose mean is the vector of a text: its own; with [CLS] and [SEP]; [CLS] alone, or [SEP]
# alone if the model is causal, as [CLS] has seen nothing else then.
POOLINGS = ("tokens", "mean", "cls")
ALIKE = 1e-10  # a variance below this share of the mean square is rounding


@dataclasses.dataclass(frozen=True)
class Points:
    """The points of the page: texts, or the words of texts."""

    names: list[str]
    rows: np.ndarray  # int64 [N], the text of each point
    pieces: list[list[int]]  # token ids of each point
    poolings: tuple[str, ...]
    # float32 [layers + 2, poolings, N, D]: rows of the token table, then layers from 0
    vectors: np.ndarray
    cut: int  # number of texts whose end was cut off


Spans = list[tuple[int, int]]  # half-open ranges of the positions of a text


def make_points(reader: OfText, rows: Sequence[Line], words: bool = False) -> Points:
    """Compute the vectors of texts by each pooling, or of words as the mean of their pieces."""
    tokenizer = reader.model.run.tokenizer
    texts = [row.fields["text"] for row in rows]
    encoded = tokenizer.encode_with_offsets(texts)
    if empty := [row.number for row, (ids, _) in zip(rows, encoded, strict=True) if not ids]:
        raise DataError(f"text {empty[0]} has no tokens", "leave it out")
    parts = [reader.cut_texts(row, [ids]) for row, (ids, _) in zip(rows, encoded, strict=True)]
    ids_of = [list(part[0]) for part in parts]
    cut = sum(len(ids) < len(whole) for ids, (whole, _) in zip(ids_of, encoded, strict=True))
    if not words:
        _check_count(len(texts))
        spans = []
        for ids in ids_of:
            last = 1 + len(ids)  # position of [SEP]
            single = last if reader.model.run.config.model.causal else 0
            spans.append([(1, last), (0, last + 1), (single, single + 1)])  # as in POOLINGS
        vectors = np.stack(_compute_means(reader, parts, spans), 2)
        return Points(texts, np.arange(len(rows)), ids_of, POOLINGS, vectors, cut)
    spans = [_find_words(tokenizer, ids) for ids in ids_of]
    row_of = np.repeat(np.arange(len(rows)), list(map(len, spans)))
    _check_count(len(row_of))
    names, pieces = [], []
    for row, text in enumerate(texts):
        offsets = encoded[row][1]
        for start, end in spans[row]:  # position 0 is [CLS]
            names.append(text[offsets[start - 1][0] : offsets[end - 2][1]])
            pieces.append(ids_of[row][start - 1 : end - 1])
    vectors = np.concatenate(_compute_means(reader, parts, spans), 1)[:, None]
    return Points(names, row_of, pieces, ("word",), vectors, cut)


def _check_count(count: int) -> None:
    """Refuse more points than a page holds, or fewer than the three that define a plane."""
    if count > MOST:
        raise DataError(f"{count:,} points, and a page holds {MOST:,}", "take some of the texts")
    if count < 3:
        raise DataError(
            f"{count} points, and a plane takes 3", "give more texts with --text or --input"
        )


def _find_words(tokenizer: Tokenizer, ids: list[int]) -> Spans:
    """Return the span of positions of each word of a text.

    If the vocabulary has no words, each token is a word.
    """
    starts = [i for i, piece in enumerate(ids) if i == 0 or not tokenizer.continuation[piece]]
    return [(1 + a, 1 + b) for a, b in zip(starts, [*starts[1:], len(ids)], strict=True)]


def _compute_means(
    reader: OfText, parts: Sequence[list[list[int]]], spans: Sequence[Spans]
) -> list[np.ndarray]:
    """Return for each text the mean vector of each span at every layer, [layers + 2, spans, D].

    The token table and the embeddings count as the first two layers.
    """
    run = reader.model.run
    params = jax.device_put(run.params["encoder"])

    @jax.jit
    def means(params: Any, batch: Batch, weights: jax.Array) -> jax.Array:
        outputs = compute_layers(run.config.model, run.tokenizer.size, params, batch)
        tokens = jnp.take(outputs.embedding_table, batch["tokens"], axis=0)  # [B, L, table_width]
        if "projection" in params:
            tokens = jnp.matmul(tokens, params["projection"]["kernel"], precision="highest")
        layers = outputs.hidden.astype(jnp.float32)
        every = jnp.concatenate([tokens[None], layers])  # [layers + 2, B, L, D]
        return jnp.einsum("bsl,vbld->bvsd", weights, every, precision="highest")

    def compute(chosen: np.ndarray, length: int, size: int) -> jax.Array:
        most = max(len(spans[row]) for row in chosen)
        most = most if most <= len(POOLINGS) else length  # few shapes, few compilations
        weights = np.zeros((size, most, length), np.float32)  # [B, S, L]
        for k, row in enumerate(chosen):
            for s, (start, end) in enumerate(spans[row]):
                weights[k, s, start:end] = 1 / (end - start)
        return means(
            params, reader.assemble_batch([parts[row] for row in chosen], length, size), weights
        )

    rows = Work(reader.count_tokens(parts), compute, iter).compute_rows(ROWS)
    return [row[:, : len(known)] for row, known in zip(rows, spans, strict=True)]


# --- projection --------------------------------------------------------------------------------


def are_alike(vectors: np.ndarray) -> bool:
    """Tell whether all vectors are equal up to rounding."""
    wide = vectors.astype(np.float64)
    return bool(np.mean(np.var(wide, 0)) <= ALIKE * np.mean(wide**2))


def project_pca(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Project on the first two principal components [N, 2]; return their variance shares [2].

    Each component is turned so that the point farthest out is on the positive side.
    """
    from sklearn.decomposition import PCA

    # The full decomposition draws no random numbers.
    model = PCA(2, svd_solver="full")
    placed = model.fit_transform(vectors.astype(np.float64))
    farthest = placed[np.abs(placed).argmax(0), np.arange(2)]
    return placed * np.where(farthest < 0, -1, 1), model.explained_variance_ratio_


def project(vectors: np.ndarray, method: str) -> tuple[np.ndarray, np.ndarray | None]:
    """Project vectors to a plane [N, 2]; for PCA also return each axis's share of the variance."""
    if are_alike(vectors):
        return np.zeros((len(vectors), 2)), None
    if method == "pca":
        return project_pca(vectors)
    from sklearn.manifold import TSNE

    tsne = TSNE(perplexity=choose_perplexity(len(vectors)), init="pca", random_state=0)
    return tsne.fit_transform(scale_to_unit(vectors)), None


def choose_perplexity(count: int) -> float:
    """Choose the perplexity of t-SNE for `count` points."""
    return min(30.0, (count - 1) / 3)


# --- cosines -----------------------------------------------------------------------------------


def scale_to_unit(vectors: np.ndarray) -> np.ndarray:
    """Scale vectors to length 1 as float32; a vector of zeros stays zero."""
    from sklearn.preprocessing import normalize

    return normalize(vectors.astype(np.float64)).astype(np.float32)


def find_nearest(
    vectors: np.ndarray, table: np.ndarray, count: int, barred: Sequence[Sequence[int]]
) -> tuple[np.ndarray, np.ndarray]:
    """Find the rows of a table with the largest cosine to each vector, best first.

    Args:
      vectors: [N, D].
      table: [rows, D].
      count: how many neighbours to find for each vector; fewer if the table has fewer.
      barred: for each vector, the rows that do not count as neighbours.

    Returns:
      Row numbers and cosines [N, count].
    """
    from sklearn.neighbors import NearestNeighbors

    most = max(map(len, barred))
    count = min(count, len(table) - most)
    search = NearestNeighbors(n_neighbors=count + most, metric="cosine", algorithm="brute")
    distances, found = search.fit(table).kneighbors(vectors)
    ids = np.zeros((len(vectors), count), np.int64)
    cosines = np.zeros((len(vectors), count), np.float32)
    for row, unwanted in enumerate(barred):
        wanted = np.flatnonzero(~np.isin(found[row], list(unwanted)))[:count]
        ids[row] = found[row, wanted]
        cosines[row] = 1 - distances[row, wanted]
    return ids, cosines.clip(-1, 1)
