"""Matrix products whose factors have one type and whose result has another.

Sums of bfloat16 factors are kept in float32. On an accelerator a product and its gradients are
plain `dot_general`. On a CPU the gradients are written out here, because the gradients that jax
derives multiply a transposed left factor. A CPU is slow at that, and does it in float32 whatever
the type. A function with gradients of its own has no `jax.jvp`, so accelerators do not use it.

Accelerators round float32 factors, unless the environment has JAX_DEFAULT_MATMUL_PRECISION=highest:
an H100 to TF32, a TPU to bfloat16. So only a CPU multiplies all bits of float32 factors.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from bert_jax.config import devices


class Precision(NamedTuple):
    """The types of a matmul's factors and of its result."""

    factors: str
    result: str


PRECISIONS = {  # by compute type of a model
    # A module that is used outside a network; a network replaces auto by what suits the machine.
    "auto": Precision("float32", "float32"),
    "float32": Precision("float32", "float32"),
    "bfloat16_products": Precision("bfloat16", "float32"),
    "bfloat16": Precision("bfloat16", "bfloat16"),
}
# A matmul with a smaller side runs in float32: it costs nothing, and a CPU lacks some in bfloat16.
SMALL = 8


def matmul(a: Array, b: Array, precision: Precision, transposed: bool = False) -> Array:
    """Compute a [..., M, K] @ b [..., K, N]; if `transposed`, a @ b.T with b [..., N, K]."""
    if devices.find_kind() == "cpu":
        return _multiply_on_cpu(a, b, precision, transposed)
    left = a.astype(precision.factors)
    right = b.astype(precision.factors)
    return _contract(left, right, transposed, precision.result)


def _contract(a: Array, b: Array, transposed: bool, result: str) -> Array:
    batch = tuple(range(a.ndim - 2))
    contracted = (a.ndim - 1,), (b.ndim - 1 if transposed else b.ndim - 2,)
    return jax.lax.dot_general(
        a, b, (contracted, (batch, batch)), preferred_element_type=jnp.dtype(result)
    )


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def _multiply_on_cpu(a: Array, b: Array, precision: Precision, transposed: bool) -> Array:
    return _forward(a, b, precision, transposed)[0]


def _forward(
    a: Array, b: Array, precision: Precision, transposed: bool
) -> tuple[Array, tuple[Array, ...]]:
    left = a.astype(precision.factors)
    right = b.astype(precision.factors)
    # Only arrays can be stored for the backward pass: empty arrays carry the two types.
    types = jnp.zeros(0, a.dtype), jnp.zeros(0, b.dtype)
    return _contract_on_cpu(left, right, transposed, precision.result), (left, right, *types)


def _backward(
    precision: Precision, transposed: bool, stored: tuple[Array, ...], gradient: Array
) -> tuple[Array, Array]:
    left, right, like_a, like_b = stored
    gradient = gradient.astype(precision.factors)
    # With gradient g of y = a @ b, a has g @ b.T and b has a.T @ g.
    # With y = a @ b.T, a has g @ b and b has g.T @ a.
    of_a = _contract_on_cpu(gradient, right, not transposed, precision.result)
    of_b = _sum_outer(gradient, left) if transposed else _sum_outer(left, gradient)
    return of_a.astype(like_a.dtype), of_b.astype(like_b.dtype)


_multiply_on_cpu.defvjp(_forward, _backward)


def _contract_on_cpu(a: Array, b: Array, transposed: bool, result: str) -> Array:
    if min(*a.shape[-2:], *b.shape[-2:]) < SMALL:
        return _contract(_widen(a), _widen(b), transposed, "float32").astype(result)
    return _contract(a, b, transposed, result)


def _widen(x: Array) -> Array:
    """Convert x to float32, without gaining precision.

    The precision is reduced explicitly, because the compiler drops a rounding that is undone at
    once.
    """
    wide = x.astype(jnp.float32)
    if x.dtype == jnp.float32:
        return wide
    return jax.lax.reduce_precision(wide, exponent_bits=8, mantissa_bits=7)


def _sum_outer(a: Array, b: Array) -> Array:
    """Compute a.T @ b [..., K, N] from a [..., M, K] and b [..., M, N].

    The smaller of the two is transposed.
    """
    if a.shape[-1] > b.shape[-1] and _count_parts(b.shape[-1]) > 1:
        return _turn(_sum_outer(b, a))
    if _count_parts(a.shape[-2]) == 1:
        a = _widen(a)
        b = _widen(b)
    return _contract_on_cpu(_turn(a), b, False, "float32")


def _turn(x: Array) -> Array:
    """Return the transpose x.mT, computed as an array of its own.

    The compiler would fuse a plain transpose back into the matmul. The compiler does not fuse a
    transpose whose rows are in parts that are joined afterwards.
    """
    *batch, m, k = x.shape
    parts = _count_parts(m)
    if parts == 1:
        return x.mT
    # [..., parts, m / parts, k] to [..., k, parts, m / parts]
    return jnp.moveaxis(x.reshape(*batch, parts, m // parts, k), -1, -3).reshape(*batch, k, m)


def _count_parts(rows: int) -> int:
    """Return the number of equal parts that `rows` rows are cut into; 1 if they cannot be cut."""
    return next((n for n in (2, 3, 5, 7) if rows % n == 0 and rows > n), 1)
