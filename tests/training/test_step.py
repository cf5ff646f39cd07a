"""One update: the same on any devices and split, and what its loss must be before and after
learning.
"""

from __future__ import annotations

import collections
import math
import runpy
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax import sharding
from bert_jax.config import load_file, resolve
from bert_jax.config.knobs import Parallel
from bert_jax.masking import rates
from bert_jax.objectives.base import cross_entropy
from bert_jax.system.trees import flat
from bert_jax.training.step import compute_inputs, init_state, make_update
from tests import toy
from tests.updates import advance, batches, prepare

LAYOUTS = {
    "jit over 8": {},
    "pmap over 8": {"parallel__step": "pmap"},
    "fsdp 4": {"parallel__fsdp": 4},
    "fsdp 2": {"parallel__fsdp": 2},
    "accumulation 2": {"optim__accumulation": 2},
}


@pytest.mark.fault(8)
@pytest.mark.slow
@pytest.mark.parametrize("devices", [2, 4, 8])
def test_the_loss_of_a_batch_does_not_depend_on_how_many_devices_share_it(devices):
    """The batch itself follows from the step alone; what is summed over devices is close, and
    counts are equal.
    """
    config = toy.config(optim__clip_norm=0)
    data = batches(config, 1)[0]
    (alone,), _ = advance(config, [data], devices=1)
    (found,), _ = advance(config, [data], devices=devices)
    for key in ("loss", "mlm_loss", "nsp_loss", "grad_norm"):
        assert found[key] == pytest.approx(alone[key], rel=1e-5), key
    for key in ("masked_fraction", "mask_token_fraction", "random_fraction", "mlm_accuracy"):
        assert found[key] == alone[key], key


@pytest.mark.parametrize("empty", ["nothing eligible", "padding alone"])
def test_a_batch_with_nothing_to_predict_has_loss_0_and_trains_on(empty):
    """Never 0 / 0: the loss is 0, every number is finite, and the update is not skipped."""
    config = toy.config(pairs="none")
    data = batches(config, 1)[0]
    data["unit_ids"][:] = -1
    if empty == "padding alone":
        for key in ("tokens", "type_ids", "positions", "segment_ids", "cls_positions"):
            data[key][:] = 0
    (found,), state = advance(config, [data], devices=1)
    assert found["loss"] == found["mlm_loss"] == found["masked_fraction"] == found["grad_norm"] == 0
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(jax.device_get(state)))
    assert int(state["skipped"]) == 0


SPLITS = [
    pytest.param(
        name, marks=[pytest.mark.slow] * (name in ("fsdp 4", "jit over 8", "accumulation 2"))
    )
    for name in LAYOUTS
]


@pytest.mark.parametrize("name", SPLITS)
def test_loss_and_gradients_do_not_depend_on_how_the_batch_is_split(name):
    alone, split = toy.config(optim__clip_norm=0), toy.config(optim__clip_norm=0, **LAYOUTS[name])
    data = batches(alone)
    (one, state1), (other, state2) = advance(alone, data, devices=1), advance(split, data)
    for a, b in zip(one, other, strict=True):
        for key in ("loss", "mlm_loss", "nsp_loss", "grad_norm"):
            assert b[key] == pytest.approx(a[key], rel=1e-5), key
        for key in (
            "masked_fraction",
            "mask_token_fraction",
            "random_fraction",
            "kept_fraction",
            "mlm_accuracy",
        ):
            assert b[key] == a[key], key
    first, second = (flat(toy.find_moments(s).mu) for s in (state1, state2))
    for key in first:  # first moments: sums of gradients
        a, b = np.asarray(first[key]), np.asarray(second[key])
        # 2e-5, not 1e-5: with what conftest.py sets to compile quickly, 1.2e-5 was seen.
        np.testing.assert_allclose(b, a, atol=2e-5 * max(np.abs(a).max(), 1e-3), err_msg=key)


def largest_share(tree: Any) -> float:
    """The largest share of a tree's bytes that any one device holds."""
    device_bytes: collections.Counter[Any] = collections.Counter()
    total = 0
    for leaf in jax.tree.leaves(tree):
        total += leaf.nbytes
        for shard in leaf.addressable_shards:
            device_bytes[shard.device] += math.prod(shard.data.shape) * leaf.dtype.itemsize
    return max(device_bytes.values()) / total


def test_fsdp_leaves_a_device_a_quarter():
    _, state, _ = prepare(toy.config(parallel__fsdp=4, optim__clip_norm=0))
    assert largest_share(state["params"]) <= 0.30
    assert largest_share(state["optimizer"]) <= 0.30
    _, state, _ = prepare(toy.config())
    assert largest_share(state["params"]) == 1.0


def test_splits_that_do_not_fit_are_refused():
    with pytest.raises(sharding.ConfigError, match="8 devices"):
        sharding.make_mesh(Parallel(fsdp=3))
    with pytest.raises(sharding.ConfigError, match="batch_size = 12 is not divisible by 8"):
        sharding.check_rows(12, sharding.make_mesh(Parallel()), "batch_size")


def test_the_loss_before_learning_is_that_of_knowing_nothing():
    config = toy.config()
    (first,), _ = advance(config, batches(config, 1), devices=1)
    assert first["loss"] == pytest.approx(math.log(toy.VOCAB) + math.log(2), rel=0.05)
    assert first["mlm_loss"] == pytest.approx(math.log(toy.VOCAB), rel=0.05)


def test_one_batch_is_learnt_by_heart():
    config = toy.config(optim__learning_rate=5e-3, optim__schedule="constant", steps=150)
    data = toy.batch(16, 24, seed=1)
    history, _ = advance(config, [data] * 150, devices=1)
    assert history[-1]["mlm_accuracy"] == 1.0
    assert history[-1]["nsp_accuracy"] == 1.0
    assert history[-1]["loss"] < 0.1


def test_losses_are_sums_over_counts_not_means_of_means():
    """Rows with few predictions weigh little, however rows fall on devices or microbatches."""
    config = toy.config(parallel__step="pmap", optim__accumulation=2, masking__rate=0.5)
    data = toy.batch(16, 24, seed=3)
    data["unit_ids"][:14, 3:] = -1
    assert toy.mask(data, config.masking)[0]["predict_weights"].sum(1).tolist() == [1] * 14 + [
        10,
        1,
    ]
    (ours,), _ = advance(config, [data])
    (alone,), _ = advance(toy.config(masking__rate=0.5), [data], devices=1)
    for key in ("loss", "mlm_loss", "grad_norm"):
        assert ours[key] == pytest.approx(alone[key], rel=1e-5), key


def test_accuracy_counts_what_argmax_counts():
    random = np.random.default_rng(0)
    logits = random.integers(0, 3, (200, 5)).astype(np.float32)  # full of ties
    targets, weights = random.integers(0, 5, 200), random.integers(0, 2, 200).astype(np.float32)
    measure = jax.jit(cross_entropy, static_argnums=3)
    found = measure(logits, targets.astype(np.int32), weights, "x")
    assert found["x_accuracy"] == (((logits.argmax(-1) == targets) * weights).sum(), weights.sum())
    expected = np.log(np.exp(logits).sum(-1)) - logits[np.arange(200), targets]
    assert float(found["x_loss"][0]) == pytest.approx((expected * weights).sum(), rel=1e-5)
    collapsed = measure(
        np.zeros((4, 2), np.float32), np.array([0, 1, 0, 1], np.int32), np.ones(4, np.float32), "x"
    )
    assert float(collapsed["x_accuracy"][0]) == 2


def test_weights_of_objectives_scale_their_losses():
    data = batches(toy.config(), 1)
    (base,), _ = advance(toy.config(), data, devices=1)
    (half,), _ = advance(
        toy.config(objectives__nsp__weight=0.5, objectives__mlm__weight=2), data, devices=1
    )
    assert half["loss"] == pytest.approx(2 * base["mlm_loss"] + 0.5 * base["nsp_loss"], rel=1e-5)
    (without,), state = advance(toy.config(objectives__nsp__weight=0), data, devices=1)
    assert without["loss"] == pytest.approx(base["mlm_loss"], rel=1e-5)
    assert without["nsp_loss"] == pytest.approx(base["nsp_loss"], rel=1e-5), (
        "weight 0 keeps the head and its metrics"
    )
    assert not np.asarray(toy.find_moments(state).mu["nsp"]["logits"]["kernel"]).any()
    (alone,), state = advance(toy.config(pairs="none"), data, devices=1)
    assert "nsp_loss" not in alone
    assert "nsp" not in state["params"]
    assert "pooler" not in state["params"]["encoder"]


@pytest.mark.fault(6)
def test_a_non_finite_gradient_is_skipped_and_counted():
    config = toy.config(optim__learning_rate=1e-3)
    mesh, state, update = prepare(config, devices=1)
    data = sharding.place(batches(config, 1)[0], config.batch_size, mesh)
    before = jax.tree.map(np.asarray, state["params"])
    poison = compute_inputs(config, 0)._replace(
        weights={"mlm": np.float32("nan"), "nsp": np.float32(1)}
    )
    for expected in (1, 2):
        state, metrics = update(state, data, poison)
        assert float(metrics["skipped_in_row"][0]) == expected
    jax.tree.map(np.testing.assert_array_equal, before, jax.tree.map(np.asarray, state["params"]))
    state, metrics = update(state, data, compute_inputs(config, 2))
    assert float(metrics["skipped_in_row"][0]) == 0
    assert (int(state["step"]), int(state["skipped"]), int(toy.find_moments(state).count)) == (
        3,
        2,
        1,
    )


def test_the_traced_numbers_follow_their_schedules():
    config = toy.config(
        masking__rate=0.4,
        masking__phases="((1.0,0.2,'linear'),)",
        optim__warmup_steps=10,
        steps=101,
    )
    first, last = compute_inputs(config, 0), compute_inputs(config, 100)
    assert (first.quotas.whole[20], last.quotas.whole[20]) == (8, 4)
    assert first.learning_rate == 0
    assert compute_inputs(config, 10).learning_rate == pytest.approx(1e-3)


@pytest.mark.slow
def test_dropout_differs_by_step_and_by_device_and_seed():
    settings = {"model__dropout": 0.3, "optim__learning_rate": 0}
    same = [batches(toy.config(), 1)[0]] * 2
    (first, second), _ = advance(toy.config(**settings), same, devices=1)
    assert first["mlm_loss"] != second["mlm_loss"]
    (other, _), _ = advance(toy.config(**settings, parallel__prng="rbg"), same, devices=1)
    assert first["mlm_loss"] != other["mlm_loss"]
    (mapped, _), _ = advance(toy.config(**settings, parallel__step="pmap"), same)
    assert first["mlm_loss"] != mapped["mlm_loss"]


def test_learning_rate_and_decay_are_what_the_update_uses():
    data = batches(toy.config(), 1)
    _, still = advance(toy.config(optim__learning_rate=0), data, devices=1)
    fresh = prepare(toy.config(), devices=1)[1]
    jax.tree.map(np.testing.assert_array_equal, fresh["params"], still["params"])
    _, plain = advance(toy.config(optim__weight_decay=0), data, devices=1)
    _, decayed = advance(toy.config(optim__weight_decay=0.5), data, devices=1)
    kernel = "layer_0/mlp/up/kernel"
    difference = (
        flat(plain["params"]["encoder"])[kernel] - flat(decayed["params"]["encoder"])[kernel]
    )
    expected = 1e-3 * 0.5 * flat(fresh["params"]["encoder"])[kernel]
    np.testing.assert_allclose(difference, expected, atol=1e-7)
    bias = "layer_0/mlp/up/bias"
    np.testing.assert_array_equal(
        flat(plain["params"]["encoder"])[bias], flat(decayed["params"]["encoder"])[bias]
    )


def test_the_state_is_float32_whatever_the_compute_type():
    _, state, _ = prepare(toy.config(model__dtype="bfloat16"))
    assert {leaf.dtype for leaf in jax.tree.leaves(state["params"])} == {jnp.dtype("float32")}


FOLDER = Path(__file__).resolve().parents[2] / "configs"
CONFIGS = {file.stem: str(file) for file in FOLDER.glob("*.py")}
del CONFIGS["adapt"]  # which needs a model: test_adapt.py
ABLATIONS = CONFIGS.pop("ablations")
for name in runpy.run_path(ABLATIONS)["ABLATIONS"]:
    CONFIGS[name] = f"{ABLATIONS}:{name}"


@pytest.mark.parametrize("name", sorted(CONFIGS))
def test_every_config_builds_its_update(name):
    """Shapes only: the whole update is traced at its real size, and nothing is computed."""
    config = resolve(load_file(CONFIGS[name]))
    vocab = config.tokenizer.vocab_size
    state = jax.eval_shape(lambda: init_state(config, vocab, np.uint32(0)))
    shapes = jax.eval_shape(lambda: toy.batch(config.batch_size, config.sequence_length))
    shapes |= {"views": shapes["example_ids"]} if rates.count_views(config.masking) > 1 else {}
    update = make_update(config, toy.SPECIAL, vocab)
    inputs = compute_inputs(config, 0)
    after, metrics = jax.eval_shape(update, state, shapes, inputs)
    assert jax.tree.map(lambda x: (x.shape, x.dtype), after) == jax.tree.map(
        lambda x: (x.shape, x.dtype), state
    )
    assert {f"{name}_loss" for name in inputs.weights} <= metrics.keys()
