"""What tests of writing text share: a small vocabulary, and top-k and top-p token by token."""

from __future__ import annotations

import functools

import numpy as np

from bert_jax.data import engines
from bert_jax.data import tokenizer as tokenizers
from bert_jax.predictors.generate import Draw
from tests.suites import masked

PIECES = [*masked.PIECES, ",", "(", ")"]


@functools.cache
def tokenizer() -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer(engines.build_wordpiece([*tokenizers.SPECIALS, *PIECES]))


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
