"""The interface of an objective, and the cross-entropy they share."""

from __future__ import annotations

from typing import Protocol

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.batch import Batch, Metrics
from bert_jax.config import knobs


class Objective(Protocol):
    """An objective, as the package's docstring describes it."""

    @property
    def pooled(self) -> bool:
        """Return whether the head reads the pooled vector."""

    def head(
        self, cfg: knobs.Model, vocab_size: int, labels: int, train: bool, name: str
    ) -> nn.Module:
        """Return the head, called with (Encoded, Batch), whose parameters are under `name`."""

    def count(self, batch: Batch) -> jax.Array:
        """Return the number the loss is divided by."""

    def loss(self, outputs: jax.Array, batch: Batch) -> Metrics:
        """Return each metric as its sum and its count."""


def cross_entropy(logits: jax.Array, targets: jax.Array, weights: jax.Array, name: str) -> Metrics:
    """Return loss and accuracy of `logits` [..., C] for `targets` [...], weighted by `weights`.

    The target's logit is selected by a comparison and not by a gather, and the best class by a
    maximum and not by an argmax, so that both fuse with the softmax, forwards and backwards: a
    gather's gradient would scatter into an array of the logits' size, and an argmax over a
    vocabulary took a fifth of a small model's step on a CPU.
    """
    index = jnp.broadcast_to(jnp.arange(logits.shape[-1], dtype=jnp.int32), logits.shape)
    at_target = index == targets[..., None]
    chosen = jnp.sum(jnp.where(at_target, logits, 0.0), axis=-1)
    losses = jax.nn.logsumexp(logits, axis=-1) - chosen
    at_best = logits >= jnp.max(logits, axis=-1, keepdims=True)
    # The first of equal logits, as argmax has it.
    best = jnp.min(jnp.where(at_best, index, logits.shape[-1]), axis=-1)
    hits = (best == targets).astype(jnp.float32)
    total = jnp.sum(weights)
    return {
        f"{name}_loss": (jnp.sum(losses * weights), total),
        f"{name}_accuracy": (jnp.sum(hits * weights), total),
    }
