"""The interface of an objective, and the cross-entropy they share."""

from __future__ import annotations

from typing import Protocol

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax import knobs
from bert_jax.types import Batch, Metrics


class Objective(Protocol):
    """See the package's docstring."""

    @property
    def pooled(self) -> bool:
        """Whether the head reads the pooled vector."""

    def head(self, cfg: knobs.Model, vocab_size: int, name: str) -> nn.Module:
        """The module that turns an Encoded into outputs."""

    def count(self, batch: Batch) -> jax.Array:
        """What the loss is divided by."""

    def loss(self, outputs: jax.Array, batch: Batch) -> Metrics:
        """Sums and counts."""


def cross_entropy(logits: jax.Array, targets: jax.Array, weights: jax.Array, name: str) -> Metrics:
    """Loss and accuracy of `logits` [..., C] against `targets` [...], summed with `weights` [...]."""
    chosen = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
    losses = jax.nn.logsumexp(logits, axis=-1) - chosen
    hits = (jnp.argmax(logits, axis=-1) == targets).astype(jnp.float32)
    total = jnp.sum(weights)
    return {f"{name}_loss": (jnp.sum(losses * weights), total), f"{name}_accuracy": (jnp.sum(hits * weights), total)}
