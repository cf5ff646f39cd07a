"""`bert-jax doctor`: versions, devices, disk, prepared corpora and known trouble of a machine.

The command must work on a machine where packages are missing. So each package is imported where it
is needed, except psutil, which counts cores and memory.
"""

import ctypes.util
import importlib.metadata
import json
import os
import platform
import re
import sys
import textwrap
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import bert_jax
from bert_jax import cli
from bert_jax.errors import ConfigError, DataError, suggest
from bert_jax.reporting.text_table import format_table
from bert_jax.system import machine

EXAMPLE = "--json"
NEEDED = (  # what pyproject.toml names, and jaxlib
    *("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "tokenizers", "numpy", "jinja2"),
    *("ml-collections", "tensorflow-datasets", "importlib_resources", "sentencex", "safetensors"),
    *("filelock", "psutil", "huggingface_hub", "matplotlib", "ml_dtypes", "msgspec", "pyarrow"),
    *("scikit-learn", "scipy", "seqeval", "tensorboardX", "tqdm", "zstandard", "markupsafe"),
)
OPTIONAL = ("torch", "transformers", "tensorflow", "wandb", "mlflow")
FACTS = ("fingerprint", "source", "vocab_size", "unigram_entropy", "warnings")
LOW_DISK, LOW_MEMORY = 5 * 2**30, 3 * 2**30
ENVIRONMENT = {  # variable and a pattern of its value -> why it is trouble
    ("XLA_FLAGS", r"onednn\w*\b(?!=0|=false)"): "oneDNN fails to compile some of our graphs",
    ("XLA_FLAGS", "force_host_platform_device_count"): "the devices are fake and share cores",
    ("JAX_ENABLE_X64", "1"): "64-bit numbers double the memory and are not tested",
    ("JAX_DISABLE_JIT", "1"): "nothing is compiled, so training is hundreds of times slower",
    ("JAX_DEBUG_NANS", "1"): "a single non-finite gradient, which would be skipped, ends the run",
}


def add_flags(parser: ArgumentParser) -> None:
    """Add the flags of the command."""
    parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")
    difference = "print the differences between two presets; defaults is one too"
    parser.add_argument("--preset-diff", nargs=2, metavar=("A", "B"), default=(), help=difference)


def main(call: cli.Call) -> None:
    """Run the command line."""
    run(call.args.json, call.args.preset_diff)


def run(as_json: bool, presets: Sequence[str]) -> None:
    """Print the facts of `examine`, or the comparison of two presets, as lines or as JSON."""
    report = compare_presets(*presets) if presets else examine()
    if as_json:
        print(json.dumps(report, indent=2))
    else:
        print(format_comparison(report) if presets else format_report(report))


def examine() -> dict[str, Any]:
    """Collect all facts about the machine, and all warnings, in plain JSON types."""
    own = {"python": platform.python_version(), "bert_jax": bert_jax.__version__}
    report: dict[str, Any] = {
        "versions": own | machine.list_versions(NEEDED),
        "optional": machine.list_versions(OPTIONAL),
        "machine": machine.describe_machine(),
        "devices": machine.describe_devices(),
        "corpora": list_corpora(machine.cache_folder()),
    }
    return report | {"warnings": list_warnings(report, os.environ)}


def list_corpora(cache: Path) -> list[dict[str, Any]]:
    """Return a dict for each prepared corpus of the cache: its folder, and its facts or error."""
    entries: list[dict[str, Any]] = []
    for file in sorted(cache.glob("*/manifest.json")):
        entry: dict[str, Any] = {"folder": str(file.parent)}
        try:
            import msgspec

            from bert_jax.data import corpus
            from bert_jax.system import jsons

            manifest = corpus.read_manifest(file.parent)
            audit = jsons.read(file.parent / "audit.json", DataError, dict)
            entry |= {key: audit[key] for key in FACTS}
            entry["splits"] = msgspec.to_builtins(manifest.splits)
        except (DataError, KeyError, ImportError) as error:
            entry["error"] = f"{type(error).__name__}: {error}"
        entries.append(entry)
    return entries


def list_warnings(report: dict[str, Any], environment: Mapping[str, str]) -> list[str]:
    """List the known problems of this machine, a sentence each."""
    texts = []
    for name, version in report["versions"].items():
        if version is None:
            texts.append(f"{name} is not installed: run make venv")
    for (variable, pattern), why in ENVIRONMENT.items():
        value = environment.get(variable, "")
        if re.search(pattern, value.lower().replace("true", "1")):
            texts.append(f"{variable}={value}: {why}")
    host = report["machine"]
    for place in ("cache", "workdir"):
        if host[f"{place}_free_bytes"] < LOW_DISK:
            texts.append(f"{host[place]} has only {_size(host[f'{place}_free_bytes'])} free")
    if host["memory_bytes"] < LOW_MEMORY:
        remedy = "lower batch_size, or raise optim.accumulation"
        texts.append(f"only {_size(host['memory_bytes'])} of memory: {remedy}")
    texts += _list_trouble(report["devices"], environment)
    for corpus in report["corpora"]:
        problems = [corpus["error"]] if "error" in corpus else corpus["warnings"]
        texts += [f"{corpus['folder']}: {problem}" for problem in problems]
    return texts


def _list_trouble(device: dict[str, Any], environment: Mapping[str, str]) -> list[str]:
    """List the known problems of the devices, a sentence each."""
    texts = []
    if "error" in device:
        texts.append(f"jax finds no device: {device['error']}")
    elif not device["matmul"]["correct"]:
        trouble = "a product of small whole numbers is wrong: trust no result of this machine"
        texts.append(f"{device['backend']}: {trouble}")
    if device["backend"] == "cpu" and Path("/proc/driver/nvidia/gpus").is_dir():
        chosen = environment.get("JAX_PLATFORMS", "")
        why = f"JAX_PLATFORMS={chosen}" if chosen else "install the extra cuda"
        texts.append(f"there is an NVIDIA GPU but jax runs on the CPU: {why}")
    if device["backend"] == "gpu" and device["count"] > 1 and not _has_nccl():
        trouble = "they cannot work together; install the extra cuda"
        texts.append(f"{device['count']} GPUs but no NCCL: {trouble}")
    return texts


def _has_nccl() -> bool:
    wheels = (wheel.name or "" for wheel in importlib.metadata.distributions())
    has_wheel = any(name.startswith("nvidia-nccl") for name in wheels)
    return has_wheel or ctypes.util.find_library("nccl") is not None


def format_report(report: dict[str, Any]) -> str:
    """Format the report as lines for a terminal."""
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
        speed = f"{product['gigaflops']} GFLOP/s at {product['size']} x {product['size']}"
        rows.append(("float32", f"{verdict}, {speed}"))
    for corpus in report["corpora"]:
        if "error" in corpus:
            continue
        entropy = f"{corpus['unigram_entropy']:.2f} nats of unigram entropy"
        about = f"{corpus['vocab_size']:,} tokens of vocabulary, {entropy}"
        rows.append(("corpus", f"{corpus['folder']} ({corpus['source']}): {about}"))
        for split, counts in corpus["splits"].items():
            listing = ", ".join(f"{count:,} {name}" for name, count in counts.items())
            rows.append(("corpus", f"{corpus['folder']} {split}: {listing}"))
    rows += [("warning", text) for text in report["warnings"] or ["none"]]
    return "\n".join(f"{name:22} {value}" for name, value in rows)


def _size(count: float) -> str:
    return f"{count / 2**30:.1f} GiB"


# --- presets --------------------------------------------------------------------------------------


def compare_presets(*names: str) -> dict[str, Any]:
    """Return the knobs whose values differ between two presets; `defaults` counts as a preset.

    For each knob, "values" has both values, and "named" tells which of the presets set the knob.
    """
    from bert_jax import config
    from bert_jax.config import knobs, presets

    defaults = config.flatten(config.to_dict(knobs.Config()))
    known = json.loads(json.dumps(presets.PRESETS))  # with lists for tuples, as in the defaults
    known["defaults"] = {}
    abouts = presets.ABOUT | {"defaults": "The project's defaults."}
    for name in names:
        if name not in known:
            raise ConfigError(f"no preset {name!r}", suggest(name, known))
    sides = [known[name] for name in names]
    differences: dict[str, Any] = {}
    for path in dict.fromkeys([*defaults, *sides[0], *sides[1]]):
        values = [side.get(path, defaults.get(path)) for side in sides]
        if values[0] != values[1]:
            differences[path] = {"values": values, "named": [path in side for side in sides]}
    return {
        "presets": list(names),
        "about": [" ".join(abouts[name].split()) for name in names],
        "knobs": differences,
    }


def format_comparison(report: dict[str, Any]) -> str:
    """Format the comparison of two presets for a terminal, one line a knob.

    A value that a preset does not set is in brackets.
    """
    if not report["knobs"]:
        return f"{' and '.join(report['presets'])} do not differ"
    rows = [("[default]", *report["presets"])]
    for path, knob in report["knobs"].items():
        texts = [
            value if value and type(value) is str else json.dumps(value) for value in knob["values"]
        ]
        cells = [
            text if named else f"[{text}]" for text, named in zip(texts, knob["named"], strict=True)
        ]
        rows.append((path, *cells))
    lines = [format_table(rows)]
    for name, about in zip(report["presets"], report["about"], strict=True):
        lines += ["", *textwrap.wrap(f"{name}: {about}", 100, subsequent_indent="  ")]
    return "\n".join([*lines, "", "docs/presets.md lists what presets do not reproduce."])


if __name__ == "__main__":
    cli.main(["doctor", *sys.argv[1:]])
