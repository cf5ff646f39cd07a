"""Position encodings: sinusoids, rotations, ALiBi, and what relative ones add to the scores."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.config import devices, knobs
from bert_jax.models.matmul import matmul
from bert_jax.models.precision import KINDS


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


def buckets(cfg: knobs.Model) -> np.ndarray:
    """Return the bucket of each distance from 1 - max_positions to max_positions - 1.

    A distance of 0 has the bucket in the middle, number position_buckets - 1. Up to half of
    position_buckets each distance has its own, in either direction; longer ones lie in buckets
    whose bounds are a geometric series, as in DeBERTa.
    """
    own, last = cfg.position_buckets // 2, cfg.max_positions - 1
    distance = np.arange(-last, last + 1)
    times = np.maximum(np.abs(distance), own) / own
    # Less a rounding error, without which the last distance might lie in a bucket past the last.
    shared = own + np.ceil(np.log(times) / np.log(last / own) * (own - 1) - 1e-9)
    bucket = np.where(np.abs(distance) <= own, distance, np.sign(distance) * shared)
    return (bucket + cfg.position_buckets - 1).astype(np.int32)


def bucketed(queries: jax.Array, keys: jax.Array, cfg: knobs.Model) -> jax.Array:
    """Return the buckets [..., L, K] of the distances of keys [..., K] to queries [..., L]."""
    last = cfg.max_positions - 1
    distance = jnp.clip(queries[..., :, None] - keys[..., None, :], -last, last)
    return jnp.take(jnp.asarray(buckets(cfg)), distance + last, axis=0)


def distance_scores(
    query: jax.Array,
    key: jax.Array,
    of_queries: jax.Array,
    of_keys: jax.Array,
    bucket: jax.Array,
    cfg: knobs.Model,
) -> jax.Array:
    """Return what distances add to the scores, float32 [B, heads, L, K].

    A query is compared with the key of the distance, and a key with the query of the distance.

    Args:
      query: [B, L, heads, d].
      key: [B, K, heads, d].
      of_queries: of each bucket [buckets, heads, d].
      of_keys: of each bucket.
      bucket: [L, K], or [B, L, K] where it differs by row.
      cfg: the compute type.
    """
    count, (batch, _, heads, width) = len(of_keys), query.shape
    at = "ij" if bucket.ndim == 2 else "bij"

    def chosen(x: jax.Array, vectors: jax.Array, which: str) -> jax.Array:
        """Return each token's products with the vectors of its distances to all others."""
        tokens = x.transpose(2, 0, 1, 3).reshape(heads, -1, width)
        products = matmul(tokens, vectors.swapaxes(0, 1), KINDS[cfg.dtype], True)
        products = products.reshape(heads, batch, -1, count)
        if devices.device() == "cpu":  # which lacks some matmuls in bfloat16
            products = products.astype(jnp.float32)
        # A matmul: neither it nor its gradient gathers or scatters.
        places = jax.nn.one_hot(bucket, count, dtype=products.dtype)
        found = jnp.einsum(f"hb{which}r,{at}r->bhij", products, places)
        return found.astype(jnp.float32)

    added = chosen(query, of_keys, "i") + chosen(key, of_queries, "j")
    return added * width**-0.5
