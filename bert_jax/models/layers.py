"""The layers that all modules consist of: dense, normalisation, dropout, activations."""

import functools
import math
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import Array

from bert_jax.config import devices, knobs
from bert_jax.models.matmul import PRECISIONS, matmul

Activation = Callable[[Array], Array]


def gelu(x: Array) -> Array:
    """Compute x * Phi(x) exactly, not by its tanh approximation.

    Float32 uses erf, as the original does. Shorter types use erfc, which keeps small values of the
    left tail.
    """
    if x.dtype != jnp.float32:
        return jax.nn.gelu(x, approximate=False)
    return x * (0.5 + 0.5 * jax.lax.erf(x * math.sqrt(0.5)))


ACTIVATIONS: dict[str, Activation] = {
    "gelu": gelu,
    "gelu_tanh": functools.partial(jax.nn.gelu, approximate=True),  # Google's code since 2019
    "relu": jax.nn.relu,
    "silu": jax.nn.silu,
    "tanh": jnp.tanh,  # only poolers have it
}


def recompute_in_backward(function: Callable, cfg: knobs.Model) -> Callable:
    """Wrap a cheap function, so that the backward pass computes it again from its arguments.

    On an accelerator, storing the intermediate results would cost more memory traffic than it
    saves. On a CPU, or if whole layers are recomputed, the function is returned as it is.
    """
    if cfg.remat != "none" or devices.find_kind() == "cpu":
        return function
    return jax.checkpoint(function)


def draw_weights(cfg: knobs.Model) -> jax.nn.initializers.Initializer:
    """Return the initializer of weights: a normal distribution, truncated if `model.init` says so.

    As in 2018, the truncation at two standard deviations is not corrected: the effective standard
    deviation is 0.88 of the nominal one.
    """
    if cfg.init == "truncated_normal":
        return jax.nn.initializers.truncated_normal(cfg.init_stddev)
    return jax.nn.initializers.normal(cfg.init_stddev)


def draw_token_rows(cfg: knobs.Model, vocab_size: int) -> Callable[..., Array]:
    """Return the initializer of a table with a row for each token; padding rows are zero.

    The padding stays zero, because no token reads it and weight decay leaves zero as it is.
    """

    def draw(key: Array, shape: Any, dtype: Any = jnp.float32) -> Array:
        real = jnp.arange(shape[0], dtype=jnp.int32) < vocab_size
        return jnp.where(real[:, None], draw_weights(cfg)(key, shape, dtype), 0)

    return draw


class Dense(nn.Module):
    """A dense layer over the last `axes` axes, in the compute type, with a bias.

    flax's dense layer rounds the bias before it is broadcast, and so sums the gradient of the bias
    in bfloat16. To wrap a flax layer without a bias, and to give it `matmul`, would take more code.
    """

    cfg: knobs.Model
    features: tuple[int, ...]
    axes: int = 1

    @nn.compact
    def __call__(self, x: Array) -> Array:
        outer = x.shape[: -self.axes]
        inputs = x.shape[-self.axes :]
        shape = (*inputs, *self.features)  # of a query [D, heads, d]
        kernel = self.param("kernel", draw_weights(self.cfg), shape, jnp.float32)
        width = math.prod(inputs)
        y = matmul(x.reshape(-1, width), kernel.reshape(width, -1), PRECISIONS[self.cfg.dtype])
        y = y.reshape(*outer, *self.features)
        if not self.cfg.biases:
            return y
        bias = self.param("bias", jax.nn.initializers.zeros, self.features, jnp.float32)
        # The cast comes after the broadcast, so that the bias's gradient is summed in float32.
        return y + jnp.broadcast_to(bias, y.shape).astype(y.dtype)


class Norm(nn.Module):
    """LayerNorm or RMSNorm over the last axis, computed in float32.

    flax's norms give the same numbers, but an update of a model of 4 layers of 256 takes 2.5 %
    longer with them on a CPU.
    """

    cfg: knobs.Model

    @nn.compact
    def __call__(self, x: Array) -> Array:
        cfg = self.cfg
        width = x.shape[-1:]
        scale = bias = None
        if cfg.norm_parameters:
            scale = self.param("scale", jax.nn.initializers.ones, width, jnp.float32)
        if cfg.norm_parameters and cfg.biases and cfg.norm_kind == "layer":
            bias = self.param("bias", jax.nn.initializers.zeros, width, jnp.float32)
        return recompute_in_backward(functools.partial(normalise, cfg), cfg)(x, scale, bias)


def normalise(cfg: knobs.Model, x: Array, scale: Array | None, bias: Array | None) -> Array:
    """Scale x to mean 0 and variance 1 over the last axis; then apply scale and bias.

    RMSNorm does not subtract the mean, and scales the mean square to 1.
    """
    wide = x.astype(jnp.float32)
    if cfg.norm_kind == "layer":
        wide -= jnp.mean(wide, -1, keepdims=True)
    variance = jnp.mean(jnp.square(wide), -1, keepdims=True)
    y = wide * jax.lax.rsqrt(variance + cfg.norm_epsilon)
    if scale is not None:
        y *= jnp.broadcast_to(scale, y.shape)
    if bias is not None:
        y += jnp.broadcast_to(bias, y.shape)
    return y.astype(x.dtype)


class Dropout(nn.Module):
    """Dropout that draws 16 random bits for each element, at half the cost of a float.

    The realised rate is the multiple of 2**-16 nearest to `rate`. Kept elements are scaled for the
    realised rate in float32 and then rounded. The scale itself, rounded to bfloat16, would be off
    by a part in 600.
    """

    rate: float
    train: bool

    @nn.compact
    def __call__(self, x: Array) -> Array:
        threshold = round(self.rate * 2**16)  # rate 0.1 is 6554 / 65536
        if not self.train or threshold == 0:
            return x
        key = self.make_rng("dropout")
        if x.shape[-1] % 2:
            bits = jax.random.bits(key, x.shape, "uint16")
        else:
            # A word of 32 bits serves two elements: words [B, L, 128] become bits [B, L, 128, 2].
            words = jax.random.bits(key, (*x.shape[:-1], x.shape[-1] // 2), "uint32")
            bits = jax.lax.bitcast_convert_type(words, jnp.uint16).reshape(x.shape)
        scaled = (x.astype(jnp.float32) * (2**16 / (2**16 - threshold))).astype(x.dtype)
        return jnp.where(bits >= threshold, scaled, jnp.zeros_like(x))
