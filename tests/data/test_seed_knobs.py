"""Which seed draws what."""

from __future__ import annotations

import jax
import numpy as np

from bert_jax.config import knobs
from bert_jax.objectives import network
from bert_jax.training.step import (
    compute_inputs,
)
from tests import toy


def test_seed_is_of_weights_and_masks_and_data_seed_of_neither():
    """What data_seed does, and that seed does not do it, is shown in test_pipeline."""
    base, other, data = toy.config(), toy.config(seed=1), toy.config(data_seed=1)

    @jax.jit
    def init(seed):
        return network.init(base, toy.VOCAB, seed)["encoder"]["embeddings"]["token"]

    def weights(config: knobs.Config) -> np.ndarray:
        return np.asarray(init(compute_inputs(config, 0).seed))

    def inputs(config: knobs.Config) -> np.ndarray:
        return toy.mask(toy.batch(4, 24), config.masking, int(compute_inputs(config, 0).seed))[0][
            "inputs"
        ]

    for result in (weights, inputs):
        assert (result(base) == result(data)).all()
        assert (result(base) != result(other)).any()
