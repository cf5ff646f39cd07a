"""Page of `bert-jax inspect attention`: the weights of every head, for texts side by side.

The page stores the square root of a weight in one byte, as small weights matter too. A weight that
is read back is off by 0.004 at most near 1, and by far less near 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any, NamedTuple

import jax
import numpy as np

from bert_jax.data import encoding
from bert_jax.errors import DataError
from bert_jax.interop import runs
from bert_jax.models.encoder import read_layers
from bert_jax.predictors.base import Row
from bert_jax.reporting import page as pages
from bert_jax.views import common
from bert_jax.views.texts import Texts, model_facts, model_name, shorten, visible

MOST = 1 << 26  # weights on a page
SEVERAL = 8  # texts side by side
TITLE = 200  # characters of a text above its figures
FIGURES = ("lines", "matrix", "thumbnails")  # which the script draws, for each text


class Measures(NamedTuple):
    """Statistics of the heads on one text, [layers, heads]."""

    entropy: np.ndarray  # nats
    distance: np.ndarray  # tokens


def page(texts: Texts, rows: Sequence[Row]) -> str:
    """Build the document for rows of one text or pair each."""
    run = texts.model.run
    if not rows or len(rows) > SEVERAL:
        raise DataError(f"{len(rows)} texts", f"a page shows 1 to {SEVERAL} side by side")
    parts, cut = texts.parts(rows)
    special = run.tokenizer.special
    longest = max(special.added(len(row)) + sum(map(len, row)) for row in parts)
    batch = encoding.pad_rows(special, parts, longest)
    cfg = run.config.model
    assert cfg.layers is not None
    assert cfg.heads is not None
    amount = batch["tokens"].size * longest * cfg.layers * cfg.heads
    if amount > MOST:
        raise DataError(
            f"{amount:,} weights in {cfg.layers} layers of {cfg.heads} heads; "
            f"a page takes {MOST:,}",
            "give shorter texts, or one at a time",
        )
    weights = compute_attention(run, batch)
    contents = []
    for number, (row, text) in enumerate(zip(rows, weights, strict=True)):
        ids = batch["tokens"][number, : text.shape[-1]].tolist()
        with_rollout = np.concatenate([text, compute_rollout(text)[:, None]], axis=1)
        contents.append(
            {
                "text": [shorten(visible(field), TITLE) for field in row.fields.values()],
                "cut": cut[number],
                "tokens": [visible(run.tokenizer.shown[token]) for token in ids],
                "segments": batch["type_ids"][number, : text.shape[-1]].tolist(),
                "special": [token in (special.cls, special.sep) for token in ids],
                "weights": pack_weights(with_rollout),
            }
        )
    every = cfg.global_every
    data = {
        "layers": cfg.layers,
        "heads": cfg.heads,
        "causal": cfg.causal,
        "windows": [0 if every and i % every == 0 else cfg.window for i in range(cfg.layers)],
        "texts": contents,
    }
    return _write_document(run, data, [measure_heads(text) for text in weights])


# --- numbers -----------------------------------------------------------------------------------


def compute_attention(run: runs.TrainedModel, batch: dict[str, np.ndarray]) -> list[np.ndarray]:
    """Compute the weights of each row [layers, heads, n, n], without padding."""

    @jax.jit
    def capture(params: Any, batch: Any) -> jax.Array:
        return read_layers(run.config.model, run.tokenizer.size, params, batch).attention

    # By default an accelerator rounds the factors of float32 matmuls.
    with jax.default_matmul_precision("highest"):
        weights = np.asarray(capture(run.params["encoder"], batch))  # [layers, B, heads, L, L]
    counts = batch["segment_ids"].sum(-1)
    return [weights[:, i, :, :n, :n] for i, n in enumerate(counts)]


def measure_heads(weights: np.ndarray) -> Measures:
    """Compute each head's entropy and distance of attention, means over query tokens."""
    index = np.arange(weights.shape[-1])
    away = np.abs(index[:, None] - index)  # [n, n]
    p = weights.astype(np.float64)  # [layers, heads, n, n]
    entropy = -(p * np.log(np.where(p > 0, p, 1))).sum(-1).mean(-1)
    distance = (p * away).sum(-1).mean(-1)
    return Measures(entropy, distance)


def compute_rollout(weights: np.ndarray) -> np.ndarray:
    """Compute the attention rollout up to each layer [layers, n, n].

    A layer's matrix is the mean over heads, averaged with the identity for the residual connection;
    the matrices up to a layer are multiplied (Abnar and Zuidema, Quantifying Attention Flow in
    Transformers, 2020).
    """
    eye = np.eye(weights.shape[-1])
    products = [eye]
    for layer in weights:
        mixed = 0.5 * layer.mean(0, dtype=np.float64) + 0.5 * eye
        products.append(mixed / mixed.sum(-1, keepdims=True) @ products[-1])
    return np.stack(products[1:])


def pack_weights(weights: np.ndarray) -> str:
    """Write weights as base64 of deflated bytes, each 255 times the root of a weight."""
    return common.pack_bytes(np.rint(255 * np.sqrt(weights)).astype(np.uint8).tobytes())


# --- document ----------------------------------------------------------------------------------


def _write_document(
    run: runs.TrainedModel, data: dict[str, Any], measured: Sequence[Measures]
) -> str:
    """Write the page: tables for browsers without script, the data, and the script."""
    texts = data["texts"]
    several = len(texts) > 1
    boxes = {
        figure: "".join(
            f'<div class="box" data-figure="{figure}" data-text="{i}"></div>'
            for i in range(len(texts))
        )
        for figure in FIGURES
    }
    tables = {
        name: "".join(
            _write_heads(name, getattr(measure, name), _write_title(text, "h3") if several else "")
            for measure, text in zip(measured, texts, strict=True)
        )
        for name in Measures._fields
    }
    body = pages.fill(
        __file__,
        facts=_write_facts(run, data),
        title="" if several else _write_title(texts[0], "p class=text"),
        layers=_write_options(range(1, data["layers"] + 1)),
        heads=_write_options([*range(1, data["heads"] + 1), "rollout"]),
        data=common.data_script(data),
        **boxes,
        **tables,
    )
    style = common.STYLE + pages.asset(__file__, ".css")
    script = common.SCRIPT + pages.asset(__file__, ".js")
    return pages.page(f"Attention of {model_name(run)}", body, style, script)


def _write_options(names: Iterable[Any]) -> str:
    return "".join(f"<option value={i}>{name}</option>" for i, name in enumerate(names))


def _write_facts(run: runs.TrainedModel, data: dict[str, Any]) -> str:
    """Describe the model, and what the page leaves out."""
    cfg = run.config.model
    facts = model_facts(run)
    facts += [f"{cfg.layers} layers", f"{cfg.heads} heads", f"hidden size {cfg.hidden}"]
    if cfg.causal:
        facts.append("causal")
    if cfg.window:
        facts.append(f"window of {cfg.window}")
    facts.append(" and ".join(f"{len(text['tokens'])} tokens" for text in data["texts"]))
    for number, text in enumerate(data["texts"], 1):
        if text["cut"]:
            facts.append(f"text {number} is cut to the length the model takes")
    return " · ".join(facts)


def _write_title(text: dict[str, Any], tag: str) -> str:
    parts = " | ".join(f"<bdi>{escape(part)}</bdi>" for part in text["text"])
    return f"<{tag}>{parts}</{tag.partition(' ')[0]}>"


def _write_heads(name: str, values: np.ndarray, title: str) -> str:
    """Tabulate layers by heads, shaded from the lowest to the highest value."""
    low = float(values.min())
    spread = (float(values.max()) - low) or 1.0
    head = "".join(f"<th class=n scope=col>{number + 1}</th>" for number in range(values.shape[1]))
    lines = ""
    for layer, row in enumerate(values):
        cells = "".join(
            f'<td class=n style="--w:{(value - low) / spread:.3f}">{value:.3f}</td>'
            for value in row
        )
        lines += f"<tr><th scope=row>{layer + 1}</th>{cells}</tr>"
    return (
        f'<div class="box">{title}<div class="scroll"><table class="heads" data-name="{name}">'
        f"<tr><th scope=col>layer</th>{head}</tr>{lines}</table></div></div>"
    )
