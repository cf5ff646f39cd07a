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
    """Loss and accuracy of `logits` [..., C] against `targets` [...], summed with `weights` [...].

    Written so that it fuses with the softmax, forwards and backwards: a gather's gradient would scatter into an array
    of the logits' size, and an argmax over a vocabulary took a fifth of a small model's step on a CPU.
    """
    index = jnp.arange(logits.shape[-1], dtype=jnp.int32)
    at_target = jnp.broadcast_to(index, logits.shape) == targets[..., None]
    chosen = jnp.sum(jnp.where(at_target, logits, 0.0), axis=-1)
    losses = jax.nn.logsumexp(logits, axis=-1) - chosen
    hits = (chosen >= jnp.max(logits, axis=-1)).astype(jnp.float32)
    total = jnp.sum(weights)
    return {f"{name}_loss": (jnp.sum(losses * weights), total), f"{name}_accuracy": (jnp.sum(hits * weights), total)}
