"""One update: what its loss must be before and after, and what it does with a bad gradient.

That it is the same on any devices is held by tests/net/test_devices.py.
"""

import jax
import numpy as np
import pytest

from bert_jax.config import knobs, load_file, resolve
from bert_jax.masking import rates
from bert_jax.training.step import compute_inputs, draw_state, make_update
from tests import texts, tiny
from tests.net.config_rows import ABLATIONS
from tests.updates import advance, build_program, make_batch


def make_config(**changes: object) -> knobs.Config:
    return tiny.config(**{"model__layers": 1} | changes)


@pytest.mark.parametrize("empty", ["nothing eligible", "padding alone"])
def test_update_of_no_targets_has_loss_0(empty):
    """Never 0 / 0: every number is finite, and the update is not skipped."""
    config = make_config(pairs="none")
    data = make_batch(config)
    data["unit_ids"][:] = -1
    if empty == "padding alone":
        for key in ("tokens", "type_ids", "positions", "segment_ids", "cls_positions"):
            data[key][:] = 0
    (found,), state = advance(config, [data], devices=1)
    assert found["loss"] == found["mlm_loss"] == found["masked_fraction"] == found["grad_norm"] == 0
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(jax.device_get(state)))
    assert int(state["skipped"]) == 0


@pytest.mark.fault(8)
def test_losses_are_sums_over_counts():
    """Rows with few predictions weigh little, however rows fall on devices or microbatches."""
    config = make_config(parallel__step="pmap", optim__accumulation=2, masking__rate=0.5)
    data = tiny.batch(16, 24, seed=3)
    data["unit_ids"][:14, 3:] = -1
    weights = tiny.mask(data, config.masking)[0]["predict_weights"]
    assert weights.sum(1).tolist() == [1] * 14 + [10, 1]
    (ours,), _ = advance(config, [data])
    (alone,), _ = advance(make_config(masking__rate=0.5), [data], devices=1)
    for key in ("loss", "mlm_loss", "grad_norm"):
        assert ours[key] == pytest.approx(alone[key], rel=1e-5), key


def test_weights_of_objectives_scale_their_losses():
    data = [make_batch(make_config())]
    (base,), _ = advance(make_config(), data, devices=1)
    half = make_config(objectives__nsp__weight=0.5, objectives__mlm__weight=2)
    (found,), _ = advance(half, data, devices=1)
    assert found["loss"] == pytest.approx(2 * base["mlm_loss"] + 0.5 * base["nsp_loss"], rel=1e-5)
    # A weight of 0 keeps the head and its metrics, but does not train the head.
    (found,), state = advance(make_config(objectives__nsp__weight=0), data, devices=1)
    assert found["loss"] == pytest.approx(base["mlm_loss"], rel=1e-5)
    assert found["nsp_loss"] == pytest.approx(base["nsp_loss"], rel=1e-5)
    assert not np.asarray(tiny.find_moments(state).mu["nsp"]["logits"]["kernel"]).any()


@pytest.mark.fault(6)
def test_update_skips_and_counts_a_bad_gradient():
    config = make_config()
    program, data = build_program(config, devices=1), make_batch(config)
    state = program.start.draw_state(0)
    before = jax.device_get(state["params"])
    good = compute_inputs(config, 0)
    poison = good._replace(weights={"mlm": np.float32("nan"), "nsp": np.float32(1)})
    for step_inputs, in_row in ((poison, 1), (poison, 2), (good, 0)):
        if not in_row:
            jax.tree.map(np.testing.assert_array_equal, before, jax.device_get(state["params"]))
        state, metrics = program.update(state, data, [step_inputs])
        assert program.fetch_metrics(metrics)[0]["skipped_in_row"][0] == in_row
    counts = int(state["step"]), int(state["skipped"]), int(tiny.find_moments(state).count)
    assert counts == (3, 2, 1)


def test_weight_decay_acts_as_it_says():
    data = [make_batch(make_config())]
    fresh = build_program(make_config(), devices=1).start.draw_state(0)
    _, plain = advance(make_config(optim__weight_decay=0), data, devices=1)
    _, decayed = advance(make_config(optim__weight_decay=0.5), data, devices=1)
    layers = (state["params"]["encoder"]["layer_0"] for state in (fresh, plain, decayed))
    old, one, other = (layer["mlp"]["up"] for layer in layers)
    expected = 1e-3 * 0.5 * old["kernel"]
    np.testing.assert_allclose(one["kernel"] - other["kernel"], expected, atol=1e-7)
    np.testing.assert_array_equal(one["bias"], other["bias"])


@pytest.mark.parametrize(
    ("prng", "short"), [("threefry2x32", "fry"), ("rbg", "rbg"), ("unsafe_rbg", "urbg")]
)
def test_masks_are_threefry_whatever_draws_dropout(prng, short):
    config = tiny.config(parallel__prng=prng, model__dropout=0.1, model__layers=1)
    state = jax.eval_shape(lambda seed: draw_state(config, tiny.VOCAB, seed), np.uint32(0))
    update = make_update(config, tiny.SPECIAL, tiny.VOCAB)
    traced = str(jax.make_jaxpr(update)(state, tiny.batch(2, 24), compute_inputs(config, 0)))
    assert {name for name in ("fry", "rbg", "urbg") if f"key<{name}>" in traced} == {"fry", short}


def test_dropout_differs_by_step_and_by_device():
    config = make_config(model__dropout=0.3, optim__learning_rate=0)
    batch = make_batch(config)
    (first, second), state = advance(config, [batch, batch], devices=1)
    assert first["mlm_loss"] != second["mlm_loss"]
    update = make_update(config, tiny.SPECIAL, tiny.VOCAB, axis="data")  # as pmap calls it
    trace = jax.make_jaxpr(update, axis_env=[("data", 8)])
    assert "axis_index" in str(trace(state, batch, compute_inputs(config, 0)))


@pytest.mark.slow
@pytest.mark.parametrize("name", ABLATIONS)
def test_every_ablation_builds_its_update(name):
    """Shapes only: an update of a small model is traced, and nothing is computed."""
    config = resolve(load_file(f"{texts.ROOT}/configs/ablations.py:{name},mini"))
    batch = tiny.batch(8, config.sequence_length)
    if rates.count_views(config.masking) > 1:
        batch["views"] = batch["example_ids"]
    state = jax.eval_shape(lambda seed: draw_state(config, tiny.VOCAB, seed), np.uint32(0))
    update, step_inputs = make_update(config, tiny.SPECIAL, tiny.VOCAB), compute_inputs(config, 0)
    after, metrics = jax.eval_shape(update, state, batch, step_inputs)
    assert after == state
    assert {f"{loss}_loss" for loss in step_inputs.weights} <= metrics.keys()
