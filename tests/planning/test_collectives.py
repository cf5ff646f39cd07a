"""Collectives of programs compiled here, and of program texts as accelerators write them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec

from bert_jax import sharding
from bert_jax.config import knobs
from bert_jax.planning.collectives import find_collectives

DEVICES = 8


@pytest.fixture(scope="module")
def mesh():
    return sharding.make_mesh(knobs.Parallel())


def compile_mapped(mesh, function, out, shape):
    """Compile a function of shards, and return its one collective."""
    specs = {"in_specs": PartitionSpec("data"), "out_specs": out}
    mapped = jax.shard_map(function, mesh=mesh, check_vma=False, **specs)
    text = jax.jit(mapped).lower(jnp.ones(shape)).compile().as_text()
    (found,) = find_collectives(text, DEVICES)
    return found


def test_collective_in_a_loop_counts_with_its_trips(mesh):
    def five_times(x):
        def body(total, _):
            return jax.lax.psum(jnp.sin(total) + x[0], ("data",)), None

        return jax.lax.scan(body, jnp.zeros(100), None, length=5)[0]

    reduced = compile_mapped(mesh, five_times, PartitionSpec(), (8, 100))
    assert (reduced.kind, reduced.times, reduced.bytes) == ("all-reduce", 5, 400)
    assert [array.dims for array in reduced.arrays] == [(100,)]


def test_bytes_are_those_of_the_larger_side(mesh):
    def gather(x):
        return jax.lax.all_gather(x, "data")

    def scatter(x):
        return jax.lax.psum_scatter(x.reshape(8, 6), "data")

    rows = ((gather, "all-gather", 8 * 4 * 6 * 8), (scatter, "reduce-scatter", 4 * 48))
    for function, kind, size in rows:
        found = compile_mapped(mesh, function, PartitionSpec("data"), (64, 6))
        assert (found.kind, found.bytes) == (kind, size)


TPU = """HloModule m, is_scheduled=true

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %s = f32[] add(%a, %b)
}

%beside (p: bf16[4,8]) -> bf16[32,8] {
  %p = bf16[4,8]{1,0:T(8,128)(2,1)} parameter(0)
  ROOT %all-gather.7 = bf16[32,8]{1,0} all-gather(%p), dimensions={0}
}

%body (t: (s32[], f32[10])) -> (s32[], f32[10]) {
  %t = (s32[], f32[10]{0}) parameter(0)
  %i = s32[] get-tuple-element(%t), index=0
  %x = f32[10]{0} get-tuple-element(%t), index=1
  %all-reduce.1 = f32[10]{0} all-reduce(%x), to_apply=%add
  ROOT %r = (s32[], f32[10]{0}) tuple(%i, /*index=1*/%all-reduce.1)
}

%condition (t: (s32[], f32[10])) -> pred[] {
  %t = (s32[], f32[10]{0}) parameter(0)
  %i = s32[] get-tuple-element(%t), index=0
  %bound = s32[]{:T(128)} constant(12)
  ROOT %less = pred[] compare(%i, %bound), direction=LT
}

%begin (p: f32[7]) -> f32[7] {
  %p = f32[7]{0} parameter(0)
  ROOT %all-reduce.4 = f32[7]{0} all-reduce(%p), channel_id=3, to_apply=%add
}

%end (q: f32[7]) -> f32[7] {
  %q = f32[7]{0} parameter(0)
  ROOT %all-reduce.5 = f32[7]{0} all-reduce(%q), channel_id=3, to_apply=%add
}

ENTRY %main (x: (s32[], f32[10]), y: bf16[4,8], w: f32[7]) -> bf16[32,8] {
  %x = (s32[], f32[10]{0}) parameter(0)
  %y = bf16[4,8]{1,0} parameter(1)
  %w = f32[7]{0} parameter(2)
  %while.3 = (s32[], f32[10]{0}) while(%x), condition=%condition, body=%body
  %start = ((bf16[4,8]{1,0}), bf16[32,8]{1,0}) async-start(%y), calls=%beside
  %z = f32[10]{0} custom-call(%y), custom_call_target="tpu_custom_call", config={"a":{
"b":"{c: 1}"
}}, metadata={op_name="splash"}
  %reduce = (f32[10]{0}, f32[10]{0}) all-reduce-start(f32[10]{0} %z), to_apply=%add
  %first = f32[7]{0} fusion(%w), kind=kCustom, calls=%begin
  %last = f32[7]{0} fusion(%first), kind=kCustom, calls=%end
  %one = f32[3]{0} all-reduce(%w), channel_id=9, replica_groups={{0},{1}}, to_apply=%add
  %permute = (f32[4]{0}, f32[4]{0}, u32[], u32[]) collective-permute-start(%w), channel_id=5
  %scatter = bf16[2,8]{1,0} reduce-scatter(%y), replica_groups=[2,4]<=[8], to_apply=%add
  ROOT %done = bf16[32,8]{1,0} async-done(%start)
}
"""


def test_text_of_a_tpu_program_is_read():
    """Its loops name no number of trips, and one collective runs in steps of one channel."""
    found = {(c.kind, c.times, c.bytes) for c in find_collectives(TPU, DEVICES)}
    assert found == {
        ("all-reduce", 12, 40),
        ("all-gather", 1, 2 * 32 * 8),
        ("all-reduce", 1, 40),
        ("all-reduce", 1, 28),
        ("collective-permute", 1, 16),
        ("reduce-scatter", 1, 2 * 4 * 16),
    }


def test_groups_by_the_names_of_axes_are_read():
    groups = "replica_groups=mesh['data'=1,'fsdp'=8] {'data'}"
    line = f"  ROOT %r = f32[3]{{0}} all-reduce(%w), {groups}, to_apply=%add"
    text = f"ENTRY %main (w: f32[3]) -> f32[3] {{\n  %w = f32[3]{{0}} parameter(0)\n{line}\n}}\n"
    assert find_collectives(text, DEVICES) == []
    (moved,) = find_collectives(text.replace("{'data'}", "{'fsdp'}"), DEVICES)
    assert moved.bytes == 12
