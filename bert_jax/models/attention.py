"""Multi-head self-attention: projections around a backend that turns queries, keys and values into a weighted sum."""

from __future__ import annotations

import flax.linen as nn
import jax

from bert_jax import knobs
from bert_jax.models import backends
from bert_jax.models.backends import Sight
from bert_jax.models.layers import Dense, Dropout
from bert_jax.models.positions import rotate


class Attention(nn.Module):
    """The vectors and, where the backend has them, the probabilities; `far` lifts the window from this layer."""

    cfg: knobs.Model
    train: bool
    backend: str = "einsum"

    @nn.compact
    def __call__(self, x: jax.Array, sight: Sight, far: jax.Array | None = None) -> tuple[jax.Array, jax.Array | None]:
        cfg = self.cfg
        assert cfg.heads is not None
        width = x.shape[-1] // cfg.heads
        query, key, value = (Dense(cfg, (cfg.heads, width), name=n)(x) for n in ("query", "key", "value"))
        if cfg.position == "rotary":
            query, key = rotate(query, sight.positions), rotate(key, sight.positions)  # [B, L, heads, d]
        drop = Dropout(cfg.attention_dropout, self.train)
        context, probabilities = backends.TABLE[self.backend](query, key, value, sight, cfg, far, drop)
        return Dense(cfg, (x.shape[-1],), contract=2, name="out")(context), probabilities
