"""The BERT encoder: embeddings, a stack of layers, a pooler.

In shapes D is the width of a token's vector and V the size of the vocabulary; `batch.py` says what
B, L, S and K are.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from bert_jax import sharding
from bert_jax.batch import Batch, Encoded
from bert_jax.config import devices, knobs
from bert_jax.models import backends
from bert_jax.models.attention import Attention
from bert_jax.models.layers import (
    ACTIVATIONS,
    Dense,
    Dropout,
    LayerNorm,
    gelu,
    recomputed,
    token_rows,
    weights,
)
from bert_jax.models.positions import sinusoids
from bert_jax.models.precision import KINDS

# Activations of the encoder's pooler.
POOLERS = {"tanh": jnp.tanh, "relu": jax.nn.relu, "gelu": gelu}


def _is_product(primitive: Any, *_: Any, **__: Any) -> bool:
    """Tell whether a primitive is a matmul or a fused attention, which are dear to repeat."""
    return primitive.name == "dot_general" or "attention_fwd" in primitive.name


REMAT = {  # what the backward pass of a layer finds stored, besides the layer's input
    "dots": _is_product,
    "full": None,
}


def padded_vocab(cfg: knobs.Model, vocab_size: int) -> int:
    """Return the rows of the embedding table: the vocabulary rounded up, for speed."""
    return -(-vocab_size // cfg.vocab_multiple) * cfg.vocab_multiple


def pooled_positions(cfg: knobs.Model, batch: Batch) -> jax.Array:
    """Return the column at which the vector of each example is read [B, S].

    It is that of [CLS]; in a causal model, whose [CLS] sees itself alone, that of the last token.
    """
    first = batch["cls_positions"]
    if not cfg.causal:
        return first
    columns = jnp.arange(batch["segment_ids"].shape[1], dtype=jnp.int32)
    examples = jnp.arange(1, first.shape[1] + 1, dtype=jnp.int32)
    member = batch["segment_ids"][:, None, :] == examples[None, :, None]  # [B, S, L]
    return jnp.max(jnp.where(member, columns[None, None], 0), axis=-1)


def pooled_vectors(cfg: knobs.Model, batch: Batch, x: jax.Array) -> jax.Array:
    """Return one vector of each example [B, S, D]: that of a token, or the mean over its tokens."""
    if cfg.pooling == "cls":
        return jnp.take_along_axis(x, pooled_positions(cfg, batch)[..., None], axis=1)
    examples = jnp.arange(1, batch["cls_positions"].shape[1] + 1, dtype=jnp.int32)
    member = batch["segment_ids"][:, None, :] == examples[None, :, None]
    counted = member.astype(jnp.float32)  # [B, S, L]
    exact = jax.lax.Precision.HIGHEST
    sums = jnp.einsum("bsl,bld->bsd", counted, x.astype(jnp.float32), precision=exact)
    return (sums / jnp.maximum(jnp.sum(counted, -1, keepdims=True), 1.0)).astype(x.dtype)


class Embeddings(nn.Module):
    """Sum of token, segment and position vectors, LayerNorm, dropout, and nothing else.

    With embedding_norm=false the norm too is left out.
    """

    cfg: knobs.Model
    vocab_size: int
    train: bool
    length: int  # positions are below it

    @nn.compact
    def __call__(
        self, tokens: jax.Array, type_ids: jax.Array, positions: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        cfg, width = self.cfg, self.cfg.table_width
        shape = padded_vocab(cfg, self.vocab_size), width
        table = self.param("token", token_rows(cfg, self.vocab_size), shape, jnp.float32)
        if cfg.type_vocab:
            types = self.param("type", weights(cfg), (cfg.type_vocab, width), jnp.float32)
        table = sharding.copies(table)
        x = lookup(table, tokens)  # [B, L, D]
        if cfg.type_vocab:
            if cfg.type_vocab == 1:  # both texts of a pair are of the one type
                type_ids = jnp.minimum(type_ids, 0)
            # There are few types: the gradient of a matmul is faster than a scatter.
            x += jax.nn.one_hot(type_ids, cfg.type_vocab, dtype=jnp.float32) @ types
        if cfg.position == "learned":
            shape = (cfg.max_positions, width)
            learned = self.param("position", weights(cfg), shape, jnp.float32)
            x += jnp.take(sharding.whole(learned), positions + cfg.first_position, axis=0)
        elif cfg.position == "sinusoidal":
            x += jnp.take(jnp.asarray(sinusoids(self.length, width)), positions, axis=0)
        x = LayerNorm(cfg, name="norm")(x) if cfg.embedding_norm else x
        return Dropout(cfg.dropout, self.train)(x).astype(KINDS[cfg.dtype].result), table


def lookup(table: jax.Array, tokens: jax.Array) -> jax.Array:
    """Return the rows of a table for tokens [B, L], on each device from its own copy."""
    if table.ndim == 2:
        return jnp.take(table, tokens, axis=0)
    rows = sharding.BATCH
    own = sharding.own_part(lambda t, ids: jnp.take(t[0], ids, axis=0), (rows, rows), rows)
    vectors: jax.Array = own(table, tokens)
    return vectors


class RelativePositions(nn.Module):
    """Vectors of the buckets of distances, which the queries and keys of every layer are made of.

    They alone keep the parameters of their norm where others have none, as in LTG-BERT.
    """

    cfg: knobs.Model

    @nn.compact
    def __call__(self) -> jax.Array:
        cfg = self.cfg
        assert cfg.hidden is not None
        shape = (2 * cfg.position_buckets - 1, cfg.hidden)
        table = self.param("table", weights(cfg), shape, jnp.float32)
        full = dataclasses.replace(cfg, norm_kind="layer", norm_parameters=True, biases=True)
        x = LayerNorm(full, name="norm")(sharding.whole(table))
        return x.astype(KINDS[cfg.dtype].result)


class LayerWeights(nn.Module):
    """Weights of the outputs of all blocks in what the next one reads; embeddings are the first.

    A block is the attention or the feed-forward of a layer: there are 2 n of them. The parameter
    has the 2 weights of what the second block reads, then the 3 of the third, and so on up to the
    2 n + 1 of what the encoder returns; at first 1 for the latest of each, else 0.
    """

    layers: int

    @nn.compact
    def __call__(self) -> tuple[jax.Array, jax.Array]:
        """Return an output's weights in the sums still to be read, the next of them first.

        Those of the embeddings are [2 n], those of blocks [n, 2, 2 n], with 0 where no sum is left.
        """
        blocks = 2 * self.layers
        sums, outputs = np.tril_indices(blocks, 1, blocks + 1)
        latest = jnp.asarray(outputs == sums + 1, jnp.float32)
        learned = sharding.whole(self.param("weights", lambda key: latest))
        ahead = sums - np.maximum(outputs - 1, 0)
        table = jnp.zeros((blocks + 1, blocks), jnp.float32).at[outputs, ahead].set(learned)
        return table[0], table[1:].reshape(self.layers, 2, blocks)


Sums = tuple[jax.Array, ...]  # float32 [B, L, D] of each block still to come, the next one first


def added(sums: Sums, shares: jax.Array, x: jax.Array) -> Sums:
    """Add an output to the sums that it has shares of."""
    wide = x.astype(jnp.float32)
    return tuple(total + share * wide for total, share in zip(sums, shares, strict=True))


def next_sum(sums: Sums, shares: jax.Array, x: jax.Array) -> tuple[jax.Array, Sums]:
    """Add the output of a block to the sums; return the one to be read next, and the others."""
    # The backward pass converts the output again: what is stored has the compute type.
    add = added if devices.device() == "cpu" else jax.checkpoint(added)
    first, *rest = add(sums, shares, x)
    return first.astype(x.dtype), (*rest, jnp.zeros_like(first))


class Mlp(nn.Module):
    """Feed-forward block, gated or plain."""

    cfg: knobs.Model

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        cfg = self.cfg
        if cfg.mlp_biases is not None:
            cfg = dataclasses.replace(cfg, biases=cfg.mlp_biases)
        assert cfg.mlp is not None
        activation = recomputed(ACTIVATIONS[cfg.activation], cfg)
        hidden = activation(Dense(cfg, (cfg.mlp,), name="up")(x))
        if cfg.gated:
            hidden *= Dense(cfg, (cfg.mlp,), name="gate")(x)
        if cfg.inner_norm:
            hidden = LayerNorm(self.cfg, name="norm")(hidden)
        return Dense(cfg, (x.shape[-1],), name="down")(hidden)


class Layer(nn.Module):
    """Attention and feed-forward, each with dropout, a residual and a norm (post or pre).

    `far` lifts the window from the attention, and `first` takes the norm before it away. With
    `shares` (see `LayerWeights`) the layer takes and returns the sums of the layers to come beside
    its vectors, and remat is of its two blocks: it would store the sums of every layer.
    """

    cfg: knobs.Model
    train: bool
    capture: bool
    backend: str = "einsum"

    @nn.compact
    def __call__(
        self,
        x: Any,
        mask: backends.AttentionMask,
        far: jax.Array | None = None,
        first: jax.Array | None = None,
        shares: jax.Array | None = None,
    ) -> tuple[Any, tuple | None]:
        if shares is None:
            x, probabilities = self.attend(x, mask, far, first)
            x = self.feed(x)
            return x, (x, probabilities) if self.capture else None
        x, sums = x
        x, probabilities = rematted(Layer.attend, self.cfg)(self, x, mask, far, first)
        x, sums = next_sum(sums, shares[0], x)
        x = rematted(Layer.feed, self.cfg)(self, x)
        x, sums = next_sum(sums, shares[1], x)
        return (x, sums), (x, probabilities) if self.capture else None

    def attend(
        self,
        x: jax.Array,
        mask: backends.AttentionMask,
        far: jax.Array | None,
        first: jax.Array | None,
    ) -> tuple[jax.Array, jax.Array | None]:
        """Return the vectors after the attention, and its probabilities."""
        cfg, pre = self.cfg, self.cfg.norm == "pre"
        x = sharding.along_rows(x)
        norm = LayerNorm(cfg, name="attention_norm")
        attention = Attention(cfg, self.train, self.backend, name="attention")
        read = norm(x) if pre else x
        read = read if first is None else jnp.where(first, x, read)
        attended, probabilities = attention(read, mask, far)
        x = x + Dropout(cfg.dropout, self.train)(attended)
        return x if pre else norm(x), probabilities

    def feed(self, x: jax.Array) -> jax.Array:
        """Return the vectors after the feed-forward."""
        cfg, pre = self.cfg, self.cfg.norm == "pre"
        norm = LayerNorm(cfg, name="mlp_norm")
        y = Mlp(cfg, name="mlp")(norm(x) if pre else x)
        x = x + Dropout(cfg.dropout, self.train)(y)
        return sharding.along_rows(x if pre else norm(x))


def rematted(function: Any, cfg: knobs.Model) -> Any:
    """Return a layer, or one of its blocks, whose backward pass computes again what remat says."""
    if cfg.remat == "none":
        return function
    return nn.remat(function, prevent_cse=not cfg.scan, policy=REMAT[cfg.remat])


class Bert(nn.Module):
    """Encoder: tokens to vectors, and a pooled vector for each example.

    Embeddings of another width than the layers are followed by a projection. The pooled vector is
    that of its [CLS] through a dense layer and tanh, unless `pooling` and `pooler` say otherwise.
    Layers are one stacked set of parameters, whether compiled as a loop or unrolled: what differs
    between them are arrays [layers] that the loop reads.
    """

    cfg: knobs.Model
    vocab_size: int
    train: bool = False
    pool: bool = True
    # Return every layer's vectors and attention; the compiler leaves out those that are not read.
    capture: bool = False

    @nn.compact
    def __call__(
        self, batch: Batch, embeddings: Encoded | None = None, embed_only: bool = False
    ) -> Encoded:
        """Encode a batch, or only embed it; an encoder may be given the embeddings of another."""
        cfg = devices.settled(self.cfg, train=self.train)
        tokens = batch["inputs"] if "inputs" in batch else batch["tokens"]  # [B, L]
        past = batch["past_positions"].shape[1] if "past_positions" in batch else 0
        length = tokens.shape[1] + past
        if embeddings is None:
            embed = Embeddings(cfg, self.vocab_size, self.train, length, name="embeddings")
            x, table = embed(tokens, batch["type_ids"], batch["positions"])
        else:
            x, table = embeddings.hidden, embeddings.embedding_table
        if embed_only:
            return Encoded(x, None, table)
        assert cfg.hidden is not None
        if x.shape[-1] != cfg.hidden:
            x = Dense(cfg, (cfg.hidden,), name="projection")(x)
        embedded = x

        stack = nn.scan(
            Layer if cfg.layer_weights else rematted(Layer, cfg),
            variable_axes={"params": 0, "intermediates": 0, "past": 0},
            split_rngs={"params": True, "dropout": True},
            in_axes=(nn.broadcast, 0, 0, 0),
            length=cfg.layers,
            unroll=1 if cfg.scan else cfg.layers or 1,
        )
        backend = backends.resolve(cfg, tokens.shape[1], train=self.train, capture=self.capture)
        layers = stack(cfg, self.train, self.capture, backend, name="layers")
        skips = cfg.norm == "pre" and not cfg.first_norm
        first = jnp.arange(cfg.layers or 1, dtype=jnp.int32) == 0 if skips else None
        mask, far = backends.attention_mask(batch, cfg), backends.global_layers(cfg)
        if cfg.position == "relative":
            mask = mask._replace(distances=RelativePositions(cfg, name="relative_positions")())
        if cfg.layer_weights:
            of_embeddings, of_blocks = LayerWeights(cfg.layers or 1, name="layer_weights")()
            nothing = (jnp.zeros(x.shape, jnp.float32),) * len(of_embeddings)
            carried = x, added(nothing, of_embeddings, x)
            (x, _), captured = layers(carried, mask, far, first, of_blocks)
        else:
            x, captured = layers(x, mask, far, first, None)
        normed = LayerNorm(cfg, name="final_norm") if cfg.norm == "pre" else lambda x: x
        x = normed(x)

        pooled = None
        if self.pool:
            pooled = sharding.along_rows(pooled_vectors(cfg, batch, x))  # [B, S, D]
            if cfg.pooler != "transform":
                biases = cfg.biases if cfg.pooler_bias is None else cfg.pooler_bias
                own = dataclasses.replace(cfg, biases=biases)
                vectors = Dense(own, (x.shape[-1],), name="pooler")(pooled)
                pooled = POOLERS[cfg.pooler](sharding.along_rows(vectors))
        if captured is None:
            return Encoded(x, pooled, table)
        layers, probabilities = captured
        hidden = jnp.concatenate([embedded[None], layers[:-1], x[None]])
        # [B, L, features x D]
        last = jnp.concatenate([normed(layer) for layer in layers[-cfg.features :]], axis=-1)
        return Encoded(x, pooled, table, hidden, probabilities, last)
