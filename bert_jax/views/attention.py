"""The page of `bert-jax inspect attention`: the weights of every head, for texts side by side.

The page stores the square root of a weight in one byte, because small weights matter too. The error
of a weight is at most 0.004 near 1, and much smaller near 0.
"""

from collections.abc import Sequence

import numpy as np

from bert_jax.data import encoding
from bert_jax.errors import DataError
from bert_jax.predictors.base import Line
from bert_jax.views import document
from bert_jax.views.document import cut_text, make_visible, tabulate_shades
from bert_jax.views.texts import Texts

MOST = 1 << 26  # weights on a page
SEVERAL = 8  # texts side by side
TITLE = 200  # characters of a text above its figures


def make_attention_page(texts: Texts, rows: Sequence[Line]) -> str:
    """Make the page for some texts or pairs."""
    run = texts.model.run
    document.check_count(rows, SEVERAL)
    parts, cut = texts.tokenize_texts(rows)
    special, cfg = run.tokenizer.special, run.config.model
    longest = max(special.added(len(row)) + sum(map(len, row)) for row in parts)
    batch = encoding.pad_rows(special, parts, longest)
    layers, heads = cfg.layers or 0, cfg.heads or 0
    amount = batch["tokens"].size * longest * layers * heads
    if amount > MOST:
        raise DataError(
            f"{amount:,} weights in {layers} layers of {heads} heads; a page takes {MOST:,}",
            "give shorter texts, or one at a time",
        )
    weights = texts.look_inside(parts, "attention")
    contents = []
    entropy = []
    distance = []
    names = [str(number) for number in range(1, layers + 1)]
    for number, (row, text) in enumerate(zip(rows, weights, strict=True)):
        ids = batch["tokens"][number, : text.shape[-1]].tolist()
        with_rollout = np.concatenate([text, compute_rollout(text)[:, None]], axis=1)
        roots = np.rint(255 * np.sqrt(with_rollout)).astype(np.uint8)
        shown = [cut_text(make_visible(field), TITLE) for field in row.fields.values()]
        title = " | ".join(shown) if len(rows) > 1 else ""
        entropy.append(tabulate_shades(names, measure_entropy(text), "layer", title=title))
        distance.append(tabulate_shades(names, measure_distance(text), "layer", title=title))
        contents.append(
            {
                "text": shown,
                "tokens": [make_visible(run.tokenizer.shown[token]) for token in ids],
                "segments": batch["type_ids"][number, : text.shape[-1]].tolist(),
                "special": [token in (special.cls, special.sep) for token in ids],
                "weights": document.pack_bytes(roots.tobytes()),
            }
        )
    every = cfg.global_every
    data = {
        "layers": layers,
        "heads": heads,
        "causal": cfg.causal,
        "windows": [0 if every and i % every == 0 else cfg.window for i in range(layers)],
        "texts": contents,
    }
    facts = [f"{layers} layers", f"{heads} heads", f"hidden size {cfg.hidden}"]
    if cfg.causal:
        facts.append("causal")
    if cfg.window:
        facts.append(f"window of {cfg.window}")
    facts.append(" and ".join(f"{len(text['tokens'])} tokens" for text in contents))
    facts += [f"text {i} is cut to the length the model takes" for i, c in enumerate(cut, 1) if c]
    return document.render_page("attention", run, facts, data, entropy=entropy, distance=distance)


# --- numbers -----------------------------------------------------------------------------------


def measure_entropy(weights: np.ndarray) -> np.ndarray:
    """Return the entropy of each head in nats, as a mean over query tokens [layers, heads]."""
    p = weights.astype(np.float64)  # [layers, heads, n, n]
    return -(p * np.log(np.where(p > 0, p, 1))).sum(-1).mean(-1)


def measure_distance(weights: np.ndarray) -> np.ndarray:
    """Return how many tokens away each head attends, as a mean over tokens [layers, heads]."""
    index = np.arange(weights.shape[-1])
    away = np.abs(index[:, None] - index)  # [n, n]
    return (weights.astype(np.float64) * away).sum(-1).mean(-1)


def compute_rollout(weights: np.ndarray) -> np.ndarray:
    """Compute the attention rollout up to each layer [layers, n, n].

    A layer's matrix is the mean over heads, averaged with the identity for the residual connection.
    The matrices of the first layers, up to each layer, are multiplied (Abnar and Zuidema,
    Quantifying Attention Flow in Transformers, 2020).
    """
    eye = np.eye(weights.shape[-1])
    products = [eye]
    for layer in weights:
        mixed = 0.5 * layer.mean(0, dtype=np.float64) + 0.5 * eye
        products.append(mixed / mixed.sum(-1, keepdims=True) @ products[-1])
    return np.stack(products[1:])
