"""Masked and causal examples in one batch: one network, one head and the loss of both.

A causal example is read as it is, each token sees those up to itself, and the next one is
predicted; the others are those of `mlm`. Both losses are means over their own tokens, weighted by
the share of examples, as the devices of GPT-BERT (Charpentier and Samuel, 2024) weigh theirs.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.batch import Batch, Metrics, StepInputs
from bert_jax.config import knobs
from bert_jax.masking import corrupt, draws
from bert_jax.models.heads import MlmHead
from bert_jax.objectives.base import cross_entropy
from bert_jax.objectives.causal_lm import CausalLm

SPREAD = 0x6A09E667  # of 2**32, the fraction of the square root of 2
CAUSAL = draws.NO_EXAMPLE - 1  # the draw of what is causal


@dataclasses.dataclass(frozen=True)
class Hybrid:
    """Cross-entropy of the masked tokens, and of every token that follows another."""

    end: bool = True
    shift: bool = False

    pooled: ClassVar[bool] = False

    def head(
        self, cfg: knobs.Model, vocab_size: int, labels: int, train: bool, name: str
    ) -> nn.Module:
        """Return vocabulary logits of every token."""
        return MlmHead(cfg, vocab_size, everywhere=True, name=name)

    def corrupt(self, batch: Batch, traced: StepInputs, **rules: Any) -> tuple[Batch, Metrics]:
        """Mask the examples that are not causal."""
        return apply(batch, traced, **rules)

    def targets(self, batch: Batch) -> dict[str, tuple[jax.Array, jax.Array]]:
        """Return the tokens to predict in each column [B, L] and their weights, of both parts."""
        tokens = batch["tokens"]
        rows = jnp.arange(len(tokens), dtype=jnp.int32)[:, None]
        slots, used = batch["predict_positions"], batch["predict_weights"]
        hidden = jnp.zeros(tokens.shape, jnp.float32).at[rows, slots].max(used)
        if self.shift:  # the first column, [CLS], is never masked
            tokens, hidden = (jnp.roll(x, -1, axis=1) for x in (tokens, hidden))
        following, predicted = CausalLm(self.end).targets(batch)
        return {"mlm": (tokens, hidden), "causal_lm": (following, predicted * batch["causal"])}

    def count(self, batch: Batch) -> dict[str, jax.Array]:
        """Return what the loss of each part is divided by."""
        return {name: jnp.sum(weights) for name, (_, weights) in self.targets(batch).items()}

    def loss(self, outputs: jax.Array, batch: Batch) -> Metrics:
        """Return loss and accuracy of each part, by the names of the objectives they are of."""
        masked, causal = (
            cross_entropy(outputs, *of, name) for name, of in self.targets(batch).items()
        )
        return masked | causal


def causal(batch: Batch, seed: jax.Array, share: jax.Array) -> jax.Array:
    """Tell which examples [B, S] are causal, by the seed, the copy and the place in its epoch.

    As with drawn rates (`draws.spread_evenly`), each window of the stream has nearly its share; the
    two draws have nothing to do with each other. What is causal at a share is so at higher ones.
    """
    u = draws.spread_evenly(batch, seed, SPREAD, CAUSAL)
    return (u >> 8).astype(jnp.float32) * 2.0**-24 < share


def apply(batch: Batch, traced: StepInputs, **rules: Any) -> tuple[Batch, Metrics]:
    """Mask the examples that are not causal: see `corrupt_batch`; add `causal` to the batch."""
    segments, units = batch["segment_ids"], batch["unit_ids"]
    examples = causal(batch, traced.seed, traced.share)
    tokens = jnp.take_along_axis(examples, jnp.maximum(segments - 1, 0), -1) & (segments > 0)
    masked, ledger = corrupt.corrupt_batch(
        {**batch, "unit_ids": jnp.where(tokens, -1, units)}, traced, **rules
    )
    first = (batch["positions"] == 0) & (segments > 0)  # one token of each example
    count = jnp.sum(first, dtype=jnp.float32)
    ledger["causal_fraction"] = (jnp.sum(tokens & first, dtype=jnp.float32), count)
    if "examples_per_row" in ledger:
        ledger["examples_per_row"] = (count, jnp.sum(jnp.any(first, 1), dtype=jnp.float32))
    return {**masked, "unit_ids": units, "causal": tokens}, ledger


def from_left(config: knobs.Config) -> knobs.Config:
    """Return the config of a hybrid model as it reads causal examples."""
    objective = knobs.Objective(weight=1.0, end=config.objectives["hybrid"].end)
    return dataclasses.replace(
        config,
        model=dataclasses.replace(config.model, causal=True),
        objectives={"causal_lm": objective},
        checkpoints=dataclasses.replace(config.checkpoints, best=""),
    )


def head_from_left(params: Any) -> Any:
    """Return the parameters of a hybrid model under the names of `from_left`."""
    return {"encoder": params["encoder"], "causal_lm": params["mlm"]}


OBJECTIVE = Hybrid()
