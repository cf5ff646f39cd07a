"""Position encodings that are computed, not learned."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np


def sinusoids(length: int, width: int) -> np.ndarray:
    """Sine in the even columns, cosine in the odd ones, wavelengths from 2 pi to 10000 * 2 pi: [length, width]."""
    angle = np.arange(length)[:, None] / 10_000.0 ** (2 * (np.arange(width) // 2) / width)[None, :]
    return np.where(np.arange(width)[None, :] % 2 == 0, np.sin(angle), np.cos(angle)).astype(
        np.float32
    )


def rotate(x: jax.Array, positions: jax.Array) -> jax.Array:
    """Rotary positions: turns each pair (i, i + d/2) of a head by an angle proportional to the position."""
    half = x.shape[-1] // 2
    frequency = jnp.asarray(10_000.0 ** (-np.arange(half) / half), jnp.float32)
    angle = (
        positions[:, :, None, None].astype(jnp.float32) * frequency[None, None, None, :]
    )  # [B, L, 1, d/2]
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    first, second = x[..., :half].astype(jnp.float32), x[..., half:].astype(jnp.float32)
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], -1).astype(
        x.dtype
    )


def slopes(heads: int) -> np.ndarray:
    """ALiBi's slope of each head: a geometric series from 2**(-8/n) to 2**-8 for a power of two n, as published.

    For other numbers, those of the power of two below, then every other one of the power of two above.
    """
    below = 1 << (heads.bit_length() - 1)
    series = [2.0 ** (-8 * (i + 1) / below) for i in range(below)]
    series += [2.0 ** (-4 * (i + 1) / below) for i in range(0, 2 * below, 2)]
    return np.asarray(series[:heads], np.float32)


def alibi(positions: jax.Array, heads: int, keys: jax.Array | None = None) -> jax.Array:
    """What ALiBi adds to the scores, to both sides alike as encoders need it: -slope * |i - j|, [B, heads, L, K].

    `keys` are the positions of what is seen, where it is not what sees.
    """
    seen = positions if keys is None else keys
    distance = jnp.abs(positions[:, :, None] - seen[:, None, :]).astype(jnp.float32)  # [B, L, K]
    return -jnp.asarray(slopes(heads))[None, :, None, None] * distance[:, None]
