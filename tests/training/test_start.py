"""The state that a run begins with, of drawn parameters or given ones."""

import jax
import numpy as np

from bert_jax.system.trees import flatten_tree
from tests import tiny
from tests.updates import build_program

NAMES = ("encoder/embeddings/token", "encoder/layer_1/mlp/up/kernel", "nsp/logits/kernel")


def test_parts_of_a_first_state_are_those_of_the_whole():
    """A parameter has the same bits whether all are drawn or only a few."""
    start = build_program(tiny.config(parallel__fsdp=2), devices=2).start
    state = start.draw_state(3)
    params, drawn = flatten_tree(state["params"]), start.draw_params(3, NAMES)
    assert sorted(drawn) == sorted(NAMES)
    assert start.draw_params(3, []) == {}
    begun = start.make_first_state(state["params"])
    for found, expected in ((drawn, {name: params[name] for name in NAMES}), (begun, state)):
        jax.tree.map(np.testing.assert_array_equal, found, expected)
        assert jax.tree.map(lambda x: x.sharding, found) == jax.tree.map(
            lambda x: x.sharding, expected
        )
