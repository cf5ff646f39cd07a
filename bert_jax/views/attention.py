"""The page of `bert-jax inspect attention`: every weight of every head, on texts side by side.

Weights go into the page as whole numbers of 10^-digits, in a form that a browser reads without a library: of each the
bit length, a byte, deflated; and the bits below the leading one, which are noise, one after the other. At six decimals
a weight of a trained model takes 11 to 14 bits, and a third more as base64.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from bert_jax.data import encoding
from bert_jax.errors import DataError
from bert_jax.interop import runs
from bert_jax.models.bert import Bert
from bert_jax.predictors.base import Row
from bert_jax.reporting import page as pages
from bert_jax.views.texts import Texts, called, introduced, shorten, stated, visible

HERE = Path(__file__).parent
WHOLE = 1 << 20  # weights that a page holds; where there are more, the largest of each row
FEWEST = 8  # of a row, however many rows there are
MOST = 1 << 27  # weights that are computed
SEVERAL = 8  # texts beside one another
TITLE = 200  # characters of a text above its figures


class Measures(NamedTuple):
    """What is said of the heads of a text, [layers, heads]."""

    entropy: np.ndarray  # nats
    distance: np.ndarray  # tokens


def page(texts: Texts, rows: Sequence[Row], *, digits: int = 6) -> str:
    """The whole document, for one text or pair a row."""
    run = texts.model.run
    if not rows or len(rows) > SEVERAL:
        raise DataError(f"{len(rows)} texts", f"a page shows 1 to {SEVERAL} side by side")
    parts, cut = texts.parts(rows)
    special = run.tokenizer.special
    batch = encoding.rows(
        special, parts, max(1 + sum(len(part) + 1 for part in one) for one in parts)
    )
    cfg = run.config.model
    assert cfg.layers is not None
    assert cfg.heads is not None
    if (amount := batch["tokens"].size * batch["tokens"].shape[1] * cfg.layers * cfg.heads) > MOST:
        hint = "give shorter texts, or one at a time"
        raise DataError(
            f"{amount:,} weights in {cfg.layers} layers of {cfg.heads} heads; a page takes {MOST:,}",
            hint,
        )
    weights = attention(run, batch)
    stored = sum(one.size for one in weights) * (cfg.heads + 1) // cfg.heads
    count = sum(one.shape[0] * (one.shape[1] + 1) * one.shape[2] for one in weights)
    keep = max(FEWEST, WHOLE // count) if stored > WHOLE else None
    contents, measured = [], []
    for i, (row, one) in enumerate(zip(rows, weights, strict=True)):
        ids = batch["tokens"][i, : one.shape[-1]].tolist()
        types = batch["type_ids"][i, : one.shape[-1]].tolist()
        measured.append(measures(one))
        contents.append(
            {
                "text": [shorten(visible(text), TITLE) for text in row.fields.values()],
                "cut": cut[i],
                "tokens": [visible(run.tokenizer.vocab[i]) for i in ids],
                "segments": types,
                "special": [int(i in (special.cls, special.sep)) for i in ids],
                **stored_form(np.concatenate([one, rollout(one)[:, None]], axis=1), digits, keep),
            }
        )
    data = {
        "layers": cfg.layers,
        "heads": cfg.heads,
        "digits": digits,
        "causal": cfg.causal,
        "windows": [
            cfg.window if not cfg.global_every or i % cfg.global_every else 0
            for i in range(cfg.layers)
        ],
        "texts": contents,
    }
    return document(run, data, measured)


# --- numbers --------------------------------------------------------------------------------------------------------


def attention(run: runs.Run, batch: dict[str, np.ndarray]) -> list[np.ndarray]:
    """The weights of each row [layers, heads, n, n], without those of its padding."""
    model = Bert(run.config.model, run.tokenizer.size, pool=False, capture=True)

    @jax.jit
    def captured(params: Any, batch: Any) -> jax.Array:
        encoded: Any = model.apply({"params": params}, batch)
        return encoded.attention

    with jax.default_matmul_precision(
        "highest"
    ):  # an accelerator would round the factors of float32 products
        found = np.asarray(captured(run.params["encoder"], batch))
    counts = batch["segment_ids"].sum(-1)
    return [found[:, i, :, :n, :n] for i, n in enumerate(counts)]


def measures(weights: np.ndarray) -> Measures:
    """Of each head, means over the tokens that look: the entropy of where they look, and how far away that is."""
    index = np.arange(weights.shape[-1])
    away = np.abs(index[:, None] - index).astype(np.float64)
    entropy, distance = [], []
    for layer in weights:
        p = layer.astype(np.float64)  # [heads, n, n]
        entropy.append(-(p * np.log(np.where(p > 0, p, 1))).sum(-1).mean(-1))
        distance.append((p * away).sum(-1).mean(-1))
    return Measures(np.stack(entropy), np.stack(distance))


def rollout(weights: np.ndarray) -> np.ndarray:
    """Attention rollout up to each layer [layers, n, n]: the mean over heads, half of it the residual, multiplied on.

    Abnar and Zuidema, Quantifying Attention Flow in Transformers, 2020.
    """
    eye = np.eye(weights.shape[-1])
    found = [eye]
    for layer in weights:
        mixed = 0.5 * layer.mean(0, dtype=np.float64) + 0.5 * eye
        found.append(mixed / mixed.sum(-1, keepdims=True) @ found[-1])
    return np.stack(found[1:])


# --- how they are stored ----------------------------------------------------------------------------------------------


def stored_form(weights: np.ndarray, digits: int, keep: int | None) -> dict[str, Any]:
    """Weights [layers, heads, n, n] as JSON; with `keep`, only so many of a row, but all of the first row.

    Returns:
      layers, of each `lengths` (base64 of deflated bytes), `bits` (base64) and `starts`, the bit where each head
      begins; `keep`, and of what is left out the share of a row at most and on average.
    """
    layers, left = [], []
    keep = None if keep is None or keep >= weights.shape[-1] else keep
    for layer in weights:
        if keep is not None:
            layer = layer.copy()
            rows = layer[:, 1:]
            small = np.argpartition(rows, -keep, axis=-1)[..., :-keep]
            left.append(np.take_along_axis(rows, small, -1).sum(-1, dtype=np.float64))
            np.put_along_axis(rows, small, 0, -1)
        layers.append(packed(np.rint(layer.astype(np.float64) * 10**digits).astype(np.int64)))
    return {
        "layers": layers,
        "keep": keep or 0,
        "left": [round(float(f(left)), 6) for f in (np.max, np.mean)] if left else [0, 0],
    }


def packed(numbers: np.ndarray) -> dict[str, Any]:
    """Whole numbers below 2^20 of some heads [heads, n, n]."""
    flat = numbers.reshape(-1)
    lengths = np.frexp(flat.astype(np.float64))[1].astype(np.uint8)  # bits of each, 0 of 0
    below = np.maximum(lengths, 1).astype(np.int64) - 1
    ends = np.cumsum(below)
    bits = np.zeros(int(ends[-1]), np.uint8)
    for k in range(int(np.max(below))):  # the k-th from the lowest
        long = below > k
        bits[ends[long] - 1 - k] = flat[long] >> k & 1
    heads = ends.reshape(len(numbers), -1)[:, -1]
    return {
        "lengths": base64.b64encode(zlib.compress(lengths.tobytes(), 9)).decode(),
        "bits": base64.b64encode(np.packbits(bits).tobytes()).decode(),
        "starts": [0, *heads[:-1].tolist()],
    }


# --- the document -----------------------------------------------------------------------------------------------------

VIEWS = {  # name: title, what it shows
    "lines": (
        "One head",
        "From each token, left, to what it looks at, right; the stronger, the more weight. Point at a token, or go "
        "there with Tab and the arrow keys, to see its weights alone; Enter keeps it so, Escape lets it go.",
    ),
    "matrix": (
        "The same head as a matrix",
        "Rows look at columns, and add up to 1. Arrow keys move the frame; the line at the top has the exact weight. "
        "Shade is its square root.",
    ),
    "row": (
        "One token, in every head and layer",
        "What the token of the framed row looks at, at first [CLS] (of a causal model the last): above, in every head "
        "of the layer chosen; below, in every layer of the head chosen.",
    ),
    "model": (
        "Every layer and head",
        "Layers downwards, heads to the right, the rollout last; of all tokens. A click or the arrow keys choose one.",
    ),
}
MEASURES = {
    "entropy": (
        "Entropy of each head, nats",
        "The mean over tokens of &minus;Σ p ln p of their weights: 0 looks at one token, ln n at all n alike.",
    ),
    "distance": (
        "Mean distance of each head, tokens",
        "The mean over tokens of Σ p |i &minus; j|: how far away what a token looks at is.",
    ),
}


def document(run: runs.Run, data: dict[str, Any], measured: Sequence[Measures]) -> str:
    """The page: what a browser without script shows of it too, the data, and the script."""
    texts = data["texts"]
    body = (
        f'<h1>Attention</h1><p class="sub">{_about(run, data)}</p>'
        f"{_title(texts[0], 'p class=text') if len(texts) == 1 else ''}"
        '<noscript><p class="box">The figures need JavaScript; the tables below do not.</p></noscript>'
        f'<div id="failed" class="box" role="alert" hidden></div>{_controls(data)}'
    )
    for name, (title, note) in VIEWS.items():
        boxes = "".join(
            f'<div class="box" data-view="{name}" data-text="{i}"></div>' for i in range(len(texts))
        )
        body += f'<section class="live"><h2>{title}</h2>{_note(note)}<div class="beside">{boxes}</div></section>'
    for name, (title, note) in MEASURES.items():
        titles = [_title(text, "h3") if len(texts) > 1 else "" for text in texts]
        tables = [
            _heads(name, getattr(one, name), title)
            for one, title in zip(measured, titles, strict=True)
        ]
        body += f'<section><h2>{title}</h2>{_note(note)}<div class="beside">{"".join(tables)}</div></section>'
    body += stated(data)
    body += f"<script>{(HERE / 'attention.js').read_text(encoding='utf-8')}</script>"
    return pages.page(
        f"Attention of {called(run)}", body, (HERE / "attention.css").read_text(encoding="utf-8")
    )


def _about(run: runs.Run, data: dict[str, Any]) -> str:
    """The model, and what is not on the page."""
    cfg = run.config.model
    said = introduced(run)
    said += [f"{cfg.layers} layers", f"{cfg.heads} heads", f"hidden size {cfg.hidden}"]
    said += ["causal"] if cfg.causal else []
    said += [f"window of {cfg.window}"] if cfg.window else []
    said += [" and ".join(f"{len(text['tokens'])} tokens" for text in data["texts"])]
    said += [f"weights to {data['digits']} decimals"]
    for i, text in enumerate(data["texts"], 1):
        said += [f"text {i} is cut to what the model takes"] if text["cut"] else []
        if text["keep"]:
            most, mean = (100 * share for share in text["left"])
            said.append(
                f"of text {i} the {text['keep']} largest weights a row ([CLS]: all); the others, together {mean:.1f} % "
                f"of a row on average and {most:.1f} % at most, are left out, yet count in rollout, entropy, distance"
            )
    return " · ".join(said)


def _note(text: str) -> str:
    return f'<p class="note">{text}</p>'


def _controls(data: dict[str, Any]) -> str:
    """What all figures share."""
    layers = "".join(f"<option value={i}>{i + 1}</option>" for i in range(data["layers"]))
    heads = "".join(f"<option value={i}>{i + 1}</option>" for i in range(data["heads"]))
    pairs = {"all": "all", "00": "A to A", "01": "A to B", "10": "B to A", "11": "B to B"}
    between = "".join(f"<option value={key}>{name}</option>" for key, name in pairs.items())
    several = any(1 in text["segments"] for text in data["texts"])
    return (
        '<form id="controls" class="live" aria-label="what the figures show">'
        f'<label>Layer <select name="layer">{layers}</select></label>'
        f'<label>Head <select name="head">{heads}<option value={data["heads"]}>rollout</option></select></label>'
        f'<label{"" if several else " hidden"}>Segments <select name="between">{between}</select></label>'
        '<label><input type="checkbox" name="plain"> without [CLS] and [SEP]</label>'
        '<output id="said" aria-live="polite"></output></form>'
    )


def _title(text: dict[str, Any], tag: str) -> str:
    parts = " | ".join(f"<bdi>{escape(part)}</bdi>" for part in text["text"])
    return f"<{tag}>{parts}</{tag.partition(' ')[0]}>"


def _heads(name: str, values: np.ndarray, title: str) -> str:
    """A table of layers by heads, shaded from the least to the most."""
    low, high = float(values.min()), float(values.max())
    head = "".join(f"<th class=n scope=col>{j + 1}</th>" for j in range(values.shape[1]))
    lines = ""
    for i, layer in enumerate(values):
        cells = "".join(
            f'<td class=n data-layer={i} data-head={j} style="--w:{(x - low) / ((high - low) or 1):.3f}">{x:.3f}</td>'
            for j, x in enumerate(layer)
        )
        lines += f"<tr><th scope=row>{i + 1}</th>{cells}</tr>"
    return (
        f'<div class="box">{title}<div class="scroll" tabindex=0 role="region" aria-label="{name}">'
        f'<table class="heads" data-name="{name}"><tr><th scope=col>layer</th>{head}</tr>{lines}</table></div></div>'
    )
