"""The encoder with the heads of its objectives, as one module."""

import functools
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.batch import HOST_KEYS, Batch
from bert_jax.config import devices, knobs
from bert_jax.models.encoder import Encoder
from bert_jax.models.matmul import PRECISIONS
from bert_jax.objectives import TABLE, replaced


class Network(nn.Module):
    """The encoder and the heads, which turn a batch into one output for each head."""

    cfg: knobs.Model
    vocab_size: int
    heads: tuple[tuple[str, int], ...]  # names, and numbers of labels
    train: bool = False
    shift: bool = False  # a masked token is predicted from the place before it
    generator: knobs.Model | None = None  # ELECTRA's: the encoder that the MLM head reads

    @nn.compact
    def __call__(self, batch: Batch) -> dict[str, Any]:
        cfg = devices.fill_machine_knobs(self.cfg, train=self.train)
        # With several features, `LabelHead` pools the layers that it reads.
        pool = any(TABLE[name].pooled for name, _ in self.heads) and cfg.features == 1
        encoder = Encoder(cfg, self.vocab_size, self.train, pool, name="encoder")
        outputs: dict[str, Any] = {}
        if self.generator:
            (name,) = (name for name, _ in self.heads if head_of(name) == "mlm")
            # As in ELECTRA, one embedding serves both encoders and has the gradients of both.
            embedded = encoder(batch, embed_only=True)
            outputs[name], batch = replaced.run_generator(
                self.generator, self.vocab_size, self.train, embedded, batch
            )
        # If a generator drew tokens (`predict_draws`), they now stand in the slots of this batch.
        encoded = encoder(batch)
        if self.shift:
            # A slot of column 5 reads the vector of column 4, which predicts the token of column 5.
            places = jnp.maximum(batch["predict_positions"] - 1, 0)
            batch = {**batch, "predict_positions": places}
        for name, labels in self.heads:
            if name in outputs:
                continue
            make = TABLE[name].make_head
            head = make(cfg, self.vocab_size, labels, self.train, head_of(name))
            outputs[name] = head(encoded, batch)
        return outputs


def head_of(objective: str) -> str:
    """Return the name of an objective's head, which the head's parameters have too."""
    return knobs.OBJECTIVES[objective].head or objective


def list_parts(config: knobs.Config, head: str) -> tuple[str, ...]:
    """Return the names of the modules whose parameters a head needs, such as "encoder"."""
    generator = ("generator",) if head == "mlm" and config.generator else ()
    return ("encoder", *generator, head)


def compute_outputs(
    network: Network, params: Any, batch: Batch, **rngs: jax.Array
) -> dict[str, Any]:
    """Return {head: output}; training passes the random key `dropout`."""
    outputs: Any = network.apply({"params": params}, batch, rngs=rngs)
    return outputs


def build_network(
    config: knobs.Config, vocab_size: int, *, train: bool = False, only: str = ""
) -> Network:
    """Build the network of a config, with all of its heads or with the head `only`."""
    rows = config.objectives.items()
    heads = tuple((name, len(row.labels)) for name, row in rows if only in ("", name))
    # The generator goes with the MLM head: a network with only the detector has none.
    made = config.generator if "mlm" in {head_of(name) for name, _ in heads} else None
    return Network(config.model, vocab_size, heads, train, config.shifted, made)


def with_rounded_kernels(cfg: knobs.Model, encoder: Any) -> Any:
    """Return an encoder's parameters for inference, with kernels in the compute type.

    Outputs do not change, because each call would round the kernels anyway.
    """
    factors = jnp.dtype(PRECISIONS[devices.fill_machine_knobs(cfg, train=False).dtype].factors)

    def cast(path: tuple[Any, ...], leaf: Any) -> Any:
        return leaf.astype(factors) if path[-1].key == "kernel" else leaf

    return jax.tree_util.tree_map_with_path(cast, encoder)


def init_params(config: knobs.Config, vocab_size: int, seed: jax.Array) -> dict:
    """Initialise the parameters; they depend only on the seed and the config.

    Call this under jit to place the parameters on devices.
    """
    network = build_network(config, vocab_size)
    params: dict = _jit_init(network, config.sequence_length, devices.find_kind())(seed)
    return params


@functools.lru_cache(maxsize=32)
def _jit_init(network: Network, length: int, kind: str) -> Callable[[jax.Array], Any]:
    """Return the jitted function that initialises a network for devices of a kind.

    A process traces it once, although shapes, programs and checks of models all ask for it. The
    number of devices is no part of the cache's key: it only chooses how attention is computed, on
    which no parameter depends.
    """
    per_token = ("tokens", "inputs", "type_ids", "positions", "segment_ids", "unit_ids")
    # The zeros stand for one row (B = S = K = 1), because only shapes matter here.
    widths = dict.fromkeys((*HOST_KEYS, "predict_positions"), 1)
    widths |= dict.fromkeys(per_token, length)

    def init(seed: jax.Array) -> Any:
        # The kind of key is named, because the default kind is a setting of jax.
        key = jax.random.key(seed, impl="threefry2x32")
        batch = {name: jnp.zeros((1, width), jnp.int32) for name, width in widths.items()}
        return network.init(key, batch)["params"]

    return jax.jit(init)
