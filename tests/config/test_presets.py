"""Presets train, and have the published learning rates. Their knobs are frozen by tests/net."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax import config
from bert_jax.config import knobs
from bert_jax.config.presets import PRESETS
from bert_jax.system.trees import flatten_tree
from bert_jax.training import optim
from bert_jax.training.step import compute_inputs, init_state, make_update
from tests import toy


def small(name: str, **changes: object) -> knobs.Config:
    """A preset on a model small enough to train here."""
    tree = config.default(name)
    shape = {"steps": 10, "batch_size": 8, "sequence_length": 24, "optim.warmup_steps": 2}
    shape |= {"model.layers": 1, "model.hidden": 32, "model.heads": 4, "model.max_positions": 32}
    if name == "modernbert":  # whose first layer does not read its norm
        shape |= {"model.layers": 2}
    for path, text in (shape | changes).items():
        config.override(tree, path, str(text))
    return config.resolve_and_list_idle(tree)[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_trains(name):
    settings = small(name, **{"masking.unit": "word"} if name == "google_head" else {})
    state = jax.jit(lambda seed: init_state(settings, toy.VOCAB, seed))(np.uint32(0))
    update = jax.jit(make_update(settings, toy.SPECIAL, toy.VOCAB))
    before = flatten_tree(state["params"])
    for index in range(2):
        b = toy.batch(8, 24, seed=index, longest_unit=4 if settings.masking.unit == "word" else 1)
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


@pytest.mark.parametrize("step", [2_100, 70_000])
def test_decay_of_mosaic_leaves_out_the_peak_rate(step):
    """DecoupledAdamW multiplies each weight by 1 - decay * rate / peak, biases and scales too,
    whatever the peak is.
    """
    settings = config.resolve(config.default("mosaic"))
    rate = float(compute_inputs(settings, step).learning_rate)
    params = {
        "norm": {"scale": jnp.ones(3), "bias": jnp.full(3, 2.0)},
        "kernel": jnp.full(3, 1000.0),
    }
    tx = optim.build_optimizer(settings.optim, params, settings.optim.weight_decay)
    direction, _ = tx.update(jax.tree.map(jnp.zeros_like, params), tx.init(params), params)
    for key, p in flatten_tree(params).items():
        np.testing.assert_allclose(
            rate * flatten_tree(direction)[key], p * 1e-5 * rate / 5e-4, rtol=1e-5
        )
