"""Estimate the device memory of an update, and explain the error when memory runs out."""

import contextlib
import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from bert_jax import sharding
from bert_jax.config import costs, devices, knobs
from bert_jax.errors import EXHAUSTED, ConfigError, first_line
from bert_jax.models import backends
from bert_jax.models.encoder import pad_vocabulary
from bert_jax.system import machine
from bert_jax.training.program import in_mesh
from bert_jax.training.start import lay_out_state
from bert_jax.training.step import draw_state

HALVES = "train fewer runs together; a study goes on with each half of them"


def estimate_bytes(
    config: knobs.Config, vocab_size: int, mesh: Mesh, shapes: Any = None
) -> tuple[int, int, int]:
    """Estimate the bytes that an update needs on a device: (state, gradients, activations).

    Gradients are split like the parameters. The token table needs further room. Under fsdp it is
    gathered, and so is its gradient before it is split. A CPU keeps the gradients of the table's
    two uses in two arrays, and adds them. `shapes` are the shapes of the state. If None, they are
    traced, which takes a while.
    """
    model = devices.fill_machine_knobs(config.model, train=True)
    config = dataclasses.replace(config, model=model)
    if shapes is None:
        shapes = jax.eval_shape(lambda seed: draw_state(config, vocab_size, seed), np.uint32(0))
    layout = lay_out_state(shapes, mesh, config.parallel)

    def count_bytes(leaf: Any, where: Any) -> int:
        return math.prod(where.shard_shape(leaf.shape)) * leaf.dtype.itemsize

    held = jax.tree.map(count_bytes, shapes, layout)
    rows = config.batch_size // (sharding.count_row_shards(mesh) * config.optim.accumulation)
    fsdp = mesh.shape["fsdp"] > 1
    table = 4 * pad_vocabulary(model, vocab_size) * model.table_width
    tables = 2 + fsdp if devices.find_kind() == "cpu" else 2 * fsdp
    with in_mesh(config.parallel, mesh):
        backend = backends.choose_backend(model, config.sequence_length, train=True)
    activations = costs.activation_bytes(config, vocab_size, rows, fused=backend != "einsum")
    gradients = sum(jax.tree.leaves(held["params"]))
    return sum(jax.tree.leaves(held)), gradients + tables * table, activations


@contextlib.contextmanager
def explain_out_of_memory(
    config: knobs.Config, vocab_size: int, mesh: Mesh, runs: int = 1
) -> Iterator[None]:
    """Raise a ConfigError if a device runs out of memory in the block.

    Its hint names settings with which the same batch should fit. If several runs train together,
    the estimate is for one of them.
    """
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if EXHAUSTED not in str(error):
            raise
        needed = format_bytes(sum(estimate_bytes(config, vocab_size, mesh)))
        whose = "an update" if runs == 1 else f"an update of one of {runs} runs"
        raise ConfigError(
            f"out of memory on a device: {whose} is estimated to take {needed} "
            f"({first_line(error)[:200]})",
            _find_hint(config, vocab_size, mesh) if runs == 1 else HALVES,
        ) from error


def _find_hint(config: knobs.Config, vocab_size: int, mesh: Mesh) -> str:
    """Suggest the least accumulation for which the same batch is estimated to fit.

    If no accumulation is enough, other ways to save memory are suggested.
    """
    available = device_bytes()
    rows = config.batch_size
    shards = sharding.count_row_shards(mesh)
    for parts in range(config.optim.accumulation + 1, rows // shards + 1):
        if rows % parts or rows // parts % shards:
            continue
        optim = dataclasses.replace(config.optim, accumulation=parts)
        needed = sum(estimate_bytes(dataclasses.replace(config, optim=optim), vocab_size, mesh))
        if needed <= available:
            return (
                f"--config.optim.accumulation={parts} keeps batches of {rows} "
                f"in about {format_bytes(needed)} of {format_bytes(available)}; "
                "a run that has begun takes --allow-change=optim.accumulation too"
            )
    return (
        "no optim.accumulation is enough: --config.model.scan=true --config.model.remat=full, "
        "more parallel.fsdp, or a smaller model"
    )


def device_bytes() -> int:
    """Return the memory of a device in bytes; CPU devices share the machine's memory equally."""
    stats = jax.local_devices()[0].memory_stats() or {}
    return int(stats.get("bytes_limit", machine.count_memory() // jax.local_device_count()))


def format_bytes(size: float) -> str:
    """Write a number of bytes with a suitable unit, such as 1.5 GiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
