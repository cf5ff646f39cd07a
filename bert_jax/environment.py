"""What a run is made of: versions, machine, parameters, memory. Written beside its results."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
from pathlib import Path
from typing import Any

import jax
import numpy as np

from bert_jax import costs, knobs, material, prepare, runs, sharding, trees
from bert_jax import step as steps
from bert_jax.config import to_dict
from bert_jax.doctor import git_commit

PACKAGES = ("bert-jax", "jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "grain", "tokenizers", "numpy")


def versions() -> dict[str, str]:
    """Of Python and the packages results depend on."""
    return {"python": platform.python_version()} | {name: importlib.metadata.version(name) for name in PACKAGES}


def machine() -> dict[str, Any]:
    """Processor, memory and accelerators."""
    devices = jax.devices()
    return {
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "backend": jax.default_backend(),
        "devices": [f"{len(devices)} x {devices[0].device_kind}"],
        "processes": jax.process_count(),
    }


def describe_run(given: material.Material, params: Any, workdir: Path, command: list[str]) -> None:
    """Writes config.json, environment.json and tokenizer/, which make the folder complete in itself."""
    leaves = trees.flat(params)
    runs.write_json(workdir / "config.json", to_dict(given.config))
    runs.write_json(
        workdir / "environment.json",
        {
            "command": command,
            "git_commit": git_commit(),
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
    """What `--dry-run` prints: the resolved config, parameters, memory and steps; nothing is prepared or written."""
    mesh = sharding.make_mesh(config.parallel)
    vocab_size = config.tokenizer.vocab_size
    if config.task.source:
        vocab_size = material.vocabulary(config).size
    elif config.tokenizer.path:
        vocab_size = prepare.given_tokenizer(config.tokenizer).size
    shapes = jax.eval_shape(lambda seed: steps.init_state(config, vocab_size, seed), np.uint32(0))
    parameters = sum(leaf.size for leaf in jax.tree.leaves(shapes["params"]))
    layout = sharding.state_layout(shapes, mesh, config.parallel)
    held = sum(
        int(np.prod(where.shard_shape(leaf.shape), dtype=np.int64)) * leaf.dtype.itemsize
        for leaf, where in zip(jax.tree.leaves(shapes), jax.tree.leaves(layout), strict=True)
    )
    ways = mesh.shape["data"] * mesh.shape["fsdp"] * config.optim.accumulation
    activations = costs.activation_bytes(config, vocab_size, config.batch_size // ways)
    gradients = held // 3  # the state is parameters and two moments; gradients are split as they are
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


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
