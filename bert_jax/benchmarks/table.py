"""The benchmarks: this project beside what its users would otherwise run, side by side, in one command.

Every contestant is a process of its own; they take turns, round after round (`benchmarks/harness.py`), and a call of
each does the same work. The first is `ours`, which the others are held against. To add a benchmark, write a function
that makes its contestants, and its row of TABLE.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bert_jax import config as configs
from bert_jax.benchmarks import harness
from bert_jax.benchmarks.harness import Contestant, Result
from bert_jax.config import abilities, costs, knobs
from bert_jax.errors import ConfigError
from bert_jax.reporting.text_table import table
from bert_jax.system import machine

SIZE, HEAD = (
    "4x256",
    64,
)  # a model that two cores can measure in minutes; the width of an attention head
USUAL = {"batch_size": 32, "sequence_length": 128, "tokenizer.vocab_size": 30_522}
ARMS, HALF = 8, 0.5
BATCHES = 16  # of an epoch of fine-tuning
OURS, AROUND, PARTS, THEIRS = (
    f"bert_jax.benchmarks.{name}" for name in ("ours", "around", "parts", "theirs")
)
RIVALS = ("transformers",)
MACHINE = ("system", "processor", "cores", "memory_bytes")
PACKAGES = ("bert-jax", "jax", "jaxlib", "flax", "optax", "numpy", "tokenizers")


@dataclass(frozen=True)
class Asked:
    """What a benchmark is about."""

    config: knobs.Config
    against: str  # one of RIVALS, or nothing
    python: str  # that has them
    size: str = ""  # by name, where one was given

    @property
    def tree(self) -> dict[str, Any]:
        """The config as plain JSON."""
        return configs.to_dict(self.config)

    def ours(self, name: str, function: str, module: str = OURS, **arguments: Any) -> Contestant:
        """A contestant of this project."""
        return Contestant(name, f"{module}:{function}", {"config": self.tree, **arguments})

    def theirs(
        self, name: str, function: str, retain: bool = False, **arguments: Any
    ) -> list[Contestant]:
        """One of the others, where they are asked for; the C allocator is as they find it, unless they are tuned."""
        one = Contestant(
            name, f"{THEIRS}:{function}", {"config": self.tree, **arguments}, self.python, retain
        )
        return [one] if self.against else []

    def changed(self, **changes: Any) -> Asked:
        """The same of a config with other knobs; __ stands for the dots of a path."""
        told = [(name.replace("__", "."), str(value)) for name, value in changes.items()]
        return dataclasses.replace(self, config=configs.changed(self.config, told))

    def exact(self) -> Asked:
        """The same with all arithmetic in float32."""
        return self.changed(model__dtype="float32")

    def halved(self) -> Asked:
        """The same with products in bfloat16: as it is, where it has them already."""
        return self if self != self.exact() else self.changed(model__dtype="bfloat16_products")


def _in_both_types(asked: Asked, function: str) -> list[Contestant]:
    """`ours` as the config says, and beside it all in float32, where that is something else."""
    exact = asked.exact()
    return [
        asked.ours("ours", function),
        *([exact.ours("ours-fp32", function)] if exact != asked else []),
    ]


def _train_step(asked: Asked) -> list[Contestant]:
    slots = costs.own_slots(asked.config)
    return [
        *_in_both_types(asked, "train_step"),
        asked.exact().ours("matmul-bound-fp32", "products"),
        asked.halved().ours("matmul-bound-bf16", "products"),
        *asked.theirs("transformers-eager", "train_step", way="eager", predictions=slots),
        *asked.theirs("transformers-compiled", "train_step", way="compiled", predictions=slots),
        *asked.theirs("torch-tuned-bf16", "train_step", True, way="tuned", predictions=slots),
        *asked.theirs(
            "torch-tuned-fp32", "train_step", True, way="tuned", half=False, predictions=slots
        ),
    ]


def _forward(asked: Asked) -> list[Contestant]:
    return [
        *_in_both_types(asked, "forward"),
        *asked.theirs("transformers-eager", "forward", way="eager"),
        *asked.theirs("transformers-compiled", "forward", way="compiled"),
        *asked.theirs("torch-tuned-bf16", "forward", True, way="tuned"),
        *asked.theirs("torch-tuned-fp32", "forward", True, way="tuned", half=False),
    ]


def _pipeline(asked: Asked) -> list[Contestant]:
    return [
        asked.ours("ours", "batches"),
        asked.ours("assembly", "assembly"),
        asked.ours("step-constant-batch", "fed", loader=False),
        asked.ours("step-with-loader", "fed", loader=True),
        *asked.theirs("transformers-collator", "collator"),
    ]


def _packing(asked: Asked) -> list[Contestant]:
    """Examples that fill half of a row on average, and as many as make the usual number of packed rows."""
    length, most = asked.config.sequence_length, max(asked.config.packing, 4)
    rng = np.random.default_rng(0)
    count = round(asked.config.batch_size / HALF)
    sizes = np.clip(rng.normal(HALF, HALF / 3, count) * length, 5, length).astype(int).tolist()
    return [
        asked.changed(packing=most).ours("ours", "train_step", sizes=sizes),
        asked.changed(packing=1).ours("row-for-each", "train_step", sizes=sizes),
    ]


def _padding(asked: Asked) -> list[Contestant]:
    """An epoch of texts that are mostly short, as those of tasks are: a quarter of a row at the median."""
    length, rows = asked.config.sequence_length, BATCHES * asked.config.batch_size
    drawn = np.random.default_rng(0).lognormal(np.log(length / 4), 0.6, rows)
    sizes = np.clip(drawn, 3, length).astype(int).tolist()
    return [
        asked.changed(task__group="length").ours("ours", "finetuning", sizes=sizes),
        asked.ours("any-length", "finetuning", sizes=sizes),
        asked.changed(task__pad="full").ours("full-rows", "finetuning", sizes=sizes),
    ]


def _arms(asked: Asked) -> list[Contestant]:
    return [
        asked.ours("ours", "train_step", arms=ARMS),
        asked.changed(parallel__arms="map").ours("map", "train_step", arms=ARMS),
        asked.changed(parallel__arms="vmap").ours("vmap", "train_step", arms=ARMS),
        asked.ours("alone", "train_step", repeats=ARMS),
    ]


def _attention(asked: Asked) -> list[Contestant]:
    """The backends that work here; einsum with its dropout, too, where the config has any."""
    m, length = asked.config.model, asked.config.sequence_length
    own = _machine()[1]
    alone = own == "einsum" or abilities.of_model(own, m) or abilities.of_length(own, length)
    fused = ["xla"] if alone else ["xla", own]
    return [
        asked.ours("ours", "attention", PARTS, backend="einsum"),
        *(
            [asked.ours("with-dropout", "attention", PARTS, backend="einsum", drop=True)]
            * (m.attention_dropout > 0)
        ),
        *(asked.ours(name, "attention", PARTS, backend=name) for name in fused),
    ]


def _compile(asked: Asked) -> list[Contestant]:
    scan = asked.config.model.scan
    other = not (_machine()[2] if scan is None else scan)
    return [
        asked.ours("ours", "compiling"),
        asked.changed(model__scan=other).ours("in-a-loop" if other else "unrolled", "compiling"),
    ]


def _prepare(asked: Asked) -> list[Contestant]:
    theirs = asked.changed(tokenizer__characters="huggingface")  # whose ids are compared
    return [
        asked.ours("ours", "preparing", AROUND),
        theirs.ours("encode-batch-one-thread", "encoding", AROUND, alone=True),
        theirs.ours("encode-batch", "encoding", AROUND, alone=False),
    ]


def _saving(asked: Asked) -> list[Contestant]:
    return [
        asked.ours("ours", "saving", AROUND),
        asked.ours("update-alone", "saving", AROUND, save=False),
        asked.ours("whole-save", "saving", AROUND, whole=True),
    ]


class Row(NamedTuple):
    """A benchmark: its contestants, what it is, and the pairs of them (part, whole) whose share is told."""

    make: Callable[[Asked], list[Contestant]]
    what: str
    shares: Sequence[tuple[str, str]] = ()


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
        _arms, f"an update of each of {ARMS} runs: together one way or the other, or alone"
    ),
    "attention": Row(_attention, "the weighted sum of one layer, and its gradients"),
    "compile": Row(_compile, "compiling an update"),
    "prepare": Row(
        _prepare, "raw text to shards, and its sentences through `encode_batch` of tokenizers"
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
    """Prints the table of a benchmark; its rows go to `output` as JSON."""
    tree = tree_of(spec, size)
    configs.overrides(tree, changes)
    asked = Asked(configs.resolve(tree), against, python or sys.executable, size or "")
    found = harness.compare(TABLE[name].make(asked), rounds)
    print(as_text(name, asked, found, rounds))
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(json.dumps(as_rows(name, asked, found, rounds), indent=2) + "\n")


def tree_of(spec: str | None, size: str | None) -> Any:
    """The config a benchmark starts from: of the usual shape, in the fastest type the machine has, as rivals are."""
    tree = configs.load_file(spec) if spec else configs.default()
    usual = {**({} if spec else USUAL), **(sized(size or SIZE) if size or not spec else {})}
    for path, value in usual.items():
        configs.put(tree, path.split("."), value)
    flags = machine.cpuinfo("flags").split()
    if (
        tree.model.dtype == "auto"
        and {"avx512_bf16", "amx_bf16"} & set(flags)
        and _machine()[0] == "cpu"
    ):
        tree.model.dtype = "bfloat16_products"
    return tree


@functools.cache
def _machine() -> tuple[str, str, bool]:
    """The kind of device, the backend of attention it prefers, and whether layers are a loop, as contestants see it."""
    ask = "from bert_jax.config import devices as d; print(d.device(), d.here().attention, d.here().scan)"
    found = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=False)
    if found.returncode:
        last = (found.stderr.strip().splitlines() or [""])[-1]
        raise ConfigError(f"jax finds no device: {last}", "bert-jax doctor says what it sees")
    kind, attention, scan = found.stdout.split()[-3:]
    return kind, attention, scan == "True"


def sized(text: str) -> dict[str, Any]:
    """The knobs of a size: a name of the models' sizes, or LAYERSxHIDDEN with heads of the usual width."""
    if text in knobs.SIZES:
        return {
            "model.size": text,
            **dict.fromkeys(("model.layers", "model.hidden", "model.heads", "model.mlp")),
        }
    found = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)", text)
    if not found:
        raise ConfigError(
            f"--size={text} is no size",
            f"LAYERSxHIDDEN such as {SIZE}, or {', '.join(knobs.SIZES)}",
        )
    layers, hidden = map(int, found.groups())
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


def size_of(model: knobs.Model, asked: str = "") -> str:
    """The size as it was asked for, where the model has it, else LAYERSxHIDDEN."""
    named = knobs.SIZES.get(asked) == (model.layers, model.hidden, model.heads)
    return asked if named else f"{model.layers}x{model.hidden}"


def as_text(name: str, asked: Asked, found: Sequence[Result], rounds: int) -> str:
    """The table, in Markdown's shape, and the shares below it."""
    head = (
        "variant",
        "median ms",
        "min ms",
        "ratio",
        "quartiles",
        f"{found[0].unit}/s",
        "page faults",
        "first call, s",
    )
    lines = []
    for one in found:
        over, low, high = harness.ratio(one, found[0])
        times = (
            f"{1000 * one.seconds:.1f}",
            f"{1000 * one.fastest:.1f}",
            f"{over:.2f}",
            f"{low:.2f} to {high:.2f}",
        )
        lines.append(
            (one.name, *times, f"{one.rate:,.0f}", f"{one.faults:,.0f}", f"{one.first_seconds:.1f}")
        )
    config = asked.config
    size = size_of(config.model, asked.size)
    shape = f"{size}, {config.batch_size} x {config.sequence_length}, {config.model.dtype}"
    note = f"Medians of {rounds} turns each, in turn; ratio: of medians, to the first; quartiles: within a round."
    by_name = {one.name: one for one in found}
    shares = [
        f"{part} takes {harness.ratio(by_name[part], by_name[whole])[0]:.2%} of the time of {whole}."
        for part, whole in TABLE[name].shares
        if part in by_name and whole in by_name
    ]
    return "\n".join(
        [f"{name}: {TABLE[name].what}; {shape}", "", table([head, *lines]), "", note, *shares]
    )


def as_rows(name: str, asked: Asked, found: Sequence[Result], rounds: int) -> list[dict[str, Any]]:
    """A row for each variant, complete in itself: where and of what it was measured is the same in all."""
    tree, m = asked.tree, asked.config.model
    measured = {
        "batch_size": asked.config.batch_size,
        "sequence_length": asked.config.sequence_length,
        "dtype": m.dtype,
        "rounds": rounds,
        "machine": {key: value for key, value in machine.machine().items() if key in MACHINE},
        "versions": machine.versions(PACKAGES),
        "commit": machine.git_commit(),
        "config": hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()[:16],
    }
    rows = []
    for one in found:
        over, low, high = harness.ratio(one, found[0])
        rows.append(
            {
                "benchmark": name,
                "size": size_of(m, asked.size),
                "variant": one.name,
                "median_ms": 1000 * one.seconds,
                "min_ms": 1000 * one.fastest,
                "ratio": over,
                "ratio_quartiles": [low, high],
                f"{one.unit}_per_second": one.rate,
                "page_faults": one.faults,
                "first_seconds": one.first_seconds,
                "turns_ms": [1000 * turn for turn in one.turns],
                "about": dict(one.about),
                "measured": measured,
            }
        )
    return rows
