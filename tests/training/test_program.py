"""The compiled update: where its state and its runs lie on devices, and how large it is."""

import functools
import math
import re

import jax
import numpy as np
import pytest

from bert_jax import sharding
from bert_jax.config import knobs
from bert_jax.training import program
from bert_jax.training.step import compute_inputs
from tests import tiny, updates


def find_share(config: knobs.Config, part: str) -> float:
    """Return the share of the numbers of a part of the state that a device holds."""
    compiled = updates.build_program(config)
    shapes = jax.tree.leaves(compiled.shapes[part])
    layout = jax.tree.leaves(compiled.run_layout[part])
    held = [where.shard_shape(x.shape) for x, where in zip(shapes, layout, strict=True)]
    return sum(map(math.prod, held)) / sum(x.size for x in shapes)


def test_fsdp_leaves_a_device_a_quarter():
    for part in ("params", "optimizer"):
        assert find_share(tiny.config(parallel__fsdp=4, model__layers=1), part) <= 0.30
        assert find_share(tiny.config(model__layers=1), part) == 1.0


class Chip:
    """A chip of v5e:4x4 as jax describes it; a host has 2 x 2 of them."""

    platform, device_kind, core_on_chip, slice_index = "tpu", "TPU v5 lite", 0, 0

    def __init__(self, number: int):
        host, own = divmod(number, 4)
        self.id, self.process_index = number, host
        self.coords = (host % 2 * 2 + own % 2, host // 2 * 2 + own // 2, 0)


def test_mesh_under_pmap_is_in_the_order_of_processes(monkeypatch):
    """By its network, a host of v5e:4x4 has places between which there are those of others."""
    monkeypatch.setattr(sharding.devices, "list_all", lambda: list(map(Chip, range(16))))
    for step, places in (("jit", [0, 1, 6, 15]), ("pmap", [0, 1, 2, 3])):
        mesh = sharding.make_mesh(knobs.Parallel(step=step))
        hosts = [chip.process_index for chip in mesh.devices.ravel()]
        assert [place for place, host in enumerate(hosts) if host == 0] == places


@pytest.mark.slow
@pytest.mark.parametrize("how", ["vmap", "map"])
def test_runs_lie_on_devices_of_their_own(how):
    """The update over a mesh of runs and rows equals the update of each run by itself."""
    changes = {"parallel__arms": how, "batch_size": 8, "model__layers": 1}
    several = [tiny.config(**changes, seed=seed) for seed in range(2)]
    config = several[0]
    mesh = sharding.make_mesh(config.parallel, 2)
    assert dict(mesh.shape) == {"run": 2, "data": 4, "fsdp": 1}
    together = program.Program(config, tiny.SPECIAL, tiny.VOCAB, mesh, 2)
    states = together.place([together.start.draw_state(one.seed) for one in several])
    step_inputs = [compute_inputs(one, 0) for one in several]
    batch = tiny.batch(8, 24)
    stacked, metrics = together.update(states, batch, step_inputs)
    used = {s.device for leaf in jax.tree.leaves(stacked) for s in leaf.addressable_shards}
    assert len(used) == 8
    found = together.fetch_metrics(metrics)
    for index, one in enumerate(several):
        (alone,), expected = updates.advance(one, [batch], devices=1)
        ours = {name: total / max(count, 1) for name, (total, count) in found[index].items()}
        assert ours == pytest.approx(alone, rel=1e-4, abs=1e-6)
        mine = tiny.find_moments(together.pick(stacked, index, together.run_layout))
        compare = functools.partial(np.testing.assert_allclose, rtol=1e-3, atol=1e-6)
        jax.tree.map(compare, mine, tiny.find_moments(expected))  # weights drift in Adam


# --- operations, FLOPs and bytes ------------------------------------------------------------------

ROOM = 0.10
ALONE = {"pairs": "none"}
MODERN = {"model__position": "rotary", "model__norm": "pre", "model__gated": True}
# Knobs; operations, FLOPs, and the bytes accessed as jax counts them before 0.12 and since.
SIZES = {
    "bert": ({}, 4_892, 70.3e6, 87.1e6, 110.8e6),
    "packed": (ALONE | {"packing": 4}, 4_525, 71.2e6, 88.3e6, 112.4e6),
    "modern": (ALONE | MODERN | {"model__window": 8}, 5_047, 90.4e6, 109.0e6, 132.7e6),
    # Of one microbatch.
    "accumulated": ({"optim__accumulation": 2}, 5_098, 35.7e6, 50.6e6, 62.5e6),
}


@pytest.mark.parametrize("name", SIZES)
def test_update_has_no_more_work_than_before(name):
    """In the lowered program: what our code asks for, before the compiler fuses anything.

    The compiled program also differs between versions of jax and between machines.

    A change that makes it larger on purpose writes the new numbers here, and says why in its
    commit.
    """
    changes, operations_before, flops_before, *bytes_before = SIZES[name]
    config = tiny.config(**changes)
    batch = updates.make_batch(config, examples=config.packing)
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), batch)
    lowered = updates.build_program(config, devices=1).trace(shapes).lower()
    cost = lowered.cost_analysis()
    operations = len(re.findall(r"^\s*%\S+ = ", lowered.as_text(), re.MULTILINE))
    assert operations == pytest.approx(operations_before, rel=ROOM)
    assert cost["flops"] == pytest.approx(flops_before, rel=ROOM)
    since = jax.__version_info__ >= (0, 12)
    assert cost["bytes accessed"] == pytest.approx(bytes_before[since], rel=ROOM)
