"""What a config costs, against the program of its update."""

import dataclasses
from typing import Any

import jax
import numpy as np
import pytest

from bert_jax.batch import SPECIAL
from bert_jax.config import costs, knobs
from bert_jax.models.encoder import pad_vocabulary
from bert_jax.objectives import network
from bert_jax.planning.batches import make_batch
from bert_jax.system.trees import flatten_tree
from bert_jax.training.step import compute_inputs, draw_state, make_update
from experiments.performance.matmuls import count_matmuls
from tests import tiny
from tests.families import MODERN, NEO
from tests.reference import VARIANTS

MODELS: dict[str, dict[str, Any]] = {
    "modernbert": MODERN | {"model__pooling": "mean", "model__pooler": "transform"},
    "gpt_bert": {f"model__{knob}": value for knob, value in VARIANTS["gpt_bert"].items()},
    "electra": {"model__embedding": 24, "model__pooler": "gelu", "model__window": 6},
    "neobert": NEO,
}


@pytest.mark.parametrize("name", MODELS)
def test_layer_matrices_are_those_of_parameters(name):
    config = tiny.config(pairs="none", **MODELS[name])
    shapes = flatten_tree(
        jax.eval_shape(lambda: network.init_params(config, tiny.VOCAB, np.uint32(0)))
    )
    layer = {n: x for n, x in shapes.items() if n.startswith("encoder/layer_0/")}
    sizes = [x.size for n, x in layer.items() if not n.endswith(("bias", "scale"))]
    assert costs.count_layer_matrices(config.model) == sum(sizes)


def count_flops(config: knobs.Config) -> float:
    """Count the FLOPs of one update's matmuls in its jaxpr, but not those that remat repeats."""
    config = dataclasses.replace(config, model=dataclasses.replace(config.model, remat="none"))
    vocab_size = config.tokenizer.vocab_size
    state = jax.eval_shape(lambda seed: draw_state(config, vocab_size, seed), np.uint32(0))
    update = make_update(config, SPECIAL, vocab_size)
    step_inputs = compute_inputs(config, 0)
    traced = jax.make_jaxpr(update)(state, make_batch(config, vocab_size), step_inputs)
    return sum(one.flops * times for one, times in count_matmuls(traced.jaxpr).items())


@pytest.mark.parametrize("name", ["electra", pytest.param("neobert", marks=pytest.mark.slow)])
def test_flops_are_those_of_the_matmuls_of_an_update(name):
    config = tiny.config(pairs="none", **MODELS[name], model__layers=1, batch_size=4)
    types = config.model.type_vocab * config.model.table_width
    wanted = costs.flops_per_step(config, pad_vocabulary(config.model, tiny.VOCAB))
    assert count_flops(config) == wanted + 2 * 2 * 4 * 24 * types
