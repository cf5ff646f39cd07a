"""Layers as a loop of the compiled program, and recomputation in the backward pass."""

import functools
from collections.abc import Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import Array

from bert_jax.config import devices, knobs
from bert_jax.models.attention_mask import AttentionMask
from bert_jax.models.matmul import PRECISIONS


def _is_product(primitive: Any, *_: Any, **__: Any) -> bool:
    """Tell whether a primitive is a matmul or a fused attention, which take long to repeat."""
    return primitive.name == "dot_general" or "attention_fwd" in primitive.name


# What the backward pass of a layer finds stored, besides the layer's input.
POLICIES = {"dots": _is_product, "full": None}


def wrap_with_remat(block: type[nn.Module], cfg: knobs.Model) -> Any:
    """Return the class of a layer that recomputes in the backward pass as `model.remat` says.

    With model.layer_weights, the attention and the feed-forward are recomputed separately.
    """
    if cfg.remat == "none":
        return block
    methods = ("attend", "feed_forward") if cfg.layer_weights else ("__call__",)
    return nn.remat(block, policy=POLICIES[cfg.remat], methods=methods)


def scan_layers(
    block: Any, layer_params: Sequence[Any], x: Array, mask: AttentionMask, key: Array | None
) -> Array:
    """Run layers of the same structure as a loop over their parameters.

    So only one layer is compiled. `block` is a layer without a parent module. `layer_params` has
    the parameters of each layer, which are stacked here.
    """
    cfg: knobs.Model = block.cfg
    stacked = jax.tree_util.tree_map_with_path(functools.partial(_stack, cfg), *layer_params)
    keys = None if key is None else jax.random.split(key, len(layer_params))

    def run_layer(x: Array, layer: tuple[Any, Any]) -> tuple[Array, None]:
        params, key = layer
        rngs = {} if key is None else {"dropout": key}
        y: Any = block.apply({"params": params}, x, mask, rngs=rngs)
        return y, None

    if cfg.remat != "none":
        # A loop already keeps the compiler from merging the recomputation with the forward pass.
        run_layer = jax.checkpoint(run_layer, prevent_cse=False, policy=POLICIES[cfg.remat])
    return jax.lax.scan(run_layer, x, (stacked, keys))[0]


def _stack(cfg: knobs.Model, path: tuple[Any, ...], *leaves: Array) -> Array:
    """Stack one parameter of all layers; on an accelerator, convert kernels to the compute type.

    The rounded copy is half as large, and matmuls would round kernels in the same way. A CPU keeps
    float32, because there the gradients of kernels are more precise than the compute type.
    """
    stacked = jnp.stack(leaves)
    if path[-1].key == "kernel" and devices.find_kind() != "cpu":
        return stacked.astype(PRECISIONS[cfg.dtype].factors)
    return stacked
