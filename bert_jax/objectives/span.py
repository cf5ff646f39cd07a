"""Extractive question answering: predict the first and the last token of the answer."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from bert_jax.batch import Batch
from bert_jax.objectives.base import CrossEntropy, OverLabels, known


class Span(OverLabels, CrossEntropy):
    """Mean of two cross-entropies over the tokens of a row; a position of -1 is not counted.

    The original's softmax runs over padding too, which makes a loss depend on the length that rows
    are padded to. Here padding is left out.
    """

    name = "span"
    pooled, outputs, dropout = False, 2, False

    def targets(self, batch: Batch) -> tuple[jax.Array, jax.Array]:
        """Return the start and the end of each answer [B, 2]; [CLS] is no answer."""
        columns, weights = known(batch["spans"])
        return columns, 0.5 * weights

    def logits(self, outputs: jax.Array, batch: Batch) -> jax.Array:
        """Return the logits of the columns for the start and the end [B, 2, L]."""
        return jnp.where(batch["segment_ids"][..., None] > 0, outputs, -1e9).swapaxes(1, 2)


OBJECTIVE = Span()
