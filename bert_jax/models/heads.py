"""Heads, which turn the encoder's vectors into the outputs that objectives read.

A head is called with (Encoded, Batch). Heads over labels follow the paper's fine-tuning: one dense
layer on the pooled [CLS] vector or on every token. With pooler=transform they begin with the dense
layer, activation and norm of the MLM head.
"""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import Array

from bert_jax import sharding
from bert_jax.batch import Batch, Encoded
from bert_jax.config import knobs
from bert_jax.models.layers import ACTIVATIONS, Dense, Dropout, Norm, draw_token_rows
from bert_jax.models.matmul import PRECISIONS, matmul
from bert_jax.models.pooler import pool_examples


def transform(cfg: knobs.Model, x: Array, width: int) -> Array:
    """Apply a dense layer, the head's activation and a norm, as parts of the calling module."""
    assert cfg.head_activation is not None
    x = ACTIVATIONS[cfg.head_activation](Dense(cfg, (width,), name="dense")(x))
    return Norm(cfg, name="norm")(x)


class MlmHead(nn.Module):
    """Vocabulary logits of the prediction slots: gather, transform, then multiply by the table.

    With `everywhere` there are logits of every token, as causal language models need them. The
    table is the encoder's token table. With word_head=untied the head has a table of its own. With
    word_head=matrix it has a table of its own too, but no transform.
    """

    cfg: knobs.Model
    vocab_size: int
    everywhere: bool = False

    @nn.compact
    def __call__(self, encoded: Encoded, batch: Batch) -> Array:
        cfg = self.cfg
        table = encoded.embedding_table
        x = encoded.hidden  # [B, L, D]
        if not self.everywhere:
            # Slots [[3, 5]] of row 0 pick the vectors x[0, 3] and x[0, 5]. So only K of the L
            # tokens are multiplied by the large table.
            x = jnp.take_along_axis(x, batch["predict_positions"][..., None], axis=1)  # [B, K, D]
        # In a mesh the table has a copy for each device: [devices, V padded, width].
        rows, width = table.shape[-2:]
        if cfg.word_head != "matrix":
            x = transform(cfg, x, width)
        if cfg.word_head != "transform":
            initial = draw_token_rows(cfg, self.vocab_size)
            own = self.param("table", initial, (rows, x.shape[-1]), jnp.float32)
            table = sharding.copy_per_device(own)
        bias = self.param("bias", jax.nn.initializers.zeros, (rows,), jnp.float32)

        def multiply(table: Array, x: Array) -> Array:
            """Compute the logits [B, K, V padded], always in float32."""
            precision = PRECISIONS[cfg.dtype]._replace(result="float32")
            flat = x.reshape(-1, x.shape[-1])
            return matmul(flat, table, precision, True).reshape(*x.shape[:-1], -1)

        logits = sharding.apply_to_copy(multiply, table, x)
        real = jnp.arange(rows, dtype=jnp.int32) < self.vocab_size
        # The table's padding, all zeros, is never predicted.
        return logits + jnp.where(real, bias, -1e9)[None, None]


class LabelHead(nn.Module):
    """Logits of `labels` classes for each pooled vector or each token, always in float32."""

    cfg: knobs.Model
    labels: int
    pooled: bool
    dropout: float
    train: bool

    @nn.compact
    def __call__(self, encoded: Encoded, batch: Batch) -> Array:
        cfg = self.cfg
        x = encoded.hidden
        if cfg.features > 1:  # the paper's feature-based approach: last layers side by side
            assert encoded.features is not None
            x = encoded.features
            if self.pooled:
                x = pool_examples(x, batch, cfg.pooling, cfg.causal)
        elif self.pooled:
            assert encoded.pooled is not None
            x = encoded.pooled
        if cfg.pooler == "transform" and cfg.features == 1:
            x = transform(cfg, x, x.shape[-1])
        x = Dropout(self.dropout, self.train)(x)
        exact = dataclasses.replace(cfg, dtype="float32", biases=True)
        return Dense(exact, (self.labels,), name="logits")(x)  # [B, S, labels] or [B, L, labels]
