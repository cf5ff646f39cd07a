"""The parts that GPT-BERT adds to the encoder (Charpentier and Samuel, 2024).

These are scores of distances (disentangled attention, as in DeBERTa and LTG-BERT), a gate and a
norm within attention, and learned weights of the outputs of all blocks (DenseFormer).
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bert_jax import sharding
from bert_jax.config import devices, knobs
from bert_jax.models.attention_mask import AttentionMask, find_window
from bert_jax.models.layers import Dense, Norm, draw_weights, gelu, recompute_in_backward
from bert_jax.models.matmul import PRECISIONS, matmul

# --- scores of distances --------------------------------------------------------------------------


class RelativePositions(nn.Module):
    """Vectors of distances, one for each bucket of distances [buckets, D], shared by all layers.

    The norm of these vectors always has parameters, even if other norms have none, as in LTG-BERT.
    """

    cfg: knobs.Model

    @nn.compact
    def __call__(self) -> Array:
        cfg = self.cfg
        assert cfg.hidden is not None
        # position_buckets - 1 in each direction, and one for the distance 0.
        shape = (2 * cfg.position_buckets - 1, cfg.hidden)
        table = self.param("table", draw_weights(cfg), shape, jnp.float32)
        full = dataclasses.replace(cfg, norm_kind="layer", norm_parameters=True, biases=True)
        return Norm(full, name="norm")(sharding.keep_whole(table))


def assign_buckets(cfg: knobs.Model) -> np.ndarray:
    """Return the bucket of each distance from 1 - max_positions to max_positions - 1.

    A distance of 0 has the middle bucket, number position_buckets - 1. In either direction, each
    distance up to half of position_buckets has a bucket to itself. Longer distances share buckets
    whose bounds are a geometric series, as in DeBERTa.
    """
    own = cfg.position_buckets // 2
    last = cfg.max_positions - 1
    distance = np.arange(-last, last + 1)
    times = np.maximum(np.abs(distance), own) / own
    # Less a rounding error, without which the last distance might lie in a bucket past the last.
    shared = own + np.ceil(np.log(times) / np.log(last / own) * (own - 1) - 1e-9)
    bucket = np.where(np.abs(distance) <= own, distance, np.sign(distance) * shared)
    # With position_buckets 4 and max_positions 9, the distances 0 to 8 have the buckets
    # 3 4 5 6 6 6 6 6 6, and the distances -1 to -8 have 2 1 0 0 0 0 0 0.
    return (bucket + cfg.position_buckets - 1).astype(np.int32)


def add_distances(
    cfg: knobs.Model,
    query: Array,
    key: Array,
    distance_query: Array,
    distance_key: Array,
    mask: AttentionMask,
) -> tuple[Array, AttentionMask]:
    """Put the scores of distances into the mask as its bias; return the scaled query and the mask.

    A query is compared with the key of the distance, and a key with the query of the distance. The
    query is scaled because three scores are added.

    Args:
      cfg: the compute type and the buckets.
      query: the queries of tokens [B, L, heads, d].
      key: the keys of tokens [B, M, heads, d].
      distance_query: the queries of distances [buckets, heads, d].
      distance_key: the keys of distances [buckets, heads, d].
      mask: the attention mask, with the distance between each two tokens.
    """
    # Disentangled attention (DeBERTa): Qc Kc' + Qc Kr' + Kc Qr' over sqrt(3 d),
    # c of the tokens' contents and r of their relative positions.
    third = 3**-0.5
    query = query * third
    distance_query = distance_query * third
    last = cfg.max_positions - 1
    # [B, L, M]. Index 0 of the table is the distance -last, and longer distances are clipped.
    bucket = jnp.take(jnp.asarray(assign_buckets(cfg)), jnp.clip(mask.distance, -last, last) + last)
    count = len(distance_key)
    batch, _, heads, width = query.shape

    def choose(tokens: Array, vectors: Array, axis: str) -> Array:
        """Return each token's products with the vectors of its distances to all other tokens."""
        flat = tokens.transpose(2, 0, 1, 3).reshape(heads, -1, width)  # [heads, B x L, d]
        products = matmul(flat, vectors.swapaxes(0, 1), PRECISIONS[cfg.dtype], True)
        products = products.reshape(heads, batch, -1, count)
        if devices.find_kind() == "cpu":  # which lacks some matmuls in bfloat16
            products = products.astype(jnp.float32)
        # A matmul: neither it nor its gradient gathers or scatters.
        places = jax.nn.one_hot(bucket, count, dtype=products.dtype)  # [B, L, M, buckets]
        # For axis i: chosen[b, h, i, j] = products[h, b, i, bucket[b, i, j]]. For axis j, a key's
        # distances are looked up: products[h, b, j, bucket[b, i, j]].
        chosen = jnp.einsum(f"hb{axis}r,bijr->bhij", products, places)
        return chosen.astype(jnp.float32)

    added = choose(query, distance_key, "i") + choose(key, distance_query, "j")
    # The backend scales only its own scores by 1 / sqrt(d), and adds the bias afterwards.
    return query, dataclasses.replace(mask, bias=added * width**-0.5)


# --- within attention -----------------------------------------------------------------------------


def gate_attention(cfg: knobs.Model, x: Array, context: Array) -> Array:
    """Multiply attention's output by gelu(dense(x)), where x is the input of attention."""
    gate = Dense(cfg, context.shape[2:], name="gate")(x)
    return context * recompute_in_backward(gelu, cfg)(gate)


def norm_attention(cfg: knobs.Model, context: Array) -> Array:
    """Normalise the output of attention [B, L, heads, d] over all heads together."""
    flat = context.reshape(*context.shape[:2], -1)
    return Norm(cfg, name="norm")(flat).reshape(context.shape)


# --- weights of layers ----------------------------------------------------------------------------


class LayerWeights(nn.Module):
    """Learned weights of DenseFormer's sums over the embeddings and all outputs so far.

    A block is the attention or the feed-forward of a layer, so n layers have 2 n blocks. Sum k,
    from 0, follows block k, and has a weight for the embeddings and for each output up to block k:
    k + 2 weights. All weights are in one array. At the start of training a sum is only its latest
    output.
    """

    layers: int

    @nn.compact
    def __call__(self) -> list[Array]:
        counts = [number + 2 for number in range(2 * self.layers)]
        ends = np.cumsum(counts)  # of 2 layers: counts 2 3 4 5, ends 2 5 9 14
        # The last weight of each sum is 1, for its latest output: at 1, 4, 8 and 13.
        fresh = jnp.zeros(ends[-1], jnp.float32).at[ends - 1].set(1.0)
        weights = sharding.keep_whole(self.param("weights", lambda key: fresh))
        return jnp.split(weights, ends[:-1])


def run_weighted(
    cfg: knobs.Model, layers: Sequence[Any], x: Array, masks: Mapping[int, AttentionMask]
) -> list[Array]:
    """Run layers whose blocks read weighted sums of all earlier outputs.

    Args:
      cfg: the settings of the layers.
      layers: the layers, each an `encoder.Block`.
      x: the embeddings [B, L, D].
      masks: {window: attention mask}.

    Returns:
      The sum after each layer [B, L, D].
    """
    weights = iter(LayerWeights(len(layers), name="layer_weights")())
    outputs = [x]
    states: list[Array] = []

    def add(weights: Array, outputs: Sequence[Array]) -> Array:
        terms = [weights[i] * y.astype(jnp.float32) for i, y in enumerate(outputs)]
        return sum(terms[1:], terms[0]).astype(x.dtype)

    for i, layer in enumerate(layers):
        outputs.append(layer.attend(x, masks[find_window(cfg, i)]))
        x = recompute_in_backward(add, cfg)(next(weights), outputs)
        outputs.append(layer.feed_forward(x))
        x = recompute_in_backward(add, cfg)(next(weights), outputs)
        states.append(x)
    return states
