"""Attention backends: functions of query, key and value [B, L, heads, d] to a weighted sum.

The sum has the shape of the query. All backends compute the same function at real tokens. Outputs
at padding are finite but differ, and are never read. To add a backend, write a function and its row
of TABLE. Name it among the choices of `model.attention` in `config/model_knobs.py`, say in
`config/validation.py` what it cannot do, and in `config/devices.py` which device prefers it.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from bert_jax import sharding
from bert_jax.config import devices, validation
from bert_jax.config.knobs import Model
from bert_jax.errors import ConfigError
from bert_jax.models.attention_mask import AttentionMask
from bert_jax.models.matmul import PRECISIONS, matmul

Dropping = Callable[[Array], Array]
# Query, key, value, mask, settings, dropout of probabilities; to the weighted sum, and the
# probabilities if there are any to return.
Attend = Callable[[Array, Array, Array, AttentionMask, Model, Dropping], tuple[Array, Array | None]]


def attend_by_einsum(
    query: Array, key: Array, value: Array, mask: AttentionMask, cfg: Model, drop: Dropping
) -> tuple[Array, Array]:
    """Compute attention by matmuls, with a softmax in float32 and dropout of probabilities.

    Only this backend returns probabilities. A forbidden score stays finite, because in an empty
    row, or with a window, every key may be forbidden.
    """
    query, key, value = (x.swapaxes(1, 2) for x in (query, key, value))  # [B, heads, L, d]
    precision = PRECISIONS[cfg.dtype]
    # In float32 whatever the compute type, because the exponential magnifies rounding errors.
    scores = matmul(query, key, precision._replace(result="float32"), True)  # [B, heads, L, M]
    scores = scores * query.shape[-1] ** -0.5
    # Added before the softmax, so that the weights of the allowed keys still sum to 1.
    scores += jnp.where(mask.allowed, 0.0, cfg.attention_bias).astype(jnp.float32)
    if mask.bias is not None:
        scores += mask.bias
    probabilities = jax.nn.softmax(scores, axis=-1)
    # [B, heads, L, M] @ [B, heads, M, d]. As in Google's code, dropout leaves out whole keys.
    context = matmul(drop(probabilities.astype(query.dtype)), value, precision)
    return context.swapaxes(1, 2), probabilities


def attend_fused(
    query: Array,
    key: Array,
    value: Array,
    mask: AttentionMask,
    cfg: Model,
    drop: Dropping | None = None,
    implementation: str = "cudnn",
) -> tuple[Array, None]:
    """Compute attention by jax's fused kernel.

    The kernel supports lengths of rows, causality, and windows that look back. The kernel supports
    neither packed rows nor windows to both sides. If a config needs these, a boolean mask [B, 1, L,
    L] replaces lengths and windows. jax turns that mask into a bias. The kernel accepts no window
    next to a bias, so a model with a bias has its windows in the mask too.
    """
    window = mask.window
    bias = None if mask.bias is None else mask.bias.astype(query.dtype)
    seen: Array | None = mask.allowed
    lengths = sides = None
    looks_back = cfg.causal and bias is None
    if mask.lengths is not None and (looks_back or not window):
        # An empty row is given a token, so that no sum of weights is 0.
        seen = None
        lengths = jnp.maximum(mask.lengths, 1)
        sides = (window, 0) if window else None  # (keys before the token, keys after it)
    fused: Any = jax.nn.dot_product_attention  # its type has too many unions for mypy
    context: Array = fused(
        query,
        key,
        value,
        bias,
        seen,
        is_causal=cfg.causal,
        query_seq_lengths=lengths,
        key_value_seq_lengths=lengths,
        local_window_size=sides,
        implementation=implementation,
    )
    return context, None


def attend_by_splash(
    query: Array,
    key: Array,
    value: Array,
    mask: AttentionMask,
    cfg: Model,
    drop: Dropping | None = None,
    interpret: bool = False,
) -> tuple[Array, None]:
    """Compute attention by the TPU's splash kernel.

    The kernel skips blocks of scores in which causality or a window forbids every score.
    """
    # Imported here because the import takes a second.
    from jax.experimental.pallas.ops.tpu import splash_attention as kernels

    window = mask.window
    length = query.shape[1]
    # The kernel does not scale the scores.
    scaled = (query.astype(jnp.float32) * query.shape[-1] ** -0.5).astype(query.dtype)
    operands = [x.swapaxes(1, 2) for x in (scaled, key, value)]  # [B, heads, L, d]
    head: Any = kernels.FullMask((length, length))
    if window or cfg.causal:
        # (Keys before, keys after), None without limit: causal with no window is (None, 0).
        sides = (window or None, 0 if cfg.causal else window)
        head = kernels.LocalMask((length, length), sides, 0)

    def attend_rows(ids: Array, *operands: Array) -> Array:
        """Compute the rows of one device [B, heads, L, d] by a kernel for the device's heads."""
        own_heads = kernels.MultiHeadMask([head] * operands[0].shape[1])
        kernel = kernels.make_splash_mha_single_device(own_heads, interpret=interpret)

        def attend_row(ids: Array, *operands: Array) -> Array:
            # Equal ids attend to each other: here padding attends to padding only.
            context: Array = kernel(*operands, segment_ids=kernels.SegmentIds(ids, ids))
            return context

        return jax.vmap(attend_row)(ids, *operands)

    # The compiler cannot split a kernel over devices.
    rows = sharding.BATCH
    mapped = sharding.map_parts(attend_rows, (rows, rows, rows, rows), rows)
    context: Array = mapped(mask.segment_ids, *operands)
    return context.swapaxes(1, 2), None


TABLE: Mapping[str, Attend] = {
    "einsum": attend_by_einsum,
    "cudnn": attend_fused,
    "splash": attend_by_splash,
}


# --- which one ------------------------------------------------------------------------------------


def choose_backend(cfg: Model, length: int, *, train: bool, returns_attention: bool = False) -> str:
    """Choose the attention backend of a forward pass over rows of a length.

    With model.attention=auto, the backend is the one that this kind of device prefers, or einsum if
    that backend cannot do the pass. A named backend that cannot do the pass is an error in
    training, and einsum replaces it otherwise: a trained model must run on other machines. With
    `returns_attention` the pass must return probabilities.
    """
    auto = cfg.attention == "auto"
    name = devices.find_row().attention if auto else cfg.attention
    obstacle = validation.explain_unfit_model(name, cfg) or _find_obstacle(
        name, cfg, length, train, returns_attention
    )
    if obstacle and train and not auto:
        raise ConfigError(f"model.attention = {name!r}: {obstacle}", validation.ATTENTION_HINT)
    return "einsum" if obstacle else name


def _find_obstacle(name: str, cfg: Model, length: int, train: bool, returns_attention: bool) -> str:
    """Explain why a backend cannot do a forward pass here; "" if it can."""
    if name == "einsum":
        return ""
    if train and cfg.attention_dropout:
        return validation.NO_DROPOUT
    if returns_attention:
        return "it has no probabilities to show"
    if devices.find_row().attention != name:
        return f"it does not run on this machine's {devices.find_kind()}"
    if obstacle := validation.explain_unfit_length(name, length):
        return obstacle
    # XLA cannot split a kernel of Pallas over devices: the mesh has to be in context, as it is in
    # training (`sharding.map_parts`).
    several = len(devices.list_all()) > 1 and jax.sharding.get_abstract_mesh().empty
    if name == "splash" and several:
        return "no mesh says how to split it over several devices"
    return ""


def adapt_to_vmap(cfg: Model) -> Model:
    """Return the model settings for runs that train under one vmap, without backend cudnn.

    Under vmap, jax 0.10 gives cudnn the rows of all runs and, silently, the mask of only one run.
    """
    if cfg.attention == "cudnn":
        raise ConfigError(
            "model.attention = 'cudnn' cannot train arms all at once", "--config.parallel.arms=map"
        )
    if devices.find_row().attention == "cudnn":
        return dataclasses.replace(cfg, attention="einsum")
    return cfg
