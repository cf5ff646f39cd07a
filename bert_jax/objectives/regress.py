"""Regression on a text or a pair: predict a number, such as a similarity."""

from __future__ import annotations

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.batch import Batch, Metrics
from bert_jax.config import knobs
from bert_jax.models.heads import label_head


@dataclasses.dataclass(frozen=True)
class Regress:
    """Squared error; a value that is not finite is not counted."""

    pooled = True

    def head(
        self, cfg: knobs.Model, vocab_size: int, labels: int, train: bool, name: str
    ) -> nn.Module:
        """Return one number for each pooled vector."""
        return label_head(cfg, 1, pooled=self.pooled, dropout=True, train=train, name=name)

    def count(self, batch: Batch) -> jax.Array:
        """Return the number of rows with a value."""
        return jnp.sum(jnp.isfinite(batch["values"]), dtype=jnp.float32)

    def loss(self, outputs: jax.Array, batch: Batch) -> Metrics:
        """Return regress_loss."""
        values = batch["values"]  # [B, 1]
        known = jnp.isfinite(values)
        errors = outputs[..., 0] - jnp.where(known, values, 0.0)
        return {"regress_loss": (jnp.sum(jnp.where(known, errors**2, 0.0)), self.count(batch))}


OBJECTIVE = Regress()
