"""Heads, which turn the encoder's vectors into the outputs that objectives read.

A head is called with (Encoded, Batch). Heads over labels are those of the paper's fine-tuning: one
dense layer on the pooled [CLS] vector or on every token; with pooler=transform also the layers that
the MLM head has before its table.
"""

from __future__ import annotations

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax import sharding
from bert_jax.batch import Batch, Encoded
from bert_jax.config import knobs
from bert_jax.models.bert import pooled_vectors
from bert_jax.models.layers import Dense, Dropout, token_rows, transformed
from bert_jax.models.matmul import matmul
from bert_jax.models.precision import KINDS


class MlmHead(nn.Module):
    """Vocabulary logits of the prediction slots: gather first, then transform, then the tied table.

    With `everywhere`, as causal language models need them, they are those of every token. With
    word_head=untied the head has a table of its own, and with matrix that table alone.
    """

    cfg: knobs.Model
    vocab_size: int
    everywhere: bool = False

    @nn.compact
    def __call__(self, encoded: Encoded, batch: Batch) -> jax.Array:
        cfg, table = self.cfg, encoded.embedding_table
        x = encoded.hidden  # [B, L, D]
        if not self.everywhere:
            x = jnp.take_along_axis(x, batch["predict_positions"][..., None], axis=1)  # [B, K, D]
        if cfg.word_head != "matrix":
            x = transformed(x, cfg, table.shape[-1])
        if cfg.word_head != "transform":
            shape, initial = (table.shape[-2], x.shape[-1]), token_rows(cfg, self.vocab_size)
            table = sharding.copies(self.param("table", initial, shape, jnp.float32))
        bias = self.param("bias", jax.nn.initializers.zeros, (table.shape[-2],), jnp.float32)
        # [B, K, V padded], in float32 whatever the type of the matmul's inputs
        kind = KINDS[cfg.dtype]._replace(result="float32")

        def product(x: jax.Array, table: jax.Array) -> jax.Array:
            y = matmul(x.reshape(-1, x.shape[-1]), table, kind, True)
            return y.reshape(*x.shape[:-1], -1)

        if table.ndim == 2:
            logits = product(x, table)
        else:
            rows = sharding.BATCH
            own = sharding.own_part(lambda x, t: product(x, t[0]), (rows, rows), rows)
            logits = own(x, table)
        real = jnp.arange(table.shape[-2], dtype=jnp.int32) < self.vocab_size
        # The table's padding, all zeros, is never predicted.
        return logits + jnp.where(real, bias, -1e9)[None, None]


class LabelHead(nn.Module):
    """Logits of `labels` classes for each pooled vector or token, always in float32."""

    cfg: knobs.Model
    labels: int
    pooled: bool
    dropout: float
    train: bool

    @nn.compact
    def __call__(self, encoded: Encoded, batch: Batch) -> jax.Array:
        if self.cfg.features > 1:  # the paper's feature-based approach: last layers side by side
            assert encoded.features is not None
            x = encoded.features
            if self.pooled:
                x = pooled_vectors(self.cfg, batch, x)
        elif self.pooled:
            assert encoded.pooled is not None
            x = encoded.pooled
        else:
            x = encoded.hidden
        if self.cfg.pooler == "transform" and self.cfg.features == 1:
            x = transformed(x, self.cfg, x.shape[-1])
        x = Dropout(self.dropout, self.train)(x)
        exact = dataclasses.replace(self.cfg, dtype="float32", biases=True)
        return Dense(exact, (self.labels,), name="logits")(x)  # [B, S, labels] or [B, L, labels]


def label_head(
    cfg: knobs.Model, outputs: int, *, pooled: bool, dropout: bool, train: bool, name: str
) -> LabelHead:
    """Return the head with `outputs` logits for each pooled vector, or else for each token."""
    assert cfg.classifier_dropout is not None
    rate = cfg.classifier_dropout if dropout else 0.0
    return LabelHead(cfg, outputs, pooled, rate, train, name=name)
