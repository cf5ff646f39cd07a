"""Products with written-out gradients, against the same in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.config import devices
from bert_jax.models.matmul import PRECISIONS, matmul

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
ERROR = {"float32": 2e-6, "bfloat16_products": 2e-2, "bfloat16": 3e-2}  # of the largest


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", ERROR)
@pytest.mark.parametrize(("batch", "m", "k", "n"), SHAPES)
def test_matmul_and_its_gradients_are_the_plain_ones(batch, m, k, n, dtype, transposed):
    rng, precision = np.random.default_rng(0), PRECISIONS[dtype]
    a, b, g = (rng.normal(size=(*batch, *shape)) for shape in ((m, k), (k, n), (m, n)))
    stored = b.swapaxes(-1, -2) if transposed else b

    @jax.jit
    def compute(a, b, g):
        y, pull = jax.vjp(lambda a, b: matmul(a, b, precision, transposed), a, b)
        return y, *pull(g.astype(y.dtype))

    y, da, db = compute(*(jnp.asarray(x, precision.result) for x in (a, stored, g)))
    assert {x.dtype for x in (y, da, db)} == {jnp.dtype(precision.result)}
    wanted = a @ b, g @ b.swapaxes(-1, -2), a.swapaxes(-1, -2) @ g
    db = db.swapaxes(-1, -2) if transposed else db
    scale = np.abs(a).max() * np.abs(b).max() * np.abs(g).max()
    for found, right in zip((y, da, db), wanted, strict=True):
        np.testing.assert_allclose(np.asarray(found, np.float64), right, atol=ERROR[dtype] * scale)


def test_matmul_rounds_factors_and_not_sums():
    """1 + 2**-9 is rounded to 1. 300 has nine bits, more than a sum in bfloat16 would keep."""
    a, b = jnp.full((4, 300), 1.0), jnp.full((300, 8), 1 + 2.0**-9)
    found = matmul(a, b, PRECISIONS["bfloat16_products"])
    np.testing.assert_array_equal(found, 300.0)
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(matmul(a, b, PRECISIONS["float32"]), 300 * (1 + 2.0**-9), rtol=1e-6)


def test_matmul_of_accelerators_is_one_product():
    rng = np.random.default_rng(0)
    a, b = (jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in ((24, 16), (16, 32)))
    for precision in PRECISIONS.values():
        of_cpu = matmul(a, b, precision)
        with devices.trace_for("tpu"):
            text = str(jax.make_jaxpr(lambda a, b, p=precision: matmul(a, b, p))(a, b))
            found = matmul(a, b, precision)
        assert text.count("dot_general") == 1
        assert found.dtype == of_cpu.dtype
        largest = float(np.abs(np.float32(of_cpu)).max())
        np.testing.assert_allclose(np.float32(found), np.float32(of_cpu), atol=1e-2 * largest)
