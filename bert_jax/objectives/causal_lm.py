"""Causal language modelling: each token of the text from what precedes it, nothing masked."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from bert_jax.objectives.base import cross_entropy
from bert_jax.types import Batch, Metrics


def targets(batch: Batch) -> tuple[jax.Array, jax.Array]:
    """The token after each column [B, L], and 1 where that is text of the same example, the first after [CLS] too.

    What may be masked is what is predicted, so that a loss is of the same tokens as that of `mlm`: [SEP] is not.
    """
    following = jnp.roll(batch["tokens"], -1, axis=1)
    segments = batch["segment_ids"]
    same = (segments == jnp.roll(segments, -1, axis=1)) & (segments > 0)
    text = (jnp.roll(batch["unit_ids"], -1, axis=1) >= 0) & same
    return following, text.at[:, -1].set(False).astype(jnp.float32)  # nothing follows the last column


@dataclasses.dataclass(frozen=True)
class CausalLm:
    """Cross-entropy over the vocabulary at every token that text follows."""

    def count(self, batch: Batch) -> jax.Array:
        """Tokens of text."""
        return jnp.sum(targets(batch)[1])

    def loss(self, outputs: jax.Array, batch: Batch) -> Metrics:
        """causal_lm_loss and causal_lm_accuracy."""
        return cross_entropy(outputs, *targets(batch), "causal_lm")
