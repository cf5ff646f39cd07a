"""`bert-jax benchmark`: this project beside what its users would otherwise run, side by side, in one command.

Every contestant is a process of its own; they take turns, round after round (`benchmarks/harness.py`). To add a
benchmark, write a function that makes its contestants, and its row of TABLE.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax import abilities, costs, doctor, knobs
from bert_jax import config as configs
from bert_jax.benchmarks import harness
from bert_jax.benchmarks.harness import Contestant, Result
from bert_jax.studies.progress import table

USUAL = {  # a model that two cores can measure in minutes
    "model.layers": 4,
    "model.hidden": 256,
    "model.heads": 4,
    "model.mlp": 1024,
    "batch_size": 32,
    "sequence_length": 128,
    "tokenizer.vocab_size": 30_522,
}
ARMS, HALF = 8, 0.5
BATCHES = 16  # of an epoch of fine-tuning
OURS, THEIRS = "bert_jax.benchmarks.ours", "bert_jax.benchmarks.theirs"
RIVALS = ("transformers",)
MACHINE = ("system", "processor", "cores", "memory_bytes")


@dataclass(frozen=True)
class Asked:
    """What a benchmark is about."""

    config: knobs.Config
    against: str  # one of RIVALS, or nothing
    python: str  # that has them

    @property
    def tree(self) -> dict[str, Any]:
        """The config as plain JSON."""
        return configs.to_dict(self.config)

    def ours(self, name: str, function: str, **arguments: Any) -> Contestant:
        """A contestant of this project."""
        return Contestant(name, f"{OURS}:{function}", {"config": self.tree, **arguments})

    def theirs(self, name: str, function: str, retain: bool = False, **arguments: Any) -> list[Contestant]:
        """One of the others, where they are asked for; the C allocator is as they find it, unless they are tuned."""
        one = Contestant(name, f"{THEIRS}:{function}", {"config": self.tree, **arguments}, self.python, retain)
        return [one] if self.against else []

    def changed(self, **changes: Any) -> Asked:
        """The same of a config with other knobs; __ stands for the dots of a path."""
        told = [(name.replace("__", "."), str(value)) for name, value in changes.items()]
        return dataclasses.replace(self, config=configs.changed(self.config, told))


def _train_step(asked: Asked) -> list[Contestant]:
    slots = costs.own_slots(asked.config)
    return [
        asked.ours("bert_jax", "train_step"),
        asked.ours("its matrix products alone", "products"),
        *asked.theirs("transformers, eager", "train_step", way="eager", predictions=slots),
        *asked.theirs("transformers, compiled", "train_step", way="compiled", predictions=slots),
        *asked.theirs("gathered head, bf16, retained", "train_step", True, way="tuned", predictions=slots),
        *asked.theirs("the same in fp32", "train_step", True, way="tuned", half=False, predictions=slots),
    ]


def _forward(asked: Asked) -> list[Contestant]:
    return [
        asked.ours("bert_jax", "forward"),
        *asked.theirs("transformers, eager", "forward", way="eager"),
        *asked.theirs("transformers, compiled", "forward", way="compiled"),
        *asked.theirs("compiled, bf16, retained", "forward", True, way="tuned"),
    ]


def _pipeline(asked: Asked) -> list[Contestant]:
    return [
        asked.ours("assembly and masking", "batches"),
        asked.ours("assembly", "assembly"),
        asked.ours("a train step", "train_step"),
        *asked.theirs("transformers' collator", "collator"),
    ]


def _packing(asked: Asked) -> list[Contestant]:
    """Examples that fill half of a row on average, and as many as make the usual number of packed rows."""
    length, most = asked.config.sequence_length, max(asked.config.packing, 4)
    rng = np.random.default_rng(0)
    count = round(asked.config.batch_size / HALF)
    sizes = np.clip(rng.normal(HALF, HALF / 3, count) * length, 5, length).astype(int).tolist()
    return [
        asked.changed(packing=most).ours(f"packed, at most {most} a row", "train_step", sizes=sizes),
        asked.changed(packing=1).ours("a row for each", "train_step", sizes=sizes),
    ]


def _padding(asked: Asked) -> list[Contestant]:
    """An epoch of texts that are mostly short, as those of tasks are: a quarter of a row at the median."""
    length, rows = asked.config.sequence_length, BATCHES * asked.config.batch_size
    drawn = np.random.default_rng(0).lognormal(np.log(length / 4), 0.6, rows)
    sizes = np.clip(drawn, 3, length).astype(int).tolist()
    return [
        asked.changed(task__group="length").ours("batches of like length", "finetuning", sizes=sizes),
        asked.ours("batches of any length", "finetuning", sizes=sizes),
        asked.changed(task__pad="full").ours("the same, all rows full", "finetuning", sizes=sizes),
    ]


def _arms(asked: Asked) -> list[Contestant]:
    return [
        asked.ours("one", "train_step"),
        asked.changed(parallel__arms="map").ours(f"{ARMS}, one after the other", "train_step", arms=ARMS),
        asked.changed(parallel__arms="vmap").ours(f"{ARMS}, all at once", "train_step", arms=ARMS),
    ]


def _attention(asked: Asked) -> list[Contestant]:
    """The backends that work here; einsum with its dropout, too, where the config has any."""
    m, length = asked.config.model, asked.config.sequence_length
    ask = "from bert_jax import defaults; print(defaults.here().attention)"
    found = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True)  # as workers see it
    own = found.stdout.strip()
    fused = (
        ["xla"] if own == "einsum" or abilities.of_model(own, m) or abilities.of_length(own, length) else ["xla", own]
    )
    return [
        asked.ours("einsum", "attention", backend="einsum"),
        *([asked.ours("einsum, with dropout", "attention", backend="einsum", drop=True)] * (m.attention_dropout > 0)),
        *(asked.ours(name, "attention", backend=name) for name in fused),
    ]


def _compile(asked: Asked) -> list[Contestant]:
    return [
        asked.changed(model__scan=True).ours("layers in a loop", "compiling"),
        asked.changed(model__scan=False).ours("layers unrolled", "compiling"),
    ]


TABLE: Mapping[str, tuple[Callable[[Asked], list[Contestant]], str]] = {
    "train-step": (_train_step, "an update on one batch"),
    "forward": (_forward, "vectors of a batch"),
    "pipeline": (_pipeline, "batches of a corpus, and what they cost beside an update"),
    "packing": (_packing, "updates on rows that are half padding, and on the same examples packed"),
    "padding": (_padding, f"{BATCHES} updates of fine-tuning on texts that are mostly short"),
    "arms": (_arms, f"an update of {ARMS} runs together"),
    "attention": (_attention, "the weighted sum of one layer, and its gradients"),
    "compile": (_compile, "compiling an update"),
}


def run(
    name: str,
    spec: str | None,
    changes: Sequence[tuple[str, str]],
    *,
    against: str = "",
    python: str = "",
    rounds: int = 9,
    output: Path | None = None,
) -> None:
    """Prints the table of a benchmark; JSON goes to `output`."""
    tree = configs.load_file(spec) if spec else configs.default()
    if not spec:
        for path, value in USUAL.items():
            configs.put(tree, path.split("."), value)
    for path, text in changes:
        configs.override(tree, path, text)
    asked = Asked(configs.resolve(tree), against, python or sys.executable)
    found = harness.compare(TABLE[name][0](asked), rounds)
    print(as_text(name, asked.config, found, rounds))
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(json.dumps(as_dict(name, asked, found, rounds), indent=2) + "\n")


def as_text(name: str, config: knobs.Config, found: Sequence[Result], rounds: int) -> str:
    """The table, in Markdown's shape."""
    m = config.model
    head = ("", "ms", "times the first", "quartiles", f"{found[0].unit}/s", "page faults", "first call, s")
    lines = []
    for one in found:
        middle, low, high = harness.ratio(one, found[0])
        rate = (f"{one.rate:,.0f}", f"{one.faults:,.0f}", f"{one.first_seconds:.1f}")
        lines.append((one.name, f"{1000 * one.seconds:.1f}", f"{middle:.2f}", f"{low:.2f} to {high:.2f}", *rate))
    shape = f"{m.layers} x {m.hidden}, {config.batch_size} x {config.sequence_length}, {m.dtype}"
    what = f"{name}: {TABLE[name][1]}; {shape}"
    note = f"Medians of {rounds} turns each, in turn; ratios of seconds a {found[0].unit.rstrip('s')}, within a round."
    return f"{what}\n\n{table([head, *lines])}\n\n{note}"


def as_dict(name: str, asked: Asked, found: Sequence[Result], rounds: int) -> dict[str, Any]:
    """All of it, with where it was measured."""
    contestants = [
        {
            "name": one.name,
            "seconds": one.seconds,
            f"{one.unit}_per_second": one.rate,
            "ratio": dict(zip(("median", "low", "high"), harness.ratio(one, found[0]), strict=True)),
            "page_faults": one.faults,
            "first_seconds": one.first_seconds,
            "turns": list(one.turns),
            "about": dict(one.about),
        }
        for one in found
    ]
    versions = doctor.versions(("bert-jax", "jax", "jaxlib", "flax", "optax", "numpy"))
    return {
        "benchmark": name,
        "rounds": rounds,
        "against": asked.against,
        "machine": {key: value for key, value in doctor.machine().items() if key in MACHINE},
        "versions": versions,
        "commit": doctor.git_commit(),
        "contestants": contestants,
        "config": asked.tree,
    }


if __name__ == "__main__":
    from bert_jax import cli

    cli.main(["benchmark", *sys.argv[1:]])
