"""The update of a config compiled for eight fake CPU devices, held against closed forms."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax import sharding
from bert_jax.config import costs, devices
from bert_jax.planning import activations, batches, targets, update
from tests import toy

SMALL = {"batch_size": 32, "sequence_length": 32, "model__layers": 2}


@pytest.fixture(scope="module")
def target():
    return targets.find("cpu:8")


def plan(target, **overrides):
    config = toy.config(**{**SMALL, **overrides})
    return update.compile_update(config, target, toy.VOCAB)


@pytest.fixture(scope="module")
def small(target):
    return plan(target)


def test_update_reduces_each_gradient_once(small):
    """The token table has two uses, whose gradients are added before they leave the device."""
    moved = small.sum_collectives()["all-reduce"]["bytes"]
    gradients = 4 * small.parameters
    assert gradients <= moved < 1.02 * gradients + 2_000
    assert small.largest_rows == 0
    assert small.fits
    assert small.roofline() == {"compute": None, "network": None}
    assert small.hours(0.4) is None
    assert small.flops == costs.flops_per_step(small.config, toy.VOCAB) / 8


def test_roofline_and_hours_follow_the_chip(small):
    chip = dataclasses.replace(small.target.chip, flops=1e9, network=1e6)
    known = dataclasses.replace(small, target=dataclasses.replace(small.target, chip=chip))
    assert known.hours(0.5) == pytest.approx(100 * small.flops / 0.5e9 / 3600)
    sums = small.sum_collectives()
    rings = 2 * sums["all-reduce"]["bytes"] + sums.get("all-gather", {"bytes": 0})["bytes"]
    assert known.roofline() == {
        "compute": pytest.approx(1e3 * small.flops / 1e9),
        "network": pytest.approx(1e3 * rings * 7 / 8 / 1e6),
    }
    in_epochs = dataclasses.replace(known, config=dataclasses.replace(small.config, epochs=2))
    assert in_epochs.hours(0.5) is None


@pytest.mark.parametrize(
    "scan",
    [True, False],
)
@pytest.mark.slow
def test_activations_stay_on_their_device(target, scan, monkeypatch):
    overrides = {"parallel__fsdp": 8, "model__scan": scan, "batch_size": 64}
    own = 64 // 8
    assert plan(target, **overrides).largest_rows == 0
    # Left to itself, XLA moves those of other devices.
    monkeypatch.setattr(sharding, "_splitting", lambda: None)
    assert plan(target, **overrides).largest_rows > own


def test_parameters_that_xla_pads_are_no_activations():
    known = {(128, 1000)}
    assert activations._is_parameter((128, 1008), known)
    assert not activations._is_parameter((128, 1100), known)
    assert not activations._is_parameter((130, 1008), known)


@pytest.mark.slow
def test_memory_falls_with_what_is_computed_again(target):
    held = []
    for kind in ("none", "dots", "full"):
        changes = {"model__remat": kind, "model__layers": 4, "model__scan": True}
        held.append(plan(target, batch_size=256, **changes).temp_bytes)
    assert held == sorted(held, reverse=True)
    assert len(set(held)) == 3


@pytest.mark.parametrize("step", ["jit", pytest.param("pmap", marks=pytest.mark.slow)])
def test_update_gives_its_state_back_in_place(target, step):
    """The state is not held twice."""
    result = plan(target, parallel__step=step)
    state = 3 * 4 * result.parameters
    assert state < result.argument_bytes < 1.3 * state + 100_000
    assert result.peak_bytes < result.argument_bytes + result.temp_bytes + 0.1 * state


def test_largest_batch_is_linear_in_memory(small):
    argument, temporary = small.argument_bytes, small.temp_bytes
    room = argument * 4 // 3 + 10 * (small.peak_bytes - argument * 4 // 3)
    chip = dataclasses.replace(small.target.chip, memory_bytes=room)
    roomy = dataclasses.replace(small, target=dataclasses.replace(small.target, chip=chip))
    assert update._estimate_largest(roomy) == 10 * small.config.batch_size
    tight = dataclasses.replace(chip, memory_bytes=argument)
    narrow = dataclasses.replace(small, target=dataclasses.replace(small.target, chip=tight))
    assert update._estimate_largest(narrow) is None
    assert not narrow.fits
    assert temporary > 0


@pytest.mark.slow
def test_largest_batch_needs_about_the_memory_there_is(target):
    less, more = (plan(target, batch_size=rows) for rows in (256, 1024))
    chip = dataclasses.replace(target.chip, memory_bytes=more.peak_bytes)
    fitted = dataclasses.replace(less, target=dataclasses.replace(target, chip=chip))
    assert update._estimate_largest(fitted) == pytest.approx(1024, rel=0.1)


def test_refused_batch_is_estimated_from_less(target, monkeypatch):
    """A compiler that refuses what needs too much memory says so, as those of TPUs do."""
    compiled = update.Program.trace

    def trace(program, batch):
        if batch["tokens"].shape[0] > 32:
            text = "RESOURCE_EXHAUSTED: XLA:TPU compile permanent error.\n\n  Used 28.94G of 15.75G"
            raise jax.errors.JaxRuntimeError(text)
        return compiled(program, batch)

    monkeypatch.setattr(update.Program, "trace", trace)
    result = plan(target, batch_size=128)
    assert (result.fits, result.peak_bytes) == (False, None)
    assert result.reason == "Used 28.94G of 15.75G"
    assert result.largest_batch == plan(target).largest_batch
    assert result.largest_batch > 0


def test_options_of_the_compiler_reach_it(target, monkeypatch):
    monkeypatch.setattr(devices, "COMPILER", {"cpu": {"no_such_option": True}})
    with pytest.raises(jax.errors.JaxRuntimeError, match="no_such_option"):
        plan(target)


@pytest.mark.parametrize(
    ("kind", "remat", "again"),
    [("cuda", "none", True), ("cuda", "dots", False), ("cpu", "none", False)],
)
def test_norms_are_computed_again_where_memory_is_slow(kind, remat, again):
    from bert_jax.models.layers import make_norm

    with devices.traced_for(kind):
        norm = make_norm(toy.config(model__remat=remat).model)
        traced = jax.make_jaxpr(
            jax.grad(lambda x: jnp.sum(norm.init_with_output(jax.random.key(0), x)[0]))
        )(jnp.ones((4, 8)))
    assert ("checkpoint" in str(traced) or "remat" in str(traced)) == again


def test_unknown_options_of_a_compiler_are_left_out(caplog):
    options = {"xla_embed_ir_in_executable": True, "xla_of_another_version": True}
    assert devices.known(options) == {"xla_embed_ir_in_executable": True}
    assert "does not know xla_of_another_version" in caplog.text


# --- batches of random text -----------------------------------------------------------------------


def test_random_text_fills_rows_or_has_the_given_sizes():
    config = toy.config(batch_size=4, sequence_length=32)
    batch = batches.make_batch(config, toy.VOCAB)
    assert batch["segment_ids"].all()
    assert (batch["unit_ids"] >= 0).sum() == 4 * (32 - 3)
    assert batch["tokens"].max() < toy.VOCAB
    sizes = np.array([32, 5, 20, 9])
    shorter = batches.make_random_text(config, sizes, toy.VOCAB)
    assert (shorter["segment_ids"] > 0).sum(axis=1).tolist() == sizes.tolist()
    assert shorter["labels"][:, 0].tolist() == [0, 1, 0, 1]


def test_random_text_has_the_arrays_that_masking_reads():
    plain = batches.make_batch(toy.config(packing=3), toy.VOCAB)
    assert plain["cls_positions"].shape == (16, 3)
    assert "views" not in plain
    weighted = toy.config(masking__weights="frequency")
    scales = batches.make_batch(weighted, toy.VOCAB)["unit_scales"]
    assert (scales.shape, scales.dtype) == ((16, 24), np.float32)
