"""Multi-head self-attention: projections around a backend.

A causal model that continues a text need not read it again: the keys and values of its tokens come
out as the intermediate `kept`, where a caller asks for intermediates; given back as the collection
`past`, they are attended to beside the tokens of the batch. Training does neither, and its program
has neither.
"""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.config import knobs
from bert_jax.models import backends
from bert_jax.models.backends import AttentionMask
from bert_jax.models.layers import Dense, Dropout, LayerNorm, gelu, recomputed
from bert_jax.models.positions import distance_scores, frequencies, rotate


class Attention(nn.Module):
    """Attention of one layer: vectors and, where the backend has them, probabilities.

    `far` lifts the window from this layer, and with it takes the other base of rotary positions.
    """

    cfg: knobs.Model
    train: bool
    backend: str = "einsum"

    @nn.compact
    def __call__(
        self, x: jax.Array, mask: AttentionMask, far: jax.Array | None = None
    ) -> tuple[jax.Array, jax.Array | None]:
        cfg = self.cfg
        assert cfg.heads is not None
        width = x.shape[-1] // cfg.heads
        denses = [Dense(cfg, (cfg.heads, width), name=n) for n in ("query", "key", "value")]
        query, key, value = (dense(x) for dense in denses)
        if cfg.position == "rotary":
            angles = frequencies(cfg, width, far)
            # [B, L, heads, d]
            query, key = (rotate(x, mask.positions, angles) for x in (query, key))
        self.sow(
            "intermediates",
            "kept",
            (key, value),
            init_fn=lambda: None,
            reduce_fn=lambda _, new: new,
        )
        if self.has_variable("past", "kept"):
            past: tuple[jax.Array, jax.Array] = self.get_variable("past", "kept")
            key = jnp.concatenate([past[0], key], axis=1)
            value = jnp.concatenate([past[1], value], axis=1)
        drop = Dropout(cfg.attention_dropout, self.train)
        if cfg.position == "relative":  # a sum of three products, of which each has its share
            assert mask.distances is not None
            assert mask.buckets is not None
            distances = drop(mask.distances)
            query, of_queries = (x * 3**-0.5 for x in (query, denses[0](distances)))
            added = distance_scores(query, key, of_queries, denses[1](distances), mask.buckets, cfg)
            near = None if mask.near is None else mask.near + added
            mask = mask._replace(bias=mask.bias + added, near=near)
        attend = backends.TABLE[self.backend]
        context, probabilities = attend(query, key, value, mask, cfg, far, drop)
        if cfg.attention_gate:
            gate = Dense(cfg, (cfg.heads, width), name="gate")(x)
            context = context * recomputed(gelu, cfg)(gate)
        if cfg.inner_norm:
            flat = context.reshape(*context.shape[:2], -1)
            context = LayerNorm(cfg, name="norm")(flat).reshape(context.shape)
        return Dense(cfg, (x.shape[-1],), contract=2, name="out")(context), probabilities
