"""What a run is made of: versions, machine, parameters, memory. Written beside its results."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from bert_jax import trees
from bert_jax.batch import Special
from bert_jax.config import costs, knobs, to_dict, validation
from bert_jax.errors import EXHAUSTED, ConfigError, DataError
from bert_jax.interop import runs, vocabulary
from bert_jax.system import machine as facts
from bert_jax.training import data
from bert_jax.training.program import Program, mesh_for

SPECIAL = Special(0, 1, 2, 3, 4)  # of no vocabulary: shapes do not depend on it
PACKAGES = (
    "bert-jax",
    "jax",
    "jaxlib",
    "flax",
    "optax",
    "orbax-checkpoint",
    "grain",
    "tokenizers",
    "numpy",
)


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that results depend on."""
    installed = facts.versions(PACKAGES)
    return {"python": platform.python_version()} | {
        name: version or "not installed" for name, version in installed.items()
    }


def machine() -> dict[str, Any]:
    """Describe the processor, the memory and the accelerators."""
    host, devices = facts.host(), jax.devices()
    return {
        "platform": host["system"],
        "cores": host["cores"],
        "memory_bytes": host["memory_bytes"],
        "backend": jax.default_backend(),
        "devices": [f"{len(devices)} x {devices[0].device_kind}"],
        "processes": jax.process_count(),
    }


def describe_run(
    config: knobs.Config, given: data.TrainingData, params: Any, workdir: Path, command: list[str]
) -> None:
    """Writes config.json, environment.json and tokenizer/, which make the folder complete in itself."""
    leaves = trees.flat(params)
    runs.write_json(workdir / "config.json", to_dict(config))
    runs.write_json(
        workdir / "environment.json",
        {
            "command": command,
            "git_commit": facts.git_commit(),
            "versions": versions(),
            "machine": machine(),
            "parameters": sum(leaf.size for leaf in leaves.values()),
            "corpus": given.fingerprint,
            "vocabulary": given.tokenizer.size,
            "tokenizer": given.tokenizer.hash,
        },
    )
    given.tokenizer.save(workdir / "tokenizer")


def plan(config: knobs.Config) -> str:
    """Describe a run before it is made: the resolved config, parameters, memory and steps.

    Nothing is prepared or written.
    """
    mesh = mesh_for(config)
    config = data.gather(config).config if config.task.source else config
    validation.warn(config)
    try:
        vocab_size = vocabulary.vocabulary_size(config)
    except (ConfigError, DataError):  # neither given nor prepared: as many as are asked for
        if config.task.source or config.tokenizer.path:
            raise
        vocab_size = config.tokenizer.vocab_size
    shapes = Program(config, SPECIAL, vocab_size, mesh).shapes
    parameters = sum(leaf.size for leaf in jax.tree.leaves(shapes["params"]))
    held, gradients, activations = estimate(config, vocab_size, mesh)
    tokens = config.steps * config.batch_size * config.sequence_length
    lines = [
        json.dumps(to_dict(config), indent=2),
        f"parameters      {parameters:,} (vocabulary {vocab_size:,})",
        f"memory/device   {_size(held + gradients + activations)}: state {_size(held)}, gradients {_size(gradients)}, "
        f"activations about {_size(activations)}",
        f"devices         {jax.device_count()} x {jax.devices()[0].device_kind}, mesh {dict(mesh.shape)}",
        f"steps           {config.steps:,} of {config.batch_size} x {config.sequence_length} = {tokens:,} tokens",
    ]
    return "\n".join(lines)


def estimate(config: knobs.Config, vocab_size: int, mesh: Mesh) -> tuple[int, int, int]:
    """Estimate the bytes of a device that an update takes: state, gradients, activations."""
    program = Program(config, SPECIAL, vocab_size, mesh)
    shapes, layout = program.shapes, program.layout
    held = sum(
        int(np.prod(where.shard_shape(leaf.shape), dtype=np.int64)) * leaf.dtype.itemsize
        for leaf, where in zip(jax.tree.leaves(shapes), jax.tree.leaves(layout), strict=True)
    )
    ways = mesh.shape["data"] * mesh.shape["fsdp"] * config.optim.accumulation
    # The state is parameters and two moments; gradients are split as they are.
    return held, held // 3, costs.activation_bytes(config, vocab_size, config.batch_size // ways)


@contextlib.contextmanager
def out_of_memory(config: knobs.Config, vocab_size: int, mesh: Mesh) -> Iterator[None]:
    """Turn a device's want of memory while training into an error that says how the same batch fits."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if EXHAUSTED not in str(error):
            raise
        first = str(error).strip().splitlines()[0]
        taken = _size(sum(estimate(config, vocab_size, mesh)))
        said = f"out of memory on a device: an update is estimated to take {taken} ({first[:200]})"
        raise ConfigError(said, _fitting(config, vocab_size, mesh)) from error


def _fitting(config: knobs.Config, vocab_size: int, mesh: Mesh) -> str:
    """The accumulation that keeps the global batch and is estimated to fit; else what else takes less."""
    rows, now = config.batch_size, config.optim.accumulation
    ways = mesh.shape["data"] * mesh.shape["fsdp"]
    room = device_bytes()
    more = [
        parts
        for parts in range(now + 1, rows // ways + 1)
        if rows % parts == 0 and rows // parts % ways == 0
    ]
    for parts in more:
        changed = dataclasses.replace(
            config, optim=dataclasses.replace(config.optim, accumulation=parts)
        )
        taken = sum(estimate(changed, vocab_size, mesh))
        if taken <= room:
            knob = "optim.accumulation"
            return (
                f"--config.{knob}={parts} keeps batches of {rows} in about {_size(taken)} of {_size(room)}; a run that "
                f"has begun takes --allow-change={knob} too"
            )
    return "no optim.accumulation is enough: --config.model.remat=true, more parallel.fsdp, or a smaller model"


def device_bytes() -> int:
    """The memory of a device; of processors, which share theirs, a part of the machine's."""
    stats = jax.local_devices()[0].memory_stats() or {}
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return int(stats.get("bytes_limit", machine // jax.local_device_count()))


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
