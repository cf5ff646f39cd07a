"""Next sentence prediction: predict whether segment B follows segment A."""

from __future__ import annotations

import jax

from bert_jax.batch import Batch
from bert_jax.objectives.base import CrossEntropy, OverLabels, known


class Nsp(OverLabels, CrossEntropy):
    """Cross-entropy over two classes on [CLS]; label 0 is IsNext, as in the original."""

    name = "nsp"
    pooled, outputs, dropout = True, 2, False

    def targets(self, batch: Batch) -> tuple[jax.Array, jax.Array]:
        """Return the class of each pair [B, S]; -1 is not counted."""
        return known(batch["labels"])


OBJECTIVE = Nsp()
