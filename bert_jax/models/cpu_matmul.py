"""The matmul of CPUs: its gradients are written out, so that each is one that a CPU is fast at.

By default jax gives a gradient the type of its primal, and computes matmuls of transposed factors.
On a CPU a transposed left factor is slow, and makes the matmul run in float32 whatever its type, so
it is transposed beforehand. A function with a gradient of its own has no `jax.jvp`: accelerators
use `matmul.py`.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp

from bert_jax.models.precision import Kind

# A matmul with a smaller side runs in float32: it costs nothing, and a CPU lacks some in bfloat16.
SMALL = 8


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def matmul(a: jax.Array, b: jax.Array, kind: Kind, turned: bool = False) -> jax.Array:
    """Compute a [..., M, K] @ b [..., K, N], or a @ b.T of b [..., N, K] where `turned`."""
    return _forward(a, b, kind, turned)[0]


def _forward(a: jax.Array, b: jax.Array, kind: Kind, turned: bool) -> tuple[jax.Array, tuple]:
    left, right = a.astype(kind.factors), b.astype(kind.factors)
    types = jnp.zeros(0, a.dtype), jnp.zeros(0, b.dtype)
    return _dot(left, right, turned, kind.result), (left, right, *types)


def _backward(
    kind: Kind, turned: bool, kept: tuple, gradient: jax.Array
) -> tuple[jax.Array, jax.Array]:
    left, right, like_a, like_b = kept
    gradient = gradient.astype(kind.factors)
    da = _dot(gradient, right, not turned, kind.result)
    db = _outer(gradient, left) if turned else _outer(left, gradient)
    return da.astype(like_a.dtype), db.astype(like_b.dtype)


matmul.defvjp(_forward, _backward)


def _dot(a: jax.Array, b: jax.Array, turned: bool, result: str) -> jax.Array:
    batch = tuple(range(a.ndim - 2))
    contracted = (a.ndim - 1,), (b.ndim - 1 if turned else b.ndim - 2,)
    sums = result
    if min(*a.shape[-2:], *b.shape[-2:]) < SMALL:
        a, b, sums = _widened(a), _widened(b), "float32"
    dimensions = (contracted, (batch, batch))
    out = jax.lax.dot_general(a, b, dimensions, preferred_element_type=jnp.dtype(sums))
    return out.astype(result)


def _widened(x: jax.Array) -> jax.Array:
    """Return x in float32, with the precision of its own type.

    The precision is reduced explicitly because the compiler drops a rounding that is undone at
    once.
    """
    wide = x.astype(jnp.float32)
    if x.dtype == jnp.float32:
        return wide
    return jax.lax.reduce_precision(wide, exponent_bits=8, mantissa_bits=7)


def _outer(a: jax.Array, b: jax.Array) -> jax.Array:
    """Compute a.T @ b [..., K, N] of a [..., M, K] and b [..., M, N] in float32.

    On a CPU the smaller of the two factors is the one that is transposed.
    """
    if a.shape[-1] > b.shape[-1] and _parts(b.shape[-1]) > 1:
        return _turn(_outer(b, a))
    if _parts(a.shape[-2]) == 1:
        a, b = _widened(a), _widened(b)
    return _dot(_turn(a), b, False, "float32")


def _turn(x: jax.Array) -> jax.Array:
    """Return x.mT as an array of its own.

    The compiler would fuse a plain transpose back into the matmul; it does not fuse a transpose
    whose rows are in parts that are joined only afterwards.
    """
    *batch, m, k = x.shape
    parts = _parts(m)
    if parts == 1:
        return x.mT
    return jnp.moveaxis(x.reshape(*batch, parts, m // parts, k), -1, -3).reshape(*batch, k, m)


def _parts(rows: int) -> int:
    """Return into how many equal parts, of several rows each, rows can be cut; 1 if they cannot."""
    return next((n for n in (2, 3, 5, 7) if rows % n == 0 and rows > n), 1)
