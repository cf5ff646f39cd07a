"""What tests share: golden models, a small model that writes, and top-k and top-p by token."""

import functools
from typing import Any

import numpy as np

from bert_jax.api import Model
from bert_jax.interop import runs
from bert_jax.predictors.generate import Draw
from tests import variants
from tests.suites import masked

GOLDEN = variants.GOLDEN / "huggingface"
CAUSAL = {  # changes of a model that reads from left to right
    "objectives__causal_lm__weight": 1,
    "model__causal": "true",
    "checkpoints__best": "",
}


def make_model(**changes: object) -> runs.TrainedModel:
    """A model of 40 positions and random weights."""
    shape = {"pairs": "none", "model__layers": 2, "model__init_stddev": 0.4}
    return masked.make_model((*masked.PIECES, ",", "(", ")"), 40, **shape | changes)


@functools.cache
def open_golden(name: str) -> runs.TrainedModel:
    """A golden model, with the vocabulary that pipelines.json was made with."""
    vocabulary = str(GOLDEN / "pretraining" / "vocab.txt")
    return runs.open_run(str(GOLDEN / name), tokenizer=vocabulary)


def generate(run: runs.TrainedModel, texts: list[str], **options: Any) -> list[dict[str, Any]]:
    """What `predict generate` answers."""
    return Model(run).generate(texts, **options)


def filtered(scores: np.ndarray, draw: Draw) -> np.ndarray:
    """Scores at a temperature, -inf where a filter drops a token; in float64, token by token."""
    scores = scores / draw.temperature
    order = sorted(range(len(scores)), key=lambda token: -scores[token])
    kept = set(order[: draw.top_k or None])
    weights = {token: np.exp(scores[token] - scores[order[0]]) for token in order if token in kept}
    reached = 0.0
    for token in order:
        if token in kept:
            if reached >= draw.top_p * sum(weights.values()):
                kept.remove(token)
            reached += weights[token]
    return np.array([score if token in kept else -np.inf for token, score in enumerate(scores)])
