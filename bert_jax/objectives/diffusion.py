"""Masked diffusion: the MLM head, weighted so that its loss bounds the likelihood of the text.

Let n tokens of an example be maskable. First their number k of masked tokens is drawn, with the
probability P(k | n). Then k of the n tokens are masked, and all sets of k are equally likely. The
loss of the example is the sum of its cross-entropies, divided by k P(k | n).

The model can predict the n tokens one by one, in any order. Their likelihood is taken as the mean
over all orders. The mean of the loss over k and the sets is at least minus the logarithm of this
likelihood. `masking/drawn_quotas.py` computes P from the distribution of the rate and its rounding.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.batch import Batch, Metrics
from bert_jax.config import knobs
from bert_jax.objectives.base import Objective, cross_entropy

FORBIDDEN = np.float32(-1e9)  # a logit whose probability is 0


@dataclasses.dataclass(frozen=True)
class Diffusion(Objective):
    """Cross-entropy at the prediction slots, weighted by the weights of the bound.

    The weights are taken to the power of `gamma`. With a gamma of 0 this is `mlm` under the same
    distribution of the rate. With a gamma between 0 and 1 the weights are scaled to a mean of 1.
    """

    gamma: float = 1.0

    def configure(self, options: knobs.Objective) -> Objective:
        """Return a copy of the objective with the gamma of a config."""
        return dataclasses.replace(self, gamma=options.gamma)

    def count(self, batch: Batch) -> dict[str, jax.Array]:
        """Count the tokens that may be masked; with a gamma below 1, the predicted tokens."""
        if self.gamma < 1:
            return super().count(batch)
        # The bound is for all n tokens of an example, masked or not, so n divides it and not k.
        return {self.name: jnp.sum(batch["unit_ids"] >= 0, dtype=jnp.float32)}

    def loss(self, outputs: jax.Array, batch: Batch) -> Metrics:
        """Return {metric: (sum, count)} of the weighted loss per token and of the accuracy."""
        # The power 0 makes all weights 1, and training then leaves them out of the batch.
        if not self.gamma:
            return super().loss(outputs, batch)
        # What stands in a slot's place is [MASK], which is no token of the text.
        # Slots [[3, 5]] of row 0 pick inputs[0, 3] and inputs[0, 5]: [B, K].
        mask = jnp.take_along_axis(batch["inputs"], batch["predict_positions"], axis=1)
        words = jax.lax.broadcasted_iota(jnp.int32, outputs.shape, 2)  # [B, K, V padded]
        # The softmax gives [MASK] a probability of 0, as in MDLM (Sahoo et al., 2024).
        logits = jnp.where(words == mask[..., None], FORBIDDEN, outputs)
        targets, used = self.find_targets(batch)
        metrics = cross_entropy(logits, targets, used, self.name)
        weighted = cross_entropy(logits, targets, used * batch["bound_weights"], self.name)
        total, _ = weighted["diffusion_loss"]
        return metrics | {"diffusion_loss": (total, self.count(batch)[self.name])}


def forbid_mask_token(config: knobs.Config, params: Any, mask: int) -> Any:
    """Return parameters with which the MLM head of `diffusion` never predicts [MASK].

    The loss never trains the logit of [MASK], because [MASK] has probability 0 there. The
    parameters of other objectives are returned unchanged.
    """
    objective = config.objectives.get("diffusion")
    if objective is None or not objective.gamma:
        return params
    bias = params["mlm"]["bias"]
    # Parameters in numpy stay on the host; jax would move the bias to a device.
    numpy: Any = jnp if isinstance(bias, jax.Array) else np
    without = numpy.where(numpy.arange(len(bias)) == mask, FORBIDDEN, bias)
    return {**params, "mlm": {**params["mlm"], "bias": without}}
