"""Tagging: predict a label for each word from its first piece."""

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
class Tag:
    """Cross-entropy at the tokens that have a tag; a tag of -1 is not counted."""

    pooled = False

    def head(
        self, cfg: knobs.Model, vocab_size: int, labels: int, train: bool, name: str
    ) -> nn.Module:
        """Return a logit of each label for each token."""
        return label_head(cfg, labels, pooled=self.pooled, dropout=True, train=train, name=name)

    def count(self, batch: Batch) -> jax.Array:
        """Return the number of tagged tokens."""
        return jnp.sum(batch["tags"] >= 0, dtype=jnp.float32)

    def loss(self, outputs: jax.Array, batch: Batch) -> Metrics:
        """Return tag_loss and tag_accuracy."""
        tags = batch["tags"]  # [B, L]
        return cross_entropy(outputs, jnp.maximum(tags, 0), (tags >= 0).astype(jnp.float32), "tag")


OBJECTIVE = Tag()
