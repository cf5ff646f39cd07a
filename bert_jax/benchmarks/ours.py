"""What this project does in a benchmark: each function makes a contestant from a resolved config, as plain JSON."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax import defaults, knobs, masking, network, prepare, quotas, sharding, step
from bert_jax.benchmarks.worker import Ready
from bert_jax.clock import work
from bert_jax.config import resolve
from bert_jax.data import labelled, packing, pipeline
from bert_jax.data.features import Features
from bert_jax.models import backends
from bert_jax.models.bert import Bert
from bert_jax.models.layers import Dropout
from bert_jax.models.products import KINDS
from bert_jax.types import Batch, Special, Traced

SPECIAL = Special(pad=0, unk=1, cls=2, sep=3, mask=4)


def rows(config: knobs.Config, sizes: list[int] | None = None, seed: int = 0) -> Batch:
    """Random text: an example a row, as long as it can be, or as long as `sizes` says."""
    rng, length, vocab_size = np.random.default_rng(seed), config.sequence_length, config.tokenizer.vocab_size
    lengths = np.array(sizes or [length] * config.batch_size)[:, None]
    columns = np.arange(length)[None, :]
    real, first = columns < lengths, lengths // 2
    tokens = rng.integers(len(SPECIAL), vocab_size, real.shape)
    separators = (columns == lengths - 1) | ((columns == first) if config.pairs != "none" else False)
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
        packing.shapes(np.bincount(sizes), config.sequence_length, config.packing), np.array(sizes), config.packing
    )
    empty = rows(dataclasses.replace(config, batch_size=len(table)))
    batch = {key: np.full_like(value, -1 if key == "unit_ids" else 0) for key, value in empty.items()}
    for key, value in (("example_ids", 0), ("copies", 0), ("cls_positions", 0), ("labels", -1)):
        batch[key] = np.full((len(table), config.packing), value, np.int32)
    row, slot = np.nonzero(table >= 0)
    packing.place({key: value[table[row, slot]] for key, value in alone.items()}, batch, row, slot)
    return batch


# --- training -------------------------------------------------------------------------------------------------------


def train_step(config: dict[str, Any], arms: int = 1, sizes: list[int] | None = None) -> Ready:
    """Updates on one batch, which lies on the device already.

    Args:
      config: resolved, but for `sizes`, which says how many rows there are.
      arms: trained together.
      sizes: of the examples; packed where the config says so, else each in a row of its own.
    """
    resolved = resolve(config)
    batch = rows(resolved, sizes) if resolved.packing == 1 or not sizes else packed(resolved, sizes)
    resolved = dataclasses.replace(resolved, batch_size=len(batch["tokens"]))
    vocab_size, several = resolved.tokenizer.vocab_size, arms > 1
    mesh = sharding.make_mesh(resolved.parallel, arms)
    shapes = jax.eval_shape(lambda seed: step.init_state(resolved, vocab_size, seed), np.uint32(0))
    layout = sharding.state_layout(shapes, mesh, resolved.parallel)
    init = jax.jit(lambda seed: step.init_state(resolved, vocab_size, seed), out_shardings=layout)
    states = [init(np.uint32(seed)) for seed in range(arms)]
    whole = sharding.stacked(layout, mesh) if several else layout
    state = sharding.stack([jax.device_get(one) for one in states], whole) if several else states[0]
    update = step.compile_step(resolved, SPECIAL, vocab_size, mesh, whole, several=several)
    placed = sharding.place(batch, resolved.batch_size, mesh)
    traced = step.traced_at(resolved, resolved.steps // 2)
    numbers = jax.tree.map(lambda one: np.stack([one] * arms), traced) if several else traced

    def call() -> None:
        nonlocal state
        state, metrics = update(state, placed, numbers)
        jax.block_until_ready(metrics["loss"])

    tokens, flops = work(resolved, vocab_size, batch)
    about = {"flops": arms * flops, "parameters": sum(leaf.size for leaf in jax.tree.leaves(shapes["params"]))}
    about |= {"rows": len(batch["tokens"]), "real": tokens / batch["tokens"].size}
    return Ready(call, arms * tokens, "tokens", about)


def finetuning(config: dict[str, Any], sizes: list[int]) -> Ready:
    """An epoch of updates on random texts of such lengths in two classes; the batches lie on the device already."""
    resolved = resolve(config)
    resolved = dataclasses.replace(
        resolved,
        objectives={"classify": knobs.Objective(labels=("a", "b"))},
        task=dataclasses.replace(resolved.task, source="files:none"),  # of labelled data: nothing is masked
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
    mesh = sharding.make_mesh(resolved.parallel)
    shapes = jax.eval_shape(lambda seed: step.init_state(resolved, vocab_size, seed), np.uint32(0))
    layout = sharding.state_layout(shapes, mesh, resolved.parallel)
    state = jax.jit(lambda seed: step.init_state(resolved, vocab_size, seed), out_shardings=layout)(np.uint32(0))
    update = step.compile_step(resolved, SPECIAL, vocab_size, mesh, layout)
    placed = [sharding.place(batch, resolved.batch_size, mesh) for batch in host]
    traced = step.traced_at(resolved, resolved.steps // 2)

    def call() -> None:
        nonlocal state
        for batch in placed:
            state, metrics = update(state, batch, traced)
        jax.block_until_ready(metrics["loss"])

    tokens = sum(int((batch["segment_ids"] > 0).sum()) for batch in host)
    lengths = [batch["tokens"].shape[1] for batch in host]
    real = tokens / (resolved.batch_size * sum(lengths))
    return Ready(call, tokens, "tokens", {"real": real, "programs": len(set(lengths))})


def products(config: dict[str, Any]) -> Ready:
    """The matrix products of an update and nothing else, each as often as the update needs it: a bound of its time.

    Each is made by itself, of operands that wait in memory, in the type the update gives them.
    """
    resolved = resolve(config)
    calls, flops = [], 0.0
    for (b, m, k, n), times in shapes_of(resolved):
        kind = KINDS[defaults.settled(resolved.model, train=True).dtype].factors
        left, right = (
            jax.random.normal(jax.random.key(i), shape[1:] if b == 1 else shape).astype(kind)
            for i, shape in enumerate(((b, m, k), (b, k, n)))
        )
        multiply = jax.jit(jnp.matmul)
        jax.block_until_ready(multiply(left, right))
        calls.append((multiply, left, right, times))
        flops += 2.0 * b * m * k * n * times

    def call() -> None:
        for multiply, left, right, times in calls:
            for _ in range(times):
                jax.block_until_ready(multiply(left, right))

    return Ready(call, resolved.batch_size * resolved.sequence_length, "tokens", {"flops": flops})


def shapes_of(config: knobs.Config) -> list[tuple[tuple[int, int, int, int], int]]:
    """Batch, M, K, N, and how often, of the products of an update: forwards, and for the gradients of both factors."""
    m = config.model
    assert m.hidden is not None
    assert m.mlp is not None
    assert m.layers is not None
    assert m.heads is not None
    length, tokens, width = config.sequence_length, config.batch_size * config.sequence_length, m.hidden // m.heads
    slots = config.batch_size * quotas.slots(config.masking, length, config.packing)
    layer = [(1, tokens, m.hidden, m.hidden)] * 4 + [(1, tokens, m.hidden, m.mlp)] * (2 if m.gated else 1)
    layer += [(1, tokens, m.mlp, m.hidden)]
    pairs = config.batch_size * m.heads
    layer += [(pairs, length, width, length), (pairs, length, length, width)]
    heads = [(1, slots, m.hidden, m.hidden), (1, slots, m.hidden, config.tokenizer.vocab_size)]
    found = []
    for shape, times in [*((one, m.layers) for one in layer), *((one, 1) for one in heads)]:
        b, rows_, inner, columns = shape
        for one in (shape, (b, rows_, columns, inner), (b, inner, rows_, columns)):
            found.append((one, times))
    return found


def attention(config: dict[str, Any], backend: str, drop: bool = False) -> Ready:
    """The weighted sum of one layer and its gradients: queries, keys and values wait in memory.

    Args:
      config: resolved.
      backend: a row of the table, or xla, which is cudnn's arguments given to XLA.
      drop: whether einsum drops probabilities, at the config's rate.
    """
    resolved = resolve(config)
    m = resolved.model
    assert m.hidden is not None
    assert m.heads is not None
    batch = jax.device_put(rows(resolved))
    shape = (*batch["tokens"].shape, m.heads, m.hidden // m.heads)
    given = [jax.random.normal(jax.random.key(i), shape).astype(m.dtype) for i in range(4)]
    attend: Any = (
        functools.partial(backends.cudnn, implementation="xla") if backend == "xla" else backends.TABLE[backend]
    )

    def gradients(query: Any, key: Any, value: Any, cotangent: Any, seed: Any) -> Any:
        rngs = {"dropout": jax.random.key(seed)}

        def dropped(x: jax.Array) -> jax.Array:
            found: Any = Dropout(m.attention_dropout, drop).apply({}, x, rngs=rngs)
            return found

        def context(*operands: Any) -> jax.Array:
            return attend(*operands, backends.sight(batch, m), m, None, dropped)[0]

        out, pull = jax.vjp(context, query, key, value)
        return out, pull(cotangent)

    compiled, seeds = jax.jit(gradients), itertools.count()

    def call() -> None:
        jax.block_until_ready(compiled(*given, np.uint32(next(seeds))))

    return Ready(call, batch["tokens"].size, "tokens", {"backend": backend})


# --- reading --------------------------------------------------------------------------------------------------------


def forward(config: dict[str, Any]) -> Ready:
    """Vectors of every token of a batch, without heads."""
    resolved = resolve(config)
    vocab_size = resolved.tokenizer.vocab_size
    params = jax.jit(lambda seed: network.init(resolved, vocab_size, seed))(np.uint32(0))["encoder"]
    encoder = Bert(resolved.model, vocab_size, pool=False)
    batch = jax.device_put(rows(resolved))

    def vectors(params: Any, batch: Batch) -> jax.Array:
        found: Any = encoder.apply({"params": params}, batch)
        return found.hidden

    apply = jax.jit(vectors)

    def call() -> None:
        jax.block_until_ready(apply(params, batch))

    return Ready(call, batch["tokens"].size, "tokens", {})


# --- data -----------------------------------------------------------------------------------------------------------


def batches(config: dict[str, Any]) -> Ready:
    """Assembling and masking batches of the corpus, one after the other: what the loader and the update's front do."""
    resolved = resolve(config)
    prepared = prepare.prepare(resolved, log=functools.partial(print, file=sys.stderr))
    source = pipeline.Source(prepared, "train", resolved)
    settings, length = resolved.masking, resolved.sequence_length
    replacements = masking.random_ids(settings, prepared.tokenizer.special, prepared.tokenizer.size)
    slots = quotas.slots(settings, length, resolved.packing)
    traced = step.traced_at(resolved, 0)
    special = prepared.tokenizer.special

    @jax.jit
    def mask(batch: Batch, traced: Traced) -> Batch:
        return masking.apply(batch, traced, settings=settings, special=special, replacements=replacements, slots=slots)[
            0
        ]

    at = 0

    def call() -> None:
        nonlocal at
        jax.block_until_ready(mask(source.batch(at), traced))
        at += 1

    return Ready(call, resolved.batch_size * length, "tokens", {})


def assembly(config: dict[str, Any]) -> Ready:
    """Assembling alone, which is all that the host has to do."""
    resolved = resolve(config)
    prepared = prepare.prepare(resolved, log=functools.partial(print, file=sys.stderr))
    source = pipeline.Source(prepared, "train", resolved)
    at = 0

    def call() -> None:
        nonlocal at
        source.batch(at)
        at += 1

    return Ready(call, resolved.batch_size * resolved.sequence_length, "tokens", {})


# --- compiling ------------------------------------------------------------------------------------------------------


def compiling(config: dict[str, Any]) -> Ready:
    """Compiling an update anew."""
    resolved = resolve(config)
    vocab_size = resolved.tokenizer.vocab_size
    mesh = sharding.make_mesh(resolved.parallel)
    shapes = jax.eval_shape(lambda seed: step.init_state(resolved, vocab_size, seed), np.uint32(0))
    layout = sharding.state_layout(shapes, mesh, resolved.parallel)
    batch = jax.eval_shape(lambda: jax.tree.map(jnp.asarray, rows(resolved)))
    traced = step.traced_at(resolved, 0)
    jax.config.update("jax_enable_compilation_cache", False)

    def call() -> None:
        jax.clear_caches()
        update: Any = step.compile_step(resolved, SPECIAL, vocab_size, mesh, layout)  # of jit, which can be lowered
        update.lower(shapes, batch, traced).compile()

    return Ready(call, 1, "programs", {})
