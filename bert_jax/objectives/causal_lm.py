"""Causal language modelling: predict each token from the tokens before it, with nothing masked."""

from __future__ import annotations

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.batch import Batch
from bert_jax.config import knobs
from bert_jax.models.heads import MlmHead
from bert_jax.objectives.base import CrossEntropy


@dataclasses.dataclass(frozen=True)
class CausalLm(CrossEntropy):
    """Cross-entropy over the vocabulary for every token that follows another."""

    end: bool = True  # whether each [SEP] is predicted too: see `targets`

    name = "causal_lm"
    pooled = False

    def head(
        self, cfg: knobs.Model, vocab_size: int, labels: int, train: bool, name: str
    ) -> nn.Module:
        """Return vocabulary logits of every token."""
        return MlmHead(cfg, vocab_size, everywhere=True, name=name)

    def targets(self, batch: Batch) -> tuple[jax.Array, jax.Array]:
        """Return the token after each column [B, L], and 1 where that token is predicted.

        The first token after [CLS] is predicted too. With `end`, every token of the same example
        is, each [SEP] included. A [SEP] between documents, or between the texts of a pair, ends a
        text; the last [SEP] of a row ends what there was room for, mostly of a document that goes
        on in another row. So the model learns where a text may stop, and that it stops at the row's
        length. Without `end`, the tokens that may be masked are predicted, so that the loss is over
        the same tokens as that of `mlm`.
        """
        following = jnp.roll(batch["tokens"], -1, axis=1)
        segments = batch["segment_ids"]
        predicted = (segments == jnp.roll(segments, -1, axis=1)) & (segments > 0)
        if not self.end:
            predicted &= jnp.roll(batch["unit_ids"], -1, axis=1) >= 0
        predicted = predicted.at[:, -1].set(False)  # nothing follows the last column
        return following, predicted.astype(jnp.float32)


OBJECTIVE = CausalLm()
