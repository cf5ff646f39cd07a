"""Page of `bert-jax inspect embeddings`: a map of texts or words, neighbours, cosines, and tables.

Neighbours and cosines of the first view are plain HTML. The script beside this file draws the map,
and shows every other layer and pooling from numbers in the page.
"""

from __future__ import annotations

import dataclasses
import logging
import re
import unicodedata
from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

from bert_jax.errors import ConfigError
from bert_jax.predictors.base import OfText, Row
from bert_jax.reporting import page as pages
from bert_jax.views import common, vectors
from bert_jax.views.tables import write_tables
from bert_jax.views.texts import model_facts, shorten
from bert_jax.views.vectors import Points

logger = logging.getLogger(__name__)

FEW = 60  # points of a table of cosines, and of vocabulary neighbours at every layer
NUMBERS = 24  # points of a table with numbers in its cells
NEAR = 100  # neighbours listed, at most
SLOW = 5000  # points of all views together that t-SNE and UMAP are run on
SHOWN = 400  # characters of a text
POOLED = {"tokens": "mean of its tokens", "mean": "mean with [CLS] and [SEP]", "cls": "[CLS]"}
METHOD = {"pca": "PCA", "tsne": "t-SNE", "umap": "UMAP"}
BELOW = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")  # a word has the number of its text below it
# Control characters and those that change the direction of text; a label needs none of them.
UNSEEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]+"
)
Near = tuple[np.ndarray, np.ndarray]  # neighbours and cosines [N, K]


@dataclasses.dataclass(frozen=True)
class View:
    """Numbers shown of one layer and pooling."""

    places: np.ndarray  # [N, 2]
    shares: np.ndarray | None  # [2], of the variance
    near: Near
    plain: Near | None  # without punctuation
    words: Near | None  # pieces of the vocabulary


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
    vectors.check_method(method)
    if neighbours > NEAR:
        raise ConfigError(f"--neighbours={neighbours}", f"a page lists {NEAR} at most")
    if words and pooling:
        raise ConfigError("--pooling is of texts", "a word is the mean of its pieces: leave it out")
    first = _find_layer(layer, run.config.model.layers or 0)
    shown = vectors.make_points(reader, rows, words=words)
    pooling = pooling or run.sentence.get("pooling") or "tokens"
    start = (first, shown.poolings.index(pooling) if pooling in shown.poolings else 0)
    punctuation = _find_punctuation(shown) if words else []
    views = _compute_views(reader, shown, method, start, neighbours, punctuation)
    names = [_clean(name) for name in shown.names]
    if words:
        numbers = [str(row + 1).translate(BELOW) for row in shown.rows]
        names = [f"{name}{number}" for name, number in zip(names, numbers, strict=True)]
    vocab = run.tokenizer.shown
    data = {
        "names": [shorten(name, SHOWN) for name in names],
        "texts": [shorten(_clean(row.fields["text"]), SHOWN) for row in rows],
        "labels": [row.fields.get("label") for row in rows],
        "rows": shown.rows.tolist(),
        "places": _write_places(shown),
        "punctuation": punctuation,
        "method": METHOD[method],
        "words": words,
        "start": start,
        "least": vectors.find_chance_cosine(run.tokenizer.size, shown.vectors.shape[-1]),
        "views": {
            f"{layer} {pool}": _collect_view(view, vocab) for (layer, pool), view in views.items()
        },
    }
    cosines = _write_cosines(names, shown.vectors[start])
    body = pages.fill(
        __file__,
        subtitle=_write_subtitle(reader, shown, len(rows)),
        method=_describe_method(method, len(names)),
        **_write_choices(start, len(shown.vectors), shown.poolings),
        **_write_neighbours(shown, data, views[start], vocab),
        cosines=pages.section("Cosines", cosines, "box"),
        tables=write_tables(run),
        data=common.data_script(data),
    )
    style = common.STYLE + pages.asset(__file__, ".css")
    script = common.SCRIPT + pages.asset(__file__, ".js")
    return pages.page("Embeddings", body, style, script)


def _find_layer(name: str, last: int) -> int:
    """Find the number of a layer among the vectors; the token table's rows precede layer 0."""
    if name in ("input", "last"):
        return 0 if name == "input" else last + 1
    if not re.fullmatch(r"\d+", name) or int(name) > last:
        raise ConfigError(f"no layer {name!r}", f"input, 0 to {last}, or last")
    return int(name) + 1


def _clean(text: str) -> str:
    return UNSEEN.sub(" ", text).strip()[:100_000]


# --- numbers -----------------------------------------------------------------------------------


def _compute_views(
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
    vocabulary = np.asarray(encoder["embeddings"]["token"])[: run.tokenizer.size]
    if "projection" in encoder:  # a narrower table
        vocabulary = vocabulary @ np.asarray(encoder["projection"]["kernel"])
    itself = [[point] for point in range(points)]
    unwanted = [[point, *punctuation] for point in range(points)]
    barred = [sorted({*run.tokenizer.special, *ids}) for ids in shown.pieces]
    views: Views = {}
    for number, (layer, pool) in enumerate(chosen, 1):
        if method != "pca":
            logger.info(f"{placing}, view {number} of {len(chosen)}")
        raw = shown.vectors[layer, pool]
        with_words = points <= FEW or layer == 0
        views[layer, pool] = View(
            *vectors.project(raw, method),
            near=vectors.find_nearest(raw, raw, count, itself),
            plain=vectors.find_nearest(raw, raw, count, unwanted) if punctuation else None,
            words=vectors.find_nearest(raw, vocabulary, count, barred) if with_words else None,
        )
    return views


def _find_punctuation(shown: Points) -> list[int]:
    """Find the words without letters and digits; none if fewer than three others are left."""
    kinds = [{unicodedata.category(c) for c in name} for name in shown.names]
    found = [i for i, kind in enumerate(kinds) if all(k[0] in "PSZ" and k != "So" for k in kind)]
    return found if len(found) <= len(kinds) - 3 else []


def _write_places(shown: Points) -> list[str]:
    """Write the number of each text; of words that, and which word of the text it is."""
    if len(shown.poolings) > 1:
        return [str(row + 1) for row in shown.rows]
    first = np.searchsorted(shown.rows, shown.rows)  # the text's first word
    pairs = enumerate(zip(shown.rows, first, strict=True))
    return [f"{row + 1}:{word - begin + 1}" for word, (row, begin) in pairs]


def _describe_method(method: str, points: int) -> str:
    """Name a projection and what decides it."""
    chosen = vectors.choose_settings(method, points)
    return ", ".join([METHOD[method], *(f"{name} {value:.4g}" for name, value in chosen.items())])


def _collect_view(view: View, vocab: list[str]) -> dict[str, Any]:
    """Collect the numbers of a view for the script, rounded to what a page can show."""
    spread = float(np.abs(view.places).max()) or 1.0
    collected: dict[str, Any] = {
        "xy": np.round(view.places / spread, 4).tolist(),
        "near": [view.near[0].tolist(), np.round(view.near[1], 3).tolist()],
    }
    if view.shares is not None:
        collected["shares"] = [round(float(share), 4) for share in view.shares]
    if view.plain:
        collected["plain"] = [view.plain[0].tolist(), np.round(view.plain[1], 3).tolist()]
    if view.words:
        names = [[vocab[piece] for piece in pieces] for pieces in view.words[0]]
        collected["words"] = [names, np.round(view.words[1], 3).tolist()]
    return collected


# --- parts of the page -------------------------------------------------------------------------


def _write_subtitle(reader: OfText, shown: Points, texts: int) -> str:
    run = reader.model.run
    parts = model_facts(run)
    parts += [f"{run.config.model.layers} layers of {run.config.model.hidden}"]
    parts += [f"{run.tokenizer.size:,} pieces", f"{texts:,} texts"]
    if len(shown.poolings) == 1:
        parts.append(f"{len(shown.names):,} words")
    if shown.cut:
        parts.append(f"{shown.cut:,} cut to {reader.limit:,} tokens")
    return f'<p class="sub">{" · ".join(parts)}</p>'


def _write_choices(start: tuple[int, int], layers: int, poolings: Sequence[str]) -> dict[str, str]:
    """List the layers and poolings to choose from, and name those of the first view."""

    def write_options(names: Sequence[str], chosen: int) -> str:
        return "".join(
            f'<option value="{i}"{" selected" if i == chosen else ""}>{escape(name)}</option>'
            for i, name in enumerate(names)
        )

    names = ["token table (input)", "layer 0 (embeddings)"]
    names += [f"layer {number}" for number in range(1, layers - 1)]
    if layers > 2:
        names[-1] += ", last"
    words = len(poolings) == 1
    pooled = ["mean of its pieces"] if words else [POOLED[name] for name in poolings]
    return {
        "layers": write_options(names, start[0]),
        "poolings": write_options(pooled, start[1]),
        "first": f"{escape(names[start[0]])}, {escape(pooled[start[1]])}",
        "point": "word" if words else "text",
    }


def _write_neighbours(
    shown: Points, data: dict[str, Any], view: View, vocab: list[str]
) -> dict[str, str]:
    """Tabulate neighbours, a row a point; the script writes other views into the last two cells.

    Neighbours in the vocabulary with a cosine below `least` are left out.
    """
    names, places, least = data["names"], data["places"], data["least"]
    lines = ""
    for point, name in enumerate(names):
        listed = zip(view.near[0][point], view.near[1][point], strict=True)
        near = [(names[other], places[other], cosine) for other, cosine in listed]
        words: list[tuple[str, str, float]] = []
        if view.words:
            listed = zip(view.words[0][point], view.words[1][point], strict=True)
            words = [(vocab[piece], "", cosine) for piece, cosine in listed if cosine >= least]
        lines += (
            f'<tr><td class="n">{places[point]}</td><th scope="row"><bdi dir="auto">'
            f'{escape(name)}</bdi></th><td class="n">{len(shown.pieces[point])}</td>'
            f"{_write_near(near)}{_write_near(words)}</tr>"
        )
    note = f" There, cosines below {least:.3f} are left out: the nearest of {len(vocab):,} random "
    note += "vectors reaches that in only 5 of 100 cases."
    if data["words"]:
        note += " The small numbers are those of a word's text and of its place there: 3:5 is the "
        note += "fifth word of text 3."
    else:
        note += " The small numbers are those of the texts."
    if len(names) > FEW:
        note += f" With more than {FEW} points they are computed for the input alone."
    return {"neighbours": lines, "neighbours_note": note}


def _write_near(near: Sequence[tuple[str, str, float]]) -> str:
    items = (
        f'<span><bdi dir="auto">{escape(name)}</bdi> <small>{place}</small> '
        f"<b>{cosine:z.3f}</b></span>"
        for name, place, cosine in near
    )
    return f'<td class="near">{"".join(items)}</td>'


def _write_cosines(names: list[str], raw: np.ndarray) -> str:
    """Tabulate the cosines of vectors [N, D], coloured from the lowest to the highest."""
    if len(names) > FEW:
        said = f"The table of cosines takes at most {FEW} points; these are {len(names):,}."
        return f'<p class="note">{said}</p>'
    unit = vectors.scale_to_unit(raw)
    cosines = (unit @ unit.T).clip(-1, 1)
    apart = cosines[~np.eye(len(names), dtype=bool)]
    low, spread = float(apart.min()), float(apart.max() - apart.min()) or 1.0
    lines = ""
    for point, name in enumerate(names):
        cells = ""
        for other, cosine in enumerate(cosines[point].tolist()):
            share = min(max((cosine - low) / spread, 0.0), 1.0)
            said = f"{escape(name)}, {escape(names[other])}: {cosine:z.4f}"
            text = f"{cosine:z.2f}" if len(names) <= NUMBERS else ""
            cells += f'<td style="--c:{share:.3f}" title="{said}">{text}</td>'
        lines += (
            f'<tr><th scope="row"><span class="n">{point + 1}</span> '
            f'<bdi dir="auto">{escape(shorten(name, SHOWN))}</bdi></th>{cells}</tr>'
        )
    head = "".join(f'<th scope="col">{number + 1}</th>' for number in range(len(names)))
    return (
        f'<p class="note">Of the view that the page begins with. Colours go from {low:z.3f} to '
        f'{low + spread:z.3f}.</p><div class="scroll tall"><table class="cosines">'
        f"<thead><tr><td></td>{head}</tr></thead><tbody>{lines}</tbody></table></div>"
    )
