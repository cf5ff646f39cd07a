"""Masked and causal examples in one batch: one network, one head and the loss of both.

A causal example is not masked: each token attends to the tokens up to itself, and the next token is
predicted. The other examples are masked. Each of the two losses is a mean over its own tokens. Each
is weighted by its share of the examples. GPT-BERT (Charpentier and Samuel, 2024) has the same
weights, because each of its devices computes one of the two losses.
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp

from bert_jax.batch import Batch, Metrics, StepInputs
from bert_jax.config import knobs
from bert_jax.masking import corrupt, draws
from bert_jax.objectives.base import Objective, Targets, cross_entropy
from bert_jax.objectives.words import find_next_words

SPREAD = 0x6A09E667  # of 2**32, the fraction of the square root of 2
# Goes into the random key in place of an example's number, as NO_EXAMPLE does for drawn rates.
CAUSAL = draws.NO_EXAMPLE - 1


@dataclasses.dataclass(frozen=True)
class Hybrid(Objective):
    """Cross-entropy of the masked tokens, and of the next tokens in causal examples."""

    shift: bool = False

    def configure(self, options: knobs.Objective) -> Objective:
        """Return a copy of the objective with the options of a config."""
        targets = functools.partial(find_next_words, end=options.end)
        return dataclasses.replace(self, find_targets=targets, shift=options.shift)

    def split_weight(self, options: knobs.Objective) -> dict[str, float]:
        """Return {part: weight} of the masked and the causal part, by their shares of examples."""
        weight = options.weight or 0.0
        return {"mlm": weight * (1 - options.share), "causal_lm": weight * options.share}

    def corrupt(self, batch: Batch, step_inputs: StepInputs, **rules: Any) -> tuple[Batch, Metrics]:
        """Mask the examples that are not causal by `corrupt_batch`; add `causal` to the batch."""
        segments = batch["segment_ids"]
        units = batch["unit_ids"]
        examples = draw_causal(batch, step_inputs.seed, step_inputs.share)  # [B, S]
        # Each token reads its example: examples [T, F] and segments [1 1 2 2 0] give [T T F F F].
        tokens = jnp.take_along_axis(examples, jnp.maximum(segments - 1, 0), -1) & (segments > 0)
        maskable = {**batch, "unit_ids": jnp.where(tokens, -1, units)}
        masked, ledger = corrupt.corrupt_batch(maskable, step_inputs, **rules)
        first = (batch["positions"] == 0) & (segments > 0)  # one token of each example
        count = jnp.sum(first, dtype=jnp.float32)
        ledger["causal_fraction"] = (jnp.sum(tokens & first, dtype=jnp.float32), count)
        # With count=eligible, `corrupt_batch` has not counted the causal examples.
        if "examples_per_row" in ledger:
            ledger["examples_per_row"] = (count, jnp.sum(jnp.any(first, 1), dtype=jnp.float32))
        # The units are put back, because `find_next_words` reads them with end=False.
        return {**masked, "unit_ids": units, "causal": tokens}, ledger

    def find_parts(self, batch: Batch) -> dict[str, Targets]:
        """Return {part: (targets, weights)} of the two parts of the loss, each array [B, L]."""
        tokens = batch["tokens"]
        rows = jnp.arange(len(tokens), dtype=jnp.int32)[:, None]
        slots = batch["predict_positions"]
        used = batch["predict_weights"]
        # For L = 6, slots [[2, 5, 5]] with weights [[1, 1, 0]] give [0 0 1 0 0 1]. The spare slot
        # names the last column too, and `max` keeps the 1 there.
        hidden = jnp.zeros(tokens.shape, jnp.float32).at[rows, slots].max(used)
        # GPT-BERT's masked next-token prediction: column i is to predict the token of column i + 1.
        # Tokens [CLS] a b c become a b c [CLS].
        if self.shift:  # the first column, [CLS], is never masked
            tokens, hidden = (jnp.roll(x, -1, axis=1) for x in (tokens, hidden))
        following, predicted = self.find_targets(batch)
        return {"mlm": (tokens, hidden), "causal_lm": (following, predicted * batch["causal"])}

    def count(self, batch: Batch) -> dict[str, jax.Array]:
        """Return {part: number of targets} of the parts `mlm` and `causal_lm`."""
        return {name: jnp.sum(weights) for name, (_, weights) in self.find_parts(batch).items()}

    def loss(self, outputs: jax.Array, batch: Batch) -> Metrics:
        """Return {metric: (sum, count)} of the loss and the accuracy of each part."""
        metrics: Metrics = {}
        for name, (targets, weights) in self.find_parts(batch).items():
            metrics |= cross_entropy(outputs, targets, weights, name)
        return metrics


def draw_causal(batch: Batch, seed: jax.Array, share: jax.Array) -> jax.Array:
    """Tell which examples are causal, bool [B, S].

    The result follows from the seed, the copy and the example's place in the epoch. As with drawn
    rates (`draws.draw_u`), each window of the stream has nearly its share of causal examples. The
    draws of rates and of causal examples are independent. An example that is causal at a share is
    causal at every higher share.
    """
    u = draws.draw_u(batch, seed, SPREAD, CAUSAL)
    # The upper 24 bits, which float32 holds exactly: a number from 0 to 1, 1 excluded.
    return (u >> 8).astype(jnp.float32) * 2.0**-24 < share


def make_causal_config(config: knobs.Config) -> knobs.Config:
    """Return the config of a causal model that reads the parameters of a hybrid model."""
    objective = knobs.Objective(weight=1.0, end=config.objectives["hybrid"].end)
    return dataclasses.replace(
        config,
        model=dataclasses.replace(config.model, causal=True),
        objectives={"causal_lm": objective},
        checkpoints=dataclasses.replace(config.checkpoints, best=""),
    )


def rename_head(params: Any) -> Any:
    """Return the parameters of a hybrid model under the names of a causal model."""
    return {"encoder": params["encoder"], "causal_lm": params["mlm"]}
