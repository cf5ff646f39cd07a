"""The page of `bert-jax inspect embeddings`: texts on a plane, what lies nearest, cosines, and the tables themselves.

Neighbours and cosines of what is shown first are plain HTML; the script beside this file draws the map, and shows every
other layer and pooling from numbers that travel with the page.
"""

from __future__ import annotations

import base64
import dataclasses
import re
import sys
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.errors import ConfigError
from bert_jax.predictors.base import OfText, Row
from bert_jax.reporting import page as pages
from bert_jax.views import vectors
from bert_jax.views.tables import tables
from bert_jax.views.texts import introduced, shorten, stated
from bert_jax.views.vectors import Points

BESIDE = Path(__file__)  # of the script and the style
TABLE = 60  # points of a cosine table, and of those whose neighbours in the vocabulary are looked for at every layer
NUMBERS = 24  # points whose cosines are written into the cells
NEAR = 100  # neighbours listed at most
SLOW = 5000  # points of all views together that t-SNE and UMAP are asked to place
SHOWN = 400  # characters of a text
CALLED = {"tokens": "mean of its tokens", "mean": "mean with [CLS] and [SEP]", "cls": "[CLS]"}
METHOD = {"pca": "PCA", "tsne": "t-SNE", "umap": "UMAP"}
BELOW = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")  # a word's text, as many say the same words
# Marks that turn the direction of what follows, and controls: no text says anything with them that a label would miss.
UNSEEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]+"
)


@dataclasses.dataclass(frozen=True)
class View:
    """One layer and pooling."""

    places: np.ndarray  # [N, 2]
    shares: np.ndarray | None  # [2], of the variance
    near: tuple[np.ndarray, np.ndarray]  # points and cosines [N, K]
    words: tuple[np.ndarray, np.ndarray] | None  # pieces and cosines [N, K]
    cosines: np.ndarray | None  # [N, N]


def page(
    asking: OfText,
    rows: Sequence[Row],
    layer: str = "last",
    pooling: str = "",
    points: str = "texts",
    method: str = "pca",
    neighbours: int = 5,
) -> str:
    """The whole page."""
    run = asking.model.run
    vectors.check(method)
    if neighbours > NEAR:
        raise ConfigError(f"--neighbours={neighbours}", f"a page lists {NEAR} at most")
    if points == "words" and pooling:
        raise ConfigError("--pooling is of texts", "a word is the mean of its pieces: leave it out")
    first = _layer(layer, run.config.model.layers or 0)
    found = vectors.points(asking, rows, words=points == "words")
    pooling = pooling or run.sentence.get("pooling") or "tokens"
    start = (first, found.poolings.index(pooling) if pooling in found.poolings else 0)
    views = _views(asking, found, method, start, neighbours)
    names = [_clean(name) for name in found.names]
    if points == "words":
        names = [
            f"{name}{str(row + 1).translate(BELOW)}"
            for name, row in zip(names, found.rows, strict=True)
        ]
    texts = [_clean(row.fields["text"]) for row in rows]
    vocab = run.tokenizer.vocab
    shown = views[start]
    data = _data(found, names, texts, views, start, method, vocab)
    body = (
        f"<h1>Embeddings</h1>{_subtitle(asking, found, len(rows), points)}"
        f"{_controls(start, len(found.vectors), found.poolings)}"
        + _map(method)
        + pages.section("Nearest neighbours", _neighbours(found, names, shown, vocab), "box")
        + pages.section("Cosines", _cosines(names, shown), "box")
        + tables(run)
        + stated(data)
        + f"<script>{BESIDE.with_suffix('.js').read_text(encoding='utf-8')}</script>"
    )
    return pages.page("Embeddings", body, BESIDE.with_suffix(".css").read_text(encoding="utf-8"))


def _layer(asked: str, last: int) -> int:
    """The number of a layer among the vectors: the rows of the token table come before layer 0."""
    if asked in ("input", "last"):
        return 0 if asked == "input" else last + 1
    if not re.fullmatch(r"\d+", asked) or int(asked) > last:
        raise ConfigError(f"no layer {asked!r}", f"input, 0 to {last}, or last")
    return int(asked) + 1


def _clean(text: str) -> str:
    return UNSEEN.sub(" ", text).strip()[:100_000]


# --- numbers --------------------------------------------------------------------------------------------------------


def _views(
    asking: OfText, found: Points, method: str, start: tuple[int, int], count: int
) -> dict[tuple[int, int], View]:
    """What is shown of each layer and pooling."""
    layers, poolings, points, _ = found.vectors.shape
    run = asking.model.run
    wanted = [(layer, pool) for layer in range(layers) for pool in range(poolings)]
    if method != "pca" and len(wanted) * points > SLOW:
        print(
            f"{METHOD[method]} of {points:,} points is slow: this layer alone is on the page",
            file=sys.stderr,
        )
        wanted = [start]
    table = vectors.unit(
        np.asarray(run.params["encoder"]["embeddings"]["token"])[: run.tokenizer.size]
    )
    barred = [sorted({*run.tokenizer.special, *ids}) for ids in found.pieces]
    views: dict[tuple[int, int], View] = {}
    for layer, pool in wanted:
        if method != "pca":
            said = f"{METHOD[method]} of {points:,} points, view {len(views) + 1} of {len(wanted)}"
            print(said, file=sys.stderr, flush=True)
        mine = found.vectors[layer, pool]
        one = vectors.unit(mine)
        near = vectors.nearest(one, one, count, [[i] for i in range(points)])
        spoken = points <= TABLE or layer == 0
        words = vectors.nearest(one, table, count, barred) if spoken else None
        cosines = (one @ one.T).clip(-1, 1) if points <= TABLE else None
        views[layer, pool] = View(*vectors.project(mine, method), near, words, cosines)
    return views


def _data(
    found: Points,
    names: list[str],
    texts: list[str],
    views: dict[tuple[int, int], View],
    start: tuple[int, int],
    method: str,
    vocab: list[str],
) -> dict[str, Any]:
    """All numbers: arrays are base64 of little-endian bytes."""
    spoken = [view.words[0] for view in views.values() if view.words]
    ids = (
        np.unique(np.concatenate([some.reshape(-1) for some in spoken]))
        if spoken
        else np.zeros(0, np.int64)
    )

    def numbers(view: View) -> dict[str, Any]:
        made: dict[str, Any] = {"xy": _packed(view.places, "<f4"), "near": _listed(*view.near)}
        if view.shares is not None:
            made["shares"] = [round(float(share), 6) for share in view.shares]
        if view.words:
            made["words"] = _listed(np.searchsorted(ids, view.words[0]), view.words[1])
        if view.cosines is not None:
            made["cosines"] = _packed(view.cosines[np.triu_indices(len(view.cosines), 1)], "<f4")
        return made

    return {
        "names": names,
        "texts": [shorten(text, SHOWN) for text in texts],
        "rows": found.rows.tolist(),
        "tokens": [len(ids) for ids in found.pieces],
        "vocabulary": [vocab[i] for i in ids],
        "layers": len(found.vectors),
        "poolings": len(found.poolings),
        "start": start,
        "method": METHOD[method],
        "numbers": len(names) <= NUMBERS,
        "views": {f"{layer} {pool}": numbers(view) for (layer, pool), view in views.items()},
    }


def _listed(ids: np.ndarray, cosines: np.ndarray) -> list[Any]:
    """Neighbours: how many each has, which, and cosines in ten thousandths."""
    return [ids.shape[1], _packed(ids, "<u2"), _packed(np.rint(1e4 * cosines), "<i2")]


def _packed(array: np.ndarray, dtype: str) -> str:
    return base64.b64encode(array.astype(dtype).tobytes()).decode()


# --- parts of the page ----------------------------------------------------------------------------------------------


def _subtitle(asking: OfText, found: Points, texts: int, points: str) -> str:
    run = asking.model.run
    model = run.config.model
    parts = [
        *introduced(run),
        f"{model.layers} layers of {model.hidden}",
        f"{run.tokenizer.size:,} pieces",
        f"{texts:,} texts",
        *([f"{len(found.names):,} words"] if points == "words" else []),
        *([f"{found.cut:,} cut to {asking.limit:,} tokens"] if found.cut else []),
    ]
    return f'<p class="sub">{" · ".join(parts)}</p>'


def _controls(start: tuple[int, int], layers: int, poolings: Sequence[str]) -> str:
    """The choice of layer and pooling, which the script shows where there are several, and what is shown first."""

    def option(value: int, name: str, chosen: bool) -> str:
        return f'<option value="{value}"{" selected" if chosen else ""}>{escape(name)}</option>'

    called = [
        "token table (input)",
        "layer 0 (embeddings)",
        *(f"layer {i}" for i in range(1, layers - 1)),
    ]
    called[-1] += ", last" if layers > 2 else ""
    of_layer = "".join(option(i, name, i == start[0]) for i, name in enumerate(called))
    words = len(poolings) == 1
    said = [f"{'mean of its pieces' if words else CALLED[name]}" for name in poolings]
    of_pooling = "".join(option(i, name, i == start[1]) for i, name in enumerate(said))
    return (
        f'<form class="controls" id="controls" hidden autocomplete="off"><label>Layer '
        '<span><button type="button" id="down" aria-label="the layer before">&minus;</button>'
        f'<select id="layer">{of_layer}</select>'
        '<button type="button" id="up" aria-label="the next layer">+</button></span></label>'
        f'<label>A {"word" if words else "text"} is the <select id="pooling">{of_pooling}</select></label></form>'
        f'<p class="note" id="first">Shown: {escape(called[start[0]])}, {escape(said[start[1]])}.</p>'
    )


def _map(method: str) -> str:
    drawn = (
        '<div class="atlas"><figure class="chart" id="map"><figcaption id="map-name">'
        f'{METHOD[method]}</figcaption><p class="note" id="map-note"></p>'
        '<noscript><p class="note">The map needs a script; the tables below do not.</p></noscript></figure>'
        '<div class="box" id="one" hidden></div></div>'
    )
    return pages.section("Map", drawn)


def _neighbours(found: Points, names: list[str], view: View, vocab: list[str]) -> str:
    """A row a point; the script writes other views into its last two cells."""
    words = view.words
    head = ["", "text" if len(found.poolings) > 1 else "word", "tokens", "nearest here"]
    lines = []
    for i, name in enumerate(names):
        cells = [_near([names[k] for k in view.near[0][i]], view.near[1][i])]
        cells += [_near([vocab[k] for k in words[0][i]], words[1][i])] if words else ["<td></td>"]
        lines.append(
            f'<tr><td class="n">{i + 1}</td><th scope="row"><bdi dir="auto" class="text">'
            f'{escape(shorten(name, SHOWN))}</bdi></th><td class="n">{len(found.pieces[i])}</td>{"".join(cells)}</tr>'
        )
    titles = "".join(
        f"<th{' class=n' if name in ('', 'tokens') else ''}>{name}</th>" for name in head
    )
    note = (
        "Cosines. In the vocabulary: rows of the token table, without special tokens and the text's own pieces; it is "
        "the space of the input, so read such neighbours of higher layers with care."
    )
    if len(found.poolings) == 1:
        note += " The small number behind a word is its text's."
    if len(names) > TABLE:
        note += f" They are looked for at every layer where there are at most {TABLE} points, else at the input alone."
    return (
        '<div class="scroll tall" tabindex="0" role="region" aria-label="Nearest neighbours"><table id="near"><thead>'
        f'<tr>{titles}<th id="spoken">nearest in the vocabulary</th></tr></thead><tbody>{"".join(lines)}</tbody>'
        f'</table></div><p class="note">{note}</p>'
    )


def _near(names: list[str], cosines: np.ndarray) -> str:
    items = (
        f'<span><bdi dir="auto">{escape(shorten(name, SHOWN))}</bdi> <b>{cosine:z.3f}</b></span>'
        for name, cosine in zip(names, cosines, strict=True)
    )
    return f'<td class="near">{"".join(items)}</td>'


def _cosines(names: list[str], view: View) -> str:
    """The table, coloured from its lowest to its highest number."""
    if view.cosines is None:
        return f'<p class="note">A table of cosines is drawn of at most {TABLE} points; these are {len(names):,}.</p>'
    off = view.cosines[~np.eye(len(names), dtype=bool)]
    low, high = float(off.min()), float(off.max())
    lines = []
    for i, name in enumerate(names):
        cells = "".join(
            f'<td style="--c:{min(max((float(c) - low) / ((high - low) or 1), 0), 1):.3f}">'
            f"{f'{c:z.2f}' if len(names) <= NUMBERS else ''}</td>"
            for c in view.cosines[i]
        )
        lines.append(
            f'<tr><th scope="row"><span class="n">{i + 1}</span> '
            f'<bdi dir="auto">{escape(shorten(name, SHOWN))}</bdi></th>{cells}</tr>'
        )
    head = "".join(f'<th scope="col">{i + 1}</th>' for i in range(len(names)))
    dense = "" if len(names) <= NUMBERS else " dense"
    return (
        '<div class="cosine-bar"><div class="scale heat" id="heat"><span id="low">'
        f'{low:z.3f}</span><i></i><span id="high">{high:z.3f}</span><span>cosine</span></div>'
        '<label id="ends-of" hidden>colours <select id="ends"><option value="own">lowest to highest</option>'
        '<option value="all">&minus;1 to 1</option></select></label></div>'
        '<p class="read" id="cosine-at" aria-live="polite"></p>'
        f'<div class="scroll tall" tabindex="0" role="region" aria-label="Cosines"><table class="cosines{dense}" '
        f'id="cosines"><thead><tr><td></td>{head}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'
    )
