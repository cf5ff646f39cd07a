"""The class of objectives: the head that an objective trains, and the loss of its outputs."""

import dataclasses
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.batch import Batch, Metrics
from bert_jax.config import knobs
from bert_jax.models.heads import LabelHead, MlmHead

Targets = tuple[jax.Array, jax.Array]  # the right classes, and the weight of each in float32


@dataclasses.dataclass(frozen=True)
class Objective:
    """An objective whose loss is a cross-entropy; subclasses override what differs.

    Attributes:
      name: a key of `knobs.OBJECTIVES`.
      make_head: makes the head from (model knobs, vocabulary size, number of labels, whether the
        head trains, name). The head is called with (Encoded, Batch).
      find_targets: returns the targets of a batch, and their weights.
      arrange: turns the head's outputs into logits [..., classes], for targets of shape [...].
    """

    name: str
    make_head: Callable[[knobs.Model, int, int, bool, str], nn.Module]
    find_targets: Callable[[Batch], Targets]
    arrange: Callable[[jax.Array, Batch], jax.Array] = lambda outputs, batch: outputs

    @property
    def pooled(self) -> bool:
        """True if the head reads one vector of a text, and not the vectors of its tokens."""
        return knobs.OBJECTIVES[self.name].pooled

    def configure(self, options: knobs.Objective) -> "Objective":
        """Return a copy of the objective with the options of a config."""
        return self

    def split_weight(self, options: knobs.Objective) -> dict[str, float]:
        """Return {part: weight} of the parts of the loss within the loss of the whole model."""
        return {self.name: options.weight or 0.0}

    def count(self, batch: Batch) -> dict[str, jax.Array]:
        """Return {name: count} of the targets by which the loss is divided.

        The count does not depend on parameters. A loss of several parts has a count for each part.
        """
        # The sum of the weights: the start and the end of a span weigh 0.5 each and count as one.
        return {self.name: jnp.sum(self.find_targets(batch)[1])}

    def loss(self, outputs: Any, batch: Batch) -> Metrics:
        """Return {metric: (sum, count)}; training minimises `<name>_loss`."""
        logits = self.arrange(outputs, batch)
        return cross_entropy(logits, *self.find_targets(batch), self.name)


def cross_entropy(logits: jax.Array, targets: jax.Array, weights: jax.Array, name: str) -> Metrics:
    """Return {metric: (sum, count)} of the loss and the accuracy.

    A comparison selects the target's logit, and a maximum the best class, so that both fuse with
    the softmax. The gradient of a gather would scatter into an array of the logits' size. An argmax
    over a vocabulary took a fifth of a small model's step on a CPU.

    Args:
      logits: the logits of all classes [..., C].
      targets: the right classes [...].
      weights: the weight of each target [...].
      name: begins the names of the metrics.
    """
    # With the target 2 of 4 classes, at_target is [F, F, T, F] and `chosen` is logits[2].
    index = jnp.broadcast_to(jnp.arange(logits.shape[-1], dtype=jnp.int32), logits.shape)
    at_target = index == targets[..., None]
    chosen = jnp.sum(jnp.where(at_target, logits, 0.0), axis=-1)
    # -log softmax(logits)[target], in a form whose exponentials cannot overflow: [...].
    losses = jax.nn.logsumexp(logits, axis=-1) - chosen
    at_best = logits >= jnp.max(logits, axis=-1, keepdims=True)
    # The first of equal logits, as argmax has it.
    # Logits [1, 7, 7] become [3, 1, 2] in the `where`, and the minimum is class 1.
    best = jnp.min(jnp.where(at_best, index, logits.shape[-1]), axis=-1)
    hits = (best == targets).astype(jnp.float32)
    total = jnp.sum(weights)
    return {
        f"{name}_loss": (jnp.sum(losses * weights), total),
        f"{name}_accuracy": (jnp.sum(hits * weights), total),
    }


# --- heads ----------------------------------------------------------------------------------------


def make_word_head(
    cfg: knobs.Model, vocab_size: int, labels: int, train: bool, name: str, everywhere: bool = False
) -> nn.Module:
    """Make an MLM head: logits over the vocabulary for prediction slots, or for every token."""
    return MlmHead(cfg, vocab_size, everywhere, name=name)


def make_label_head(
    cfg: knobs.Model,
    vocab_size: int,
    labels: int,
    train: bool,
    name: str,
    outputs: int = 0,
    dropout: bool = True,
) -> nn.Module:
    """Make a dense layer on each pooled vector, or on each token, as `knobs.OBJECTIVES` says.

    The layer has `outputs` outputs, or by default one for each label of the task.
    """
    rate = cfg.classifier_dropout if dropout else 0.0
    assert rate is not None
    return LabelHead(cfg, outputs or labels, knobs.OBJECTIVES[name].pooled, rate, train, name=name)
