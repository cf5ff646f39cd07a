"""Pooling of a row's vectors into one, without a head."""

from __future__ import annotations

import jax
import jax.numpy as jnp

POOLINGS = ("mean", "cls")


def pooled(hidden: jax.Array, segments: jax.Array, how: str) -> jax.Array:
    """Return the mean over all real tokens, [CLS] and [SEP] included, or the vector of [CLS].

    Args:
      hidden: vectors [B, L, D].
      segments: int32 [B, L], 0 is padding.
      how: one of POOLINGS.

    Returns:
      float32 [B, D].
    """
    hidden = hidden.astype(jnp.float32)
    if how == "cls":
        return hidden[:, 0]
    real = (segments > 0).astype(jnp.float32)[..., None]  # [B, L, 1]
    return jnp.sum(hidden * real, 1) / jnp.maximum(jnp.sum(real, 1), 1.0)
