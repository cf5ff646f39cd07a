"""Multiple choice: the options of a question are packed into one row and compete in one softmax."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from bert_jax.batch import Batch
from bert_jax.objectives.base import CrossEntropy, OverLabels, known


class Choice(OverLabels, CrossEntropy):
    """Cross-entropy over the scores of a row's options; a label of -1 is not counted."""

    name = "choice"
    pooled, outputs = True, 1

    def targets(self, batch: Batch) -> tuple[jax.Array, jax.Array]:
        """Return the right option of each question [B]."""
        return known(batch["labels"][:, 0])

    def logits(self, outputs: jax.Array, batch: Batch) -> jax.Array:
        """Return the scores of the options [B, S]; those that a row lacks never win."""
        options = jnp.max(batch["segment_ids"], axis=1, keepdims=True)  # [B, 1], their number
        scores = outputs[..., 0]
        return jnp.where(jnp.arange(1, scores.shape[1] + 1)[None] <= options, scores, -1e9)


OBJECTIVE = Choice()
