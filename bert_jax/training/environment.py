"""A description of a run beside its results: config, versions, machine, data and tokenizer."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import jax

from bert_jax.config import knobs, to_dict
from bert_jax.system import jsons, trees
from bert_jax.system import machine as facts
from bert_jax.training.data import TrainingData

PACKAGES = (
    "bert-jax",
    "jax",
    "jaxlib",
    "flax",
    "optax",
    "orbax-checkpoint",
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
    config: knobs.Config, data: TrainingData, params: Any, workdir: Path, command: list[str]
) -> None:
    """Write config.json, environment.json and tokenizer/, which make the folder self-contained."""
    leaves = trees.flat(params)
    jsons.write(workdir / "config.json", to_dict(config))
    jsons.write(
        workdir / "environment.json",
        {
            "command": command,
            "git_commit": facts.git_commit(),
            "versions": versions(),
            "machine": machine(),
            "parameters": sum(leaf.size for leaf in leaves.values()),
            "corpus": data.fingerprint,
            "vocabulary": data.tokenizer.size,
            "tokenizer": data.tokenizer.hash,
        },
    )
    data.tokenizer.save(workdir / "tokenizer")
