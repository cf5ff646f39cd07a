"""BERT's encoder: embeddings, then layers of attention and feed-forward.

In shapes D is the width of a token's vector, V the size of the vocabulary and d the width of a
head. M is the number of keys, which is L except in generation. `batch.py` says what B, L and S are.
The defaults compute plain BERT (Devlin et al., 2019). A knob changes a line or two.

A module sows two intermediates: `hidden`, the vectors before and after each layer, and `attention`,
the probabilities of each layer. A caller asks for them by `mutable=["intermediates"]`, as
`compute_layers` does. If no caller asks, sowing does nothing.
"""

import dataclasses
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import Array

from bert_jax import sharding
from bert_jax.batch import Batch, Encoded
from bert_jax.config import devices, knobs
from bert_jax.models import backends, gpt_bert
from bert_jax.models.attention_mask import AttentionMask, find_window, make_attention_mask
from bert_jax.models.layers import (
    ACTIVATIONS,
    Dense,
    Dropout,
    Norm,
    draw_token_rows,
    draw_weights,
    recompute_in_backward,
)
from bert_jax.models.matmul import PRECISIONS
from bert_jax.models.pooler import apply_pooler
from bert_jax.models.positions import make_sinusoids, rotate
from bert_jax.models.scan import scan_layers, wrap_with_remat


def pad_vocabulary(cfg: knobs.Model, vocab_size: int) -> int:
    """Return the number of rows of the token table: the vocabulary rounded up, for speed."""
    return -(-vocab_size // cfg.vocab_multiple) * cfg.vocab_multiple


class Embeddings(nn.Module):
    """The sum of the token, segment and position vectors, then norm and dropout."""

    cfg: knobs.Model
    vocab_size: int
    train: bool

    @nn.compact
    def __call__(self, batch: Batch) -> tuple[Array, Array]:
        """Return the vectors [B, L, table_width] and the token table.

        The tied MLM head reads the table too. The table is [V padded, table_width], or a copy of it
        for each device: see `sharding.copy_per_device`.
        """
        cfg = self.cfg
        width = cfg.table_width
        # After masking, if the batch is masked.
        tokens = batch["inputs"] if "inputs" in batch else batch["tokens"]  # [B, L]
        shape = (pad_vocabulary(cfg, self.vocab_size), width)
        token_table = self.param("token", draw_token_rows(cfg, self.vocab_size), shape, jnp.float32)

        def look_up(table: Array, ids: Array) -> Array:
            return jnp.take(table, ids, axis=0)

        # On one device this is the table itself. On several, the gradients of the lookup and
        # of the tied MLM head are added on each device, and then reduced once.
        table_per_device = sharding.copy_per_device(token_table)
        x = sharding.apply_to_copy(look_up, table_per_device, tokens)
        if cfg.type_vocab:
            # With one type, both texts of a pair are of that type.
            types = jnp.minimum(batch["type_ids"], cfg.type_vocab - 1)
            vectors = self.param("type", draw_weights(cfg), (cfg.type_vocab, width), jnp.float32)
            # There are few types: the gradient of a matmul is faster than a scatter.
            chosen = jax.nn.one_hot(types, cfg.type_vocab, dtype=jnp.float32)
            # At less precision an accelerator would round the vectors: see `matmul.py`.
            x += jnp.matmul(chosen, vectors, precision="highest")
        if cfg.position == "learned":
            shape = (cfg.max_positions, width)
            learned = self.param("position", draw_weights(cfg), shape, jnp.float32)
            position_rows = batch["positions"] + cfg.first_position  # RoBERTa counts from 2
            x += jnp.take(sharding.keep_whole(learned), position_rows, axis=0)
        elif cfg.position == "sinusoidal":
            past_length = batch["past_positions"].shape[1] if "past_positions" in batch else 0
            sinusoids = jnp.asarray(make_sinusoids(past_length + tokens.shape[1], width))
            x += jnp.take(sinusoids, batch["positions"], axis=0)
        if cfg.embedding_norm:
            x = Norm(cfg, name="norm")(x)
        # The sum and its norm are in float32; the layers read the compute type.
        x = x.astype(PRECISIONS[cfg.dtype].result)
        return Dropout(cfg.dropout, self.train)(x), table_per_device


class Attention(nn.Module):
    """Multi-head self-attention."""

    cfg: knobs.Model
    train: bool
    backend: str

    @nn.compact
    def __call__(self, x: Array, mask: AttentionMask) -> Array:
        cfg = self.cfg
        assert cfg.heads is not None
        head_shape = (cfg.heads, x.shape[-1] // cfg.heads)
        project_query = Dense(cfg, head_shape, name="query")
        project_key = Dense(cfg, head_shape, name="key")
        query = project_query(x)  # [B, L, heads, d]
        key = project_key(x)
        value = Dense(cfg, head_shape, name="value")(x)
        if cfg.position == "rotary":
            base = cfg.rotary_base
            if mask.window and cfg.rotary_base_near is not None:
                # ModernBERT has base 10,000 in layers with a window, and 160,000 in the others.
                base = cfg.rotary_base_near
            query, key = (rotate(y, mask.positions, base) for y in (query, key))
        # Keys are stored after their rotation, so that a stored key is never rotated again.
        key, value = self.join_past(key, value)
        drop = Dropout(cfg.attention_dropout, self.train)
        if mask.relative_vectors is not None:  # relative positions add scores of distances
            distances = drop(mask.relative_vectors)
            # Distances share the projections of the tokens: [buckets, D] to [buckets, heads, d].
            query, mask = gpt_bert.add_distances(
                cfg, query, key, project_query(distances), project_key(distances), mask
            )
        compute_attention = backends.TABLE[self.backend]
        context, probabilities = compute_attention(query, key, value, mask, cfg, drop)
        if probabilities is not None:
            self.sow("intermediates", "attention", probabilities)  # [B, heads, L, M]
        if cfg.attention_gate:
            context = gpt_bert.gate_attention(cfg, x, context)
        if cfg.inner_norm:
            context = gpt_bert.norm_attention(cfg, context)
        # From [B, L, heads, d] to [B, L, D]: one matmul joins the heads.
        return Dense(cfg, (x.shape[-1],), axes=2, name="out")(context)

    def join_past(self, key: Array, value: Array) -> tuple[Array, Array]:
        """Return the keys and values, preceded by the keys and values of earlier tokens.

        A causal model that continues a text then need not read the text again. The earlier keys and
        values are read from the collection `past`, if there is one. The new ones are sown in the
        collection `kept`, for the next call. Sowing does nothing unless `kept` is mutable.
        """
        self.sow("kept", "pair", (key, value))
        if not self.has_variable("past", "pair"):
            return key, value
        # Sowing collects the values of a name in a tuple, and here there is one value.
        past_pair: tuple[Array, Array] = self.get_variable("past", "pair")[0]
        key = jnp.concatenate([past_pair[0], key], axis=1)  # [B, M, heads, d]
        return key, jnp.concatenate([past_pair[1], value], axis=1)


class FeedForward(nn.Module):
    """Two dense layers with an activation between them; with `gated` a third one as a gate."""

    cfg: knobs.Model

    @nn.compact
    def __call__(self, x: Array) -> Array:
        cfg = dense_cfg = self.cfg
        if cfg.mlp_biases is not None:
            dense_cfg = dataclasses.replace(cfg, biases=cfg.mlp_biases)
        assert cfg.mlp is not None
        activation = recompute_in_backward(ACTIVATIONS[cfg.activation], cfg)
        hidden = activation(Dense(dense_cfg, (cfg.mlp,), name="up")(x))
        if cfg.gated:
            # A gated linear unit; with gelu it is GeGLU (Shazeer, 2020): gelu(up(x)) * gate(x).
            hidden *= Dense(dense_cfg, (cfg.mlp,), name="gate")(x)
        if cfg.inner_norm:
            hidden = Norm(cfg, name="norm")(hidden)
        return Dense(dense_cfg, (x.shape[-1],), name="down")(hidden)


class Block(nn.Module):
    """A layer: attention, then feed-forward, each with dropout, a residual sum and a norm.

    The norm follows the residual sum, as in BERT, or precedes the attention and the feed-forward.
    `attend` and `feed_forward` are separate, because `model.layer_weights` puts a weighted sum
    after each.
    """

    cfg: knobs.Model
    layer: int
    train: bool
    backend: str

    def setup(self) -> None:
        cfg = self.cfg
        self.attention = Attention(cfg, self.train, self.backend)
        self.mlp = FeedForward(cfg)
        self.drop = Dropout(cfg.dropout, self.train)
        # The embeddings may have been normalised already.
        # ModernBERT's first layer has no norm before its attention for this reason.
        self.reads_unnormed = cfg.norm == "pre" and not cfg.first_norm and self.layer == 0
        if not self.reads_unnormed:
            self.attention_norm = Norm(cfg)
        self.mlp_norm = Norm(cfg)

    def attend(self, x: Array, mask: AttentionMask) -> Array:
        """Apply the attention with its residual sum and norm; return the vectors."""
        x = sharding.split_rows(x)
        if self.cfg.norm == "post":
            return self.attention_norm(x + self.drop(self.attention(x, mask)))
        attention_input = x if self.reads_unnormed else self.attention_norm(x)
        return x + self.drop(self.attention(attention_input, mask))

    def feed_forward(self, x: Array) -> Array:
        """Apply the feed-forward with its residual sum and norm; return the vectors."""
        if self.cfg.norm == "post":
            x = self.mlp_norm(x + self.drop(self.mlp(x)))
        else:
            x = x + self.drop(self.mlp(self.mlp_norm(x)))
        return sharding.split_rows(x)

    def __call__(self, x: Array, mask: AttentionMask) -> Array:
        return self.feed_forward(self.attend(x, mask))


class Encoder(nn.Module):
    """The encoder, which turns tokens into vectors, and with `pool` a vector for each example.

    If the embeddings have another width than the layers, a projection follows them. The parameters
    of layer i, from 0, are the subtree `layer_i`. With `model.features` = n > 1, the vectors of the
    last n layers are also returned side by side, for a head over labels.
    """

    cfg: knobs.Model
    vocab_size: int
    train: bool = False
    pool: bool = True

    @nn.compact
    def __call__(
        self, batch: Batch, embeddings: Encoded | None = None, embed_only: bool = False
    ) -> Encoded:
        """Encode a batch; with `embed_only` return only its embeddings.

        If `embeddings` of another encoder are given, they replace the embeddings of this one:
        ELECTRA's generator reads the embeddings of the discriminator.
        """
        # A `Network` has filled in these knobs already, but other callers have not.
        cfg = devices.fill_machine_knobs(self.cfg, train=self.train)
        if embeddings is None:
            x, table = Embeddings(cfg, self.vocab_size, self.train, name="embeddings")(batch)
        else:
            x = embeddings.hidden
            table = embeddings.embedding_table
        if embed_only:
            return Encoded(x, None, table)
        assert cfg.hidden is not None
        if x.shape[-1] != cfg.hidden:
            x = Dense(cfg, (cfg.hidden,), name="projection")(x)
        self.sow("intermediates", "hidden", x)
        states = self.run_layers(cfg, x, batch)
        final_norm = Norm(cfg, name="final_norm") if cfg.norm == "pre" else lambda x: x
        x = final_norm(states[-1])  # [B, L, D]
        for state in (*states[:-1], x):
            self.sow("intermediates", "hidden", state)
        pooled = apply_pooler(cfg, x, batch) if self.pool else None
        features = None
        if cfg.features > 1:  # [B, L, features x D]
            features = jnp.concatenate([final_norm(y) for y in states[-cfg.features :]], axis=-1)
        return Encoded(x, pooled, table, features)

    def run_layers(self, cfg: knobs.Model, x: Array, batch: Batch) -> list[Array]:
        """Return the vectors [B, L, D] after each layer; with model.scan, only after the last."""
        assert cfg.layers is not None
        returns_attention = self.is_mutable_collection("intermediates")
        length = batch["segment_ids"].shape[1]
        backend = backends.choose_backend(
            cfg, length, train=self.train, returns_attention=returns_attention
        )
        relative = None
        if cfg.position == "relative":
            relative = gpt_bert.RelativePositions(cfg, name="relative_positions")()
        windows = [find_window(cfg, layer) for layer in range(cfg.layers)]
        masks = {  # one for each window, not for each layer
            window: make_attention_mask(batch, cfg, window, relative)
            for window in dict.fromkeys(windows)
        }
        # A loop sows nothing, and cannot create the subtrees `layer_i` when parameters are made.
        returns_layers = returns_attention or self.is_mutable_collection("kept")
        if cfg.scan and not returns_layers and not self.is_initializing():
            dropout_key = self.make_rng("dropout") if self.has_rng("dropout") else None
            layer_params = [self.variables["params"][f"layer_{i}"] for i in range(cfg.layers)]
            # All layers are alike (`Model.can_scan`), so the first stands for each; with no parent
            # it adds no subtree.
            block = Block(cfg, 0, self.train, backend, parent=None)
            return [scan_layers(block, layer_params, x, masks[windows[0]], dropout_key)]

        block_class = wrap_with_remat(Block, cfg)
        layers = [
            block_class(cfg, i, self.train, backend, name=f"layer_{i}") for i in range(cfg.layers)
        ]
        if cfg.layer_weights:
            return gpt_bert.run_weighted(cfg, layers, x, masks)
        states = [x]
        for layer, window in zip(layers, windows, strict=True):
            states.append(layer(states[-1], masks[window]))
        return states[1:]


class LayerOutputs(NamedTuple):
    """The vectors and the attention of every layer, and the table of token vectors."""

    # [layers + 1, B, L, D]: the embeddings, then the output of each layer; the last one after the
    # final norm
    hidden: Array
    attention: Array  # float32 [layers, B, heads, L, L]
    embedding_table: Array  # [V padded, table_width]


def compute_layers(cfg: knobs.Model, vocab_size: int, params: Any, batch: Batch) -> LayerOutputs:
    """Run an encoder for inference; return the vectors and the attention of every layer."""
    encoder = Encoder(cfg, vocab_size, pool=False)
    encoded: Any
    encoded, captured = encoder.apply({"params": params}, batch, mutable=["intermediates"])
    intermediates: Any = captured["intermediates"]
    layers = [intermediates[f"layer_{i}"] for i in range(cfg.layers or 0)]
    attention = [layer["attention"]["attention"][0] for layer in layers]
    return LayerOutputs(
        jnp.stack(intermediates["hidden"]), jnp.stack(attention), encoded.embedding_table
    )
