"""The encoder with the heads its objectives ask for: one module, whatever is trained."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.batch import HOST_KEYS, Batch
from bert_jax.config import devices, knobs
from bert_jax.models.bert import Bert
from bert_jax.models.heads import TABLE
from bert_jax.models.matmul import KINDS


class Network(nn.Module):
    """Batch in, one output a head out."""

    cfg: knobs.Model
    vocab_size: int
    heads: tuple[tuple[str, int], ...]  # names, and of how many labels
    train: bool = False

    @nn.compact
    def __call__(self, batch: Batch) -> dict[str, jax.Array]:
        cfg = devices.settled(self.cfg, train=self.train)
        several = cfg.features > 1
        pool = any(TABLE[name].pooled for name, _ in self.heads) and not several
        encoded = Bert(cfg, self.vocab_size, self.train, pool, several, name="encoder")(batch)
        made = {
            n: TABLE[n].make(cfg, self.vocab_size, labels, self.train, n)
            for n, labels in self.heads
        }
        return {name: head(encoded, batch) for name, head in made.items()}


def outputs(network: Network, params: Any, batch: Batch, **rngs: jax.Array) -> dict[str, jax.Array]:
    """The forward pass; training passes `dropout=key`."""
    found: Any = network.apply({"params": params}, batch, rngs=rngs)
    return found


def build(config: knobs.Config, vocab_size: int, *, train: bool = False) -> Network:
    """The network of a config."""
    heads = tuple((name, len(objective.labels)) for name, objective in config.objectives.items())
    return Network(config.model, vocab_size, heads, train)


def rounded(cfg: knobs.Model, encoder: Any) -> Any:
    """An encoder's parameters for where nothing is trained: its factors rounded once, all outputs the same."""
    factors = jnp.dtype(KINDS[devices.settled(cfg, train=False).dtype].factors)

    def one(path: tuple[Any, ...], leaf: Any) -> Any:
        return leaf.astype(factors) if path[-1].key == "kernel" else leaf

    return jax.tree_util.tree_map_with_path(one, encoder)


def dummy_batch(config: knobs.Config, slots: int) -> Batch:
    """A batch of one row of the right shapes, to initialise parameters with."""
    rows = dict.fromkeys(
        ("tokens", "inputs", "type_ids", "positions", "segment_ids", "unit_ids"),
        config.sequence_length,
    )
    single = {key: 1 for key in HOST_KEYS if key not in rows}
    return {
        key: jnp.zeros((1, n), jnp.int32)
        for key, n in (rows | single | {"predict_positions": slots}).items()
    }


def init(config: knobs.Config, vocab_size: int, seed: jax.Array) -> dict:
    """Fresh parameters, a function of the seed and the config alone; jit it to place them."""
    key = jax.random.key(seed, impl="threefry2x32")
    return build(config, vocab_size).init(key, dummy_batch(config, 1))["params"]
