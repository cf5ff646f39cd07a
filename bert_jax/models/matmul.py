"""Matmuls whose factors have one type and whose result has another.

Sums of bfloat16 factors are kept in float32. On an accelerator a matmul is a plain dot_general; on
a CPU its gradients are written out (`cpu_matmul.py`).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from bert_jax.config import devices
from bert_jax.models import cpu_matmul
from bert_jax.models.precision import Kind


def matmul(a: jax.Array, b: jax.Array, kind: Kind, transposed: bool = False) -> jax.Array:
    """Compute a [..., M, K] @ b [..., K, N], or a @ b.T of b [..., N, K] where `transposed`."""
    if devices.device() == "cpu":
        return cpu_matmul.matmul(a, b, kind, transposed)
    batch = tuple(range(a.ndim - 2))
    contracted = (a.ndim - 1,), (b.ndim - 1 if transposed else b.ndim - 2,)
    left, right = a.astype(kind.factors), b.astype(kind.factors)
    result = jnp.dtype(kind.result)
    return jax.lax.dot_general(
        left, right, (contracted, (batch, batch)), preferred_element_type=result
    )
