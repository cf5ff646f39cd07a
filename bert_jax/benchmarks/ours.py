"""What this project does in a benchmark: each function makes a contestant from a resolved config, as plain JSON."""

from __future__ import annotations

import dataclasses
import functools
import math
import sys
from collections import Counter
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax import sharding
from bert_jax.batch import Batch, Special, StepInputs
from bert_jax.benchmarks.worker import Ready
from bert_jax.config import knobs, quotas, recorded
from bert_jax.data.batches import packing, pipeline
from bert_jax.data.labelled import batches as labelled
from bert_jax.data.labelled.features import Features
from bert_jax.data.text import prepare
from bert_jax.data.text.shards import Prepared
from bert_jax.models import network
from bert_jax.models.bert import Bert
from bert_jax.objectives import masking
from bert_jax.training import program as step
from bert_jax.training.clock import work

say = functools.partial(print, file=sys.stderr)
SPECIAL = Special(pad=0, unk=1, cls=2, sep=3, mask=4)


def rows(config: knobs.Config, sizes: list[int] | None = None, seed: int = 0) -> Batch:
    """Random text: an example a row, as long as it can be, or as long as `sizes` says."""
    rng, length, vocab_size = (
        np.random.default_rng(seed),
        config.sequence_length,
        config.tokenizer.vocab_size,
    )
    lengths = np.array(sizes or [length] * config.batch_size)[:, None]
    columns = np.arange(length)[None, :]
    real, first = columns < lengths, lengths // 2
    tokens = rng.integers(len(SPECIAL), vocab_size, real.shape)
    separators = (columns == lengths - 1) | (
        (columns == first) if config.pairs != "none" else False
    )
    tokens = np.where(columns == 0, SPECIAL.cls, np.where(separators, SPECIAL.sep, tokens))
    text = real & (columns > 0) & ~separators
    one = np.arange(len(lengths))[:, None]
    batch = {
        "tokens": np.where(real, tokens, SPECIAL.pad),
        "type_ids": real & (columns > first) if config.pairs != "none" else np.zeros_like(real),
        "positions": np.where(real, columns, 0),
        "segment_ids": real,
        "unit_ids": np.where(text, columns, -1),
        "example_ids": one,
        "copies": np.zeros_like(one),
        "cls_positions": np.zeros_like(one),
        "labels": one % 2 if config.pairs != "none" else np.full_like(one, -1),
    }
    return {key: np.asarray(value, np.int32) for key, value in batch.items()}


def packed(config: knobs.Config, sizes: list[int]) -> Batch:
    """The same examples, several a row."""
    alone = rows(config, sizes)
    table = packing.assign(
        packing.shapes(np.bincount(sizes), config.sequence_length, config.packing),
        np.array(sizes),
        config.packing,
    )
    empty = rows(dataclasses.replace(config, batch_size=len(table)))
    batch = {
        key: np.full_like(value, -1 if key == "unit_ids" else 0) for key, value in empty.items()
    }
    for key, value in (("example_ids", 0), ("copies", 0), ("cls_positions", 0), ("labels", -1)):
        batch[key] = np.full((len(table), config.packing), value, np.int32)
    row, slot = np.nonzero(table >= 0)
    packing.place({key: value[table[row, slot]] for key, value in alone.items()}, batch, row, slot)
    return batch


# --- training -------------------------------------------------------------------------------------


class Trainer:
    """A state, or several that train together, and its update."""

    def __init__(self, config: knobs.Config, special: Special, vocab_size: int, arms: int = 1):
        several = arms > 1
        self.rows, self.mesh = config.batch_size, sharding.make_mesh(config.parallel, arms)
        shapes = jax.eval_shape(
            lambda seed: step.init_state(config, vocab_size, seed), np.uint32(0)
        )
        layout = sharding.state_layout(shapes, self.mesh, config.parallel)
        init = jax.jit(lambda seed: step.init_state(config, vocab_size, seed), out_shardings=layout)
        states = [init(np.uint32(seed)) for seed in range(arms)]
        whole = sharding.stacked(layout, self.mesh) if several else layout
        self.state = (
            sharding.stack([jax.device_get(one) for one in states], whole) if several else states[0]
        )
        self.parameters = sum(leaf.size for leaf in jax.tree.leaves(shapes["params"]))
        self._update = step.compile_step(
            config, special, vocab_size, self.mesh, whole, several=several
        )
        traced = step.inputs_at(config, config.steps // 2)
        self._numbers = (
            jax.tree.map(lambda one: np.stack([one] * arms), traced) if several else traced
        )
        self._metrics: Any = ()

    def place(self, batch: Batch) -> Batch:
        """A batch on the devices."""
        return sharding.place(batch, self.rows, self.mesh)

    def begin(self, placed: Batch) -> None:
        """Starts an update."""
        self.state, self._metrics = self._update(self.state, placed, self._numbers)

    def wait(self) -> None:
        """Until the last update is done."""
        jax.block_until_ready(self._metrics)


def train_step(
    config: dict[str, Any], arms: int = 1, sizes: list[int] | None = None, repeats: int = 1
) -> Ready:
    """Updates on one batch, which lies on the device already.

    Args:
      config: resolved, but for `sizes`, which says how many rows there are.
      arms: trained together.
      repeats: updates of a call.
      sizes: of the examples; packed where the config says so, else each in a row of its own.
    """
    resolved = recorded(config)
    batch = rows(resolved, sizes) if resolved.packing == 1 or not sizes else packed(resolved, sizes)
    resolved = dataclasses.replace(resolved, batch_size=len(batch["tokens"]))
    trainer = Trainer(resolved, SPECIAL, resolved.tokenizer.vocab_size, arms)
    placed = trainer.place(batch)

    def call() -> None:
        for _ in range(repeats):
            trainer.begin(placed)
            trainer.wait()

    tokens, flops = work(resolved, resolved.tokenizer.vocab_size, batch)
    about = {"flops": arms * repeats * flops, "parameters": trainer.parameters}
    about |= {"rows": len(batch["tokens"]), "real": tokens / batch["tokens"].size}
    return Ready(call, arms * repeats * tokens, "tokens", about)


def finetuning(config: dict[str, Any], sizes: list[int]) -> Ready:
    """An epoch of updates on random texts of such lengths in two classes; the batches lie on the device already."""
    resolved = recorded(config)
    resolved = dataclasses.replace(
        resolved,
        objectives={"classify": knobs.Objective(labels=("a", "b"))},
        task=dataclasses.replace(
            resolved.task, source="files:none"
        ),  # of labelled data: nothing is masked
    )
    rng, count, vocab_size = np.random.default_rng(0), len(sizes), resolved.tokenizer.vocab_size
    zeros, one = np.zeros(sum(sizes), np.int32), np.zeros((count, 1), np.int32)
    positions = np.concatenate([np.arange(size, dtype=np.int32) for size in sizes])
    made = Features(
        offsets=np.concatenate([[0], np.cumsum(sizes)]),
        tokens=rng.integers(len(SPECIAL), vocab_size, len(zeros), np.int32),
        type_ids=zeros,
        positions=positions,
        segment_ids=zeros + 1,
        cls_positions=one,
        targets={"labels": rng.integers(0, 2, one.shape, np.int32)},
        example=np.arange(count, dtype=np.int32),
        words=None,
        characters=None,
        best=None,
        cut=0,
    )
    source = labelled.Source(made, SPECIAL, resolved)
    host = [source.batch(at) for at in range(count // resolved.batch_size)]
    trainer = Trainer(resolved, SPECIAL, vocab_size)
    placed = [trainer.place(batch) for batch in host]

    def call() -> None:
        for batch in placed:
            trainer.begin(batch)
        trainer.wait()

    tokens = sum(int((batch["segment_ids"] > 0).sum()) for batch in host)
    lengths = [batch["tokens"].shape[1] for batch in host]
    real = tokens / (resolved.batch_size * sum(lengths))
    return Ready(call, tokens, "tokens", {"real": real, "programs": len(set(lengths))})


def products(config: dict[str, Any]) -> Ready:
    """The matrix products of an update and nothing else: a bound of its time.

    Each is made by itself, of operands that wait in memory, laid out as suits it best, in the types the update has.
    """
    resolved = recorded(config)
    calls, flops = [], 0.0
    for one, times in products_of(resolved).items():
        left, right = (
            jax.random.normal(jax.random.key(i), shape[1:] if one.batch == 1 else shape).astype(
                kind
            )
            for i, (shape, kind) in enumerate(zip(one.shapes, one.types, strict=True))
        )
        multiply = jax.jit(
            functools.partial(
                jnp.matmul, precision=one.precision, preferred_element_type=one.result
            )
        )
        jax.block_until_ready(multiply(left, right))
        calls.append((multiply, left, right, times))
        flops += one.flops * times

    def call() -> None:
        for multiply, left, right, times in calls:
            for _ in range(times):
                jax.block_until_ready(multiply(left, right))

    return Ready(call, resolved.batch_size * resolved.sequence_length, "tokens", {"flops": flops})


class Product(NamedTuple):
    """Matrices [batch, rows, inner] and [batch, inner, columns], and in which types they are multiplied."""

    batch: int
    rows: int
    inner: int
    columns: int
    types: tuple[str, str]
    result: str
    precision: Any

    @property
    def shapes(self) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
        """Of both factors."""
        return (self.batch, self.rows, self.inner), (self.batch, self.inner, self.columns)

    @property
    def flops(self) -> float:
        """Of the product."""
        return 2.0 * self.batch * self.rows * self.inner * self.columns


def products_of(config: knobs.Config) -> Counter[Product]:
    """Every product of an update and how often, read off the update itself; nothing is counted that is recomputed."""
    config = dataclasses.replace(config, model=dataclasses.replace(config.model, remat=False))
    vocab_size = config.tokenizer.vocab_size
    state = jax.eval_shape(lambda seed: step.init_state(config, vocab_size, seed), np.uint32(0))
    batch = jax.eval_shape(lambda: jax.tree.map(jnp.asarray, rows(config)))
    update = step.make_step(config, SPECIAL, vocab_size)
    return _products(jax.make_jaxpr(update)(state, batch, step.inputs_at(config, 0)).jaxpr)


def _products(program: Any, times: int = 1) -> Counter[Product]:
    found: Counter[Product] = Counter()
    for one in program.eqns:
        if one.primitive.name == "dot_general":
            found[_product(one)] += times
        inside = times * (one.params["length"] if one.primitive.name == "scan" else 1)
        for value in jax.tree.leaves(list(one.params.values())):
            if hasattr(value, "eqns") or hasattr(value, "jaxpr"):
                found += _products(getattr(value, "jaxpr", value), inside)
    return found


def _product(one: Any) -> Product:
    left, right = (factor.aval for factor in one.invars)
    (over, _), (batch, _) = one.params["dimension_numbers"]
    inner, many = (math.prod(left.shape[axis] for axis in axes) for axes in (over, batch))
    kinds = str(left.dtype), str(right.dtype)
    sizes = many, left.size // (inner * many), inner, right.size // (inner * many)
    return Product(*sizes, kinds, str(one.outvars[0].aval.dtype), one.params["precision"])


# --- reading --------------------------------------------------------------------------------------


def forward(config: dict[str, Any]) -> Ready:
    """Vectors of every token of a batch, without heads."""
    resolved = recorded(config)
    vocab_size = resolved.tokenizer.vocab_size
    params = jax.jit(lambda seed: network.init(resolved, vocab_size, seed))(np.uint32(0))["encoder"]
    params = network.rounded(resolved.model, params)  # as `predict` has them
    encoder = Bert(resolved.model, vocab_size, pool=False)
    batch = jax.device_put(rows(resolved))

    def vectors(params: Any, batch: Batch) -> jax.Array:
        found: Any = encoder.apply({"params": params}, batch)
        return found.hidden

    apply = jax.jit(vectors)

    def call() -> None:
        jax.block_until_ready(apply(params, batch))

    return Ready(call, batch["tokens"].size, "tokens", {})


# --- data -----------------------------------------------------------------------------------------


def batches(config: dict[str, Any]) -> Ready:
    """Assembling and masking batches of the corpus, one after the other: what the loader and the update's front do."""
    resolved, prepared = corpus_of(config)
    source = pipeline.Source(prepared, "train", resolved)
    settings, length = resolved.masking, resolved.sequence_length
    replacements = masking.random_ids(settings, prepared.tokenizer.special, prepared.tokenizer.size)
    slots = quotas.slots(settings, length, resolved.packing)
    traced = step.inputs_at(resolved, 0)
    special = prepared.tokenizer.special

    @jax.jit
    def mask(batch: Batch, traced: StepInputs) -> Batch:
        return masking.apply(
            batch,
            traced,
            settings=settings,
            special=special,
            replacements=replacements,
            slots=slots,
        )[0]

    at = 0

    def call() -> None:
        nonlocal at
        jax.block_until_ready(mask(source.batch(at), traced))
        at += 1

    return Ready(call, resolved.batch_size * length, "tokens", {})


def assembly(config: dict[str, Any]) -> Ready:
    """Assembling alone, which is all that the host has to do."""
    resolved, prepared = corpus_of(config)
    source = pipeline.Source(prepared, "train", resolved)
    at = 0

    def call() -> None:
        nonlocal at
        source.batch(at)
        at += 1

    return Ready(call, resolved.batch_size * resolved.sequence_length, "tokens", {})


def corpus_of(config: dict[str, Any]) -> tuple[knobs.Config, Prepared]:
    """The config, resolved, and its corpus; what standard output is for, a worker keeps to itself."""
    resolved = recorded(config)
    return resolved, prepare.prepare(resolved, log=say)


def fed(config: dict[str, Any], loader: bool) -> Ready:
    """Updates on batches as the loader brings them, or on the first of them again and again."""
    resolved, prepared = corpus_of(config)
    source = pipeline.Source(prepared, "train", resolved)
    trainer = Trainer(resolved, prepared.tokenizer.special, prepared.tokenizer.size)
    placed = trainer.place(source.batch(0))
    batches = pipeline.prefetch(source, 0, sys.maxsize, resolved.loader)

    def call() -> None:
        trainer.begin(trainer.place(next(batches)) if loader else placed)
        trainer.wait()

    return Ready(call, resolved.batch_size * resolved.sequence_length, "tokens", {})


# --- compiling ------------------------------------------------------------------------------------


def compiling(config: dict[str, Any]) -> Ready:
    """Compiling an update anew."""
    resolved = recorded(config)
    vocab_size = resolved.tokenizer.vocab_size
    mesh = sharding.make_mesh(resolved.parallel)
    shapes = jax.eval_shape(lambda seed: step.init_state(resolved, vocab_size, seed), np.uint32(0))
    layout = sharding.state_layout(shapes, mesh, resolved.parallel)
    batch = jax.eval_shape(lambda: jax.tree.map(jnp.asarray, rows(resolved)))
    traced = step.inputs_at(resolved, 0)
    jax.config.update("jax_enable_compilation_cache", False)

    def call() -> None:
        jax.clear_caches()
        update: Any = step.compile_step(
            resolved, SPECIAL, vocab_size, mesh, layout
        )  # of jit, which can be lowered
        update.lower(shapes, batch, traced).compile()

    return Ready(call, 1, "programs", {})
