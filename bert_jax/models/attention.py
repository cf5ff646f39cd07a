"""Multi-head self-attention: projections around a backend that turns queries, keys and values into a weighted sum.

To go on from a text, a model need not read it again. What each token is looked up by, its key and value, comes out as
the intermediate `kept`, for whoever asks for intermediates; given back as the collection `past`, it is seen beside the
tokens of the batch. Whoever trains does neither, and finds neither in the program.
"""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.config import knobs
from bert_jax.models import backends
from bert_jax.models.backends import AttentionMask
from bert_jax.models.layers import Dense, Dropout
from bert_jax.models.positions import rotate


class Attention(nn.Module):
    """The vectors and, where the backend has them, the probabilities; `far` lifts the window from this layer."""

    cfg: knobs.Model
    train: bool
    backend: str = "einsum"

    @nn.compact
    def __call__(
        self, x: jax.Array, sight: AttentionMask, far: jax.Array | None = None
    ) -> tuple[jax.Array, jax.Array | None]:
        cfg = self.cfg
        assert cfg.heads is not None
        width = x.shape[-1] // cfg.heads
        query, key, value = (
            Dense(cfg, (cfg.heads, width), name=n)(x) for n in ("query", "key", "value")
        )
        if cfg.position == "rotary":
            query, key = (
                rotate(query, sight.positions),
                rotate(key, sight.positions),
            )  # [B, L, heads, d]
        self.sow(
            "intermediates",
            "kept",
            (key, value),
            init_fn=lambda: None,
            reduce_fn=lambda _, new: new,
        )
        if self.has_variable("past", "kept"):
            past: tuple[jax.Array, jax.Array] = self.get_variable("past", "kept")
            key, value = (
                jnp.concatenate([past[0], key], axis=1),
                jnp.concatenate([past[1], value], axis=1),
            )
        drop = Dropout(cfg.attention_dropout, self.train)
        context, probabilities = backends.TABLE[self.backend](
            query, key, value, sight, cfg, far, drop
        )
        return Dense(cfg, (x.shape[-1],), contract=2, name="out")(context), probabilities
