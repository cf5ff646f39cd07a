"""The encoder with the heads its objectives ask for: one module, whatever is trained."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax import knobs, objectives
from bert_jax.models.bert import Bert
from bert_jax.types import HOST_KEYS, Batch


class Network(nn.Module):
    """Batch in, one output an objective out."""

    cfg: knobs.Model
    vocab_size: int
    names: tuple[str, ...]
    train: bool = False

    @nn.compact
    def __call__(self, batch: Batch) -> dict[str, jax.Array]:
        chosen = {name: objectives.TABLE[name] for name in self.names}
        pool = any(o.pooled for o in chosen.values())
        encoded = Bert(self.cfg, self.vocab_size, self.train, pool, name="encoder")(batch)
        return {n: o.head(self.cfg, self.vocab_size, n)(encoded, batch) for n, o in chosen.items()}


def outputs(network: Network, params: Any, batch: Batch, **rngs: jax.Array) -> dict[str, jax.Array]:
    """The forward pass; training passes `dropout=key`."""
    found: Any = network.apply({"params": params}, batch, rngs=rngs)
    return found


def build(config: knobs.Config, vocab_size: int, *, train: bool = False) -> Network:
    """The network of a config."""
    return Network(config.model, vocab_size, tuple(config.objectives), train)


def dummy_batch(config: knobs.Config, slots: int) -> Batch:
    """A batch of one row of the right shapes, to initialise parameters with."""
    rows = dict.fromkeys(
        ("tokens", "inputs", "type_ids", "positions", "segment_ids", "unit_ids"), config.sequence_length
    )
    single = {key: 1 for key in HOST_KEYS if key not in rows}
    return {key: jnp.zeros((1, n), jnp.int32) for key, n in (rows | single | {"predict_positions": slots}).items()}


def init(config: knobs.Config, vocab_size: int, seed: jax.Array) -> dict:
    """Fresh parameters, a function of the seed and the config alone; jit it to place them."""
    key = jax.random.key(seed, impl="threefry2x32")
    return build(config, vocab_size).init(key, dummy_batch(config, 1))["params"]
