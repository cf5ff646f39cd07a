"""Tagging: predict a label for each word from its first piece."""

from __future__ import annotations

import jax

from bert_jax.batch import Batch
from bert_jax.objectives.base import CrossEntropy, OverLabels, known


class Tag(OverLabels, CrossEntropy):
    """Cross-entropy at the tokens that have a tag; a tag of -1 is not counted."""

    name = "tag"
    pooled = False

    def targets(self, batch: Batch) -> tuple[jax.Array, jax.Array]:
        """Return the tag of each token [B, L]."""
        return known(batch["tags"])


OBJECTIVE = Tag()
