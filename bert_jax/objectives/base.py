"""The interface of an objective, and the head and the cross-entropy that most of them share."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Protocol

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.batch import Batch, Metrics
from bert_jax.config import knobs
from bert_jax.models.heads import label_head


class Objective(Protocol):
    """An objective, as the package's docstring describes it."""

    @property
    def pooled(self) -> bool:
        """Return whether the head reads the pooled vector."""

    def head(
        self, cfg: knobs.Model, vocab_size: int, labels: int, train: bool, name: str
    ) -> nn.Module:
        """Return the head, called with (Encoded, Batch), whose parameters are under `name`."""

    def count(self, batch: Batch) -> jax.Array | dict[str, jax.Array]:
        """Return the number the loss is divided by, or that of each part of the loss."""

    def loss(self, outputs: Any, batch: Batch) -> Metrics:
        """Return each metric as its sum and its count, of what the head returned."""


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


@dataclasses.dataclass(frozen=True)
class OverLabels:
    """An objective whose head is one dense layer on each pooled vector, or else on each token."""

    pooled: ClassVar[bool]
    outputs: ClassVar[int] = 0  # of the head; 0 is one for each label of the task
    dropout: ClassVar[bool] = True

    def head(
        self, cfg: knobs.Model, vocab_size: int, labels: int, train: bool, name: str
    ) -> nn.Module:
        """Return the head."""
        shape = {"pooled": self.pooled, "dropout": self.dropout}
        return label_head(cfg, self.outputs or labels, **shape, train=train, name=name)


@dataclasses.dataclass(frozen=True)
class CrossEntropy:
    """An objective whose loss is the cross-entropy of weighted targets."""

    name: ClassVar[str]

    def targets(self, batch: Batch) -> tuple[jax.Array, jax.Array]:
        """Return the targets, and their weights in float32."""
        raise NotImplementedError

    def count(self, batch: Batch) -> jax.Array:
        """Return the sum of the weights."""
        return jnp.sum(self.targets(batch)[1])

    def logits(self, outputs: jax.Array, batch: Batch) -> jax.Array:
        """Return the logits of the classes, in the shape of the targets."""
        return outputs

    def loss(self, outputs: jax.Array, batch: Batch) -> Metrics:
        """Return <name>_loss and <name>_accuracy."""
        return cross_entropy(self.logits(outputs, batch), *self.targets(batch), self.name)


def known(targets: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return targets and their weights: a target below 0 is not counted."""
    return jnp.maximum(targets, 0), (targets >= 0).astype(jnp.float32)
