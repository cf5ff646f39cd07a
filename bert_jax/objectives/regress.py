"""Regression on a text or a pair: predict a number, such as a similarity."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from bert_jax.batch import Batch, Metrics
from bert_jax.objectives.base import OverLabels


class Regress(OverLabels):
    """Squared error; a value that is not finite is not counted."""

    pooled, outputs = True, 1

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
