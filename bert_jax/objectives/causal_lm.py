"""Causal language modelling: each token of the text from what precedes it, nothing masked."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from bert_jax.batch import Batch, Metrics
from bert_jax.objectives.base import cross_entropy


def targets(batch: Batch, end: bool) -> tuple[jax.Array, jax.Array]:
    """The token after each column [B, L], and 1 where it is predicted, the first after [CLS] too.

    With `end` that is every token of the same example, each [SEP] among them. One between documents, or between the
    texts of a pair, ends a text; the last of a row ends what there was room for: whole sentences, but mostly of a
    document that goes on in another row. So what is learnt is where a text may stop, and that it does at the length.
    Without `end` it is what may be masked, and a loss is of the same tokens as that of `mlm`.
    """
    following = jnp.roll(batch["tokens"], -1, axis=1)
    segments = batch["segment_ids"]
    chosen = (segments == jnp.roll(segments, -1, axis=1)) & (segments > 0)
    if not end:
        chosen = (jnp.roll(batch["unit_ids"], -1, axis=1) >= 0) & chosen
    return following, chosen.at[:, -1].set(False).astype(
        jnp.float32
    )  # nothing follows the last column


@dataclasses.dataclass(frozen=True)
class CausalLm:
    """Cross-entropy over the vocabulary at every token that another one follows."""

    end: bool = True  # `targets`

    def count(self, batch: Batch) -> jax.Array:
        """Predicted tokens."""
        return jnp.sum(targets(batch, self.end)[1])

    def loss(self, outputs: jax.Array, batch: Batch) -> Metrics:
        """causal_lm_loss and causal_lm_accuracy."""
        return cross_entropy(outputs, *targets(batch, self.end), "causal_lm")
