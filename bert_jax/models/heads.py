"""What turns vectors into predictions."""

from __future__ import annotations

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax import knobs
from bert_jax.models.layers import ACTIVATIONS, Dense, LayerNorm
from bert_jax.types import Batch, Encoded


class MlmHead(nn.Module):
    """Vocabulary logits of the prediction slots: gather first, then transform, then the tied table."""

    cfg: knobs.Model
    vocab_size: int

    @nn.compact
    def __call__(self, encoded: Encoded, batch: Batch) -> jax.Array:
        cfg, table = self.cfg, encoded.embedding_table
        assert cfg.head_activation is not None
        x = jnp.take_along_axis(encoded.hidden, batch["predict_positions"][..., None], axis=1)  # [B, K, D]
        x = ACTIVATIONS[cfg.head_activation](Dense(cfg, (x.shape[-1],), name="dense")(x))
        x = LayerNorm(cfg, name="norm")(x)
        bias = self.param("bias", jax.nn.initializers.zeros, (table.shape[0],), jnp.float32)
        # [B, K, V padded], in float32 whatever the type of the product's inputs
        logits = jnp.einsum("bkd,vd->bkv", x, table.astype(x.dtype), preferred_element_type=jnp.float32)
        real = jnp.arange(table.shape[0], dtype=jnp.int32) < self.vocab_size
        return jnp.where(real[None, None], logits + bias[None, None], -1e9)  # the table's padding is never predicted


class PairHead(nn.Module):
    """Two logits for each [CLS], from the pooled vector."""

    cfg: knobs.Model

    @nn.compact
    def __call__(self, encoded: Encoded, batch: Batch) -> jax.Array:
        assert encoded.pooled is not None
        exact = dataclasses.replace(self.cfg, dtype="float32")
        return Dense(exact, (2,), name="logits")(encoded.pooled)  # [B, S, 2], in float32 whatever the compute type
