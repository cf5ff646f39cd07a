"""Masked language modelling: predict the original tokens at the masked positions."""

from __future__ import annotations

import flax.linen as nn
import jax

from bert_jax.batch import Batch
from bert_jax.config import knobs
from bert_jax.models.heads import MlmHead
from bert_jax.objectives.base import CrossEntropy


class Mlm(CrossEntropy):
    """Cross-entropy over the vocabulary at the prediction slots.

    The original divides by count + 1e-5; for 20 predictions that changes the loss by 5e-7 of
    itself, and it would make the loss of a batch depend on how it is split, so the count alone is
    used here.
    """

    name = "mlm"
    pooled = False

    def head(
        self, cfg: knobs.Model, vocab_size: int, labels: int, train: bool, name: str
    ) -> nn.Module:
        """Return vocabulary logits of the prediction slots."""
        return MlmHead(cfg, vocab_size, name=name)

    def targets(self, batch: Batch) -> tuple[jax.Array, jax.Array]:
        """Return the original token of each prediction slot [B, K]."""
        return batch["predict_targets"], batch["predict_weights"]


OBJECTIVE = Mlm()
