"""Classification of a text or a pair: predict its label."""

from __future__ import annotations

import dataclasses

import flax.linen as nn

from bert_jax.config import knobs
from bert_jax.models.heads import label_head
from bert_jax.objectives.nsp import Nsp


@dataclasses.dataclass(frozen=True)
class Classify(Nsp):
    """NSP's cross-entropy over the labels of a task; a label of -1 is not counted."""

    name: str = "classify"

    def head(
        self, cfg: knobs.Model, vocab_size: int, labels: int, train: bool, name: str
    ) -> nn.Module:
        """Return a logit of each label for each pooled vector."""
        return label_head(cfg, labels, pooled=self.pooled, dropout=True, train=train, name=name)


OBJECTIVE = Classify()
