"""The page of `bert-jax inspect embeddings`: a map of texts or words, neighbours, and tables.

The script next to this file draws the map and the neighbours at each layer and pooling.
"""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_jax.errors import ConfigError
from bert_jax.interop.runs import TrainedModel
from bert_jax.predictors.base import Line, OfText
from bert_jax.reporting.page import Table
from bert_jax.views import document, vectors
from bert_jax.views.document import cut_text, make_visible
from bert_jax.views.options import MapOptions
from bert_jax.views.tables import draw_lengths, draw_positions
from bert_jax.views.vectors import Points

FEW = 60  # points of a table of cosines, and of vocabulary neighbours at every layer
NUMBERS = 24  # points of a table with numbers in its cells
NEAR = 100  # neighbours listed, at most
SHOWN = 400  # characters of a text
POOLED = {
    "tokens": "mean of its tokens",
    "mean": "mean with [CLS] and [SEP]",
    "cls": "[CLS]",
    "word": "mean of its pieces",
}
BELOW = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")  # a word has the number of its text below it


def make_embeddings_page(reader: OfText, rows: Sequence[Line], **settings: Any) -> str:
    """Make the page for some texts; `settings` are fields of `MapOptions`."""
    asked = MapOptions(**settings)
    run, words, method = reader.model.run, asked.points == "words", asked.method
    if asked.neighbours > NEAR:
        raise ConfigError(f"--neighbours={asked.neighbours}", f"a page lists {NEAR} at most")
    if words and asked.pooling:
        raise ConfigError("--pooling is of texts", "a word is the mean of its pieces: leave it out")
    first = _find_layer(asked.layer, run.config.model.layers or 0)
    shown = vectors.make_points(reader, rows, words=words)
    pooling = asked.pooling or run.sentence.get("pooling") or "tokens"
    start = (first, shown.poolings.index(pooling) if pooling in shown.poolings else 0)
    layers, poolings, count, _ = shown.vectors.shape
    # t-SNE of thousands of points takes minutes, so it shows the first view only.
    chosen = [start] if method == "tsne" else list(np.ndindex(layers, poolings))
    views = {}
    for layer, pool in chosen:
        view = _compute_view(run, shown, (layer, pool), method, asked.neighbours)
        views[f"{layer} {pool}"] = view
    names = [cut_text(make_visible(name), SHOWN) for name in shown.names]
    if words:
        texts = [str(row + 1).translate(BELOW) for row in shown.rows]
        names = [f"{name}{text}" for name, text in zip(names, texts, strict=True)]
    data = {
        "names": names,
        "texts": [cut_text(make_visible(row.fields["text"]), SHOWN) for row in rows],
        "labels": [row.fields.get("label") for row in rows],
        "rows": shown.rows.tolist(),
        "places": _format_places(shown),
        "counts": [len(ids) for ids in shown.pieces],
        "words": words,
        "start": start,
        "views": views,
    }
    facts = [f"{run.config.model.layers} layers of {run.config.model.hidden}"]
    facts += [f"{run.tokenizer.size:,} pieces", f"{len(rows):,} texts"]
    if words:
        facts.append(f"{count:,} words")
    if shown.cut:
        facts.append(f"{shown.cut:,} cut to {reader.limit:,} tokens")
    described = "PCA"
    if method == "tsne":
        described = f"t-SNE, perplexity {vectors.choose_perplexity(count):.4g}, seed 0"
    stages = ["token table (input)", "layer 0 (embeddings)"]
    stages += [f"layer {number}" for number in range(1, layers - 1)]
    labels = POOLED | ({"cls": "[SEP], the last token"} if run.config.model.causal else {})
    return document.render_page(
        "embeddings",
        run,
        facts,
        data,
        method=described,
        cosines=_tabulate_cosines(names, shown.vectors[start]),
        lengths=draw_lengths(run),
        positions=draw_positions(run),
        layers=stages,
        poolings=[labels[name] for name in shown.poolings],
        point="word" if words else "text",
    )


def _find_layer(name: str, last: int) -> int:
    """Return the index of a layer, named "input", "0", "1" … or "last", among the vectors.

    The vectors begin with those of the token table, which "input" names.
    """
    if name in ("input", "last"):
        return 0 if name == "input" else last + 1
    if not re.fullmatch(r"\d+", name) or int(name) > last:
        raise ConfigError(f"no layer {name!r}", f"input, 0 to {last}, or last")
    return int(name) + 1


# --- numbers -----------------------------------------------------------------------------------


def _compute_view(
    run: TrainedModel, shown: Points, key: tuple[int, int], method: str, count: int
) -> dict[str, Any]:
    """Compute the map and the nearest neighbours of the points at one layer and pooling.

    `key` is (layer, pooling), `method` makes the map, and `count` neighbours are found. The numbers
    are rounded to what a page can show.
    """
    raw = shown.vectors[key]  # [N, D]
    places, shares = vectors.project(raw, method)
    spread = float(np.abs(places).max()) or 1.0
    near, cosines = vectors.find_nearest(raw, raw, count, [[point] for point in range(len(raw))])
    view: dict[str, Any] = {
        "xy": np.round(places / spread, 4).tolist(),
        "near": [near.tolist(), np.round(cosines, 3).tolist()],
    }
    if shares is not None:
        view["shares"] = np.round(shares, 4).tolist()
    if len(raw) <= FEW or key[0] == 0:
        encoder = run.params["encoder"]
        vocabulary = np.asarray(encoder["embeddings"]["token"])[: run.tokenizer.size]
        if "projection" in encoder:  # a narrower table
            vocabulary = vocabulary @ np.asarray(encoder["projection"]["kernel"])
        barred = [sorted({*run.tokenizer.special, *ids}) for ids in shown.pieces]
        near, cosines = vectors.find_nearest(raw, vocabulary, count, barred)
        names = [[run.tokenizer.shown[piece] for piece in pieces] for pieces in near]
        view["words"] = [names, np.round(cosines, 3).tolist()]
    return view


def _format_places(shown: Points) -> list[str]:
    """Return a label for each point of the page, counted from 1.

    The label of a text is its number, such as "3". The label of a word is the number of its text
    and its own number in the text, such as "3:2".
    """
    if shown.poolings == vectors.POOLINGS:
        return [str(row + 1) for row in shown.rows]
    first = np.searchsorted(shown.rows, shown.rows)  # the text's first word
    return [f"{row + 1}:{i - first[i] + 1}" for i, row in enumerate(shown.rows)]


def _tabulate_cosines(names: list[str], raw: np.ndarray) -> Table:
    """Tabulate the cosines of vectors [N, D] as shades; with too many vectors, say so instead."""
    if len(names) > FEW:
        said = f"The table of cosines takes at most {FEW} points; these are {len(names):,}."
        return Table([], [], note=said)
    unit = vectors.scale_to_unit(raw)
    cosines = (unit @ unit.T).clip(-1, 1)
    np.fill_diagonal(cosines, np.nan)
    rows = [f"{number} {name}" for number, name in enumerate(names, 1)]
    digits = 2 if len(names) <= NUMBERS else 0
    said = "Of the view that the page begins with."
    return document.tabulate_shades(rows, cosines, digits=digits, note=said)
