"""Attention backends: queries, keys and values [B, L, heads, d] to a weighted sum of that shape.

All compute the same function at real tokens. Their outputs at padding are finite, differ, and are
never read. To add a backend, write a function and its row of TABLE, name it among the choices of
`model.attention` in `config/model_knobs.py`, and say in `config/abilities.py` what it cannot do;
`config/devices.py` has the device that prefers it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bert_jax import sharding
from bert_jax.batch import Batch
from bert_jax.config import abilities, devices, knobs
from bert_jax.errors import ConfigError
from bert_jax.models.matmul import matmul
from bert_jax.models.positions import alibi, bucketed
from bert_jax.models.precision import KINDS


class AttentionMask(NamedTuple):
    """Attention mask, in each form that some backend reads; the compiler leaves the others out."""

    segment_ids: jax.Array  # int32 [B, L]
    positions: jax.Array  # int32 [B, L]
    bias: jax.Array  # float32 [B, 1, L, L], added to the scores
    near: jax.Array | None = None  # the bias within the window, where there is one
    lengths: jax.Array | None = None  # int32 [B], of rows that are one example and then padding
    keys: jax.Array | None = None  # int32 [B, K], positions of the keys, if not those of the batch
    causal: jax.Array | None = None  # bool [B, L], where the batch says which tokens look back only
    buckets: jax.Array | None = None  # int32 [L, K] or [B, L, K], of relative positions
    distances: jax.Array | None = None  # [buckets, D], their vectors


Dropping = Callable[[jax.Array], jax.Array]
Attend = Callable[
    [jax.Array, jax.Array, jax.Array, AttentionMask, knobs.Model, jax.Array | None, Dropping],
    tuple[jax.Array, jax.Array | None],
]


def attention_mask(batch: Batch, cfg: knobs.Model) -> AttentionMask:
    """Return the attention mask of a batch, for all layers."""
    ids = batch["segment_ids"]
    if "past_positions" in batch:
        return _one_more(batch, cfg)
    single = "cls_positions" in batch and batch["cls_positions"].shape[1] == 1
    causal = batch.get("causal")
    lengths = jnp.sum((ids > 0).astype(jnp.int32), -1) if single and causal is None else None
    columns = jnp.arange(ids.shape[1], dtype=jnp.int32)
    return AttentionMask(
        ids,
        batch["positions"],
        bias(ids, cfg, causal=causal),
        bias(ids, cfg, cfg.window, causal) if cfg.window else None,
        lengths,
        causal=causal,
        buckets=bucketed(columns, columns, cfg) if cfg.position == "relative" else None,
    )


def _one_more(batch: Batch, cfg: knobs.Model) -> AttentionMask:
    """Return the mask of one more token [B, 1], which sees the kept tokens [B, K] and itself."""
    keys = jnp.concatenate([batch["past_positions"], batch["positions"]], axis=1)  # [B, K + 1]
    real = (keys >= 0)[:, None, None]
    in_window = (batch["positions"] - keys <= cfg.window)[:, None, None]
    bias, near = (
        jnp.where(seen, 0.0, cfg.attention_bias).astype(jnp.float32)
        for seen in (real, real & in_window)
    )
    return AttentionMask(
        batch["segment_ids"],
        batch["positions"],
        bias,
        near if cfg.window else None,
        keys=keys,
        buckets=bucketed(batch["positions"], keys, cfg) if cfg.position == "relative" else None,
    )


def global_layers(cfg: knobs.Model) -> jax.Array | None:
    """Return which layers see past the window [layers]; None if no layer differs from another."""
    assert cfg.layers is not None
    if not (cfg.window and cfg.global_every):
        return None
    return jnp.arange(cfg.layers, dtype=jnp.int32) % cfg.global_every == 0


def allowed(segment_ids: jax.Array, causal: bool | jax.Array, window: int) -> jax.Array:
    """Return where attention is allowed, bool [B, 1, L, L].

    A token sees the tokens of its own example, at most `window` away if that is not 0; where
    `causal`, one bool or one for each token, those up to itself. Padding sees every token and is
    seen by none.
    """
    queries, keys = segment_ids[:, None, :, None], segment_ids[:, None, None, :]
    seen = (keys != 0) & ((queries == keys) | (queries == 0))
    index = jnp.arange(segment_ids.shape[1], dtype=jnp.int32)
    back = index[:, None] - index[None, :]
    if not isinstance(causal, bool):
        seen &= (back >= 0)[None, None] | ~causal[:, None, :, None]
    elif causal:
        seen &= (back >= 0)[None, None]
    if window:
        seen &= (jnp.abs(back) <= window)[None, None]
    return seen


def bias(
    segment_ids: jax.Array, cfg: knobs.Model, window: int = 0, causal: jax.Array | None = None
) -> jax.Array:
    """Return what is added to the scores: 0 where attention is allowed, else `attention_bias`.

    A window or an empty row may forbid padding every key; its softmax stays finite because the
    bias is finite.
    """
    seen = allowed(segment_ids, cfg.causal if causal is None else causal, window)
    return jnp.where(seen, 0.0, cfg.attention_bias).astype(jnp.float32)


# --- the backends ---------------------------------------------------------------------------------


def einsum(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    mask: AttentionMask,
    cfg: knobs.Model,
    far: jax.Array | None,
    drop: Dropping,
) -> tuple[jax.Array, jax.Array]:
    """Compute all scores at once, with a softmax in float32 and dropout on its rows.

    This backend alone has probabilities to return.
    """
    bias = mask.bias
    if mask.near is not None:
        bias = mask.near if far is None else jnp.where(far, bias, mask.near)
    if cfg.position == "alibi":
        bias = bias + alibi(mask.positions, query.shape[2], mask.keys)
    query, key, value = (x.swapaxes(1, 2) for x in (query, key, value))  # [B, heads, L, d]
    kind = KINDS[cfg.dtype]
    scores = matmul(query, key, kind._replace(result="float32"), True)
    scores = scores * query.shape[-1] ** -0.5 + bias  # [B, heads, L, L]
    probabilities = jax.nn.softmax(scores, axis=-1)
    context = matmul(drop(probabilities.astype(query.dtype)), value, kind)
    return context.swapaxes(1, 2), probabilities


def cudnn(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    mask: AttentionMask,
    cfg: knobs.Model,
    far: jax.Array | None,
    drop: object = None,
    implementation: str = "cudnn",
) -> tuple[jax.Array, None]:
    """Call jax's fused attention, which supports lengths, causality and windows that look back.

    Packed rows and windows on both sides, which it does not support, are written into a boolean
    mask [B, 1, L, L], and with them all the rest but causality: it turns a mask into a bias, and
    beside a bias it takes no window.
    """
    slopes = None
    if cfg.position == "alibi":
        slopes = alibi(mask.positions, query.shape[2]).astype(query.dtype)

    def attend(window: int) -> jax.Array:
        if mask.lengths is None or (window and (slopes is not None or not cfg.causal)):
            causal = cfg.causal if mask.causal is None else mask.causal
            seen, lengths, sides = allowed(mask.segment_ids, causal, window), None, None
        else:  # an empty row is given a token, so that no sum of weights is 0
            seen, lengths = None, jnp.maximum(mask.lengths, 1)
            sides = (window, 0) if window else None
        fused: Any = jax.nn.dot_product_attention  # its type has too many unions for mypy
        context: jax.Array = fused(
            query,
            key,
            value,
            slopes,
            seen,
            is_causal=cfg.causal,
            query_seq_lengths=lengths,
            key_value_seq_lengths=lengths,
            local_window_size=sides,
            implementation=implementation,
        )
        return context

    return _of_layer(attend, cfg, far), None


def splash(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    mask: AttentionMask,
    cfg: knobs.Model,
    far: jax.Array | None,
    drop: object = None,
    interpret: bool = False,
) -> tuple[jax.Array, None]:
    """Call the TPU's kernel, which skips the blocks that causality or a window leaves empty."""
    # Imported here because the import takes a second.
    from jax.experimental.pallas.ops.tpu import splash_attention as kernels

    length, heads = query.shape[1:3]
    # The kernel does not scale the scores.
    scaled = (query.astype(jnp.float32) * query.shape[-1] ** -0.5).astype(query.dtype)
    operands = [x.swapaxes(1, 2) for x in (scaled, key, value)]  # [B, heads, L, d]

    def attend(window: int) -> jax.Array:
        sides, shape = (window or None, 0 if cfg.causal else window or None), (length, length)
        local = window or cfg.causal
        head = kernels.LocalMask(shape, sides, 0) if local else kernels.FullMask(shape)

        def of_device(ids: jax.Array, *operands: jax.Array) -> jax.Array:
            own_heads = kernels.MultiHeadMask([head] * operands[0].shape[1])
            kernel = kernels.make_splash_mha_single_device(own_heads, interpret=interpret)

            def of_row(ids: jax.Array, *operands: jax.Array) -> jax.Array:
                context: jax.Array = kernel(*operands, segment_ids=kernels.SegmentIds(ids, ids))
                return context

            return jax.vmap(of_row)(ids, *operands)

        rows, split = sharding.BATCH, sharding.by_heads(heads)
        mapped = sharding.own_part(of_device, (rows, split, split, split), split)
        context: jax.Array = mapped(mask.segment_ids, *operands)
        return context.swapaxes(1, 2)

    return _of_layer(attend, cfg, far), None


def _of_layer(
    attend: Callable[[int], jax.Array], cfg: knobs.Model, far: jax.Array | None
) -> jax.Array:
    """Attend with the window, or without it where this layer sees past it; compute only one."""
    if far is None:
        return attend(cfg.window)
    context: jax.Array = jax.lax.cond(far, lambda: attend(0), lambda: attend(cfg.window))
    return context


TABLE: Mapping[str, Attend] = {"einsum": einsum, "cudnn": cudnn, "splash": splash}


# --- which one ------------------------------------------------------------------------------------


def resolve(cfg: knobs.Model, length: int, *, train: bool, capture: bool) -> str:
    """Return the backend of a forward pass over rows of a length.

    auto is the backend this kind of device prefers, or einsum where that one cannot do what the
    pass asks for. A named backend is binding in training alone: a model trained with it must still
    run on other machines, where einsum takes its place.
    """
    auto = cfg.attention == "auto"
    name = devices.here().attention if auto else cfg.attention
    obstacle = abilities.of_model(name, cfg) or _of_pass(name, cfg, length, train, capture)
    if obstacle and train and not auto:
        raise ConfigError(f"model.attention = {name!r}: {obstacle}", abilities.HINT)
    return "einsum" if obstacle else name


def _of_pass(name: str, cfg: knobs.Model, length: int, train: bool, capture: bool) -> str:
    """Return why a backend cannot do a forward pass here; empty if it can."""
    if name == "einsum":
        return ""
    if train and cfg.attention_dropout:
        return abilities.DROPOUT
    if capture:
        return (
            "it has no probabilities to show, and model.features above 1 asks for all a layer has"
        )
    if devices.here().attention != name:
        return f"it does not run on this machine's {devices.device()}"
    return abilities.of_length(name, length) or ("" if name == "cudnn" else _of_mesh())


def _of_mesh() -> str:
    """Return why a kernel of Pallas cannot run here; empty if it can.

    XLA cannot split such a kernel over devices by itself: the mesh has to be in context, as it is
    in training (`sharding.own_part`).
    """
    if len(devices.everything()) == 1 or not jax.sharding.get_abstract_mesh().empty:
        return ""
    return "no mesh says how to split it over several devices"


def batched(cfg: knobs.Model) -> knobs.Model:
    """Return the model settings of runs that train under one vmap, which cudnn cannot.

    jax 0.10 gives cudnn the rows of all runs and, silently, the mask of one run.
    """
    if cfg.attention == "cudnn":
        raise ConfigError(
            "model.attention = 'cudnn' cannot train arms all at once", "--config.parallel.arms=map"
        )
    if devices.here().attention == "cudnn":
        return dataclasses.replace(cfg, attention="einsum")
    return cfg
