"""The update of a config compiled for eight fake CPU devices, held against closed forms."""

import jax
import numpy as np
import pytest

from bert_jax import cli, sharding
from bert_jax.config import costs, knobs
from bert_jax.planning import activations, batches, targets, update
from bert_jax.planning.collectives import Array, Collective
from bert_jax.training import memory
from tests import tasks, tiny

SMALL = {"batch_size": 32, "sequence_length": 32, "model__layers": 2}


@pytest.fixture(scope="module")
def target():
    return targets.find_target("cpu:8")


def plan(target, **overrides):
    config = tiny.config(**{**SMALL, **overrides})
    return update.compile_update(config, target, tiny.VOCAB)


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
    assert small.flops == costs.flops_per_step(small.config, tiny.VOCAB) / 8


def test_update_gives_its_state_back_in_place(small):
    """The state is not held twice."""
    state = 3 * 4 * small.parameters
    assert state < small.argument_bytes < 1.3 * state + 100_000
    assert small.peak_bytes < small.argument_bytes + small.temp_bytes + 0.1 * state


def test_dry_run_estimates_the_peak(small):
    """A compiled program shares a little more memory than the estimate."""
    mesh = sharding.make_mesh(small.config.parallel)
    estimate = sum(memory.estimate_bytes(small.config, tiny.VOCAB, mesh))
    assert small.peak_bytes <= estimate < 1.4 * small.peak_bytes


@pytest.mark.slow
def test_dry_run_estimates_the_peak_of_a_preset(target):
    """The program of a larger update shares relatively less memory."""
    config = cli.read_config("pretrain:mini", [])
    size = config.tokenizer.vocab_size
    compiled = update.compile_update(config, target, size)
    estimate = sum(memory.estimate_bytes(config, size, sharding.make_mesh(config.parallel)))
    assert estimate == pytest.approx(compiled.peak_bytes, rel=0.15)


@pytest.mark.fault(23)
def test_refused_batch_is_estimated_from_less(target, small, monkeypatch):
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
    assert result.largest_batch == small.largest_batch > 0


@pytest.mark.slow
def test_activations_move_only_without_a_constraint(target, monkeypatch):
    """Left to itself, XLA moves the activations of other devices."""
    split = {"parallel__fsdp": 8, "model__scan": True, "batch_size": 64}
    assert plan(target, **split).largest_rows == 0
    monkeypatch.setattr(sharding, "_splitting", lambda: None)
    assert plan(target, **split).largest_rows > 64 // 8


@pytest.mark.parametrize(
    ("kind", "dims", "parts", "rows"),
    [
        ("all-gather", (32, 20, 24), 1, 32),  # [B, L, D]
        ("all-gather", (5, 20, 24), 1, 5),
        ("reduce-scatter", (2, 20, 24), 8, 16),  # its rows were cut
        ("reduce-scatter", (32, 20, 16), 8, 32),  # its feed-forward width was cut
        ("all-gather", (128, 24), 1, 0),  # a parameter
        ("all-gather", (128, 1008), 1, 0),  # a parameter that XLA has padded
        ("all-gather", (128, 1100), 1, 55),  # ... and no parameter: 1,100 x 24 numbers
        ("all-gather", (48, 64), 1, 16),  # as many numbers as a parameter, in another shape
        ("all-reduce", (5000,), 1, 0),  # gradients that were joined
        ("all-gather", (5000,), 1, 0),
    ],
)
def test_count_moved_rows_reads_shapes(kind, dims, parts, rows):
    changes = {"sequence_length": 20, "model__hidden": 24, "model__mlp": 128}
    config = tiny.config(**(SMALL | changes))
    mesh = sharding.make_mesh(knobs.Parallel())
    moved = Collective(kind, (Array("f32", dims),), 0, 1, "op_name", parts)
    parameters = {"up": np.zeros((24, 128)), "wide": np.zeros((128, 1000))}
    found = activations.count_moved_rows([moved], parameters, config, tiny.VOCAB, mesh)
    assert found == rows


def test_random_text_has_the_given_sizes():
    sizes = np.array([32, 5, 20, 9])
    batch = batches.make_random_text(tiny.config(sequence_length=32), sizes, tiny.VOCAB)
    assert (batch["segment_ids"] > 0).sum(axis=1).tolist() == sizes.tolist()
    assert (batch["unit_ids"] >= 0).sum(axis=1).tolist() == (sizes - 3).tolist()
    assert batch["labels"][:, 0].tolist() == [0, 1, 0, 1]
    packed = batches.make_batch(tiny.config(packing=3, masking__weights="frequency"), tiny.VOCAB)
    assert (packed["cls_positions"].shape, packed["unit_scales"].shape) == ((16, 3), (16, 24))
    assert packed["unit_scales"].dtype == np.float32


def test_longest_batch_of_a_task_has_full_rows(tmp_path):
    source = f"files:{tasks.write_classify(tmp_path)}"
    config = tasks.config("classify", source, tmp_path)
    assert batches.make_batch(config, tiny.VOCAB)["tokens"].shape[1] < 32
    assert batches.make_longest_batch(config, tiny.VOCAB)["tokens"].shape == (8, 32)
