"""The vector of each example, and the pooler: a dense layer between this vector and label heads."""

import dataclasses

import jax
import jax.numpy as jnp
from jax import Array

from bert_jax import sharding
from bert_jax.batch import Batch
from bert_jax.config import knobs
from bert_jax.models.layers import ACTIVATIONS, Dense

POOLINGS = ("mean", "cls")


def find_members(batch: Batch) -> Array:
    """Tell for each example which tokens belong to it, bool [B, S, L]."""
    # Segments [1 1 2 0] with S = 2 give [T T F F] for example 1 and [F F T F] for example 2.
    examples = jnp.arange(1, batch["cls_positions"].shape[1] + 1, dtype=jnp.int32)
    return batch["segment_ids"][:, None, :] == examples[None, :, None]


def average_tokens(x: Array, batch: Batch) -> Array:
    """Return the mean of each example's vectors [B, S, D], [CLS] and [SEP] included."""
    counted = find_members(batch).astype(jnp.float32)  # [B, S, L]
    exact = jax.lax.Precision.HIGHEST
    # Accelerators would multiply float32 in a shorter type by default.
    sums = jnp.einsum("bsl,bld->bsd", counted, x.astype(jnp.float32), precision=exact)
    # An example that the row does not have is a zero vector, not 0 / 0.
    return (sums / jnp.maximum(jnp.sum(counted, -1, keepdims=True), 1.0)).astype(x.dtype)


def take_token(x: Array, batch: Batch, causal: bool) -> Array:
    """Return the vector of each example's [CLS] [B, S, D]; if causal, of its last token.

    In a causal model [CLS] attends to no other token.
    """
    columns = batch["cls_positions"]  # [B, S]
    if causal:
        every = jnp.arange(x.shape[1], dtype=jnp.int32)
        # The highest column of each example: members [F F T T F] give 3.
        columns = jnp.max(jnp.where(find_members(batch), every[None, None], 0), axis=-1)
    # Columns [[0, 7]] of row 0 pick the vectors x[0, 0] and x[0, 7].
    return jnp.take_along_axis(x, columns[..., None], axis=1)


def pool_examples(x: Array, batch: Batch, pooling: str, causal: bool) -> Array:
    """Reduce the vectors of tokens [B, L, D] to one vector for each example [B, S, D]."""
    return average_tokens(x, batch) if pooling == "mean" else take_token(x, batch, causal)


def apply_pooler(cfg: knobs.Model, x: Array, batch: Batch) -> Array:
    """Return the vectors that heads over labels read [B, S, D].

    The vectors are pooled from the vectors of the tokens. Unless pooler=transform, a dense layer of
    the calling module and an activation are then applied.
    """
    pooled = sharding.split_rows(pool_examples(x, batch, cfg.pooling, cfg.causal))
    if cfg.pooler == "transform":  # each head has layers of its own
        return pooled
    if cfg.pooler_bias is not None:
        cfg = dataclasses.replace(cfg, biases=cfg.pooler_bias)
    vectors = Dense(cfg, (x.shape[-1],), name="pooler")(pooled)
    return ACTIVATIONS[cfg.pooler](sharding.split_rows(vectors))
