"""Tagging: predict a label for each word from its first piece."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from bert_jax.batch import Batch, Metrics
from bert_jax.objectives.base import cross_entropy


@dataclasses.dataclass(frozen=True)
class Tag:
    """Cross-entropy at the tokens that have a tag; a tag of -1 is not counted."""

    def count(self, batch: Batch) -> jax.Array:
        """Return the number of tagged tokens."""
        return jnp.sum(batch["tags"] >= 0, dtype=jnp.float32)

    def loss(self, outputs: jax.Array, batch: Batch) -> Metrics:
        """Return tag_loss and tag_accuracy."""
        tags = batch["tags"]  # [B, L]
        return cross_entropy(outputs, jnp.maximum(tags, 0), (tags >= 0).astype(jnp.float32), "tag")
