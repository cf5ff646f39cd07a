"""Products with written-out gradients, against the same in float64."""

from __future__ import annotations

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax import objectives
from bert_jax.config import devices
from bert_jax.models.matmul import matmul
from bert_jax.models.precision import KINDS
from bert_jax.objectives import network
from tests import toy

# M, K, N: either gradient of the weights turns the smaller factor; primes cannot be turned in
# parts.
SHAPES = [
    ((), 16, 8, 24),
    ((), 16, 24, 8),
    ((), 15, 7, 1),
    ((), 11, 13, 17),
    ((3, 2), 12, 4, 6),
    ((3, 2), 13, 6, 4),
    ((1,), 1, 1, 1),
]
ERROR = {
    "float32": 2e-6,
    "bfloat16_products": 2e-2,
    "bfloat16": 3e-2,
}  # of the largest: bfloat16 has eight bits


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("dtype", ERROR)
@pytest.mark.parametrize(("batch", "m", "k", "n"), SHAPES)
def test_values_and_gradients_are_those_of_the_plain_product(batch, m, k, n, dtype, turned):
    rng, kind = np.random.default_rng(0), KINDS[dtype]
    a, b, g = (rng.normal(size=(*batch, *shape)) for shape in ((m, k), (k, n), (m, n)))
    stored = b.swapaxes(-1, -2) if turned else b

    @jax.jit
    def compute(a, b, g):
        y, pull = jax.vjp(lambda a, b: matmul(a, b, kind, turned), a, b)
        return y, *pull(g.astype(y.dtype))

    y, da, db = compute(*(jnp.asarray(x, kind.result) for x in (a, stored, g)))
    assert {x.dtype for x in (y, da, db)} == {jnp.dtype(kind.result)}
    wanted = a @ b, g @ b.swapaxes(-1, -2), a.swapaxes(-1, -2) @ g
    for found, right in zip((y, da, db.swapaxes(-1, -2) if turned else db), wanted, strict=True):
        scale = np.abs(a).max() * np.abs(b).max() * np.abs(g).max()
        np.testing.assert_allclose(np.asarray(found, np.float64), right, atol=ERROR[dtype] * scale)


def test_factors_are_rounded_and_sums_are_not():
    a, b = (
        jnp.full((4, 300), 1.0),
        jnp.full((300, 8), 1 + 2.0**-9),
    )  # half a unit of the last place: rounds to even, 1
    found = matmul(a, b, KINDS["bfloat16_products"])
    np.testing.assert_array_equal(
        found, 300.0
    )  # 300 has nine bits: a sum kept in bfloat16 would not be it
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(matmul(a, b, KINDS["float32"]), 300 * (1 + 2.0**-9), rtol=1e-6)


@pytest.mark.slow
def test_a_network_of_rounded_factors_learns_in_the_same_direction():
    """The losses of the two types agree to bfloat16's digits, and their gradients point the same
    way.
    """
    found = {}
    for dtype in ("float32", "bfloat16_products"):
        config = toy.config(model__dtype=dtype, model__dropout=0.0, model__attention_dropout=0.0)
        batch, _ = toy.mask(toy.batch(4, 32, seed=1), config.masking)
        model = network.build(config, toy.VOCAB, train=True)

        def loss(params, batch=batch, model=model):
            outputs = network.outputs(model, params, batch, dropout=jax.random.key(0))
            total, count = objectives.TABLE["mlm"].loss(outputs["mlm"], batch)["mlm_loss"]
            return total / count

        found[dtype] = jax.jit(jax.value_and_grad(loss))(toy.init(config))
    (wanted, exact), (rounded, near) = found.values()
    assert wanted != rounded
    np.testing.assert_allclose(rounded, wanted, rtol=2e-3)
    flat = [np.concatenate([np.ravel(x) for x in jax.tree.leaves(tree)]) for tree in (exact, near)]
    cosine = flat[0] @ flat[1] / np.linalg.norm(flat[0]) / np.linalg.norm(flat[1])
    assert cosine > 0.999


@pytest.mark.parametrize("dtype", ["bfloat16_products", "bfloat16", "float32"])
@pytest.mark.slow
def test_factors_rounded_once_give_the_same_outputs(dtype):
    config = toy.config(model__dtype=dtype)
    params = jax.device_get(toy.init(config))
    ready = params | {"encoder": network.with_rounded_kernels(config.model, params["encoder"])}
    small = [leaf.dtype.itemsize == 2 for leaf in jax.tree.leaves(ready)]
    assert any(small) == (dtype != "float32")
    assert not all(small)
    batch, _ = toy.mask(toy.batch(4, 32, seed=1), config.masking)
    model = network.build(config, toy.VOCAB)
    read = jax.jit(lambda params: network.outputs(model, params, batch))
    jax.tree.map(np.testing.assert_array_equal, read(ready), read(params))


ODD = """
import jax, numpy as np
from bert_jax import sharding
from bert_jax.training import program
from bert_jax.benchmarks import ours
from tests import toy
for changes in (
    {"batch_size": 3, "sequence_length": 17,
     "model__hidden": 14, "model__heads": 2, "model__mlp": 21},
    {"batch_size": 1, "sequence_length": 11,
     "model__hidden": 7, "model__heads": 1, "model__mlp": 5},
    {"batch_size": 4, "sequence_length": 16,
     "model__scan": True, "model__remat": "full", "optim__accumulation": 2},
    {"batch_size": 4, "sequence_length": 16,
     "model__position": "rotary", "model__norm": "pre", "model__gated": True},
):
    config = toy.config(model__dtype="bfloat16_products", **changes)
    mesh = sharding.make_mesh(config.parallel)
    state = jax.jit(lambda seed: program.init_state(config, toy.VOCAB, seed))(np.uint32(0))
    layout = sharding.state_layout(jax.eval_shape(lambda: state), mesh, config.parallel)
    update = program.compile_step(config, ours.SPECIAL, toy.VOCAB, mesh, layout)
    batch = ours.rows(config)
    batch["tokens"] %= toy.VOCAB
    for _ in range(2):
        placed = sharding.place(batch, config.batch_size, mesh)
        state, metrics = update(state, placed, program.inputs_at(config, 1))
    assert np.isfinite(jax.device_get(metrics["loss"][0])), changes
print("trained")
"""


@pytest.mark.slow
def test_a_cpu_runs_what_its_compiler_makes_of_odd_shapes():
    """With all optimisations, which other tests do without: it may ask for products that the CPU
    does not have.
    """
    own, say = (
        os.environ | {"XLA_FLAGS": ""},
        {"capture_output": True, "text": True},
    )  # and as it is without tests
    done = subprocess.run([sys.executable, "-c", ODD], env=own, check=False, timeout=300, **say)
    assert done.stdout.split()[-1:] == ["trained"], done.stderr[-2000:]


@pytest.mark.slow
@pytest.mark.parametrize("scan", [False, True])
def test_models_for_accelerators_have_forward_derivatives(scan):
    """On accelerators a model is made of plain matmuls, so that jvp and linearize work.

    A Jacobian J is one linear map: v . (J u) by jvp is (J' v) . u by vjp.
    """
    config = toy.config(model__dtype="float32", model__attention="einsum", model__scan=scan)
    batch, _ = toy.mask(toy.batch(2, 16, seed=1), config.masking)
    rng = np.random.default_rng(0)

    def draw(tree):
        return jax.tree.map(lambda x: rng.normal(size=x.shape).astype(np.float32), tree)

    with devices.traced_for("tpu"):
        params = network.init(config, toy.VOCAB, np.uint32(0))
        model = network.build(config, toy.VOCAB)

        def outputs(params):
            return network.outputs(model, params, batch)["mlm"]

        along = draw(params)
        out, forward = jax.jvp(outputs, (params,), (along,))
        _, pull = jax.vjp(outputs, params)
        again, linear = jax.linearize(outputs, params)
        across = draw(out)
        (back,) = pull(across)
        np.testing.assert_allclose(out, again, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(linear(along), forward, rtol=1e-4, atol=1e-4)
    left = np.vdot(across, np.asarray(forward))
    pairs = zip(jax.tree.leaves(along), jax.tree.leaves(jax.device_get(back)), strict=True)
    assert left == pytest.approx(sum(np.vdot(a, b) for a, b in pairs), rel=1e-3)
    size = np.abs(out).max()
    np.testing.assert_allclose(outputs(params), out, atol=1e-5 * size)  # the CPU's way


def test_matmuls_of_accelerators_are_those_of_the_cpu():
    rng = np.random.default_rng(0)
    a, b = (jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in ((24, 16), (16, 32)))
    for kind in KINDS.values():
        of_cpu = matmul(a, b, kind)
        with devices.traced_for("tpu"):
            assert (
                str(jax.make_jaxpr(lambda a, b, kind=kind: matmul(a, b, kind))(a, b)).count(
                    "dot_general"
                )
                == 1
            )
            found = matmul(a, b, kind)
        assert found.dtype == of_cpu.dtype
        np.testing.assert_allclose(
            np.float32(found),
            np.float32(of_cpu),
            atol=1e-2 * float(np.abs(np.float32(of_cpu)).max()),
        )
