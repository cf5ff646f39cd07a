"""Position encodings that are computed, not learned."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.config import knobs


def sinusoids(length: int, width: int) -> np.ndarray:
    """Return sinusoidal positions [length, width], of wavelengths from 2 pi to 10000 * 2 pi.

    Even columns are sines, odd ones cosines.
    """
    angle = np.arange(length)[:, None] / 10_000.0 ** (2 * (np.arange(width) // 2) / width)[None, :]
    even = np.arange(width)[None, :] % 2 == 0
    return np.where(even, np.sin(angle), np.cos(angle)).astype(np.float32)


def frequencies(cfg: knobs.Model, width: int, far: jax.Array | None = None) -> jax.Array:
    """Return the angles by which rotary positions turn the pairs of a head per position [d/2].

    Layers with a window may have a base of their own; `far` lifts the window from a layer.
    """

    def of(base: float) -> jax.Array:
        return jnp.asarray(base ** (-np.arange(width // 2) / (width // 2)), jnp.float32)

    everywhere = of(cfg.rotary_base)
    if not cfg.window or cfg.rotary_base_near is None:
        return everywhere
    near = of(cfg.rotary_base_near)
    return near if far is None else jnp.where(far, everywhere, near)


def rotate(x: jax.Array, positions: jax.Array, frequency: jax.Array) -> jax.Array:
    """Rotate each pair (i, i + d/2) of a head by an angle proportional to the position."""
    half = x.shape[-1] // 2
    # [B, L, 1, d/2]
    angle = positions[:, :, None, None].astype(jnp.float32) * frequency[None, None, None, :]
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    first, second = x[..., :half].astype(jnp.float32), x[..., half:].astype(jnp.float32)
    rotated = jnp.concatenate([first * cos - second * sin, second * cos + first * sin], -1)
    return rotated.astype(x.dtype)


def slopes(heads: int) -> np.ndarray:
    """Return ALiBi's slope of each head, as published.

    For a power of two n they are a geometric series from 2**(-8/n) to 2**-8; for other numbers,
    those of the power of two below, then every other one of the power of two above.
    """
    below = 1 << (heads.bit_length() - 1)
    series = [2.0 ** (-8 * (i + 1) / below) for i in range(below)]
    series += [2.0 ** (-4 * (i + 1) / below) for i in range(0, 2 * below, 2)]
    return np.asarray(series[:heads], np.float32)


def alibi(positions: jax.Array, heads: int, keys: jax.Array | None = None) -> jax.Array:
    """Return ALiBi's bias of the scores, -slope * |i - j|, [B, heads, L, K].

    It is symmetric, as encoders need it. `keys` are the positions of the keys, where they differ
    from those of the queries.
    """
    keys = positions if keys is None else keys
    distance = jnp.abs(positions[:, :, None] - keys[:, None, :]).astype(jnp.float32)  # [B, L, K]
    return -jnp.asarray(slopes(heads))[None, :, None, None] * distance[:, None]
