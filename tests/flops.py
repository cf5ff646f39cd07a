"""The FLOPs of an update's matmuls, counted in its jaxpr: what our own counts are held against."""

import dataclasses

import jax
import numpy as np

from bert_jax.batch import SPECIAL
from bert_jax.config import knobs
from bert_jax.planning.batches import make_batch
from bert_jax.training.step import compute_inputs, init_state, make_update
from experiments.performance.matmuls import count_matmuls


def count_flops(config: knobs.Config) -> float:
    """Count the FLOPs of one update without those that remat would compute again."""
    config = dataclasses.replace(config, model=dataclasses.replace(config.model, remat="none"))
    vocab_size = config.tokenizer.vocab_size
    state = jax.eval_shape(lambda seed: init_state(config, vocab_size, seed), np.uint32(0))
    update = make_update(config, SPECIAL, vocab_size)
    inputs = compute_inputs(config, 0)
    traced = jax.make_jaxpr(update)(state, make_batch(config, vocab_size), inputs)
    return sum(one.flops * times for one, times in count_matmuls(traced.jaxpr).items())
