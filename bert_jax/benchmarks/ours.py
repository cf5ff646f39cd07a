"""Contestants of this project: each function makes one from a resolved config as plain JSON."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import sys
from collections import Counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax import sharding
from bert_jax.batch import SPECIAL, Batch, Special, StepInputs
from bert_jax.benchmarks.worker import Ready
from bert_jax.config import knobs, recorded
from bert_jax.data import packing, pipeline, prepare
from bert_jax.data.corpus import Prepared
from bert_jax.data.features import Features
from bert_jax.data.task_stream import TaskStream
from bert_jax.masking import corrupt, quotas
from bert_jax.models.encoder import Encoder
from bert_jax.objectives import network
from bert_jax.planning import matmuls as products
from bert_jax.planning.matmuls import Matmul
from bert_jax.training import program as step
from bert_jax.training.clock import work
from bert_jax.training.step import compute_inputs, init_state, make_update

say = functools.partial(print, file=sys.stderr)


def rows(config: knobs.Config, sizes: list[int] | None = None, seed: int = 0) -> Batch:
    """Make a batch of random text, an example a row: of full length, or of lengths `sizes`."""
    rng = np.random.default_rng(seed)
    length, vocab_size = config.sequence_length, config.tokenizer.vocab_size
    lengths = np.array(sizes or [length] * config.batch_size)[:, None]
    columns = np.arange(length)[None, :]
    real, first = columns < lengths, lengths // 2
    tokens = rng.integers(len(SPECIAL), vocab_size, real.shape)
    paired = config.pairs != "none"
    separators = (columns == lengths - 1) | ((columns == first) & paired)
    tokens = np.where(columns == 0, SPECIAL.cls, np.where(separators, SPECIAL.sep, tokens))
    text = real & (columns > 0) & ~separators
    ids = np.arange(len(lengths))[:, None]
    batch = {
        "tokens": np.where(real, tokens, SPECIAL.pad),
        "type_ids": real & (columns > first) & paired,
        "positions": np.where(real, columns, 0),
        "segment_ids": real,
        "unit_ids": np.where(text, columns, -1),
        "example_ids": ids,
        "copies": np.zeros_like(ids),
        "places": ids,
        "cls_positions": np.zeros_like(ids),
        "labels": ids % 2 if paired else np.full_like(ids, -1),
    }
    return {key: np.asarray(value, np.int32) for key, value in batch.items()}


def packed(config: knobs.Config, sizes: list[int]) -> Batch:
    """Make the batch of `rows(config, sizes)` with several examples packed into a row."""
    alone = rows(config, sizes)
    groups = packing.plan_rows(np.bincount(sizes), config.sequence_length, config.packing)
    table = packing.assign_examples(groups, np.array(sizes), config.packing)
    empty = rows(dataclasses.replace(config, batch_size=len(table)))
    batch = {
        key: np.full_like(value, -1 if key == "unit_ids" else 0) for key, value in empty.items()
    }
    for key, value in (
        ("example_ids", 0),
        ("copies", 0),
        ("places", 0),
        ("cls_positions", 0),
        ("labels", -1),
    ):
        batch[key] = np.full((len(table), config.packing), value, np.int32)
    row, slot = np.nonzero(table >= 0)
    examples = {key: value[table[row, slot]] for key, value in alone.items()}
    packing.place_examples(examples, batch, row, slot)
    return batch


# --- training -------------------------------------------------------------------------------------


class Trainer:
    """The state of one run, or of several that train together, and the compiled update."""

    def __init__(self, config: knobs.Config, special: Special, vocab_size: int, runs: int = 1):
        self.rows, self.mesh = config.batch_size, step.mesh_for(config, runs)
        program = step.Program(config, special, vocab_size, self.mesh, runs)
        self.state = program.place([program.hold(program.init(seed)) for seed in range(runs)])
        self.parameters = sum(leaf.size for leaf in jax.tree.leaves(program.shapes["params"]))
        self._inputs = compute_inputs(config, config.steps // 2)
        if runs > 1:
            self._inputs = jax.tree.map(lambda leaf: np.stack([leaf] * runs), self._inputs)
        # Not `program.update`, which takes batches from the host.
        layout = jax.tree.map(lambda leaf: leaf.sharding, self.state)
        self._update = step.compile_update(
            config, special, vocab_size, self.mesh, layout, run_axis=runs > 1
        )
        self._metrics: Any = ()

    def place(self, batch: Batch) -> Batch:
        """Place a batch on the devices."""
        return sharding.place(batch, self.rows, self.mesh)

    def begin(self, placed: Batch) -> None:
        """Start an update."""
        self.state, self._metrics = self._update(self.state, placed, self._inputs)

    def wait(self) -> None:
        """Wait until the last update is done."""
        jax.block_until_ready(self._metrics)

    def program(self, placed: Batch) -> str:
        """Return the compiled update as text."""
        update: Any = self._update
        text: str = update.lower(self.state, placed, self._inputs).compile().as_text()
        return text


def train_step(
    config: dict[str, Any], runs: int = 1, sizes: list[int] | None = None, repeats: int = 1
) -> Ready:
    """Make updates on one batch, which is on the device already.

    Args:
      config: resolved; `sizes` overrides its batch size.
      runs: how many runs train together.
      sizes: lengths of the examples, packed if the config packs, else each in a row of its own.
      repeats: updates of a call.
    """
    resolved = recorded(config)
    batch = rows(resolved, sizes) if resolved.packing == 1 or not sizes else packed(resolved, sizes)
    resolved = dataclasses.replace(resolved, batch_size=len(batch["tokens"]))
    trainer = Trainer(resolved, SPECIAL, resolved.tokenizer.vocab_size, runs)
    placed = trainer.place(batch)

    def call() -> None:
        for _ in range(repeats):
            trainer.begin(placed)
            trainer.wait()

    tokens, flops = work(resolved, resolved.tokenizer.vocab_size, batch)
    about = {"flops": runs * repeats * flops, "parameters": trainer.parameters}
    about |= {"rows": len(batch["tokens"]), "real": tokens / batch["tokens"].size}
    return Ready(call, runs * repeats * tokens, "tokens", about)


def finetuning(config: dict[str, Any], sizes: list[int]) -> Ready:
    """Make an epoch of updates on random texts in two classes; batches are on the device already.

    Args:
      config: resolved.
      sizes: lengths of the texts.
    """
    resolved = recorded(config)
    resolved = dataclasses.replace(
        resolved,
        objectives={"classify": knobs.Objective(labels=("a", "b"))},
        task=dataclasses.replace(resolved.task, source="files:none"),  # labelled: no masking
    )
    rng, count, vocab_size = np.random.default_rng(0), len(sizes), resolved.tokenizer.vocab_size
    zeros, first = np.zeros(sum(sizes), np.int32), np.zeros((count, 1), np.int32)
    positions = np.concatenate([np.arange(size, dtype=np.int32) for size in sizes])
    features = Features(
        offsets=np.concatenate([[0], np.cumsum(sizes)]),
        tokens=rng.integers(len(SPECIAL), vocab_size, len(zeros), np.int32),
        type_ids=zeros,
        positions=positions,
        segment_ids=zeros + 1,
        cls_positions=first,
        targets={"labels": rng.integers(0, 2, first.shape, np.int32)},
        example=np.arange(count, dtype=np.int32),
        words=None,
        characters=None,
        best=None,
        cut=0,
    )
    source = TaskStream(features, SPECIAL, resolved)
    host = [source.batch(index) for index in range(count // resolved.batch_size)]
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


def matmuls(config: dict[str, Any]) -> Ready:
    """Compute the matmuls of an update and nothing else: a lower bound of its time.

    Each matmul is computed by itself, of operands that are in memory already, in the layout that
    suits it best and in the types of the update.
    """
    resolved = recorded(config)
    calls, flops = [], 0.0
    for matmul, times in matmuls_of(resolved).items():
        left, right = (
            jax.random.normal(jax.random.key(i), shape).astype(kind)
            for i, (shape, kind) in enumerate(zip(matmul.shapes, matmul.types, strict=True))
        )
        multiply = jax.jit(
            functools.partial(
                jnp.matmul, precision=matmul.precision, preferred_element_type=matmul.result
            )
        )
        jax.block_until_ready(multiply(left, right))
        calls.append((multiply, left, right, times))
        flops += matmul.flops * times

    def call() -> None:
        for multiply, left, right, times in calls:
            for _ in range(times):
                jax.block_until_ready(multiply(left, right))

    return Ready(call, resolved.batch_size * resolved.sequence_length, "tokens", {"flops": flops})


def matmuls_of(config: knobs.Config) -> Counter[Matmul]:
    """Count the matmuls in the jaxpr of an update, without those that remat would recompute."""
    config = dataclasses.replace(config, model=dataclasses.replace(config.model, remat="none"))
    vocab_size = config.tokenizer.vocab_size
    state = jax.eval_shape(lambda seed: init_state(config, vocab_size, seed), np.uint32(0))
    batch = jax.eval_shape(lambda: jax.tree.map(jnp.asarray, rows(config)))
    update = make_update(config, SPECIAL, vocab_size)
    traced = jax.make_jaxpr(update)(state, batch, compute_inputs(config, 0))
    return products.count(traced.jaxpr)


# --- inference ------------------------------------------------------------------------------------


def forward(config: dict[str, Any]) -> Ready:
    """Compute the hidden vectors of a batch, without heads."""
    resolved = recorded(config)
    vocab_size = resolved.tokenizer.vocab_size
    params = jax.jit(lambda seed: network.init(resolved, vocab_size, seed))(np.uint32(0))["encoder"]
    params = network.with_rounded_kernels(resolved.model, params)  # as in `predict`
    encoder = Encoder(resolved.model, vocab_size, pool=False)
    batch = jax.device_put(rows(resolved))

    def vectors(params: Any, batch: Batch) -> jax.Array:
        encoded: Any = encoder.apply({"params": params}, batch)
        return encoded.hidden

    apply = jax.jit(vectors)

    def call() -> None:
        jax.block_until_ready(apply(params, batch))

    return Ready(call, batch["tokens"].size, "tokens", {})


# --- data -----------------------------------------------------------------------------------------


def batches(config: dict[str, Any]) -> Ready:
    """Assemble and mask batches of the corpus: as the loader and the update do."""
    resolved, prepared = corpus_of(config)
    source = pipeline.Source(prepared, "train", resolved)
    settings, length = resolved.masking, resolved.sequence_length
    slots = quotas.count_slots(settings, length, resolved.packing)
    traced = compute_inputs(resolved, 0)
    special = prepared.tokenizer.special

    @jax.jit
    def mask(batch: Batch, traced: StepInputs) -> Batch:
        return corrupt.corrupt_batch(
            batch,
            traced,
            settings=settings,
            special=special,
            vocab_size=prepared.tokenizer.size,
            slots=slots,
        )[0]

    steps = itertools.count()

    def call() -> None:
        jax.block_until_ready(mask(source.batch(next(steps)), traced))

    return Ready(call, resolved.batch_size * length, "tokens", {})


def assembly(config: dict[str, Any]) -> Ready:
    """Assemble batches of the corpus, which is all the work of the host."""
    resolved, prepared = corpus_of(config)
    source = pipeline.Source(prepared, "train", resolved)
    steps = itertools.count()

    def call() -> None:
        source.batch(next(steps))

    return Ready(call, resolved.batch_size * resolved.sequence_length, "tokens", {})


def corpus_of(config: dict[str, Any]) -> tuple[knobs.Config, Prepared]:
    """Return the resolved config and its corpus; log to stderr, for stdout is the worker's."""
    resolved = recorded(config)
    return resolved, prepare.prepare_corpus(resolved, log=say)


def fed(config: dict[str, Any], loader: bool) -> Ready:
    """Make updates on the batches of the loader, or always on the first batch.

    Args:
      config: resolved.
      loader: whether to use the loader.
    """
    resolved, prepared = corpus_of(config)
    source = pipeline.Source(prepared, "train", resolved)
    trainer = Trainer(resolved, prepared.tokenizer.special, prepared.tokenizer.size)
    placed = trainer.place(source.batch(0))
    batches = pipeline.prefetch(source.batch, 0, sys.maxsize, resolved.loader.prefetch)

    def call() -> None:
        trainer.begin(trainer.place(next(batches)) if loader else placed)
        trainer.wait()

    return Ready(call, resolved.batch_size * resolved.sequence_length, "tokens", {})


# --- compiling ------------------------------------------------------------------------------------


def compiling(config: dict[str, Any]) -> Ready:
    """Compile an update without any cache."""
    resolved = recorded(config)
    vocab_size = resolved.tokenizer.vocab_size
    mesh = sharding.make_mesh(resolved.parallel)
    program = step.Program(resolved, SPECIAL, vocab_size, mesh)
    batch = jax.eval_shape(lambda: jax.tree.map(jnp.asarray, rows(resolved)))
    traced = compute_inputs(resolved, 0)
    jax.config.update("jax_enable_compilation_cache", False)

    def call() -> None:
        jax.clear_caches()
        update: Any = step.compile_update(resolved, SPECIAL, vocab_size, mesh, program.layout)
        update.lower(program.shapes, batch, traced).compile()

    return Ready(call, 1, "programs", {})
