"""Collectives of programs compiled here, and of program texts as accelerators write them."""

from pathlib import Path

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from bert_jax import sharding
from bert_jax.config import knobs
from bert_jax.planning.collectives import find_collectives

DEVICES = 8


def test_collective_in_a_loop_counts_with_its_trips():
    def five_times(x):
        def body(total, _):
            return jax.lax.psum(jnp.sin(total) + x[0], ("data",)), None

        return jax.lax.scan(body, jnp.zeros(100), None, length=5)[0]

    mesh = sharding.make_mesh(knobs.Parallel())
    specs = {"in_specs": PartitionSpec("data"), "out_specs": PartitionSpec()}
    mapped = jax.shard_map(five_times, mesh=mesh, check_vma=False, **specs)
    text = jax.jit(mapped).lower(jnp.ones((8, 100))).compile().as_text()
    (reduced,) = find_collectives(text, DEVICES)
    assert (reduced.kind, reduced.times, reduced.bytes) == ("all-reduce", 5, 400)
    assert [array.dims for array in reduced.arrays] == [(100,)]


def test_text_of_a_tpu_program_is_read():
    """Its loops name no number of trips, and one collective runs in steps of one channel. Those of
    one device, %one and %still, move nothing.
    """
    text = Path(__file__).with_name("tpu_program.txt").read_text()
    found = {(c.kind, c.times, c.bytes) for c in find_collectives(text, DEVICES)}
    assert found == {
        ("all-reduce", 12, 40),
        ("all-gather", 1, 2 * 32 * 8),
        ("all-reduce", 1, 40),
        ("all-reduce", 1, 28),
        ("all-reduce", 1, 20),
        ("all-reduce", 1, 32),
        ("collective-permute", 1, 16),
        ("reduce-scatter", 1, 2 * 4 * 16),
    }
