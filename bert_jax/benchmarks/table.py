"""The table of benchmarks, and `run`, which measures one and prints its results.

Every contestant is a process of its own, contestants take turns (`benchmarks/harness.py`), and a
call of each does the same work. The first contestant is `ours`, and ratios are to its time. To add
a benchmark, write a function that makes its contestants, and its row of TABLE.
"""

from __future__ import annotations

import functools
import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax import config as configs
from bert_jax.benchmarks import harness, results
from bert_jax.benchmarks.harness import Contestant
from bert_jax.benchmarks.setup import AROUND, PARTS, Row, Setup
from bert_jax.config import abilities, costs, knobs
from bert_jax.errors import ConfigError
from bert_jax.system import disk, machine

SIZE = "4x256"  # a model that two cores can measure in minutes
HEAD = 64  # width of an attention head
USUAL = {"batch_size": 32, "sequence_length": 128, "tokenizer.vocab_size": 30_522}
RUNS = 8  # that train together
HALF = 0.5  # mean share of a row that an example fills, before packing
BATCHES = 16  # in an epoch of fine-tuning
RIVALS = ("transformers",)


def _in_both_types(setup: Setup, function: str) -> list[Contestant]:
    """Make `ours` as configured, and `ours-fp32` if the config is not float32 already."""
    exact = setup.exact()
    return [
        setup.ours("ours", function),
        *([exact.ours("ours-fp32", function)] if exact != setup else []),
    ]


def _rivals(setup: Setup, function: str, **more: Any) -> list[Contestant]:
    """Make transformers as it is shipped and compiled, and torch as fast as it can be."""
    return [
        *setup.theirs("transformers-eager", function, way="eager", **more),
        *setup.theirs("transformers-compiled", function, way="compiled", **more),
        *setup.theirs("torch-tuned-bf16", function, True, way="tuned", **more),
        *setup.theirs("torch-tuned-fp32", function, True, way="tuned", half=False, **more),
    ]


def _train_step(setup: Setup) -> list[Contestant]:
    return [
        *_in_both_types(setup, "train_step"),
        setup.exact().ours("matmul-bound-fp32", "matmuls"),
        setup.halved().ours("matmul-bound-bf16", "matmuls"),
        *_rivals(setup, "train_step", predictions=costs.own_slots(setup.config)),
    ]


def _forward(setup: Setup) -> list[Contestant]:
    return [*_in_both_types(setup, "forward"), *_rivals(setup, "forward")]


def _pipeline(setup: Setup) -> list[Contestant]:
    return [
        setup.ours("ours", "batches"),
        setup.ours("assembly", "assembly"),
        setup.ours("step-constant-batch", "fed", loader=False),
        setup.ours("step-with-loader", "fed", loader=True),
        *setup.theirs("transformers-collator", "collator"),
    ]


def _packing(setup: Setup) -> list[Contestant]:
    """Pack examples that fill half a row on average; as many as give `batch_size` packed rows."""
    length, most = setup.config.sequence_length, max(setup.config.packing, 4)
    rng = np.random.default_rng(0)
    count = round(setup.config.batch_size / HALF)
    sizes = np.clip(rng.normal(HALF, HALF / 3, count) * length, 5, length).astype(int).tolist()
    return [
        setup.changed(packing=most).ours("ours", "train_step", sizes=sizes),
        setup.changed(packing=1).ours("row-for-each", "train_step", sizes=sizes),
    ]


def _padding(setup: Setup) -> list[Contestant]:
    """Fine-tune on mostly short texts, as those of tasks are: the median fills a quarter row."""
    length, rows = setup.config.sequence_length, BATCHES * setup.config.batch_size
    drawn = np.random.default_rng(0).lognormal(np.log(length / 4), 0.6, rows)
    sizes = np.clip(drawn, 3, length).astype(int).tolist()
    return [
        setup.changed(task__group="length").ours("ours", "finetuning", sizes=sizes),
        setup.ours("any-length", "finetuning", sizes=sizes),
        setup.changed(task__pad="full").ours("full-rows", "finetuning", sizes=sizes),
    ]


def _runs(setup: Setup) -> list[Contestant]:
    return [
        setup.ours("ours", "train_step", runs=RUNS),
        setup.changed(parallel__arms="map").ours("map", "train_step", runs=RUNS),
        setup.changed(parallel__arms="vmap").ours("vmap", "train_step", runs=RUNS),
        setup.ours("alone", "train_step", repeats=RUNS),
    ]


def _attention(setup: Setup) -> list[Contestant]:
    """Compare the attention backends that work here, and einsum with dropout if the config has."""
    m, length = setup.config.model, setup.config.sequence_length
    contestants = [setup.ours("ours", "attention", PARTS, backend="einsum")]
    if m.attention_dropout > 0:
        contestants.append(
            setup.ours("with-dropout", "attention", PARTS, backend="einsum", drop=True)
        )
    contestants.append(setup.ours("xla", "attention", PARTS, backend="xla"))
    fast = _machine()[1]
    if not (fast == "einsum" or abilities.of_model(fast, m) or abilities.of_length(fast, length)):
        contestants.append(setup.ours(fast, "attention", PARTS, backend=fast))
    return contestants


def _compile(setup: Setup) -> list[Contestant]:
    scan = setup.config.model.scan
    other = not (_machine()[2] if scan is None else scan)
    return [
        setup.ours("ours", "compiling"),
        setup.changed(model__scan=other).ours("in-a-loop" if other else "unrolled", "compiling"),
    ]


def _prepare(setup: Setup) -> list[Contestant]:
    return [
        setup.ours("ours", "preparing", AROUND),
        setup.ours("encode-batch-one-thread", "encoding", AROUND, alone=True),
        setup.ours("encode-batch", "encoding", AROUND, alone=False),
    ]


def _saving(setup: Setup) -> list[Contestant]:
    return [
        setup.ours("ours", "saving", AROUND),
        setup.ours("update-alone", "saving", AROUND, save=False),
        setup.ours("whole-save", "saving", AROUND, whole=True),
    ]


TABLE: Mapping[str, Row] = {
    "train-step": Row(
        _train_step,
        "an update on one batch",
        (
            ("matmul-bound-fp32", "ours-fp32"),
            ("matmul-bound-fp32", "ours"),
            ("matmul-bound-bf16", "ours"),
        ),
    ),
    "forward": Row(_forward, "vectors of a batch"),
    "pipeline": Row(
        _pipeline,
        "assembling and masking a batch of a corpus, and what that costs beside an update",
        (
            ("ours", "transformers-collator"),
            ("ours", "step-constant-batch"),
            ("step-with-loader", "step-constant-batch"),
        ),
    ),
    "packing": Row(
        _packing, "an update on packed rows, and on the same examples in rows that are half padding"
    ),
    "padding": Row(_padding, f"{BATCHES} updates of fine-tuning on texts that are mostly short"),
    "arms": Row(
        _runs, f"an update of each of {RUNS} runs: together one way or the other, or alone"
    ),
    "attention": Row(_attention, "the attention of one layer, and its gradients"),
    "compile": Row(_compile, "compiling an update"),
    "prepare": Row(
        _prepare, "raw text to arrays, and its sentences through `encode_batch` of tokenizers"
    ),
    "saving": Row(
        _saving,
        "what holds up training: a save and the start of the next update",
        (("ours", "whole-save"),),
    ),
}


def run(
    name: str,
    spec: str | None,
    changes: Sequence[tuple[str, str]],
    *,
    size: str | None = None,
    against: str = "",
    python: str = "",
    rounds: int = 9,
    output: Path | None = None,
) -> None:
    """Print the table of a benchmark, and write its rows to `output` as JSON."""
    tree = tree_of(spec, size)
    configs.overrides(tree, changes)
    setup = Setup(configs.resolve(tree), against, python or sys.executable, size or "")
    measured = harness.compare(TABLE[name].make(setup), rounds)
    print(results.as_text(name, TABLE[name], setup, measured, rounds))
    if output is not None:
        rows = results.as_rows(name, setup, measured, rounds)
        disk.write_output(output, json.dumps(rows, indent=2) + "\n")


def tree_of(spec: str | None, size: str | None) -> Any:
    """Return the config a benchmark starts from: the usual shape, unless `spec` or `size` say.

    The type is the fastest one the machine has, for the rivals are measured in it too.
    """
    tree = configs.load_file(spec) if spec else configs.default()
    usual = {**({} if spec else USUAL), **(sized(size or SIZE) if size or not spec else {})}
    for path, value in usual.items():
        configs.put(tree, path.split("."), value)
    half = {"avx512_bf16", "amx_bf16"} & set(machine.cpuinfo("flags").split())
    if tree.model.dtype == "auto" and half and _machine()[0] == "cpu":
        tree.model.dtype = "bfloat16_products"
    return tree


@functools.cache
def _machine() -> tuple[str, str, bool]:
    """Return the device, its preferred attention backend, and whether layers are scanned.

    A subprocess tells, as contestants would see it: this process must not take the device.
    """
    program = (
        "from bert_jax.config import devices as d; "
        "print(d.device(), d.here().attention, d.here().scan)"
    )
    command = [sys.executable, "-c", program]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode:
        last = (answer.stderr.strip().splitlines() or [""])[-1]
        raise ConfigError(f"jax finds no device: {last}", "bert-jax doctor shows what it finds")
    kind, attention, scan = answer.stdout.split()[-3:]
    return kind, attention, scan == "True"


def sized(text: str) -> dict[str, Any]:
    """Return the knobs of a size: the name of a model size, or LAYERSxHIDDEN."""
    if text in knobs.SIZES:
        derived = ("model.layers", "model.hidden", "model.heads", "model.mlp")
        return {"model.size": text, **dict.fromkeys(derived)}
    match = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)", text)
    if not match:
        raise ConfigError(
            f"--size={text} is no size",
            f"LAYERSxHIDDEN such as {SIZE}, or {', '.join(knobs.SIZES)}",
        )
    layers, hidden = map(int, match.groups())
    if hidden % HEAD:
        raise ConfigError(
            f"--size={text}: {hidden} is no multiple of {HEAD}, the width of a head",
            f"such as {SIZE}",
        )
    return {
        "model.layers": layers,
        "model.hidden": hidden,
        "model.heads": hidden // HEAD,
        "model.mlp": None,
    }
