"""Page of `bert-jax inspect embeddings`: a map of texts, neighbours, cosines, embedding tables.

Neighbours and cosines of the first view are plain HTML; the script beside this file draws the map,
and shows every other layer and pooling from numbers in the page.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import logging
import re
import time
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import Any

import numpy as np
import tqdm

from bert_jax.errors import ConfigError
from bert_jax.predictors.base import OfText, Row
from bert_jax.reporting import page as pages
from bert_jax.views import common, pictures, vectors
from bert_jax.views.tables import tables
from bert_jax.views.texts import model_facts, shorten
from bert_jax.views.vectors import Points

logger = logging.getLogger(__name__)

STYLE = common.STYLE + pages.asset(__file__, ".css")
PARTS = (".points.js", ".js")  # of the script, which share one scope
SCRIPT = common.SCRIPT + "".join(pages.asset(__file__, part) for part in PARTS) + pictures.SCRIPT
TABLE = 60  # points of a cosine table, and of a page with vocabulary neighbours at every layer
NUMBERS = 24  # points of a cosine table with numbers in its cells
NEAR = 100  # neighbours listed, at most
SLOW = 5000  # points of all views together that t-SNE and UMAP are run on
SHOWN = 400  # characters of a text
POOLED = {"tokens": "mean of its tokens", "mean": "mean with [CLS] and [SEP]", "cls": "[CLS]"}
METHOD = {"pca": "PCA", "tsne": "t-SNE", "umap": "UMAP"}
PAUSE = 10.0  # seconds between two lines about progress, where nobody watches a terminal
BELOW = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")  # a word has the number of its text below it
# Control characters and those that change the direction of text; a label needs none of them.
UNSEEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]+"
)


@dataclasses.dataclass(frozen=True)
class View:
    """Numbers shown of one layer and pooling."""

    places: np.ndarray  # [N, 2]
    shares: np.ndarray | None  # [2], of the variance
    near: tuple[np.ndarray, np.ndarray]  # points and cosines [N, K]
    plain: tuple[np.ndarray, np.ndarray] | None  # the same without punctuation
    words: tuple[np.ndarray, np.ndarray] | None  # pieces of the vocabulary and cosines [N, K]
    cosines: np.ndarray | None  # [N, N]


Views = dict[tuple[int, int], View]  # by layer and pooling


def page(
    reader: OfText,
    rows: Sequence[Row],
    layer: str = "last",
    pooling: str = "",
    points: str = "texts",
    method: str = "pca",
    neighbours: int = 5,
) -> str:
    """Build the document; `layer` and `pooling` choose the first view."""
    run, words = reader.model.run, points == "words"
    vectors.check(method)
    if neighbours > NEAR:
        raise ConfigError(f"--neighbours={neighbours}", f"a page lists {NEAR} at most")
    if words and pooling:
        raise ConfigError("--pooling is of texts", "a word is the mean of its pieces: leave it out")
    first = _layer(layer, run.config.model.layers or 0)
    shown = vectors.points(reader, rows, words=words)
    pooling = pooling or run.sentence.get("pooling") or "tokens"
    start = (first, shown.poolings.index(pooling) if pooling in shown.poolings else 0)
    punctuation = _punctuation(shown) if words else []
    views = _views(reader, shown, method, start, neighbours, punctuation)
    names = [_clean(name) for name in shown.names]
    if words:
        numbers = [str(row + 1).translate(BELOW) for row in shown.rows]
        names = [f"{name}{number}" for name, number in zip(names, numbers, strict=True)]
    texts = [_clean(row.fields["text"]) for row in rows]
    vocab = run.tokenizer.shown
    data = _data(shown, names, texts, views, start, vocab)
    labels = [row.fields.get("label") for row in rows]
    data |= {"method": METHOD[method], "how": _how(method, len(names)), "labels": labels}
    data |= {"places": _places(shown), "punctuation": punctuation}
    least = vectors.chance(run.tokenizer.size, shown.vectors.shape[-1])
    data["least"] = least  # of a neighbour in the vocabulary
    subtitle = _subtitle(reader, shown, len(rows))
    body = pages.fill(
        __file__,
        subtitle=subtitle,
        method=data["how"],
        **_choices(start, len(shown.vectors), shown.poolings),
        **_neighbours(shown, names, views[start], vocab, least),
        cosines=pages.section("Cosines", _cosines(names, views[start]), "box"),
        tables=tables(run),
        data=common.data_script(data),
        script=SCRIPT,
    )
    body = body.replace(subtitle, subtitle + pages.contents(body), 1)
    return pages.page("Embeddings", body, STYLE)


def _layer(name: str, last: int) -> int:
    """Return the number of a layer among the vectors; the token table's rows precede layer 0."""
    if name in ("input", "last"):
        return 0 if name == "input" else last + 1
    if not re.fullmatch(r"\d+", name) or int(name) > last:
        raise ConfigError(f"no layer {name!r}", f"input, 0 to {last}, or last")
    return int(name) + 1


def _clean(text: str) -> str:
    return UNSEEN.sub(" ", text).strip()[:100_000]


# --- numbers -----------------------------------------------------------------------------------


def _views(
    reader: OfText,
    shown: Points,
    method: str,
    start: tuple[int, int],
    count: int,
    punctuation: list[int],
) -> Views:
    """Compute every layer and pooling; of slow projections only the first view."""
    layers, poolings, points, _ = shown.vectors.shape
    run = reader.model.run
    chosen = [(layer, pool) for layer in range(layers) for pool in range(poolings)]
    placing = f"{METHOD[method]} of {points:,} points"
    if method != "pca" and len(chosen) * points > SLOW:
        logger.info(f"{placing} is slow: this layer alone is on the page")
        chosen = [start]
    encoder = run.params["encoder"]
    token_table = np.asarray(encoder["embeddings"]["token"])[: run.tokenizer.size]
    if "projection" in encoder:  # a narrower table
        token_table = token_table @ np.asarray(encoder["projection"]["kernel"])
    vocabulary = vectors.unit(token_table)
    itself = [[i] for i in range(points)]
    unwanted = [sorted({i, *punctuation}) for i in range(points)]
    barred = [sorted({*run.tokenizer.special, *ids}) for ids in shown.pieces]
    few = points <= TABLE
    views: Views = {}
    for number, (layer, pool) in enumerate(chosen, 1):
        raw = shown.vectors[layer, pool]
        unit = vectors.unit(raw)
        with _progress(f"{placing}, view {number} of {len(chosen)}", method) as progress:
            placed = vectors.project(raw, method, progress)
        views[layer, pool] = View(
            *placed,
            near=vectors.nearest(unit, unit, count, itself),
            plain=vectors.nearest(unit, unit, count, unwanted) if punctuation else None,
            words=vectors.nearest(unit, vocabulary, count, barred) if few or layer == 0 else None,
            cosines=(unit @ unit.T).clip(-1, 1) if few else None,
        )
    return views


@contextlib.contextmanager
def _progress(text: str, method: str) -> Iterator[Callable[[int], None]]:
    """Show the iterations of a slow projection: a bar on a terminal, lines elsewhere."""
    said = time.monotonic()
    off = None if method == "tsne" else True  # None: where nobody watches a terminal
    most = vectors.ITERATIONS
    with tqdm.tqdm(total=most, desc=text, unit=" iterations", disable=off, leave=False) as bar:
        if bar.disable and method != "pca":
            logger.info(text)

        def tell(done: int) -> None:
            nonlocal said
            bar.update(done - bar.n)
            if bar.disable and time.monotonic() >= said + PAUSE:
                logger.info(f"{text}: iteration {done:,} of {most:,}")
                said = time.monotonic()

        yield tell


def _punctuation(shown: Points) -> list[int]:
    """Return the words without letters and digits; none if fewer than three others are left."""
    kinds = [{unicodedata.category(c) for c in name} for name in shown.names]
    found = [i for i, kind in enumerate(kinds) if all(k[0] in "PSZ" and k != "So" for k in kind)]
    return found if len(found) <= len(kinds) - 3 else []


def _places(shown: Points) -> list[str]:
    """Return the number of each text; of words that, and which word of the text it is."""
    if len(shown.poolings) > 1:
        return [str(row + 1) for row in shown.rows]
    first = np.searchsorted(shown.rows, shown.rows)  # the text's first word
    pairs = enumerate(zip(shown.rows, first, strict=True))
    return [f"{row + 1}:{i - k + 1}" for i, (row, k) in pairs]


def _how(method: str, points: int) -> str:
    """Name a projection and what decides it."""
    chosen = vectors.settings(method, points)
    return ", ".join([METHOD[method], *(f"{name} {value:.4g}" for name, value in chosen.items())])


def _data(
    shown: Points,
    names: list[str],
    texts: list[str],
    views: Views,
    start: tuple[int, int],
    vocab: list[str],
) -> dict[str, Any]:
    """Collect all numbers for the script; arrays are base64 of little-endian bytes."""
    listed = [view.words[0].reshape(-1) for view in views.values() if view.words]
    ids = np.unique(np.concatenate([np.zeros(0, np.int64), *listed]))

    def numbers(view: View) -> dict[str, Any]:
        packed: dict[str, Any] = {"xy": _packed(view.places, "<f4"), "near": _listed(*view.near)}
        if view.shares is not None:
            packed["shares"] = [round(float(share), 6) for share in view.shares]
        if view.plain:
            packed["plain"] = _listed(*view.plain)
        if view.words:
            packed["words"] = _listed(np.searchsorted(ids, view.words[0]), view.words[1])
        if view.cosines is not None:
            above = np.triu_indices(len(view.cosines), 1)
            packed["cosines"] = _packed(view.cosines[above], "<f4")
        return packed

    return {
        "names": names,
        "texts": [shorten(text, SHOWN) for text in texts],
        "rows": shown.rows.tolist(),
        "tokens": [len(pieces) for pieces in shown.pieces],
        "vocabulary": [vocab[i] for i in ids],
        "layers": len(shown.vectors),
        "poolings": len(shown.poolings),
        "start": start,
        "numbers": len(names) <= NUMBERS,
        "views": {f"{layer} {pool}": numbers(view) for (layer, pool), view in views.items()},
    }


def _listed(ids: np.ndarray, cosines: np.ndarray) -> list[Any]:
    """Pack neighbours: how many each point has, which, and cosines in ten thousandths."""
    return [ids.shape[1], _packed(ids, "<u2"), _packed(np.rint(1e4 * cosines), "<i2")]


def _packed(array: np.ndarray, dtype: str) -> str:
    return base64.b64encode(array.astype(dtype).tobytes()).decode()


# --- parts of the page -------------------------------------------------------------------------


def _subtitle(reader: OfText, shown: Points, texts: int) -> str:
    run = reader.model.run
    parts = model_facts(run)
    parts += [f"{run.config.model.layers} layers of {run.config.model.hidden}"]
    parts += [f"{run.tokenizer.size:,} pieces", f"{texts:,} texts"]
    parts += [f"{len(shown.names):,} words"] if len(shown.poolings) == 1 else []
    parts += [f"{shown.cut:,} cut to {reader.limit:,} tokens"] if shown.cut else []
    return f'<p class="sub">{" · ".join(parts)}</p>'


def _choices(start: tuple[int, int], layers: int, poolings: Sequence[str]) -> dict[str, str]:
    """List the layers and poolings to choose from, and name those of the first view."""

    def options(names: Sequence[str], chosen: int) -> str:
        return "".join(
            f'<option value="{i}"{" selected" if i == chosen else ""}>{escape(name)}</option>'
            for i, name in enumerate(names)
        )

    names = ["token table (input)", "layer 0 (embeddings)"]
    names += [f"layer {i}" for i in range(1, layers - 1)]
    names[-1] += ", last" if layers > 2 else ""
    words = len(poolings) == 1
    pooled = ["mean of its pieces"] if words else [POOLED[name] for name in poolings]
    return {
        "layers": options(names, start[0]),
        "poolings": options(pooled, start[1]),
        "first": f"{escape(names[start[0]])}, {escape(pooled[start[1]])}",
        "point": "word" if words else "text",
    }


def _neighbours(
    shown: Points, names: list[str], view: View, vocab: list[str], least: float
) -> dict[str, str]:
    """Tabulate neighbours, a row a point; the script writes other views into the last two cells.

    Neighbours in the vocabulary with a cosine below `least` are left out.
    """
    lines, places = "", _places(shown)
    for i, name in enumerate(names):
        ids, cosines = view.near[0][i], view.near[1][i]
        near = _near([names[k] for k in ids], cosines, [places[k] for k in ids])
        words = "<td></td>"
        if view.words:
            near_enough = view.words[1][i] >= least
            ids, cosines = view.words[0][i][near_enough], view.words[1][i][near_enough]
            words = _near([vocab[k] for k in ids], cosines, [""] * len(ids))
        lines += (
            f'<tr><td class="n">{places[i]}</td><th scope="row"><bdi dir="auto" class="text">'
            f'{escape(shorten(name, SHOWN))}</bdi></th><td class="n">{len(shown.pieces[i])}</td>'
            f"{near}{words}</tr>"
        )
    note = f" There, cosines below {least:.3f} are left out: the nearest of {len(vocab):,} random "
    note += "vectors reaches that in only 5 of 100 cases."
    if len(shown.poolings) == 1:
        note += " The small numbers are those of a word's text and of its place there: 3:5 is the "
        note += "fifth word of text 3."
    else:
        note += " The small numbers are those of the texts."
    if len(names) > TABLE:
        note += f" With more than {TABLE} points they are computed for the input alone."
    return {"neighbours": lines, "neighbours_note": note}


def _near(names: list[str], cosines: np.ndarray, places: list[str]) -> str:
    items = (
        f'<span><bdi dir="auto">{escape(shorten(name, SHOWN))}</bdi> <small>{place}</small> '
        f"<b>{cosine:z.3f}</b></span>"
        for name, cosine, place in zip(names, cosines, places, strict=True)
    )
    return f'<td class="near">{"".join(items)}</td>'


def _cosines(names: list[str], view: View) -> str:
    """Tabulate cosines, coloured from the lowest to the highest."""
    if view.cosines is None:
        return (
            f'<p class="note">The table of cosines takes at most {TABLE} points; '
            f"these are {len(names):,}.</p>"
        )
    off = view.cosines[~np.eye(len(names), dtype=bool)]
    low, high = float(off.min()), float(off.max())
    written = len(names) <= NUMBERS

    def cell(cosine: float) -> str:
        share = min(max((float(cosine) - low) / ((high - low) or 1), 0), 1)
        return f'<td style="--c:{share:.3f}">{f"{cosine:z.2f}" if written else ""}</td>'

    lines = ""
    for i, name in enumerate(names):
        lines += (
            f'<tr><th scope="row"><span class="n">{i + 1}</span> '
            f'<bdi dir="auto">{escape(shorten(name, SHOWN))}</bdi></th>'
            f"{''.join(map(cell, view.cosines[i]))}</tr>"
        )
    head = "".join(f'<th scope="col">{i + 1}</th>' for i in range(len(names)))
    return (
        '<div class="cosine-bar"><div class="scale heat" id="heat"><span id="low">'
        f'{low:z.3f}</span><i></i><span id="high">{high:z.3f}</span><span>cosine</span></div>'
        '<label id="ends-of" hidden>colours <select id="ends">'
        '<option value="own">lowest to highest</option>'
        '<option value="all">&minus;1 to 1</option></select></label></div>'
        '<p class="read" id="cosine-at" aria-live="polite"></p>'
        '<div class="scroll tall" tabindex="0" role="region" aria-label="Cosines">'
        f'<table class="cosines{"" if written else " dense"}" '
        f'id="cosines"><thead><tr><td></td>{head}</tr></thead><tbody>{lines}</tbody></table></div>'
    )
