"""Page of `bert-jax inspect attention`: every weight of every head, for texts side by side.

The page stores weights as whole multiples of 10^-digits, in a form that a browser reads without a
library: the bit length of each, one byte, deflated; and the bits below the leading one, which do
not compress, one after the other. At six decimals a weight of a trained model takes 11 to 14 bits,
and a third more as base64.
"""

from __future__ import annotations

import base64
import zlib
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

STYLE = common.STYLE + pages.asset(__file__, ".css")
PARTS = (".weights.js", ".lines.js", ".heat.js", ".js")  # of the script, which share one scope
SCRIPT = common.SCRIPT + "".join(pages.asset(__file__, part) for part in PARTS)
WHOLE = 1 << 20  # weights on a page; of more than these, the largest of each row
FEWEST = 8  # weights kept of each row, however many rows there are
MOST = 1 << 27  # weights computed
SEVERAL = 8  # texts side by side
TITLE = 200  # characters of a text above its figures


class Measures(NamedTuple):
    """Statistics of the heads on one text, [layers, heads]."""

    entropy: np.ndarray  # nats
    distance: np.ndarray  # tokens


def page(texts: Texts, rows: Sequence[Row], *, digits: int = 6) -> str:
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
    if (amount := batch["tokens"].size * longest * cfg.layers * cfg.heads) > MOST:
        raise DataError(
            f"{amount:,} weights in {cfg.layers} layers of {cfg.heads} heads; "
            f"a page takes {MOST:,}",
            "give shorter texts, or one at a time",
        )
    weights = attention(run, batch)
    stored = sum(text.size for text in weights) * (cfg.heads + 1) // cfg.heads  # with the rollout
    count = sum(text.shape[0] * (text.shape[1] + 1) * text.shape[2] for text in weights)
    keep = max(FEWEST, WHOLE // count) if stored > WHOLE else None
    contents = []
    for i, (row, text) in enumerate(zip(rows, weights, strict=True)):
        ids = batch["tokens"][i, : text.shape[-1]].tolist()
        with_rollout = np.concatenate([text, rollout(text)[:, None]], axis=1)
        contents.append(
            {
                "text": [shorten(visible(field), TITLE) for field in row.fields.values()],
                "cut": cut[i],
                "tokens": [visible(run.tokenizer.shown[token]) for token in ids],
                "segments": batch["type_ids"][i, : text.shape[-1]].tolist(),
                "special": [int(token in (special.cls, special.sep)) for token in ids],
                **stored_form(with_rollout, digits, keep),
            }
        )
    every = cfg.global_every
    data = {
        "layers": cfg.layers,
        "heads": cfg.heads,
        "digits": digits,
        "causal": cfg.causal,
        "windows": [0 if every and i % every == 0 else cfg.window for i in range(cfg.layers)],
        "texts": contents,
    }
    return document(run, data, [measures(text) for text in weights])


# --- numbers -----------------------------------------------------------------------------------


def attention(run: runs.TrainedModel, batch: dict[str, np.ndarray]) -> list[np.ndarray]:
    """Compute the weights of each row [layers, heads, n, n], without padding."""

    @jax.jit
    def captured(params: Any, batch: Any) -> jax.Array:
        return read_layers(run.config.model, run.tokenizer.size, params, batch).attention

    # By default an accelerator rounds the factors of float32 matmuls.
    with jax.default_matmul_precision("highest"):
        weights = np.asarray(captured(run.params["encoder"], batch))  # [layers, B, heads, L, L]
    counts = batch["segment_ids"].sum(-1)
    return [weights[:, i, :, :n, :n] for i, n in enumerate(counts)]


def measures(weights: np.ndarray) -> Measures:
    """Compute each head's entropy and distance of attention, means over query tokens."""
    index = np.arange(weights.shape[-1])
    away = np.abs(index[:, None] - index).astype(np.float64)
    entropy, distance = [], []
    for layer in weights:
        p = layer.astype(np.float64)  # [heads, n, n]
        entropy.append(-(p * np.log(np.where(p > 0, p, 1))).sum(-1).mean(-1))
        distance.append((p * away).sum(-1).mean(-1))
    return Measures(np.stack(entropy), np.stack(distance))


def rollout(weights: np.ndarray) -> np.ndarray:
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


# --- stored form -------------------------------------------------------------------------------


def stored_form(weights: np.ndarray, digits: int, keep: int | None) -> dict[str, Any]:
    """Convert weights [layers, heads, n, n] to JSON; of all rows but the first, keep the largest.

    Returns:
      layers, each with `lengths` (base64 of deflated bytes), `bits` (base64) and `starts`, the bit
      where each head begins; `keep`, how many weights of a row are kept (0: all); and `left`, the
      largest and the mean share of a row that is left out.
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
    """Pack whole numbers below 2^20 [heads, n, n]."""
    flat = numbers.reshape(-1)
    lengths = np.frexp(flat.astype(np.float64))[1].astype(np.uint8)  # bits of each number; 0 for 0
    below = np.maximum(lengths, 1).astype(np.int64) - 1
    ends = np.cumsum(below)
    bits = np.zeros(int(ends[-1]), np.uint8)
    for k in range(int(np.max(below))):  # the k-th bit from the lowest
        long = below > k
        bits[ends[long] - 1 - k] = flat[long] >> k & 1
    heads = ends.reshape(len(numbers), -1)[:, -1]
    return {
        "lengths": base64.b64encode(zlib.compress(lengths.tobytes(), 9)).decode(),
        "bits": base64.b64encode(np.packbits(bits).tobytes()).decode(),
        "starts": [0, *heads[:-1].tolist()],
    }


# --- document ----------------------------------------------------------------------------------

VIEWS = ("lines", "matrix", "row", "model")  # figures that the script draws


def document(run: runs.TrainedModel, data: dict[str, Any], measured: Sequence[Measures]) -> str:
    """Build the page: tables for browsers without script, the data, and the script."""
    texts = data["texts"]
    several = len(texts) > 1
    boxes = {
        view: "".join(
            f'<div class="box" data-view="{view}" data-text="{i}"></div>' for i in range(len(texts))
        )
        for view in VIEWS
    }
    tables = {
        name: "".join(
            _heads(name, getattr(measure, name), _title(text, "h3") if several else "")
            for measure, text in zip(measured, texts, strict=True)
        )
        for name in Measures._fields
    }
    heads = [*range(1, data["heads"] + 1), "rollout"]
    body = pages.fill(
        __file__,
        facts=_facts(run, data),
        title="" if several else _title(texts[0], "p class=text"),
        layers=_options(range(1, data["layers"] + 1)),
        heads=_options(heads),
        one_segment="" if any(1 in text["segments"] for text in texts) else " hidden",
        data=common.data_script(data),
        script=SCRIPT,
        **boxes,
        **tables,
    )
    return pages.page(f"Attention of {model_name(run)}", body, STYLE)


def _options(names: Iterable[Any]) -> str:
    return "".join(f"<option value={i}>{name}</option>" for i, name in enumerate(names))


def _facts(run: runs.TrainedModel, data: dict[str, Any]) -> str:
    """Describe the model, and what the page leaves out."""
    cfg = run.config.model
    facts = model_facts(run)
    facts += [f"{cfg.layers} layers", f"{cfg.heads} heads", f"hidden size {cfg.hidden}"]
    facts += ["causal"] if cfg.causal else []
    facts += [f"window of {cfg.window}"] if cfg.window else []
    facts += [" and ".join(f"{len(text['tokens'])} tokens" for text in data["texts"])]
    facts += [f"weights to {data['digits']} decimals"]
    for i, text in enumerate(data["texts"], 1):
        facts += [f"text {i} is cut to the length the model takes"] if text["cut"] else []
        if text["keep"]:
            most, mean = (100 * share for share in text["left"])
            facts.append(
                f"of text {i} the {text['keep']} largest weights a row ([CLS]: all); the others, "
                f"together {mean:.1f} % of a row on average and {most:.1f} % at most, are left "
                "out, but count in rollout, entropy and distance"
            )
    return " · ".join(facts)


def _title(text: dict[str, Any], tag: str) -> str:
    parts = " | ".join(f"<bdi>{escape(part)}</bdi>" for part in text["text"])
    return f"<{tag}>{parts}</{tag.partition(' ')[0]}>"


def _heads(name: str, values: np.ndarray, title: str) -> str:
    """Tabulate layers by heads, shaded from the lowest to the highest value."""
    low, high = float(values.min()), float(values.max())
    head = "".join(f"<th class=n scope=col>{j + 1}</th>" for j in range(values.shape[1]))
    lines = ""
    for i, layer in enumerate(values):
        cells = ""
        for j, value in enumerate(layer):
            shade = f"--w:{(value - low) / ((high - low) or 1):.3f}"
            place = f"data-layer={i} data-head={j}"
            cells += f'<td class=n {place} style="{shade}">{value:.3f}</td>'
        lines += f"<tr><th scope=row>{i + 1}</th>{cells}</tr>"
    return (
        f'<div class="box">{title}'
        f'<div class="scroll" tabindex=0 role="region" aria-label="{name}">'
        f'<table class="heads" data-name="{name}"><tr><th scope=col>layer</th>{head}</tr>{lines}'
        "</table></div></div>"
    )
