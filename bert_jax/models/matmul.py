"""Matrix products whose gradients are written out, so that each of the three is one the backend is fast at.

A product's factors have one type, and its result another: sums of bfloat16 factors are kept in float32. Left to itself
jax gives a gradient the type of what it is the gradient of, and asks for products of transposed factors. On a CPU a
transposed left factor is slow, and makes the product run in float32 whatever its type, so it is turned before.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp


class Kind(NamedTuple):
    """The types of a product's factors and of its result."""

    factors: str
    result: str


KINDS = {  # by compute type
    "auto": Kind(
        "float32", "float32"
    ),  # of a module by itself; a network settles it by the machine (`defaults.py`)
    "float32": Kind("float32", "float32"),
    "bfloat16_products": Kind("bfloat16", "float32"),
    "bfloat16": Kind("bfloat16", "bfloat16"),
}


SMALL = 8  # products with a side below are made in float32: they cost nothing, and a CPU lacks some in bfloat16


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def product(a: jax.Array, b: jax.Array, kind: Kind, turned: bool = False) -> jax.Array:
    """a [..., M, K] @ b [..., K, N], or @ b.T of b [..., N, K] where that is how it is stored."""
    return _forward(a, b, kind, turned)[0]


def _forward(a: jax.Array, b: jax.Array, kind: Kind, turned: bool) -> tuple[jax.Array, tuple]:
    left, right = a.astype(kind.factors), b.astype(kind.factors)
    types = jnp.zeros(0, a.dtype), jnp.zeros(0, b.dtype)
    return _dot(left, right, turned, kind.result), (left, right, *types)


def _backward(
    kind: Kind, turned: bool, kept: tuple, gradient: jax.Array
) -> tuple[jax.Array, jax.Array]:
    left, right, of_a, of_b = kept
    gradient = gradient.astype(kind.factors)
    da = _dot(gradient, right, not turned, kind.result)
    db = _outer(gradient, left) if turned else _outer(left, gradient)
    return da.astype(of_a.dtype), db.astype(of_b.dtype)


product.defvjp(_forward, _backward)


def _dot(a: jax.Array, b: jax.Array, turned: bool, result: str) -> jax.Array:
    batch = tuple(range(a.ndim - 2))
    contracted = (a.ndim - 1,), (b.ndim - 1 if turned else b.ndim - 2,)
    kept = result
    if min(*a.shape[-2:], *b.shape[-2:]) < SMALL:
        a, b, kept = _widened(a), _widened(b), "float32"
    found = jax.lax.dot_general(
        a, b, (contracted, (batch, batch)), preferred_element_type=jnp.dtype(kept)
    )
    return found.astype(result)


def _widened(x: jax.Array) -> jax.Array:
    """In float32 and rounded all the same: a rounding that is undone at once the compiler leaves out."""
    wide = x.astype(jnp.float32)
    return (
        wide
        if x.dtype == jnp.float32
        else jax.lax.reduce_precision(wide, exponent_bits=8, mantissa_bits=7)
    )


def _outer(a: jax.Array, b: jax.Array) -> jax.Array:
    """a [..., M, K] and b [..., M, N] to a.T @ b [..., K, N] in float32; on a CPU, of the two the smaller is turned."""
    if jax.default_backend() != "cpu":
        return _dot(a.mT, b, False, "float32")
    if a.shape[-1] > b.shape[-1] and _parts(b.shape[-1]) > 1:
        return _turn(_outer(b, a))
    if _parts(a.shape[-2]) == 1:
        a, b = _widened(a), _widened(b)
    return _dot(_turn(a), b, False, "float32")


def _turn(x: jax.Array) -> jax.Array:
    """x.mT as an array of its own: the compiler would take the turn back into the product.

    It does not where the turn leaves rows in parts that are joined only then.
    """
    *batch, m, k = x.shape
    parts = _parts(m)
    if parts == 1:
        return x.mT
    return jnp.moveaxis(x.reshape(*batch, parts, m // parts, k), -1, -3).reshape(*batch, k, m)


def _parts(rows: int) -> int:
    """Into how many parts of more than one row they can be cut; 1 if they cannot."""
    return next((n for n in (2, 3, 5, 7) if rows % n == 0 and rows > n), 1)
