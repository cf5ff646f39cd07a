"""Extractive question answering: predict the first and the last token of the answer."""

from __future__ import annotations

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.batch import Batch, Metrics
from bert_jax.config import knobs
from bert_jax.models.heads import label_head
from bert_jax.objectives.base import cross_entropy


@dataclasses.dataclass(frozen=True)
class Span:
    """Mean of two cross-entropies over the tokens of a row; a position of -1 is not counted.

    The original's softmax runs over padding too, which makes a loss depend on the length that rows
    are padded to. Here padding is left out.
    """

    pooled = False

    def head(
        self, cfg: knobs.Model, vocab_size: int, labels: int, train: bool, name: str
    ) -> nn.Module:
        """Return logits of each token for the start and the end of the answer."""
        return label_head(cfg, 2, pooled=self.pooled, dropout=False, train=train, name=name)

    def count(self, batch: Batch) -> jax.Array:
        """Return the number of rows with an answer, [CLS] (no answer) included."""
        return jnp.sum(batch["spans"][:, 0] >= 0, dtype=jnp.float32)

    def loss(self, outputs: jax.Array, batch: Batch) -> Metrics:
        """Return span_loss, and span_accuracy: the share of starts and ends that are right."""
        spans = batch["spans"]  # [B, 2]
        logits = jnp.where(batch["segment_ids"][..., None] > 0, outputs, -1e9)  # [B, L, 2]
        weights = 0.5 * (spans >= 0).astype(jnp.float32)
        return cross_entropy(logits.swapaxes(1, 2), jnp.maximum(spans, 0), weights, "span")


OBJECTIVE = Span()
