"""Next sentence prediction: predict whether segment B follows segment A."""

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
class Nsp:
    """Cross-entropy over two classes on [CLS]; label 0 is IsNext, as in the original."""

    name: str = "nsp"

    pooled = True

    def head(
        self, cfg: knobs.Model, vocab_size: int, labels: int, train: bool, name: str
    ) -> nn.Module:
        """Return two logits for each pooled vector."""
        return label_head(cfg, 2, pooled=self.pooled, dropout=False, train=train, name=name)

    def count(self, batch: Batch) -> jax.Array:
        """Return the number of labelled pairs."""
        return jnp.sum(batch["labels"] >= 0, dtype=jnp.float32)

    def loss(self, outputs: jax.Array, batch: Batch) -> Metrics:
        """Return <name>_loss and <name>_accuracy."""
        labels = batch["labels"]  # [B, S]
        return cross_entropy(
            outputs, jnp.maximum(labels, 0), (labels >= 0).astype(jnp.float32), self.name
        )


OBJECTIVE = Nsp()
