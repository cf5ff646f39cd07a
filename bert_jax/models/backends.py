"""Attention backends: what turns queries, keys and values [B, L, heads, d] into a weighted sum of the same shape.

All compute the same function at real tokens. What comes out at padding is finite and differs; nobody reads it. To add
one, write a function and its row of TABLE, and say in `abilities.py` what it cannot do.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bert_jax.batch import Batch
from bert_jax.config import abilities, devices, knobs
from bert_jax.errors import ConfigError
from bert_jax.models.matmul import KINDS, product
from bert_jax.models.positions import alibi


class AttentionMask(NamedTuple):
    """Who may look at whom; what a backend does not read of it, the compiler leaves out."""

    segment_ids: jax.Array  # int32 [B, L]
    positions: jax.Array  # int32 [B, L]
    bias: jax.Array  # float32 [B, 1, L, L], added to the scores
    near: jax.Array | None = None  # the same within the window, where there is one
    lengths: jax.Array | None = None  # int32 [B], of rows that are one example and then padding
    keys: jax.Array | None = (
        None  # int32 [B, K], positions of what is seen, where it is more than the batch
    )


Attend = Callable[
    [
        jax.Array,
        jax.Array,
        jax.Array,
        AttentionMask,
        knobs.Model,
        jax.Array | None,
        Callable[[jax.Array], jax.Array],
    ],
    tuple[jax.Array, jax.Array | None],
]


def sight(batch: Batch, cfg: knobs.Model) -> AttentionMask:
    """That of a batch, for all layers."""
    ids = batch["segment_ids"]
    if "past_positions" in batch:
        return _back(batch, cfg)
    single = "cls_positions" in batch and batch["cls_positions"].shape[1] == 1
    lengths = jnp.sum((ids > 0).astype(jnp.int32), -1) if single else None
    return AttentionMask(
        ids,
        batch["positions"],
        bias(ids, cfg),
        bias(ids, cfg, cfg.window) if cfg.window else None,
        lengths,
    )


def _back(batch: Batch, cfg: knobs.Model) -> AttentionMask:
    """That of one token more of each row [B, 1], which sees those kept of it [B, K] and itself."""
    keys = jnp.concatenate([batch["past_positions"], batch["positions"]], axis=1)  # [B, K + 1]
    there = (keys >= 0)[:, None, None]
    near = (batch["positions"] - keys <= cfg.window)[:, None, None]
    bias, close = (
        jnp.where(seen, 0.0, cfg.attention_bias).astype(jnp.float32)
        for seen in (there, there & near)
    )
    return AttentionMask(
        batch["segment_ids"], batch["positions"], bias, close if cfg.window else None, keys=keys
    )


def far(cfg: knobs.Model) -> jax.Array | None:
    """Which layers see past the window [layers]; None if no layer differs from another."""
    assert cfg.layers is not None
    if not (cfg.window and cfg.global_every):
        return None
    return jnp.arange(cfg.layers, dtype=jnp.int32) % cfg.global_every == 0


def allowed(segment_ids: jax.Array, causal: bool, window: int) -> jax.Array:
    """Where attention may look, bool [B, 1, L, L].

    A token sees the tokens of its own example, at most `window` away if that is not 0. Padding sees every token and is
    seen by none.
    """
    queries, keys = segment_ids[:, None, :, None], segment_ids[:, None, None, :]
    seen = (keys != 0) & ((queries == keys) | (queries == 0))
    index = jnp.arange(segment_ids.shape[1], dtype=jnp.int32)
    back = index[:, None] - index[None, :]
    if causal:
        seen &= (back >= 0)[None, None]
    if window:
        seen &= (jnp.abs(back) <= window)[None, None]
    return seen


def bias(segment_ids: jax.Array, cfg: knobs.Model, window: int = 0) -> jax.Array:
    """What is added to the scores: 0 where attention may look, a large negative number elsewhere.

    Padding may find all it sees forbidden, by a window or in an empty row; it stays finite because the number is.
    """
    return jnp.where(allowed(segment_ids, cfg.causal, window), 0.0, cfg.attention_bias).astype(
        jnp.float32
    )


# --- the backends ---------------------------------------------------------------------------------


def einsum(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    sight: AttentionMask,
    cfg: knobs.Model,
    far: jax.Array | None,
    drop: Callable[[jax.Array], jax.Array],
) -> tuple[jax.Array, jax.Array]:
    """All scores at once: softmax in float32, dropout on its rows; alone in having probabilities to show."""
    bias = sight.bias
    if sight.near is not None:
        bias = sight.near if far is None else jnp.where(far, bias, sight.near)
    if cfg.position == "alibi":
        bias = bias + alibi(sight.positions, query.shape[2], sight.keys)
    query, key, value = (x.swapaxes(1, 2) for x in (query, key, value))  # [B, heads, L, d]
    kind = KINDS[cfg.dtype]
    scores = product(query, key, kind._replace(result="float32"), True)
    probabilities = jax.nn.softmax(
        scores * query.shape[-1] ** -0.5 + bias, axis=-1
    )  # [B, heads, L, L]
    context = product(drop(probabilities.astype(query.dtype)), value, kind)
    return context.swapaxes(1, 2), probabilities


def cudnn(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    sight: AttentionMask,
    cfg: knobs.Model,
    far: jax.Array | None,
    drop: object = None,
    implementation: str = "cudnn",
) -> tuple[jax.Array, None]:
    """The library's fused attention, which knows lengths, causality and windows that look back.

    What it does not know, packed rows and windows on both sides, a mask [B, 1, L, L] says, and then all the rest but
    causality too: beside a bias, which is what becomes of a mask, it takes no window.
    """
    slanted = (
        alibi(sight.positions, query.shape[2]).astype(query.dtype)
        if cfg.position == "alibi"
        else None
    )

    def attend(window: int) -> jax.Array:
        if sight.lengths is None or (window and (slanted is not None or not cfg.causal)):
            mask, lengths, sides = allowed(sight.segment_ids, cfg.causal, window), None, None
        else:  # an empty row is given a token, so that no sum of weights is 0
            mask, lengths, sides = (
                None,
                jnp.maximum(sight.lengths, 1),
                (window, 0) if window else None,
            )
        fused: Any = jax.nn.dot_product_attention  # with too many unions for a type checker
        found: jax.Array = fused(
            query,
            key,
            value,
            slanted,
            mask,
            is_causal=cfg.causal,
            query_seq_lengths=lengths,
            key_value_seq_lengths=lengths,
            local_window_size=sides,
            implementation=implementation,
        )
        return found

    return _of_layer(attend, cfg, far), None


def splash(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    sight: AttentionMask,
    cfg: knobs.Model,
    far: jax.Array | None,
    drop: object = None,
    interpret: bool = False,
) -> tuple[jax.Array, None]:
    """The TPU's kernel: reads segment ids, and skips the blocks that causality or a window leaves empty."""
    from jax.experimental.pallas.ops.tpu import (
        splash_attention as kernels,
    )  # takes a second to import

    length, heads = query.shape[1:3]
    scaled = (query.astype(jnp.float32) * query.shape[-1] ** -0.5).astype(
        query.dtype
    )  # the kernel does not
    operands = [x.swapaxes(1, 2) for x in (scaled, key, value)]  # [B, heads, L, d]

    def attend(window: int) -> jax.Array:
        sides, shape = (window or None, 0 if cfg.causal else window or None), (length, length)
        mask = (
            kernels.LocalMask(shape, sides, 0) if window or cfg.causal else kernels.FullMask(shape)
        )
        kernel = kernels.make_splash_mha_single_device(
            kernels.MultiHeadMask([mask] * heads), interpret=interpret
        )

        def one(ids: jax.Array, *operands: jax.Array) -> jax.Array:
            found: jax.Array = kernel(*operands, segment_ids=kernels.SegmentIds(ids, ids))
            return found

        return jax.vmap(one)(sight.segment_ids, *operands).swapaxes(1, 2)

    return _of_layer(attend, cfg, far), None


def _of_layer(
    attend: Callable[[int], jax.Array], cfg: knobs.Model, far: jax.Array | None
) -> jax.Array:
    """With the window, or without where this layer sees past it; only one of the two is computed."""
    if far is None:
        return attend(cfg.window)
    found: jax.Array = jax.lax.cond(far, lambda: attend(0), lambda: attend(cfg.window))
    return found


TABLE: Mapping[str, Attend] = {"einsum": einsum, "cudnn": cudnn, "splash": splash}


# --- which one ------------------------------------------------------------------------------------


def resolve(cfg: knobs.Model, length: int, *, train: bool, capture: bool) -> str:
    """The backend of a pass over rows of a length.

    auto is what this kind of device prefers, or einsum where that cannot do what the pass asks for. A name is binding
    for training alone: a model that was trained by it must still be read on other machines, where einsum steps in.
    """
    auto = cfg.attention == "auto"
    name = devices.here().attention if auto else cfg.attention
    obstacle = abilities.of_model(name, cfg) or _of_pass(name, cfg, length, train, capture)
    if obstacle and train and not auto:
        raise ConfigError(f"model.attention = {name!r}: {obstacle}", abilities.HINT)
    return "einsum" if obstacle else name


def _of_pass(name: str, cfg: knobs.Model, length: int, train: bool, capture: bool) -> str:
    """Why a backend cannot do a pass here; empty if it can."""
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
    """XLA cannot split a kernel of Pallas over devices by itself; under pmap nothing is left to split."""
    mesh = jax.sharding.get_abstract_mesh()
    alone = jax.device_count() == 1 or (not mesh.empty and mesh.are_all_axes_manual)
    return (
        ""
        if alone
        else "it cannot be split over devices by jit; --config.parallel.step=pmap gives each its own"
    )


def batched(cfg: knobs.Model) -> knobs.Model:
    """Of arms that a vmap goes over: jax 0.10 gives cudnn the rows of all arms and, unsaid, the mask of one's."""
    if cfg.attention == "cudnn":
        raise ConfigError(
            "model.attention = 'cudnn' cannot train arms all at once", "--config.parallel.arms=map"
        )
    return (
        dataclasses.replace(cfg, attention="einsum") if devices.here().attention == "cudnn" else cfg
    )
