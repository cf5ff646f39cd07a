"""Each knob of masking, model and optimizer changes the update where it acts."""

import functools

import jax
import numpy as np
import pytest

from bert_jax import config
from bert_jax.config import conditions, table
from bert_jax.training.step import compute_inputs, draw_state, make_update
from tests import tiny
from tests.config.settings import Settings, write

SMALL = {"steps": 100, "batch_size": 16, "sequence_length": 24, "optim.warmup_steps": 10}
SMALL |= {"model.layers": 3, "model.hidden": 32, "model.heads": 4, "model.mlp": 64}
# Values of knobs that act everywhere, where half of the default is none.
OTHER: Settings = {"masking.replace": (1.0, 0.0, 0.0), "model.mlp_biases": False}
OTHER |= {"model.layers": 2, "model.hidden": 48, "model.heads": 2, "model.mlp": 40}
OTHER |= {"model.embedding": 24, "model.type_vocab": 5, "model.vocab_multiple": 7}
OTHER |= {"model.window": 8, "optim.warmup_fraction": 0.5, "optim.accumulation": 2}
OTHER |= {"optim.freeze": "^encoder/embeddings"}
ROTARY, WINDOW = {"model.position": "rotary"}, {"model.window": 8}
WHERE: list[tuple[Settings, Settings]] = [  # values of knobs, and where these act
    ({"masking.prediction_rate": 0.1, "masking.rate": 0.3, "masking.count": "all"}, {}),
    ({"masking.phases": ((0.5, 0.3, "step"),), "masking.random_from": "regular"}, {}),
    ({"masking.draw_low": 0.1, "masking.draw_high": 0.5}, {"masking.draw": "uniform"}),
    ({"masking.draw_alpha": 2.0, "masking.draw_beta": 2.0}, {"masking.draw": "beta"}),
    ({"model.word_head": "matrix", "model.head_activation": "relu", "model.pooling": "mean"}, {}),
    ({"model.max_positions": 256, "model.pooler": "gelu", "model.pooler_bias": False}, {}),
    ({"model.first_position": 2}, {}),
    ({"model.position_buckets": 16}, {"model.position": "relative"}),
    ({"model.rotary_base": 1e3}, ROTARY),
    ({"model.rotary_base_near": 1e3}, ROTARY | WINDOW),
    ({"model.global_every": 2}, WINDOW),
    ({"model.first_norm": False}, {"model.norm": "pre"}),
    ({"optim.warmup_steps": 50, "optim.final_fraction": 0.1, "optim.no_decay": "bias$"}, {}),
    ({"optim.decay_fraction": 0.5}, {"optim.schedule": "wsd"}),
]
# Knobs that act on the host, or on what a batch here has not.
ELSEWHERE = {f"masking.{name}" for name in conditions.list_unit_knobs()} | {"masking.unit"}
ELSEWHERE |= {"masking.overflow", "masking.weights", "masking.weights_power", "model.size"}
ELSEWHERE |= {"masking.dupe_factor", "optim.nonfinite_limit", "model.attention"}
ELSEWHERE |= {"model.features", "model.classifier_dropout"}


def list_changes() -> dict[str, tuple[object, Settings]]:
    """List knobs of the update, each with another value, and where the knob acts."""
    found = {path: (value, where) for values, where in WHERE for path, value in values.items()}
    found |= {path: (value, {}) for path, value in OTHER.items()}
    for path, knob in table.list_knobs().items():
        if path.partition(".")[0] in ("masking", "model", "optim") and path not in ELSEWHERE:
            half = knob.default / 2 if isinstance(knob.default, float) else not knob.default
            found.setdefault(path, (knob.choices[-1] if knob.choices else half, {}))
    return found


@functools.cache
def describe_update(items: tuple) -> tuple[str, list[bytes]]:
    """Return the programs of initialisation and update, their constants and traced numbers."""
    found = config.resolve_and_list_idle(write(SMALL | dict(items)))[0]
    step_inputs = compute_inputs(found, 95)
    with jax.enable_x64(False):
        initialise = functools.partial(draw_state, found, tiny.VOCAB)
        begin = jax.make_jaxpr(initialise)(np.uint32(0))
        state = jax.eval_shape(initialise, np.uint32(0))
        update = make_update(found, tiny.SPECIAL, tiny.VOCAB)
        program = jax.make_jaxpr(update)(state, tiny.batch(16, 24), step_inputs)
    leaves = (*jax.tree.leaves(step_inputs), *begin.consts, *program.consts)
    return f"{begin}\n{program}", [np.asarray(leaf).tobytes() for leaf in leaves]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "value", "where"), [(path, *rest) for path, rest in list_changes().items()]
)
def test_knob_changes_the_update(path, value, where):
    """Its program, the constants of the program, or its traced numbers."""
    plain = describe_update(tuple(where.items()))
    assert describe_update((*where.items(), (path, value))) != plain


@pytest.mark.slow
def test_knob_of_the_host_leaves_the_update():
    assert describe_update((("optim.nonfinite_limit", 3),)) == describe_update(())
