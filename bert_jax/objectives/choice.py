"""Multiple choice: the options of a question are packed into one row and compete in one softmax."""

from __future__ import annotations

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.batch import Batch, Metrics
from bert_jax.config import knobs
from bert_jax.models.heads import label_head
from bert_jax.objectives.base import cross_entropy


@dataclasses.dataclass(frozen=True)
class Choice:
    """Cross-entropy over the scores of a row's options; a label of -1 is not counted."""

    pooled = True

    def head(
        self, cfg: knobs.Model, vocab_size: int, labels: int, train: bool, name: str
    ) -> nn.Module:
        """Return a score for each option; the options of a question compete."""
        return label_head(cfg, 1, pooled=self.pooled, dropout=True, train=train, name=name)

    def count(self, batch: Batch) -> jax.Array:
        """Return the number of labelled questions."""
        return jnp.sum(batch["labels"] >= 0, dtype=jnp.float32)

    def loss(self, outputs: jax.Array, batch: Batch) -> Metrics:
        """Return choice_loss and choice_accuracy."""
        scores, labels = outputs[..., 0], batch["labels"][:, 0]  # [B, S], [B]
        options = jnp.max(batch["segment_ids"], axis=1, keepdims=True)  # [B, 1], their number
        scores = jnp.where(jnp.arange(1, scores.shape[1] + 1)[None] <= options, scores, -1e9)
        return cross_entropy(
            scores, jnp.maximum(labels, 0), (labels >= 0).astype(jnp.float32), "choice"
        )


OBJECTIVE = Choice()
