"""What this machine has, what is prepared on it, and what is known to go wrong with it.

It has to answer on a machine where something is missing, so packages are imported where they are asked about.
"""

from __future__ import annotations

import ctypes.util
import importlib.metadata
import json
import os
import platform
import sys
import textwrap
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import bert_jax
from bert_jax import cli
from bert_jax.errors import ConfigError, DataError
from bert_jax.system import jsons, machine

HELP = "versions, devices, disk, prepared corpora, known trouble"
EXAMPLE = "--json"

NEEDED = (
    *("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "grain", "tokenizers", "numpy"),
    *("ml-collections", "tensorflow-datasets", "importlib_resources", "sentencex", "safetensors"),
)
OPTIONAL = ("torch", "transformers", "tensorflow")
COUNTS = ("documents", "sentences", "tokens")
LOW_DISK, LOW_MEMORY = 5 * 2**30, 3 * 2**30
ENVIRONMENT = {  # variable, what it must not contain, and why
    "XLA_FLAGS onednn": "oneDNN fails to compile some of our graphs",
    "XLA_FLAGS force_host_platform_device_count": "the devices are fake and share the same cores",
    "JAX_ENABLE_X64 1": "64-bit numbers double the memory and are not tested",
    "JAX_ENABLE_X64 true": "64-bit numbers double the memory and are not tested",
    "JAX_DISABLE_JIT 1": "nothing is compiled, so training is hundreds of times slower",
    "JAX_DISABLE_JIT true": "nothing is compiled, so training is hundreds of times slower",
    "JAX_DEBUG_NANS true": "a single non-finite gradient, which training would skip, ends the run",
    "JAX_DEBUG_NANS 1": "a single non-finite gradient, which training would skip, ends the run",
}


def flags(parser: ArgumentParser) -> None:
    """Add the flags of the command."""
    parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")
    compare = "in what two presets differ; defaults is one too"
    parser.add_argument("--preset-diff", nargs=2, metavar=("A", "B"), default=(), help=compare)


def main(call: cli.Call) -> None:
    """Run the command line."""
    run(call.args.json, call.args.preset_diff)


def run(as_json: bool, presets: Sequence[str] = ()) -> None:
    """`bert-jax doctor`: one line a fact, or one JSON object; of two presets, in what they differ."""
    report = compare(*presets) if presets else examine()
    text = compared if presets else as_text
    print(json.dumps(report, indent=2) if as_json else text(report))


def examine() -> dict[str, Any]:
    """Everything the doctor knows, in plain JSON types."""
    report: dict[str, Any] = {
        "versions": {"python": platform.python_version(), "bert_jax": bert_jax.__version__}
        | machine.versions(NEEDED),
        "optional": machine.versions(OPTIONAL),
        "machine": machine.machine(),
        "devices": machine.devices(),
        "corpora": corpora(machine.cache_folder()),
    }
    return report | {"warnings": warnings(report, os.environ)}


# --- facts ----------------------------------------------------------------------------------------------------------


def corpora(cache: Path) -> list[dict[str, Any]]:
    """Every finished corpus below the cache, as its manifest describes it; a broken one is listed as broken."""
    try:
        from bert_jax.data.text import shards
    except ImportError as error:
        return (
            [{"folder": str(cache), "error": f"cannot be read: {error}"}] if cache.is_dir() else []
        )
    found: list[dict[str, Any]] = []
    for file in sorted(cache.glob("*/manifest.json")):
        entry: dict[str, Any] = {"folder": str(file.parent)}
        try:
            manifest = shards.read_manifest(file.parent)
            audit = jsons.read(file.parent / "audit.json", DataError)
            entry |= {
                key: audit[key]
                for key in ("fingerprint", "source", "vocab_size", "unigram_entropy", "warnings")
            }
            entry["splits"] = {
                split: {"shards": len(parts)} | {k: sum(p[k] for p in parts) for k in COUNTS}
                for split, parts in manifest["splits"].items()
            }
        except (
            DataError,
            OSError,
            ValueError,
            KeyError,
            TypeError,
            AttributeError,
        ) as error:  # any content at all
            entry["error"] = f"{type(error).__name__}: {error}"
        found.append(entry)
    return found


# --- trouble --------------------------------------------------------------------------------------------------------


def warnings(report: dict[str, Any], environment: Any) -> list[str]:
    """What is known to go wrong here, one sentence each."""
    found = [
        f"{name} is not installed: run make venv"
        for name, version in report["versions"].items()
        if version is None
    ]
    for rule, why in ENVIRONMENT.items():
        variable, part = rule.split()
        if part in environment.get(variable, "").lower():
            found.append(f"{variable}={environment[variable]}: {why}")
    host, device = report["machine"], report["devices"]
    for place in ("cache", "workdir"):
        if host[f"{place}_free_bytes"] < LOW_DISK:
            found.append(f"{host[place]} has only {_size(host[f'{place}_free_bytes'])} free")
    if host["memory_bytes"] < LOW_MEMORY:
        found.append(
            f"only {_size(host['memory_bytes'])} of memory: lower batch_size, or raise optim.accumulation"
        )
    if "error" in device:
        found.append(f"jax finds no device: {device['error']}")
    elif not device["matmul"]["correct"]:
        found.append(
            f"{device['backend']}: a product of small whole numbers is wrong: trust no result of this machine"
        )
    if device["backend"] == "cpu" and Path("/proc/driver/nvidia/gpus").is_dir():
        found.append("there is an NVIDIA GPU but jax runs on the CPU: install the extra cuda")
    if device["backend"] == "gpu" and device["count"] > 1 and not _has_nccl():
        found.append(
            f"{device['count']} GPUs but no NCCL: they cannot work together; install the extra cuda"
        )
    for corpus in report["corpora"]:
        known = [corpus["error"]] if "error" in corpus else corpus["warnings"]
        found += [f"{corpus['folder']}: {trouble}" for trouble in known]
    return found


def _has_nccl() -> bool:
    wheels = (distribution.name or "" for distribution in importlib.metadata.distributions())
    return (
        any(name.startswith("nvidia-nccl") for name in wheels)
        or ctypes.util.find_library("nccl") is not None
    )


# --- text -----------------------------------------------------------------------------------------------------------


def as_text(report: dict[str, Any]) -> str:
    """The report for a terminal."""
    host, device = report["machine"], report["devices"]
    rows = [(name, version or "absent") for name, version in report["versions"].items()]
    rows += [(name, version or "absent (optional)") for name, version in report["optional"].items()]
    rows += [
        ("system", f"{host['system']}, {host['cores']} cores, {_size(host['memory_bytes'])}"),
        ("allocator", host["allocator"]),
        ("cache", f"{host['cache']}, {_size(host['cache_free_bytes'])} free"),
        ("workdir", f"{host['workdir']}, {_size(host['workdir_free_bytes'])} free"),
        ("devices", f"{device['count']} x {', '.join(device['kinds'])} ({device['backend']})"),
    ]
    if "matmul" in device:
        product = device["matmul"]
        verdict = "exact" if product["correct"] else "WRONG"
        rows.append(
            (
                "float32",
                f"{verdict}, {product['gigaflops']} GFLOP/s at {product['size']} x {product['size']}",
            )
        )
    for corpus in (c for c in report["corpora"] if "error" not in c):
        about = f"{corpus['vocab_size']:,} tokens of vocabulary, {corpus['unigram_entropy']:.2f} nats of unigram entropy"
        rows.append(("corpus", f"{corpus['folder']} ({corpus['source']}): {about}"))
        for split, counts in corpus["splits"].items():
            rows.append(
                (
                    "corpus",
                    f"{corpus['folder']} {split}: "
                    + ", ".join(f"{n:,} {k}" for k, n in counts.items()),
                )
            )
    rows += [("warning", text) for text in report["warnings"]] or [("warning", "none")]
    return "\n".join(f"{name:22} {value}" for name, value in rows)


def _size(count: float) -> str:
    return f"{count / 2**30:.1f} GiB"


# --- presets --------------------------------------------------------------------------------------------------------


def compare(*names: str) -> dict[str, Any]:
    """Every knob in which two presets differ or that only one of them names, and what each is about.

    A side that does not name a knob has the project's default there. `defaults` is the preset that names them all.
    """
    from bert_jax import config
    from bert_jax.config import knobs, presets

    defaults = config.flat(config.to_dict(knobs.Config()))
    known = json.loads(json.dumps(presets.PRESETS)) | {
        "defaults": defaults
    }  # tuples as lists, like the defaults'
    abouts = presets.ABOUT | {"defaults": "The project's defaults, of every knob."}
    for name in names:
        if name not in known:
            raise ConfigError(f"no preset {name!r}", config.suggest(name, known))
    if "defaults" in names:  # what no recipe decides is not compared
        known["defaults"] = {
            path: defaults[path] for name in names for path in known[name] if name != "defaults"
        }
    sides = [known[name] for name in names]
    found: dict[str, Any] = {}
    for path in [path for path in defaults if any(path in side for side in sides)]:
        values = [side[path] if path in side else defaults[path] for side in sides]
        named = [path in side for side in sides]
        if values[0] != values[1] or not all(named):
            found[path] = {"values": values, "named": named}
    return {
        "presets": list(names),
        "about": [" ".join(abouts[name].split()) for name in names],
        "knobs": found,
    }


def compared(report: dict[str, Any]) -> str:
    """The comparison for a terminal: one line a knob, defaults of what is not named in brackets."""
    if not report["knobs"]:
        return f"{' and '.join(report['presets'])} do not differ"
    rows = [("[default where not named]", *report["presets"])]
    for path, row in report["knobs"].items():
        shown = (
            json.dumps(v) if isinstance(v, (list, bool)) or v in ("", None) else str(v)
            for v in row["values"]
        )
        rows.append(
            (
                path,
                *(v if named else f"[{v}]" for v, named in zip(shown, row["named"], strict=True)),
            )
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    for name, about in zip(report["presets"], report["about"], strict=True):
        lines += ["", *textwrap.wrap(f"{name}: {about}", 100, subsequent_indent="  ")]
    return "\n".join(lines)


if __name__ == "__main__":
    cli.main(["doctor", *sys.argv[1:]])
