"""The options of `bert-jax inspect embeddings`; each of them is a flag."""

import dataclasses

from bert_jax.system.arguments import option

LAYER = "layer shown first: input (rows of the token table), 0 (after their sum), 1 … or last "
POOLING = "pooling shown first: tokens (the mean over the text's own), mean (with [CLS] and [SEP], "
POOLING += "as predict embed has it) or cls: [CLS], or [SEP] if the model is causal (the model's "
POOLING += "own, else tokens)"
POINTS = "a point is a text, or a word of one (texts)"
METHOD = "projection to two dimensions (pca)"
NEIGHBOURS = "nearest neighbours listed, at most 100 (5)"


@dataclasses.dataclass(frozen=True)
class MapOptions:
    """Options of the page of embeddings; an empty pooling means the pooling of the model."""

    layer: str = option("last", {"embeddings": f"{LAYER}(last)"}, "N|input|last")
    pooling: str = option("", {"embeddings": POOLING}, choices=("tokens", "mean", "cls"))
    points: str = option("texts", {"embeddings": POINTS}, choices=("texts", "words"))
    method: str = option("pca", {"embeddings": METHOD}, choices=("pca", "tsne"))
    neighbours: int = option(5, {"embeddings": NEIGHBOURS}, "K")
