"""What turns vectors into predictions: a table of heads.

A head is called with (Encoded, Batch). The ones over labels are those of the paper's fine-tuning: one dense layer on
the pooled [CLS] vector or on every token.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.batch import Batch, Encoded
from bert_jax.config import knobs
from bert_jax.models.bert import pooled_positions
from bert_jax.models.layers import ACTIVATIONS, Dense, Dropout, LayerNorm
from bert_jax.models.matmul import KINDS, product


class MlmHead(nn.Module):
    """Vocabulary logits of the prediction slots: gather first, then transform, then the tied table.

    A causal language model has them of every token.
    """

    cfg: knobs.Model
    vocab_size: int
    everywhere: bool = False

    @nn.compact
    def __call__(self, encoded: Encoded, batch: Batch) -> jax.Array:
        cfg, table = self.cfg, encoded.embedding_table
        assert cfg.head_activation is not None
        x = encoded.hidden  # [B, L, D]
        if not self.everywhere:
            x = jnp.take_along_axis(x, batch["predict_positions"][..., None], axis=1)  # [B, K, D]
        x = ACTIVATIONS[cfg.head_activation](Dense(cfg, (x.shape[-1],), name="dense")(x))
        x = LayerNorm(cfg, name="norm")(x)
        bias = self.param("bias", jax.nn.initializers.zeros, (table.shape[0],), jnp.float32)
        # [B, K, V padded], in float32 whatever the type of the product's inputs
        kind = KINDS[cfg.dtype]._replace(result="float32")
        logits = product(x.reshape(-1, x.shape[-1]), table, kind, True).reshape(*x.shape[:-1], -1)
        real = jnp.arange(table.shape[0], dtype=jnp.int32) < self.vocab_size
        return (
            logits + jnp.where(real, bias, -1e9)[None, None]
        )  # the table's padding, all zeros, is never predicted


class LabelHead(nn.Module):
    """Logits of `labels` classes for each pooled vector or each token, in float32 whatever the compute type."""

    cfg: knobs.Model
    labels: int
    pooled: bool
    dropout: float
    train: bool

    @nn.compact
    def __call__(self, encoded: Encoded, batch: Batch) -> jax.Array:
        if (
            self.cfg.features > 1
        ):  # the feature-based approach of the paper: the encoder's last layers side by side
            assert encoded.features is not None
            last = encoded.features
            x = (
                jnp.take_along_axis(last, pooled_positions(self.cfg, batch)[..., None], axis=1)
                if self.pooled
                else last
            )
        elif self.pooled:
            assert encoded.pooled is not None
            x = encoded.pooled
        else:
            x = encoded.hidden
        x = Dropout(self.dropout, self.train)(x)
        exact = dataclasses.replace(self.cfg, dtype="float32")
        return Dense(exact, (self.labels,), name="logits")(x)  # [B, S, labels] or [B, L, labels]


class Head(NamedTuple):
    """One row: whether it reads the pooled vector, and how it is made from (cfg, vocab_size, labels, train, name)."""

    pooled: bool
    make: Callable[[knobs.Model, int, int, bool, str], nn.Module]


def _over_labels(pooled: bool, dropout: bool, fixed: int = 0) -> Head:
    """A row of LabelHead; `fixed` is the number of outputs where it does not depend on the task."""

    def make(cfg: knobs.Model, vocab_size: int, labels: int, train: bool, name: str) -> nn.Module:
        assert cfg.classifier_dropout is not None
        return LabelHead(
            cfg,
            fixed or labels,
            pooled,
            cfg.classifier_dropout if dropout else 0.0,
            train,
            name=name,
        )

    return Head(pooled, make)


TABLE: dict[str, Head] = {
    "mlm": Head(
        False, lambda cfg, vocab_size, labels, train, name: MlmHead(cfg, vocab_size, name=name)
    ),
    "causal_lm": Head(
        False,
        lambda cfg, vocab_size, labels, train, name: MlmHead(cfg, vocab_size, True, name=name),
    ),
    "nsp": _over_labels(pooled=True, dropout=False, fixed=2),
    "sop": _over_labels(pooled=True, dropout=False, fixed=2),
    "classify": _over_labels(pooled=True, dropout=True),
    "regress": _over_labels(pooled=True, dropout=True, fixed=1),
    "tag": _over_labels(pooled=False, dropout=True),
    "span": _over_labels(pooled=False, dropout=False, fixed=2),  # where the answer starts and ends
    "choice": _over_labels(
        pooled=True, dropout=True, fixed=1
    ),  # a score for each row; rows of a question compete
}
