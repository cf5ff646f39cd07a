"""Self-attention: a table of position encodings and of backends that turn q, k, v into a weighted sum."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from bert_jax import knobs
from bert_jax.models.layers import Dense, Dropout
from bert_jax.models.products import KINDS, product


def bias(segment_ids: jax.Array, cfg: knobs.Model) -> jax.Array:
    """What is added to the scores: 0 where attention may look, a large negative number elsewhere.

    A token sees the tokens of its own example. Padding sees every token and is seen by none, so no row of scores is
    all forbidden unless the whole input is padding, and then it stays finite because the number is.
    """
    queries, keys = segment_ids[:, None, :, None], segment_ids[:, None, None, :]
    allowed = (keys != 0) & ((queries == keys) | (queries == 0))  # [B, 1, L, L]
    if cfg.causal:
        index = jnp.arange(segment_ids.shape[1], dtype=jnp.int32)
        allowed &= (index[:, None] >= index[None, :])[None, None]
    return jnp.where(allowed, 0.0, cfg.attention_bias).astype(jnp.float32)


def sinusoids(length: int, width: int) -> np.ndarray:
    """Sine in the even columns, cosine in the odd ones, wavelengths from 2 pi to 10000 * 2 pi: [length, width]."""
    angle = np.arange(length)[:, None] / 10_000.0 ** (2 * (np.arange(width) // 2) / width)[None, :]
    return np.where(np.arange(width)[None, :] % 2 == 0, np.sin(angle), np.cos(angle)).astype(np.float32)


def rotate(x: jax.Array, positions: jax.Array) -> jax.Array:
    """Rotary positions: turns each pair (i, i + d/2) of a head by an angle proportional to the position."""
    half = x.shape[-1] // 2
    frequency = jnp.asarray(10_000.0 ** (-np.arange(half) / half), jnp.float32)
    angle = positions[:, :, None, None].astype(jnp.float32) * frequency[None, None, None, :]  # [B, L, 1, d/2]
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    first, second = x[..., :half].astype(jnp.float32), x[..., half:].astype(jnp.float32)
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], -1).astype(x.dtype)


def slopes(heads: int) -> np.ndarray:
    """ALiBi's slope of each head: a geometric series from 2**(-8/n) to 2**-8 for a power of two n, as published.

    For other numbers, those of the power of two below, then every other one of the power of two above.
    """
    below = 1 << (heads.bit_length() - 1)
    series = [2.0 ** (-8 * (i + 1) / below) for i in range(below)]
    series += [2.0 ** (-4 * (i + 1) / below) for i in range(0, 2 * below, 2)]
    return np.asarray(series[:heads], np.float32)


def alibi(positions: jax.Array, heads: int) -> jax.Array:
    """What ALiBi adds to the scores, to both sides alike as encoders need it: -slope * |i - j|, [B, heads, L, L]."""
    distance = jnp.abs(positions[:, :, None] - positions[:, None, :]).astype(jnp.float32)  # [B, L, L]
    return -jnp.asarray(slopes(heads))[None, :, None, None] * distance[:, None]


class Attention(nn.Module):
    """Multi-head attention; softmax in float32, dropout on its rows."""

    cfg: knobs.Model
    train: bool

    @nn.compact
    def __call__(self, x: jax.Array, bias: jax.Array, positions: jax.Array) -> tuple[jax.Array, jax.Array]:
        cfg = self.cfg
        assert cfg.heads is not None
        width = x.shape[-1] // cfg.heads
        query, key, value = (Dense(cfg, (cfg.heads, width), name=n)(x) for n in ("query", "key", "value"))
        if cfg.position == "rotary":
            query, key = rotate(query, positions), rotate(key, positions)  # [B, L, heads, d]
        elif cfg.position == "alibi":
            bias = bias + alibi(positions, cfg.heads)
        query, key, value = (one.swapaxes(1, 2) for one in (query, key, value))  # [B, heads, L, d]
        kind = KINDS[cfg.dtype]
        scores = product(query, key, kind._replace(result="float32"), True)
        probabilities = jax.nn.softmax(scores * width**-0.5 + bias, axis=-1)  # [B, heads, L, L]
        dropped = Dropout(cfg.attention_dropout, self.train)(probabilities.astype(x.dtype))
        context = product(dropped, value, kind).swapaxes(1, 2)  # [B, L, heads, d]
        return Dense(cfg, (x.shape[-1],), contract=2, name="out")(context), probabilities
