"""What a config costs, against its parameters; tests/test_bench.py has the matmuls of an update."""

from typing import Any

import jax
import numpy as np
import pytest

from bert_jax.config import costs
from bert_jax.objectives import network
from bert_jax.system.trees import flatten_tree
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
