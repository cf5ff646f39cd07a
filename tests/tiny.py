"""Batches, configs and numbers small enough to check by hand."""

import dataclasses
import functools
import math
from collections.abc import Callable, Collection, Sequence
from fractions import Fraction
from typing import Any

import jax
import numpy as np
import optax

from bert_jax import config as configs
from bert_jax.batch import Batch, Special, StepInputs
from bert_jax.config import knobs
from bert_jax.masking import corrupt, drawn_quotas, draws, quotas
from bert_jax.objectives import network
from bert_jax.system import trees
from tests.config.settings import set_and_resolve

SPECIAL = Special(pad=0, unk=1, cls=2, sep=3, mask=4)
VOCAB = 60


def config(**overrides: object) -> knobs.Config:
    """A resolved config of a very small model; keys use __ for the dots of a path."""
    base = {
        "steps": 100,
        "batch_size": 16,
        "sequence_length": 24,
        "model__size": "tiny",
        "model__layers": 2,
        "model__hidden": 32,
        "model__heads": 4,
        "model__max_positions": 64,
        "model__dropout": 0.0,
        "model__attention_dropout": 0.0,
        "optim__warmup_steps": 0,
        "optim__learning_rate": 1e-3,
        "tokenizer__vocab_size": VOCAB,
    }
    return set_and_resolve(configs.default(), {**base, **overrides})


PARAMETERS: dict[tuple[str, int, int], Any] = {}


def init(config: knobs.Config, seed: int = 0, vocab: int = VOCAB) -> Any:
    """Fresh parameters as numpy, drawn once in a process and from one program."""
    key = repr(config), seed, vocab
    if key not in PARAMETERS:
        draw = jax.jit(lambda seed: network.init_params(config, vocab, seed))
        PARAMETERS[key] = jax.device_get(draw(np.uint32(seed)))
    return jax.tree.map(np.copy, PARAMETERS[key])


def draw_from(params: Any) -> Callable[[Collection[str]], dict[str, Any]]:
    """What draws fresh parameters by their names: here from some that are there."""
    flat = trees.flatten_tree(params)
    return lambda names: {name: flat[name] for name in names}


def draw_parameters(module: Any, *inputs: Any) -> Any:
    """Random ones, large enough that what they do differs by more than rounding; nothing is
    compiled for them.
    """
    random = np.random.default_rng(0)
    shapes = jax.eval_shape(module.init, jax.random.key(0), *inputs)["params"]
    return jax.tree.map(lambda p: random.normal(0, 0.5, p.shape).astype(np.float32), shapes)


def batch(
    rows: int,
    length: int,
    seed: int = 0,
    examples: int = 1,
    longest_unit: int = 1,
    vocab: int = VOCAB,
) -> Batch:
    """Random rows: `examples` a row, each [CLS] text [SEP], then padding; units of 1 to
    `longest_unit` tokens.
    """
    rng = np.random.default_rng(seed)
    b = {
        k: np.zeros((rows, length), np.int32)
        for k in ("tokens", "type_ids", "positions", "segment_ids")
    }
    b["unit_ids"] = np.full((rows, length), -1, np.int32)
    for key in ("example_ids", "copies", "places", "cls_positions"):
        b[key] = np.zeros((rows, examples), np.int32)
    b["labels"] = rng.integers(0, 2, (rows, examples)).astype(np.int32)
    for row in range(rows):
        start = 0
        for example in range(examples):
            n = int(rng.integers(3, length // examples + 1))
            words = rng.integers(len(SPECIAL), vocab, n - 2)
            b["tokens"][row, start : start + n] = [SPECIAL.cls, *words, SPECIAL.sep]
            b["positions"][row, start : start + n] = np.arange(n)
            b["segment_ids"][row, start : start + n] = example + 1
            b["type_ids"][row, start + n // 2 : start + n] = 1
            at = start + 1
            while at < start + n - 1:
                size = min(int(rng.integers(1, longest_unit + 1)), start + n - 1 - at)
                b["unit_ids"][row, at : at + size] = at
                at += size
            b["example_ids"][row, example] = b["places"][row, example] = row * examples + example
            b["cls_positions"][row, example] = start
            start += n
    return b


def make_step_inputs(
    settings: knobs.Masking, length: int, seed: int = 0, names: tuple[str, ...] = ("mlm", "nsp")
) -> StepInputs:
    """Make the step inputs of a masking."""
    fixed = settings.draw == "fixed"
    return StepInputs(
        quotas=quotas.selection_quotas(settings, settings.rate, length) if fixed else None,
        predict_quotas=quotas.prediction_quotas(settings, settings.rate, length) if fixed else None,
        drawn=None if fixed else drawn_quotas.make_rate_tables(settings, length),
        replace=np.asarray(settings.replace, np.float32),
        weights=dict.fromkeys(names, np.float32(1)),
        learning_rate=np.float32(1e-3),
        weight_decay=np.float32(0.01),
        seed=np.uint32(seed),
    )


@functools.partial(jax.jit, static_argnums=(2, 3))
def _apply(b, step_inputs, settings, slots):
    return corrupt.corrupt_batch(
        b, step_inputs, settings=settings, special=SPECIAL, vocab_size=VOCAB, slots=slots
    )


def mask(b: Batch, settings: knobs.Masking, seed: int = 0, slots: int = 0) -> tuple[Batch, dict]:
    """Masks a tiny batch; the result as numpy."""
    length = b["tokens"].shape[1]
    names = ["count", "random_from", "overflow", "rounding"]  # what is not a traced number
    names += ["rate", "prediction_rate"] if "views" in b else []
    code = knobs.Masking(**{name: getattr(settings, name) for name in names})
    out, ledger = _apply(b, make_step_inputs(settings, length, seed), code, slots or length)
    return jax.tree.map(np.asarray, out), jax.tree.map(float, ledger)


def quota(n: int, rate: float, rounding: str, draw: int = 0) -> int:
    """The quota of an example of n tokens, in Python's whole numbers and fractions."""
    if not n:
        return 0
    if rounding == "nearest":
        return max(1, round(n * rate))
    u = Fraction(2**32 - 1 - int(draw), 2**32)
    return max(1, math.floor(n * Fraction(str(rate)) + u))


def rounding_draws(b: Batch, seed: int) -> np.ndarray:
    """The numbers by which quotas of a batch are rounded, uint32 [B, S]."""
    return np.asarray(jax.jit(draws.draw_roundings)(b, np.uint32(seed)))


def chosen(out: Batch) -> np.ndarray:
    """Which tokens are predicted, as [B, L]."""
    hit = np.zeros(out["tokens"].shape, bool)
    for row, (columns, weights) in enumerate(
        zip(out["predict_positions"], out["predict_weights"], strict=True)
    ):
        hit[row, columns[weights > 0]] = True
    return hit


@functools.partial(jax.jit, static_argnums=0)
def run_network(net: network.Network, params: Any, batch: Batch) -> dict[str, jax.Array]:
    """Return the output of each head, compiled."""
    return network.compute_outputs(net, params, batch)


replace = dataclasses.replace


def find_moments(state: Any) -> optax.ScaleByAdamState:
    """Return the count and averages of Adam in the state of a run."""
    (found,) = (part for part in state["optimizer"] if isinstance(part, optax.ScaleByAdamState))
    return found


def with_leaf(node: Any, names: Sequence[str], value: Any) -> Any:
    """Return a config with another value at a path, checked by nobody."""
    first, *rest = names
    inner = node[first] if isinstance(node, dict) else getattr(node, first)
    changed = with_leaf(inner, rest, value) if rest else value
    if isinstance(node, dict):
        return node | {first: changed}
    return dataclasses.replace(node, **{first: changed})
