"""Presets train, and have the published learning rates. Their knobs are frozen by tests/net."""

import math

import jax
import numpy as np
import pytest

from bert_jax import config
from bert_jax.config.presets import PRESETS
from bert_jax.system.trees import flatten_tree
from bert_jax.training.step import compute_inputs, draw_state, make_update
from tests import tiny
from tests.config.settings import set_and_resolve


@pytest.mark.slow
@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_trains(name):
    """On a small model, every leaf of which moves."""
    shape = {"steps": 10, "batch_size": 8, "sequence_length": 24, "optim__warmup_steps": 2}
    shape |= {"model__hidden": 32, "model__heads": 4, "model__max_positions": 32}
    shape |= {"model__layers": 2 if name == "modernbert" else 1}  # its first reads no norm
    shape |= {"masking__unit": "word"} if name == "google_head" else {}
    settings = set_and_resolve(config.default(name), shape)
    state = jax.jit(lambda seed: draw_state(settings, tiny.VOCAB, seed))(np.uint32(0))
    update = jax.jit(make_update(settings, tiny.SPECIAL, tiny.VOCAB))
    before = flatten_tree(state["params"])
    for index in range(2):
        b = tiny.batch(8, 24, seed=index, longest_unit=4 if settings.masking.unit == "word" else 1)
        if settings.pairs == "none":
            b["type_ids"] = np.zeros_like(b["type_ids"])
        state, metrics = update(state, b, compute_inputs(settings, index))
        assert math.isfinite(metrics["loss"][0])
        assert ("nsp_loss" in metrics) == (settings.pairs == "nsp")
    after = flatten_tree(state["params"])
    assert all(np.isfinite(leaf).all() for leaf in after.values())
    for key in before:
        assert (np.asarray(before[key]) != np.asarray(after[key])).any(), key


RATES = {  # step -> rate, by hand from the published peak, warm-up and length
    "google_2018": {0: 0, 5_000: 5e-5, 9_999: 9.999e-5, 10_000: 9.9e-5, 999_999: 1e-10},
    "google_head": {10_000: 9.9e-5},
    "roberta": {0: 0, 24_000: 6e-4, 262_000: 3e-4, 500_000: 0},
    "wettig": {690: 1e-3, 1_380: 2e-3, 12_190: 1e-3, 23_000: 0},
    "mosaic": {2_100: 2.5e-4, 4_200: 5e-4, 37_100: 5e-4 * 0.51, 70_000: 1e-5},
    "huggingface": {0: 5e-5, 500_000: 2.5e-5, 1_000_000: 0},  # of the default's million steps
    "neobert": {0: 0, 1_000: 5e-5, 2_000: 1e-4, 501_000: 5.5e-5, 1_000_000: 1e-5},
    "modernbert": {0: 0, 318: 4e-4, 636: 8e-4, 364_304: 8e-4},
    "gpt_bert": {0: 0, 125: 5e-3, 250: 1e-2, 5_375: 7.75e-3, 15_625: 1e-3},
}


@pytest.mark.parametrize("name", PRESETS)
def test_learning_rate_of_a_preset_is_published(name):
    settings = config.resolve(config.default(name))
    found = {step: float(compute_inputs(settings, step).learning_rate) for step in RATES[name]}
    assert found == pytest.approx(RATES[name], rel=1e-6, abs=1e-12)
