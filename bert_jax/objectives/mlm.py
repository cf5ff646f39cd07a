"""Masked language modelling: predict the original tokens at the masked positions."""

from __future__ import annotations

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.batch import Batch, Metrics
from bert_jax.config import knobs
from bert_jax.models.heads import MlmHead
from bert_jax.objectives.base import cross_entropy


@dataclasses.dataclass(frozen=True)
class Mlm:
    """Cross-entropy over the vocabulary at the prediction slots.

    The original divides by count + 1e-5; for 20 predictions that changes the loss by 5e-7 of
    itself, and it would make the loss of a batch depend on how it is split, so the count alone is
    used here.
    """

    pooled = False

    def head(
        self, cfg: knobs.Model, vocab_size: int, labels: int, train: bool, name: str
    ) -> nn.Module:
        """Return vocabulary logits of the prediction slots."""
        return MlmHead(cfg, vocab_size, name=name)

    def count(self, batch: Batch) -> jax.Array:
        """Return the number of prediction slots in use."""
        return jnp.sum(batch["predict_weights"])

    def loss(self, outputs: jax.Array, batch: Batch) -> Metrics:
        """Return mlm_loss and mlm_accuracy."""
        return cross_entropy(outputs, batch["predict_targets"], batch["predict_weights"], "mlm")


OBJECTIVE = Mlm()
