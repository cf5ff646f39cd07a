"""Next sentence prediction: does segment B follow segment A?"""

from __future__ import annotations

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax import knobs
from bert_jax.models.heads import PairHead
from bert_jax.objectives.base import cross_entropy
from bert_jax.types import Batch, Metrics


@dataclasses.dataclass(frozen=True)
class Nsp:
    """Two classes on [CLS]; label 0 is IsNext, as in the original."""

    pooled: bool = True
    name: str = "nsp"

    def head(self, cfg: knobs.Model, vocab_size: int, name: str) -> nn.Module:
        """A linear layer on the pooled vector."""
        return PairHead(cfg, name=name)

    def count(self, batch: Batch) -> jax.Array:
        """Labelled pairs."""
        return jnp.sum(batch["labels"] >= 0, dtype=jnp.float32)

    def loss(self, outputs: jax.Array, batch: Batch) -> Metrics:
        """<name>_loss and <name>_accuracy."""
        labels = batch["labels"]  # [B, S]
        return cross_entropy(outputs, jnp.maximum(labels, 0), (labels >= 0).astype(jnp.float32), self.name)
