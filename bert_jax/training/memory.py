"""The device memory of an update: estimated before training, and explained where it runs out."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from bert_jax.config import costs, devices, knobs
from bert_jax.errors import EXHAUSTED, ConfigError, first_line
from bert_jax.models import backends
from bert_jax.models.encoder import pad_vocabulary
from bert_jax.system import machine
from bert_jax.training.program import in_mesh, lay_out_state
from bert_jax.training.step import init_state


def estimate(
    config: knobs.Config, vocab_size: int, mesh: Mesh, shapes: Any = None
) -> tuple[int, int, int]:
    """Estimate the bytes an update takes on a device: state, gradients, activations.

    The `shapes` of the state are traced, which takes a while, if the caller does not have them.

    Gradients are split as the parameters are. The token table is held whole besides: under fsdp it
    is gathered, and so is its gradient before it is split; a CPU adds the gradients of its two uses
    from arrays of their own.
    """
    config = dataclasses.replace(config, model=devices.settled(config.model, train=True))
    if shapes is None:
        shapes = jax.eval_shape(lambda seed: init_state(config, vocab_size, seed), np.uint32(0))
    layout = lay_out_state(shapes, mesh, config.parallel)
    state = _count_bytes(shapes, layout)
    gradients = _count_bytes(shapes["params"], layout["params"])
    rows = config.batch_size // (_row_shards(mesh) * config.optim.accumulation)
    device = devices.device()
    model, fsdp = config.model, mesh.shape["fsdp"] > 1
    table = 4 * pad_vocabulary(model, vocab_size) * model.table_width
    tables = 2 + fsdp if device == "cpu" else 2 * fsdp
    with in_mesh(config.parallel, mesh):
        length = config.sequence_length
        backend = backends.choose_backend(model, length, train=True)
    fused = backend != "einsum"
    activations = costs.activation_bytes(config, vocab_size, rows, fused=fused)
    return state, gradients + tables * table, activations


def _count_bytes(shapes: Any, layout: Any) -> int:
    """Return the bytes that a device holds of arrays of some shapes and shardings."""
    return sum(
        int(np.prod(where.shard_shape(leaf.shape), dtype=np.int64)) * leaf.dtype.itemsize
        for leaf, where in zip(jax.tree.leaves(shapes), jax.tree.leaves(layout), strict=True)
    )


def check_room(config: knobs.Config, vocab_size: int, runs: int = 1) -> None:
    """Refuse a config whose state or batches exceed all memory, before anything is allocated."""
    state, batches = costs.least_bytes(config, vocab_size)
    available = device_bytes() * jax.device_count()
    if runs * state + batches <= available:
        return
    m = config.model
    large, hint = f"{m.layers:,} layers of {m.hidden:,}", "lower model.layers or model.hidden"
    if state + batches <= available:
        large, hint = f"{runs} runs that train together", "--fuse=never trains each on its own"
    elif runs * state < batches:
        large = f"batches of {config.batch_size:,} x {config.sequence_length:,} tokens"
        hint = "lower batch_size and evals.NAME.batch_size, or raise optim.accumulation"
    raise ConfigError(
        f"{large} take {readable(runs * state + batches)} or more, "
        f"and the memory of all devices is {readable(available)}",
        hint,
    )


@contextlib.contextmanager
def explain_out_of_memory(config: knobs.Config, vocab_size: int, mesh: Mesh) -> Iterator[None]:
    """Turn a lack of device memory into an error whose hint makes the same batch fit."""
    check_room(config, vocab_size)
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if EXHAUSTED not in str(error):
            raise
        needed = readable(sum(estimate(config, vocab_size, mesh)))
        raise ConfigError(
            f"out of memory on a device: an update is estimated to take {needed} "
            f"({first_line(error)[:200]})",
            _hint(config, vocab_size, mesh),
        ) from error


def _hint(config: knobs.Config, vocab_size: int, mesh: Mesh) -> str:
    """Name the least accumulation estimated to fit the same batch, or else other ways to fit."""
    available = device_bytes()
    rows, shards = config.batch_size, _row_shards(mesh)
    for parts in range(config.optim.accumulation + 1, rows // shards + 1):
        if rows % parts or rows // parts % shards:
            continue
        optim = dataclasses.replace(config.optim, accumulation=parts)
        needed = sum(estimate(dataclasses.replace(config, optim=optim), vocab_size, mesh))
        if needed <= available:
            return (
                f"--config.optim.accumulation={parts} keeps batches of {rows} "
                f"in about {readable(needed)} of {readable(available)}; "
                "a run that has begun takes --allow-change=optim.accumulation too"
            )
    return (
        "no optim.accumulation is enough: --config.model.scan=true --config.model.remat=full, "
        "more parallel.fsdp, or a smaller model"
    )


def _row_shards(mesh: Mesh) -> int:
    """Return the number of parts that the mesh splits the rows of a batch into."""
    return mesh.shape["data"] * mesh.shape["fsdp"]


def device_bytes() -> int:
    """Return the bytes of memory of a device; CPU devices have equal parts of the machine's."""
    stats = jax.local_devices()[0].memory_stats() or {}
    return int(stats.get("bytes_limit", machine.memory() // jax.local_device_count()))


def readable(size: float) -> str:
    """Return a number of bytes in the unit that suits it, such as 1.5 GiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
