"""Position encodings that are computed, not learned: sinusoids, rotations and ALiBi."""

import jax.numpy as jnp
import numpy as np
from jax import Array


def make_sinusoids(length: int, width: int) -> np.ndarray:
    """Return sinusoidal positions [length, width], with wavelengths 2 pi to 10000 * 2 pi.

    Even columns are sines, odd columns cosines.
    """
    angle = np.arange(length)[:, None] / 10_000.0 ** (2 * (np.arange(width) // 2) / width)[None, :]
    even = np.arange(width)[None, :] % 2 == 0
    return np.where(even, np.sin(angle), np.cos(angle)).astype(np.float32)


def rotate(x: Array, positions: Array, base: float) -> Array:
    """Rotate each pair (i, i + d/2) of a head's numbers by an angle, for x [B, L, heads, d].

    The angle of pair i at position p is p * base ** (-2 i / d).
    """
    half = x.shape[-1] // 2
    frequency = jnp.asarray(base ** (-np.arange(half) / half), jnp.float32)
    # In float32, because bfloat16 has no odd numbers above 256.
    places = positions[:, :, None, None].astype(jnp.float32)
    angle = places * frequency[None, None, None]  # [B, L, 1, d/2]
    cos = jnp.cos(angle)
    sin = jnp.sin(angle)
    first = x[..., :half].astype(jnp.float32)
    second = x[..., half:].astype(jnp.float32)
    # Positions enter a score only by their difference (RoFormer, Su et al., 2021).
    rotated = jnp.concatenate([first * cos - second * sin, second * cos + first * sin], -1)
    return rotated.astype(x.dtype)


def make_slopes(heads: int) -> np.ndarray:
    """Return ALiBi's slope of each head, as published.

    For n heads, n a power of two, the slopes are a geometric series from 2**(-8/n) to 2**-8. Other
    numbers of heads have the slopes of the power of two below, then every other slope of the power
    of two above.
    """
    # 12 heads: the series of 8 heads, 2**-1 to 2**-8, then 2**-0.5, 2**-1.5, 2**-2.5, 2**-3.5.
    below = 1 << (heads.bit_length() - 1)
    series = [2.0 ** (-8 * (i + 1) / below) for i in range(below)]
    series += [2.0 ** (-4 * (i + 1) / below) for i in range(0, 2 * below, 2)]
    return np.asarray(series[:heads], np.float32)


def penalise_distance(distance: Array, heads: int) -> Array:
    """Return ALiBi's bias of the scores [B, heads, L, M]: -slope * |distance|.

    A key after the token is penalised like a key before it.
    """
    slopes = jnp.asarray(make_slopes(heads))[None, :, None, None]
    return -slopes * jnp.abs(distance).astype(jnp.float32)[:, None]
