"""`bert-jax plan` and what it reads from a compiled program, held against closed forms.

The compilers of TPUs and GPUs are tried where they are installed, in tests marked slow; all else is
compiled for eight fake CPU devices.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import math
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec

from bert_jax import sharding
from bert_jax.config import costs, devices, knobs, load_file, override, resolve
from bert_jax.errors import ConfigError
from bert_jax.interop import vocabulary
from bert_jax.planning import hlo, matmuls, search, targets, update
from tests import toy
from tests.texts import ROOT

TPU = pytest.mark.skipif(
    sys.version_info < (3, 12) or importlib.util.find_spec("libtpu") is None,
    reason="the extra tpu is not installed, or Python is older than 3.12",
)
CUDA = pytest.mark.skipif(
    sys.version_info < (3, 12)
    or not any(importlib.util.find_spec(f"jax_cuda{n}_plugin") for n in (12, 13)),
    reason="the extra cuda is not installed, or Python is older than 3.12",
)
KEYS = (  # of the JSON, that people rely on
    *("target", "devices", "fits", "peak_bytes", "memory_bytes", "argument_bytes", "temp_bytes"),
    *("flops", "collectives", "largest_collective_rows", "overlap", "float32_matmuls"),
    *("attention", "dtype", "remat", "roofline_ms", "mfu_bound", "hours", "cost"),
    *("largest_batch", "advice"),
)


def config_of(name: str, *changes: tuple[str, str]) -> knobs.Config:
    tree = load_file(str(ROOT / "configs" / name))
    for path, value in changes:
        override(tree, path, value)
    return resolve(tree)


def compiled(function, *arguments, **jit):
    return hlo.parse(jax.jit(function, **jit).lower(*arguments).compile().as_text())


# --- reading a program ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mesh():
    return sharding.make_mesh(knobs.Parallel())


def summed_over_devices(mesh, function):
    specs = {"in_specs": PartitionSpec("data"), "out_specs": PartitionSpec()}
    return jax.shard_map(function, mesh=mesh, check_vma=False, **specs)


def test_collectives_in_a_loop_count_with_its_trips(mesh):
    def five_times(x):
        def body(total, _):
            return jax.lax.psum(jnp.sin(total) + x[0], ("data",)), None

        return jax.lax.scan(body, jnp.zeros(100), None, length=5)[0]

    program = compiled(summed_over_devices(mesh, five_times), jnp.ones((8, 100)))
    (reduced,) = program.collectives()
    assert (reduced.kind, reduced.times, reduced.bytes) == ("all-reduce", 5, 400)
    assert [shape.dims for shape in reduced.operands] == [(100,)]


@pytest.mark.parametrize(
    ("function", "kind", "size"),
    [
        (lambda x: jax.lax.all_gather(x, "data"), "all-gather", 8 * 4 * 6 * 8),
        (lambda x: jax.lax.psum_scatter(x.reshape(8, 6), "data"), "reduce-scatter", 4 * 48),
    ],
)
def test_bytes_of_a_collective_are_those_of_its_larger_side(mesh, function, kind, size):
    specs = {"in_specs": PartitionSpec("data"), "out_specs": PartitionSpec("data")}
    mapped = jax.shard_map(function, mesh=mesh, check_vma=False, **specs)
    (collective,) = compiled(mapped, jnp.ones((64, 6))).collectives()
    assert collective.kind == kind
    assert collective.bytes == size


PIPELINE = """HloModule m, is_scheduled=true

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

ENTRY %main (x: (s32[], f32[10]), y: bf16[4,8]) -> bf16[32,8] {
  %x = (s32[], f32[10]{0}) parameter(0)
  %y = bf16[4,8]{1,0} parameter(1)
  %while.3 = (s32[], f32[10]{0}) while(%x), condition=%condition, body=%body
  %start = ((bf16[4,8]{1,0}), bf16[32,8]{1,0}) async-start(%y), calls=%beside
  %z = f32[10]{0} custom-call(%y), custom_call_target="tpu_custom_call", config={"a":{
"b":"{c: 1}"
}}, metadata={op_name="splash"}
  %reduce = (f32[10]{0}, f32[10]{0}) all-reduce-start(f32[10]{0} %z), to_apply=%add
  ROOT %done = bf16[32,8]{1,0} async-done(%start)
}
"""


def test_a_program_of_a_tpu_is_read():
    """Its loops name no number of trips, and some collectives run beside the rest."""
    program = hlo.parse(PIPELINE)
    found = {(c.kind, c.times, c.bytes, c.asynchronous) for c in program.collectives()}
    assert found == {
        ("all-reduce", 12, 40, False),
        ("all-gather", 1, 2 * 32 * 8, True),
        ("all-reduce", 1, 40, True),
    }
    assert program.custom_calls() == {"tpu_custom_call splash": 1}


def test_traffic_is_what_is_read_and_written():
    """A loop that adds one row of a matrix at a time reads each once, not the matrix each time."""
    rows, width = 64, 1000

    def total(matrix):
        def body(i, carry):
            return carry + jax.lax.dynamic_index_in_dim(matrix, i, keepdims=False)

        return jax.lax.fori_loop(0, rows, body, jnp.zeros(width))

    moved = compiled(total, jnp.ones((rows, width))).traffic()
    least = 3 * rows * 4 * width  # a row, the sum before and after
    assert least <= moved < 1.5 * least


NEAR = """HloModule m, is_scheduled=true

ENTRY %main (x: f32[64,1024]) -> f32[64,1024] {
  %x = f32[64,1024]{1,0:T(8,128)} parameter(0)
  %near = (f32[64,1024]{1,0:T(8,128)S(1)}, f32[64,1024]{1,0:T(8,128)}, u32[]{:S(2)}) copy-start(%x)
  %here = f32[64,1024]{1,0:T(8,128)S(1)} copy-done(%near)
  %sum = f32[64,1024]{1,0:T(8,128)S(1)} add(%here, %here)
  %of = ((f32[64,1024]{1,0:T(8,128)}), f32[8,1024]{1,0:T(8,128)S(1)}, s32[]{:S(2)}) slice-start(%x)
  %part = f32[8,1024]{1,0:T(8,128)S(1)} slice-done(%of)
  %room = f32[64,1024]{1,0:T(8,128)} custom-call(), custom_call_target="AllocateBuffer"
  ROOT %out = f32[64,1024]{1,0:T(8,128)} multiply(%sum, %here)
}
"""


def test_traffic_of_a_tpu_leaves_out_what_stays_on_the_core():
    """The copy to the core and the slice are read once, and the product is written once."""
    assert hlo.parse(NEAR).traffic() == 4 * 1024 * (64 + 8 + 64)
    everywhere = hlo.parse(NEAR.replace("S(1)", "")).traffic()
    assert everywhere == 4 * 1024 * (2 * 64 + 3 * 64 + 2 * 8 + 3 * 64)


STEPS = """HloModule m, is_scheduled=true

%begin (p: f32[10]) -> f32[10] {
  %p = f32[10]{0} parameter(0)
  ROOT %all-reduce.1 = f32[10]{0} all-reduce(%p), channel_id=3
}

%beside (q: f32[10]) -> f32[10] {
  %q = f32[10]{0} parameter(0)
  ROOT %all-reduce.2 = f32[10]{0} all-reduce(%q), channel_id=3
}

%alone (r: f32[5]) -> f32[5] {
  %r = f32[5]{0} parameter(0)
  ROOT %all-reduce.3 = f32[5]{0} all-reduce(%r), channel_id=4
}

%part (all: f32[12,100], i: s32[]) -> f32[100] {
  %all = f32[12,100]{1,0} parameter(0)
  %i = s32[] parameter(1)
  %inner = f32[1,100]{1,0} fusion(%all, %i), kind=kLoop, calls=%slice
  ROOT %flat = f32[100]{0} bitcast(%inner)
}

%slice (whole: f32[12,100], at: s32[]) -> f32[1,100] {
  %whole = f32[12,100]{1,0} parameter(0)
  %at = s32[] parameter(1)
  ROOT %cut = f32[1,100]{1,0} dynamic-slice(%whole, %at), dynamic_slice_sizes={1,100}
}

ENTRY %main (x: f32[10], y: f32[5], z: f32[12,100], n: s32[]) -> f32[100] {
  %x = f32[10]{0} parameter(0)
  %y = f32[5]{0} parameter(1)
  %z = f32[12,100]{1,0} parameter(2)
  %n = s32[] parameter(3)
  %start = f32[10]{0} fusion(%x), kind=kCustom, calls=%begin
  %done = f32[10]{0} fusion(%start), kind=kCustom, calls=%beside
  %at-once = f32[5]{0} fusion(%y), kind=kCustom, calls=%alone
  %taken = ((f32[12,100]{1,0}, s32[]), f32[100]{0}, u32[]) fusion-start(%z, %n), calls=%part
  ROOT %out = f32[100]{0} fusion-done(%taken)
}
"""


def test_an_asynchronous_collective_in_steps_counts_once():
    found = {(c.bytes, c.asynchronous) for c in hlo.parse(STEPS).collectives()}
    assert found == {(40, True), (20, False)}


def test_a_fusion_reads_what_it_slices_inside():
    """Also where another fusion within it does, and where it runs beside others."""
    steps, alone, part = 2 * 2 * 40, 2 * 20, 400 + 4 + 400
    assert hlo.parse(STEPS).traffic() == steps + alone + part


# --- the update -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def target():
    return targets.find("cpu:8")


SMALL = {"batch_size": 32, "sequence_length": 32, "model__layers": 2}


def plan(target, **overrides):
    config = toy.config(**{**SMALL, **overrides})
    return update.compile_update(config, target, toy.VOCAB)


@pytest.mark.slow
def test_an_update_reduces_each_gradient_once(target):
    """The token table has two uses, whose gradients are added before they leave the device."""
    result = plan(target)
    moved = sum(c.bytes * c.times for c in result.collectives if c.kind == "all-reduce")
    gradients = 4 * result.parameters
    assert gradients <= moved < 1.02 * gradients + 2_000
    assert result.largest_rows == 0
    assert result.fits
    assert result.roofline() == {"compute": None, "memory": None, "network": None}


@pytest.mark.parametrize(
    ("layout", "scan"),
    [
        ({"fsdp": 8}, True),
        ({"fsdp": 8}, False),
    ],
)
@pytest.mark.slow
def test_activations_stay_on_their_device(target, layout, scan, monkeypatch):
    overrides = {f"parallel__{name}": size for name, size in layout.items()}
    overrides |= {"model__scan": scan, "batch_size": 64}
    own = 64 // layout["fsdp"]
    most = plan(target, **overrides).largest_rows
    assert most == 0
    # Left to itself, XLA moves those of other devices.
    monkeypatch.setattr(sharding, "_splitting", lambda: None)
    assert plan(target, **overrides).largest_rows > own


def test_matmuls_of_each_device_are_counted(mesh):
    """Eight devices multiply 4 rows each, forwards and twice backwards."""
    specs = {"in_specs": (PartitionSpec("data"), PartitionSpec()), "out_specs": PartitionSpec()}
    mapped = jax.shard_map(
        lambda x, w: jax.lax.psum(jnp.sum(x @ w), "data"), mesh=mesh, check_vma=False, **specs
    )
    gradient = jax.make_jaxpr(jax.grad(mapped, argnums=(0, 1)))
    counted = matmuls.count(gradient(jnp.ones((32, 5)), jnp.ones((5, 7))).jaxpr)
    assert sum(one.flops * times for one, times in counted.items()) == 3 * 2 * 32 * 5 * 7


@pytest.mark.parametrize("remat", ["none", "dots", pytest.param("full", marks=pytest.mark.slow)])
def test_matmuls_are_counted_with_those_computed_again(target, remat):
    result = plan(target, model__remat=remat)
    config = result.config
    ours = costs.flops_per_step(config, toy.VOCAB) / 8
    assert result.flops == ours
    forward = 2 * 32 * 32 * costs.layer_matrices(config) * 2 / 8  # of both layers
    scores = 2 * 2 * 2 * 32 * 32 * 32 * config.model.hidden / 8
    again = forward + scores if remat == "full" else 0
    assert result.matmul_flops == pytest.approx(ours + again, rel=0.03)


@pytest.mark.slow  # tests/models/test_knobs.py counts what the backward pass keeps
def test_memory_falls_with_what_is_computed_again(target):
    kinds = ("none", "dots", "full")
    held = [
        plan(
            target, model__remat=kind, model__layers=4, model__scan=True, batch_size=256
        ).temp_bytes
        for kind in kinds
    ]
    assert held == sorted(held, reverse=True)
    assert len(set(held)) == 3


@pytest.mark.slow
def test_the_update_gives_its_state_back_in_place(target):
    """Under jit and pmap alike: the state is not held twice."""
    for step in ("jit", "pmap"):
        result = plan(target, parallel__step=step)
        state = 3 * 4 * result.parameters
        assert state < result.argument_bytes < 1.3 * state + 100_000
        assert result.peak_bytes < result.argument_bytes + result.temp_bytes + 0.1 * state


@pytest.mark.slow
def test_float32_matmuls_of_a_bfloat16_model_are_found(target):
    assert plan(target, model__dtype="bfloat16").float32_matmuls == 0
    assert plan(target, model__dtype="float32").float32_matmuls == 0  # as was asked for


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


def test_gradients_that_xla_joins_or_pads_are_no_activations(target):
    known = {(128, 1000)}
    assert update._is_parameter((128, 1008), known)
    assert not update._is_parameter((128, 1100), known)
    assert not update._is_parameter((130, 1008), known)


# --- the largest batch ----------------------------------------------------------------------------


@pytest.mark.parametrize("most", [0, 1, 3, 17, 100, 255])
def test_the_largest_batch_is_found_by_few_compilations(target, most):
    tried = []

    def compile_with(rows):
        tried.append(rows)
        return dataclasses.replace(known, peak_bytes=10 if rows <= 8 * most else 2**60)

    known = dataclasses.replace(plan(target), config=toy.config(batch_size=8 * 256))
    found = search.largest_batch(known, compile_with) or 0
    assert len(tried) <= search.COMPILATIONS
    assert found <= 8 * most
    assert found == max([rows for rows in tried if rows <= 8 * most], default=0)
    assert 8 * most - found <= 8 * max(search.ROUND, 256 // 2**search.COMPILATIONS)


@pytest.mark.parametrize(("scan", "loop"), [(False, "--config.model.scan=true "), (True, "")])
@pytest.mark.slow
def test_advice_makes_a_loop_where_remat_needs_one(target, scan, loop):
    fits = plan(target, model__scan=scan)
    lines = search.advice(dataclasses.replace(fits, peak_bytes=None))
    assert lines[0].startswith(f"{loop}--config.model.remat=dots: ")
    assert lines[1].startswith(f"{loop}--config.model.remat=full: ")


# --- the command ----------------------------------------------------------------------------------


def run(*words: str, **variables: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "bert_jax.cli", "plan", *words],
        cwd=ROOT,
        env=os.environ | variables,
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout, done.stderr


def test_plan_prints_a_table_and_writes_json(tmp_path):
    output = tmp_path / "new" / "plan.json"
    code, printed, said = run(
        *("--config=configs/tiny.py", "--target=cpu:8", "--price=2.5", f"--output={output}")
    )
    assert code == 0, said
    assert "cpu:8: 8 x cpu" in printed
    assert "fits in" in printed
    assert "compiling for cpu:8: 64 rows a step" in said
    found = json.loads(output.read_text())
    assert set(KEYS) <= set(found)
    assert (found["target"], found["devices"], found["fits"]) == ("cpu:8", 8, True)
    assert found["roofline_ms"] == {"compute": None, "memory": None, "network": None}
    config = config_of("tiny.py")
    assert found["flops"] == costs.flops_per_step(config, vocabulary.assumed_size(config)) / 8


FULL = ("--config.model.remat=full", "--config.model.scan=true")
LONG = ("--config.sequence_length=512", "--config.batch_size=64", "--config.model.remat=dots")


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("tiny.py", "cpu:8", FULL),
        ("pretrain.py:tiny", "cpu:8", ()),
        ("pretrain.py:mini", "cpu:8", FULL),
        ("pretrain.py:small", "cpu:8", LONG),
        pytest.param("pretrain.py:base", "v5e:2x4", ("--config.model.layers=2",), marks=TPU),
        pytest.param(
            "pretrain.py:base",
            "h100x8",
            ("--config.batch_size=2048", "--config.model.attention_dropout=0"),
            marks=CUDA,
        ),
    ],
)
def test_a_dry_run_estimates_the_peak(name, kind, words, tmp_path):
    output = tmp_path / "plan.json"
    code, _, said = run(
        *(f"--config=configs/{name}", f"--target={kind}", "--no-search", f"--output={output}"),
        *words,
        XLA_FLAGS="",  # as a user compiles
    )
    assert code == 0, said
    found = json.loads(output.read_text())
    assert found["estimated_bytes"] == pytest.approx(found["peak_bytes"], rel=0.15)


@pytest.mark.parametrize("name", ["v5e:2x4", "h100x8"])
def test_a_compiler_that_is_not_installed_is_named(name, monkeypatch):
    extra = "tpu" if name.startswith("v5e") else "cuda"
    monkeypatch.setattr(targets.sys, "version_info", (3, 11))
    with pytest.raises(ConfigError, match=r"needs Python 3\.12 or newer"):
        targets.find(name)
    monkeypatch.setattr(targets.sys, "version_info", (3, 12))
    monkeypatch.setattr(targets.importlib.util, "find_spec", lambda module: None)
    with pytest.raises(ConfigError, match="not installed") as error:
        targets.find(name)
    assert f"[{extra}]'" in error.value.hint


# --- compilers of accelerators --------------------------------------------------------------------

BASE = ("--config=configs/pretrain.py:base", "--config.model.layers=2", "--no-search")


@pytest.mark.slow
@pytest.mark.timeout(1200)
@TPU
def test_a_tpu_compiles_the_update(tmp_path):
    output = tmp_path / "plan.json"
    code, _, said = run(*BASE, "--target=v5e:2x4", "--config.batch_size=256", f"--output={output}")
    assert code == 0, said
    found = json.loads(output.read_text())
    assert (found["devices"], found["dtype"], found["fits"]) == (8, "bfloat16", True)
    assert found["float32_matmuls"] == 0
    assert 0 < found["mfu_bound"] < 1
    assert found["overlap"] > 0.2  # all but the table's gradient, which is the last
    assert found["largest_collective_rows"] == 0


@pytest.mark.slow
@pytest.mark.timeout(1200)
@CUDA
def test_a_gpu_compiles_the_update_with_fused_attention(tmp_path):
    output = tmp_path / "plan.json"
    dropout = "--config.model.attention_dropout=0"
    code, _, said = run(*BASE, dropout, "--target=h100x8", f"--output={output}")
    assert code == 0, said
    found = json.loads(output.read_text())
    assert (found["devices"], found["attention"], found["fits"]) == (8, "cudnn", True)
    assert found["overlap"] > 0.9
    assert found["largest_collective_rows"] == 0
    assert math.isclose(found["memory_bytes"], 80 * 2**30, rel_tol=0.01)


def test_options_that_a_compiler_does_not_know_are_left_out(caplog):
    options = {"xla_embed_ir_in_executable": True, "xla_of_another_version": True}
    assert devices.known(options) == {"xla_embed_ir_in_executable": True}
    assert "does not know xla_of_another_version" in caplog.text
