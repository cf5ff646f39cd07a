"""Masked diffusion: the MLM head, weighted so that its loss bounds the likelihood of the text.

An example of n tokens that may be masked has k of them masked, each set of k as likely as any
other, and k has the probability P(k | n) under the law of the rate. Then the sum of its
cross-entropies over k P(k | n) is, on average, at least the negative log-likelihood of the tokens
(the mean over random orders), and over all n it is that of a token. `masking/drawn_quotas.py`
computes P from the law and its rounding.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.batch import Batch, Metrics
from bert_jax.config import knobs
from bert_jax.objectives.base import cross_entropy
from bert_jax.objectives.mlm import Mlm


@dataclasses.dataclass(frozen=True)
class Diffusion(Mlm):
    """Cross-entropy at the prediction slots, by the weights of the bound to the power of `gamma`.

    With a gamma of 0 it is `mlm` under the same law. In between weights have a mean of 1.
    """

    gamma: float = 1.0

    name = "diffusion"

    def count(self, batch: Batch) -> jax.Array:
        """Return the number of tokens that may be masked, or that are predicted if gamma is < 1."""
        if self.gamma < 1:
            return super().count(batch)
        return jnp.sum(batch["unit_ids"] >= 0, dtype=jnp.float32)

    def loss(self, outputs: jax.Array, batch: Batch) -> Metrics:
        """Return diffusion_loss, of a token, and the accuracy of the predictions."""
        if not self.gamma:
            return super().loss(outputs, batch)
        # What stands in a slot's place is [MASK], which is no token of the text.
        mask = jnp.take_along_axis(batch["inputs"], batch["predict_positions"], axis=1)
        words = jax.lax.broadcasted_iota(jnp.int32, outputs.shape, 2)
        logits = jnp.where(words == mask[..., None], -1e9, outputs)
        targets, used = self.targets(batch)
        weighted = cross_entropy(logits, targets, used * batch["bound_weights"], self.name)
        return {
            "diffusion_loss": (weighted["diffusion_loss"][0], self.count(batch)),
            "diffusion_accuracy": cross_entropy(logits, targets, used, self.name)[
                "diffusion_accuracy"
            ],
        }


def as_read(config: knobs.Config, params: Any, mask: int) -> Any:
    """Return the parameters of a trained model as its MLM head is read: [MASK] is no answer.

    The bound never trains the logit of [MASK], which has probability 0 there.
    """
    objective = config.objectives.get("diffusion")
    if objective is None or not objective.gamma:
        return params
    bias = params["mlm"]["bias"]
    numpy: Any = jnp if isinstance(bias, jax.Array) else np
    without = numpy.where(numpy.arange(len(bias)) == mask, numpy.float32(-1e9), bias)
    return {**params, "mlm": {**params["mlm"], "bias": without}}


OBJECTIVE = Diffusion()
