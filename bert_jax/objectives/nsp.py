"""Next sentence prediction: does segment B follow segment A?"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from bert_jax.batch import Batch, Metrics
from bert_jax.objectives.base import cross_entropy


@dataclasses.dataclass(frozen=True)
class Nsp:
    """Two classes on [CLS]; label 0 is IsNext, as in the original."""

    name: str = "nsp"

    def count(self, batch: Batch) -> jax.Array:
        """Labelled pairs."""
        return jnp.sum(batch["labels"] >= 0, dtype=jnp.float32)

    def loss(self, outputs: jax.Array, batch: Batch) -> Metrics:
        """<name>_loss and <name>_accuracy."""
        labels = batch["labels"]  # [B, S]
        return cross_entropy(
            outputs, jnp.maximum(labels, 0), (labels >= 0).astype(jnp.float32), self.name
        )
