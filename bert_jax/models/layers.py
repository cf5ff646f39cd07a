"""Layers that every module is made of: dense, normalisation, dropout, activations."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.config import devices, knobs
from bert_jax.models.matmul import matmul
from bert_jax.models.precision import KINDS


def gelu(x: jax.Array) -> jax.Array:
    """Return x * Phi(x) exactly, not by its tanh approximation.

    It is computed by erf in float32, as in the original; in shorter types by erfc, which keeps the
    left tail.
    """
    if x.dtype != jnp.float32:
        return jax.nn.gelu(x, approximate=False)
    return x * (0.5 + 0.5 * jax.lax.erf(x * math.sqrt(0.5)))


ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "gelu": gelu,
    "gelu_tanh": functools.partial(jax.nn.gelu, approximate=True),  # of the 2019 head
    "relu": jax.nn.relu,
    "silu": jax.nn.silu,
}


def recomputed(function: Callable, cfg: knobs.Model) -> Callable:
    """Have the backward pass compute a cheap function again from its arguments.

    Those are stored anyway, and what is stored between them and the result costs an accelerator
    more memory traffic than it saves. On a CPU, and within layers that are computed again as a
    whole, nothing is done.
    """
    if cfg.remat != "none" or devices.device() == "cpu":
        return function
    return jax.checkpoint(function)


def weights(cfg: knobs.Model) -> jax.nn.initializers.Initializer:
    """Return the initializer of weights.

    Truncation at two sigma is not corrected for, as in 2018: the effective standard deviation is
    0.88 of the nominal.
    """
    if cfg.init == "truncated_normal":
        return jax.nn.initializers.truncated_normal(cfg.init_stddev)
    return jax.nn.initializers.normal(cfg.init_stddev)


def token_rows(cfg: knobs.Model, vocab_size: int) -> Callable[..., jax.Array]:
    """Return the initializer of a table with a row for each token; rows of padding are zero.

    They stay zero: no token reads them, and weight decay leaves zero as it is.
    """

    def draw(key: jax.Array, shape: Any, dtype: Any = jnp.float32) -> jax.Array:
        real = jnp.arange(shape[0], dtype=jnp.int32) < vocab_size
        return jnp.where(real[:, None], weights(cfg)(key, shape, dtype), 0)

    return draw


class Dense(nn.Module):
    """Matmul over the last `contract` axes of the input, in the compute type; a bias, if any."""

    cfg: knobs.Model
    features: tuple[int, ...]
    contract: int = 1

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        kind = KINDS[self.cfg.dtype]
        outer, inputs = x.shape[: -self.contract], x.shape[-self.contract :]
        kernel = self.param("kernel", weights(self.cfg), (*inputs, *self.features), jnp.float32)
        width = math.prod(inputs)
        y = matmul(x.reshape(-1, width), kernel.reshape(width, -1), kind)
        y = y.reshape(*outer, *self.features)
        if not self.cfg.biases:
            return y
        bias = self.param("bias", jax.nn.initializers.zeros, self.features, jnp.float32)
        # Rounded after it is broadcast, so that its gradient is summed in float32.
        return y + jnp.broadcast_to(bias, y.shape).astype(y.dtype)


class LayerNorm(nn.Module):
    """LayerNorm, or RMSNorm, over the last axis, in float32 in every compute type."""

    cfg: knobs.Model

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        scale, bias, cfg = None, None, self.cfg
        centre = cfg.norm_kind == "layer"
        if cfg.norm_parameters:
            scale = self.param("scale", jax.nn.initializers.ones, x.shape[-1:], jnp.float32)
        if cfg.norm_parameters and cfg.biases and centre:
            bias = self.param("bias", jax.nn.initializers.zeros, x.shape[-1:], jnp.float32)
        normalise = functools.partial(normalised, epsilon=cfg.norm_epsilon, centre=centre)
        return recomputed(normalise, cfg)(x, scale, bias)


def normalised(
    x: jax.Array,
    scale: jax.Array | None,
    bias: jax.Array | None,
    epsilon: float,
    centre: bool = True,
) -> jax.Array:
    """Return x with mean 0 and variance 1 over the last axis, scaled and shifted, in float32.

    Not to `centre` it leaves the mean as it is, and the mean square becomes 1.
    """
    wide = x.astype(jnp.float32)
    centred = wide - jnp.mean(wide, -1, keepdims=True) if centre else wide
    variance = jnp.mean(jnp.square(centred), -1, keepdims=True)
    y = centred * jax.lax.rsqrt(variance + epsilon)
    if scale is not None:
        y = y * jnp.broadcast_to(scale, y.shape)
    if bias is not None:
        y = y + jnp.broadcast_to(bias, y.shape)
    return y.astype(x.dtype)


def transformed(x: jax.Array, cfg: knobs.Model, width: int) -> jax.Array:
    """Apply a dense layer, the head's activation and a norm, with parameters of the caller's."""
    assert cfg.head_activation is not None
    x = ACTIVATIONS[cfg.head_activation](Dense(cfg, (width,), name="dense")(x))
    return LayerNorm(cfg, name="norm")(x)


class Dropout(nn.Module):
    """Dropout that draws 16 bits an element, half the cost of a float.

    The realised rate is the multiple of 2**-16 nearest to `rate`. Kept elements are scaled for the
    realised rate in float32 and then rounded: the scale itself, rounded to bfloat16, would be off
    by a part in 600.
    """

    rate: float
    train: bool

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        threshold = round(self.rate * 2**16)
        if not self.train or threshold == 0:
            return x
        key = self.make_rng("dropout")
        if x.shape[-1] % 2:
            bits = jax.random.bits(key, x.shape, "uint16")
        else:
            words = jax.random.bits(key, (*x.shape[:-1], x.shape[-1] // 2), "uint32")
            bits = jax.lax.bitcast_convert_type(words, jnp.uint16).reshape(x.shape)
        scaled = (x.astype(jnp.float32) * (2**16 / (2**16 - threshold))).astype(x.dtype)
        return jnp.where(bits >= threshold, scaled, jnp.zeros_like(x))
