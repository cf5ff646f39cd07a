"""The encoder with the heads of its objectives, as one module."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.batch import HOST_KEYS, Batch
from bert_jax.config import devices, knobs
from bert_jax.models.bert import Bert
from bert_jax.models.precision import KINDS
from bert_jax.objectives import TABLE


class Network(nn.Module):
    """Encoder and heads: a batch to one output a head."""

    cfg: knobs.Model
    vocab_size: int
    heads: tuple[tuple[str, int], ...]  # names, and numbers of labels
    train: bool = False
    shift: bool = False  # a masked token is predicted from the place before it

    @nn.compact
    def __call__(self, batch: Batch) -> dict[str, jax.Array]:
        cfg = devices.settled(self.cfg, train=self.train)
        capture = cfg.features > 1
        pool = any(TABLE[name].pooled for name, _ in self.heads) and not capture
        encoded = Bert(cfg, self.vocab_size, self.train, pool, capture, name="encoder")(batch)
        if self.shift:
            places = jnp.maximum(batch["predict_positions"] - 1, 0)
            batch = {**batch, "predict_positions": places}
        return {
            name: TABLE[name].head(cfg, self.vocab_size, labels, self.train, head)(encoded, batch)
            for name, labels in self.heads
            for head in (knobs.OBJECTIVES[name].head or name,)
        }


def outputs(network: Network, params: Any, batch: Batch, **rngs: jax.Array) -> dict[str, jax.Array]:
    """Return the output of each head; training passes `dropout=key`."""
    outputs: Any = network.apply({"params": params}, batch, rngs=rngs)
    return outputs


def build(config: knobs.Config, vocab_size: int, *, train: bool = False, only: str = "") -> Network:
    """Return the network of a config, or with one of its heads alone."""
    rows = config.objectives.items()
    heads = tuple((name, len(row.labels)) for name, row in rows if only in ("", name))
    return Network(config.model, vocab_size, heads, train, any(row.shift for _, row in rows))


def with_rounded_kernels(cfg: knobs.Model, encoder: Any) -> Any:
    """Return an encoder's parameters for inference, its kernels rounded to the compute type.

    Outputs do not change: without it each call would round them again.
    """
    factors = jnp.dtype(KINDS[devices.settled(cfg, train=False).dtype].factors)

    def cast(path: tuple[Any, ...], leaf: Any) -> Any:
        return leaf.astype(factors) if path[-1].key == "kernel" else leaf

    return jax.tree_util.tree_map_with_path(cast, encoder)


def init(config: knobs.Config, vocab_size: int, seed: jax.Array) -> dict:
    """Return fresh parameters, a function of seed and config alone; jit it to place them."""
    key = jax.random.key(seed, impl="threefry2x32")
    per_token = ("tokens", "inputs", "type_ids", "positions", "segment_ids", "unit_ids")
    widths = dict.fromkeys((*HOST_KEYS, "predict_positions"), 1)
    widths |= dict.fromkeys(per_token, config.sequence_length)
    batch = {key: jnp.zeros((1, width), jnp.int32) for key, width in widths.items()}
    return build(config, vocab_size).init(key, batch)["params"]
