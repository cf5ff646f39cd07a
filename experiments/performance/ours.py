"""Contestants of this project: each function makes one from a resolved config as plain JSON."""

import atexit
import dataclasses
import functools
import itertools
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from matmuls import Matmul, count_matmuls
from turns import Ready

from bert_jax.batch import SPECIAL, Batch, Special, StepInputs
from bert_jax.checkpoints.saving import Checkpoints
from bert_jax.config import knobs, read_recorded
from bert_jax.data import packing, pipeline, prepare
from bert_jax.data.corpus import Prepared
from bert_jax.data.features import Features
from bert_jax.data.task_stream import TaskStream
from bert_jax.masking import corrupt, quotas
from bert_jax.models.encoder import Encoder
from bert_jax.objectives import network
from bert_jax.planning.batches import make_random_text
from bert_jax.training.clock import count_work
from bert_jax.training.program import Program, mesh_for
from bert_jax.training.step import compute_inputs

say = functools.partial(print, file=sys.stderr)  # standard output is for answers


def make_text(config: knobs.Config, sizes: list[int] | None = None) -> Batch:
    """Make a batch of random text: full rows, or an example of each of the sizes in its own row."""
    lengths = np.array(sizes or [config.sequence_length] * config.batch_size)
    return make_random_text(config, lengths, config.tokenizer.vocab_size)


def pack_text(config: knobs.Config, sizes: list[int]) -> Batch:
    """Make a batch of random text whose examples are packed into rows."""
    alone = make_text(dataclasses.replace(config, packing=1), sizes)
    groups = packing.plan_rows(np.bincount(sizes), config.sequence_length, config.packing)
    table = packing.assign_examples(groups, np.array(sizes), config.packing)  # [B, S]
    tokens = (len(table), config.sequence_length)
    batch = {}
    for key, value in alone.items():
        by_token = value.shape[1] == config.sequence_length
        empty = -1 if key in ("unit_ids", "labels") else 0
        batch[key] = np.full(tokens if by_token else table.shape, empty, np.int32)
    row, slot = np.nonzero(table >= 0)
    examples = {key: value[table[row, slot]] for key, value in alone.items()}
    packing.place_examples(examples, batch, row, slot)
    return batch


# --- training -------------------------------------------------------------------------------------


class Trainer:
    """The state of one run, or of several that train together, and their update."""

    def __init__(self, config: knobs.Config, special: Special, vocab_size: int, runs: int = 1):
        self.program = Program(config, special, vocab_size, mesh_for(config, runs), runs)
        states = [self.program.start.draw_state(seed) for seed in range(runs)]
        self.state = self.program.place(states)
        self.parameters = sum(leaf.size for leaf in jax.tree.leaves(self.program.shapes["params"]))
        self._inputs = [compute_inputs(config, config.steps // 2)] * runs
        self._metrics: Any = ()

    def begin(self, batch: Batch) -> None:
        """Start an update of one batch."""
        self.state, self._metrics = self.program.update(self.state, batch, self._inputs)

    def wait(self) -> None:
        """Wait until the last update is done."""
        jax.block_until_ready(self._metrics)


def train_step(
    config: dict[str, Any], runs: int = 1, sizes: list[int] | None = None, repeats: int = 1
) -> Ready:
    """Make updates on one batch.

    Args:
      config: resolved; `sizes` overrides its batch size.
      runs: how many runs train together.
      sizes: lengths of the examples, packed if the config packs, else each in a row of its own.
      repeats: updates of a call.
    """
    resolved = read_recorded(config)
    packs = resolved.packing > 1 and sizes
    batch = pack_text(resolved, sizes) if sizes and packs else make_text(resolved, sizes)
    resolved = dataclasses.replace(resolved, batch_size=len(batch["tokens"]))
    trainer = Trainer(resolved, SPECIAL, resolved.tokenizer.vocab_size, runs)

    def call() -> None:
        for _ in range(repeats):
            trainer.begin(batch)
            trainer.wait()

    tokens, flops = count_work(resolved, resolved.tokenizer.vocab_size, batch)
    about = {
        "flops": runs * repeats * flops,
        "parameters": trainer.parameters,
        "rows": len(batch["tokens"]),
        "real": tokens / batch["tokens"].size,
    }
    return Ready(call, runs * repeats * tokens, "tokens", about)


def finetuning(config: dict[str, Any], sizes: list[int]) -> Ready:
    """Make an epoch of updates on random texts in two classes, with lengths `sizes`."""
    resolved = read_recorded(config)
    resolved = dataclasses.replace(
        resolved,
        objectives={"classify": knobs.Objective(labels=("a", "b"))},
        task=dataclasses.replace(resolved.task, source="files:none"),  # labelled: no masking
    )
    rng = np.random.default_rng(0)
    vocab_size = resolved.tokenizer.vocab_size
    zeros = np.zeros(sum(sizes), np.int32)
    first = np.zeros((len(sizes), 1), np.int32)
    features = Features(
        offsets=np.concatenate([[0], np.cumsum(sizes)]),
        tokens=rng.integers(len(SPECIAL), vocab_size, len(zeros), np.int32),
        type_ids=zeros,
        positions=np.concatenate([np.arange(size, dtype=np.int32) for size in sizes]),
        segment_ids=zeros + 1,
        cls_positions=first,
        targets={"labels": rng.integers(0, 2, first.shape, np.int32)},
        example=np.arange(len(sizes), dtype=np.int32),
        words=None,
        characters=None,
        best=None,
        cut=0,
    )
    source = TaskStream(features, SPECIAL, resolved)
    batches = [source.batch(index) for index in range(len(sizes) // resolved.batch_size)]
    trainer = Trainer(resolved, SPECIAL, vocab_size)

    def call() -> None:
        for batch in batches:
            trainer.begin(batch)
        trainer.wait()

    tokens = sum(int((batch["segment_ids"] > 0).sum()) for batch in batches)
    lengths = [batch["tokens"].shape[1] for batch in batches]
    real = tokens / (resolved.batch_size * sum(lengths))
    return Ready(call, tokens, "tokens", {"real": real, "programs": len(set(lengths))})


def matmuls(config: dict[str, Any]) -> Ready:
    """Compute the matmuls of an update and nothing else: a lower bound of its time.

    Each matmul is computed by itself, of operands that are in memory already, in the layout that
    suits it best and in the types of the update.
    """
    resolved = read_recorded(config)
    calls = []
    flops = 0.0
    for matmul, times in matmuls_of(resolved).items():
        operands = [
            jax.random.normal(jax.random.key(i), shape).astype(kind)
            for i, (shape, kind) in enumerate(zip(matmul.shapes, matmul.types, strict=True))
        ]
        multiply = jax.jit(
            functools.partial(
                jnp.matmul, precision=matmul.precision, preferred_element_type=matmul.result
            )
        )
        jax.block_until_ready(multiply(*operands))
        calls += [(multiply, operands)] * times
        flops += matmul.flops * times

    def call() -> None:
        for multiply, operands in calls:
            jax.block_until_ready(multiply(*operands))

    return Ready(call, resolved.batch_size * resolved.sequence_length, "tokens", {"flops": flops})


def matmuls_of(config: knobs.Config) -> Counter[Matmul]:
    """Count the matmuls in the jaxpr of an update, without those that remat would recompute."""
    config = dataclasses.replace(config, model=dataclasses.replace(config.model, remat="none"))
    program = Program(config, SPECIAL, config.tokenizer.vocab_size, mesh_for(config))
    return count_matmuls(program.trace(make_text(config)).jaxpr.jaxpr)


def saving(config: dict[str, Any], save: bool = True, whole: bool = False) -> Ready:
    """Save and start the next update: the time that a save holds up the training thread.

    The update donates the state, so it cannot start before the save has copied the state.

    Args:
      config: resolved.
      save: whether to save; else only the update is started.
      whole: whether to wait until the save is verified on disk, and start no update.
    """
    resolved = read_recorded(config)
    trainer = Trainer(resolved, SPECIAL, resolved.tokenizer.vocab_size)
    batch = make_text(resolved)
    folder = Path(tempfile.mkdtemp(prefix="bert_jax_benchmark_"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    checkpoints = Checkpoints(folder / "checkpoints", keep=1, keep_best=False)
    steps = itertools.count(1)

    def call() -> None:
        if save:
            checkpoints.save(next(steps), trainer.state, {})
        if whole:
            checkpoints.wait()
        else:
            trainer.begin(batch)

    def settle() -> None:
        trainer.wait()
        checkpoints.wait()

    trainer.begin(batch)
    trainer.wait()
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(trainer.state))
    return Ready(call, size, "bytes", {"state_bytes": size}, settle)


# --- inference ------------------------------------------------------------------------------------


def forward(config: dict[str, Any]) -> Ready:
    """Compute the hidden vectors of a batch, without heads."""
    resolved = read_recorded(config)
    vocab_size = resolved.tokenizer.vocab_size
    params = jax.jit(lambda seed: network.init_params(resolved, vocab_size, seed))(np.uint32(0))[
        "encoder"
    ]
    params = network.with_rounded_kernels(resolved.model, params)  # as in `predict`
    encoder = Encoder(resolved.model, vocab_size, pool=False)
    batch = jax.device_put(make_text(resolved))

    def vectors(params: Any, batch: Batch) -> jax.Array:
        encoded: Any = encoder.apply({"params": params}, batch)
        return encoded.hidden

    apply = jax.jit(vectors)

    def call() -> None:
        jax.block_until_ready(apply(params, batch))

    return Ready(call, batch["tokens"].size, "tokens", {})


# --- data -----------------------------------------------------------------------------------------


def batches(config: dict[str, Any]) -> Ready:
    """Assemble and mask batches of the corpus, as the loader and the update do."""
    resolved, prepared, source = _open_corpus(config)
    settings = resolved.masking
    slots = quotas.count_slots(settings, resolved.sequence_length, resolved.packing)
    step_inputs = compute_inputs(resolved, 0)

    @jax.jit
    def mask(batch: Batch, step_inputs: StepInputs) -> Batch:
        return corrupt.corrupt_batch(
            batch,
            step_inputs,
            settings=settings,
            special=prepared.tokenizer.special,
            vocab_size=prepared.tokenizer.size,
            slots=slots,
        )[0]

    steps = itertools.count()

    def call() -> None:
        jax.block_until_ready(mask(source.batch(next(steps)), step_inputs))

    return Ready(call, resolved.batch_size * resolved.sequence_length, "tokens", {})


def assembly(config: dict[str, Any]) -> Ready:
    """Assemble batches of the corpus, which is all the work of the host."""
    resolved, _, source = _open_corpus(config)
    steps = itertools.count()

    def call() -> None:
        source.batch(next(steps))

    return Ready(call, resolved.batch_size * resolved.sequence_length, "tokens", {})


def fed(config: dict[str, Any], loader: bool) -> Ready:
    """Make updates on the batches of the loader, or always on the first batch."""
    resolved, prepared, source = _open_corpus(config)
    trainer = Trainer(resolved, prepared.tokenizer.special, prepared.tokenizer.size)
    first = source.batch(0)
    stream = pipeline.prefetch(source.batch, 0, sys.maxsize)

    def call() -> None:
        trainer.begin(next(stream) if loader else first)
        trainer.wait()

    return Ready(call, resolved.batch_size * resolved.sequence_length, "tokens", {})


def _open_corpus(config: dict[str, Any]) -> tuple[knobs.Config, Prepared, pipeline.TextStream]:
    resolved = read_recorded(config)
    prepared = prepare.prepare_corpus(resolved, log=say)
    return resolved, prepared, pipeline.TextStream(prepared, "train", resolved)
