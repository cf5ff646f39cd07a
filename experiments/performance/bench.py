"""Compare this project with transformers, with tuned torch, and with other ways of its own.

    python experiments/performance/bench.py train-step --size=4x512 --output=step.json
    python experiments/performance/bench.py forward --against=transformers --python=OTHER/bin/python

Contestants take turns, each in a process of its own (turns.py), and a call of each does the same
work. The first contestant is `ours`, and ratios are to its time. The rows of --output have the
benchmark, size, variant, median_ms, min_ms and ratio of each contestant. To add a benchmark, write
a function that makes its contestants, and its row of BENCHMARKS.
"""

import argparse
import dataclasses
import json
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import turns
from turns import Contestant, Result

from bert_jax import cli
from bert_jax import config as configs
from bert_jax.config import costs, knobs
from bert_jax.errors import ConfigError, UserError
from bert_jax.reporting.text_table import format_table
from bert_jax.system import disk, machine

SIZE = "4x256"  # a model that two cores can measure in minutes
HEAD = 64  # width of an attention head
USUAL = {"batch_size": 32, "sequence_length": 128, "tokenizer.vocab_size": 30_522}
RUNS = 8  # that train together
FILLED = 0.5  # mean share of a row that an example fills, before packing
BATCHES = 16  # in an epoch of fine-tuning
PACKAGES = ("bert-jax", "jax", "jaxlib", "flax", "optax", "numpy", "tokenizers")


@dataclasses.dataclass(frozen=True)
class Setup:
    """The settings of a benchmark: a config, the rivals, and the Python that has them."""

    config: knobs.Config
    against: str = ""  # transformers, or nothing
    python: str = sys.executable
    size: str = ""  # as --size says it

    def ours(self, name: str, function: str, **arguments: Any) -> Contestant:
        """Make a contestant of this project."""
        return Contestant(name, "ours", function, {"config": self.tree, **arguments})

    def rivals(self, function: str, **arguments: Any) -> list[Contestant]:
        """Make transformers as shipped, then compiled, and torch as fast as it can be."""
        return [
            *self.rival("transformers-eager", function, way="eager", **arguments),
            *self.rival("transformers-compiled", function, way="compiled", **arguments),
            *self.rival("torch-tuned-bf16", function, way="tuned", **arguments),
            *self.rival("torch-tuned-fp32", function, way="tuned", half=False, **arguments),
        ]

    def rival(self, name: str, function: str, **arguments: Any) -> list[Contestant]:
        """Make one rival, or no contestant where rivals were not asked for.

        The allocator of tuned rivals keeps its memory as ours does, others have their default.
        """
        if not self.against:
            return []
        keeps = arguments.get("way") == "tuned"
        arguments = {"config": self.tree, **arguments}
        return [Contestant(name, "rivals", function, arguments, self.python, keeps)]

    @property
    def tree(self) -> dict[str, Any]:
        """Return the config as plain JSON."""
        return configs.to_dict(self.config)

    def change(self, **changes: Any) -> "Setup":
        """Change knobs of the config; __ stands for the dots of a path."""
        settings = [(name.replace("__", "."), str(value)) for name, value in changes.items()]
        return dataclasses.replace(self, config=configs.change_knobs(self.config, settings))


# --- benchmarks -----------------------------------------------------------------------------------


def compare_updates(setup: Setup) -> list[Contestant]:
    """Make an update on one batch."""
    exact = setup.change(model__dtype="float32")
    half = setup.change(model__dtype="bfloat16_products") if setup == exact else setup
    return [
        *_in_both_types(setup, "train_step"),
        exact.ours("matmul-bound-fp32", "matmuls"),
        half.ours("matmul-bound-bf16", "matmuls"),
        *setup.rivals("train_step", predictions=costs.own_slots(setup.config)),
    ]


def compare_reading(setup: Setup) -> list[Contestant]:
    """Compute the vectors of a batch."""
    return [*_in_both_types(setup, "forward"), *setup.rivals("forward")]


def _in_both_types(setup: Setup, function: str) -> list[Contestant]:
    """Make `ours` as configured, and `ours-fp32` if the config is not float32 already."""
    exact = setup.change(model__dtype="float32")
    also = [exact.ours("ours-fp32", function)] if exact != setup else []
    return [setup.ours("ours", function), *also]


def compare_pipelines(setup: Setup) -> list[Contestant]:
    """Assemble and mask a batch of a corpus; also what that costs next to an update."""
    return [
        setup.ours("ours", "batches"),
        setup.ours("assembly", "assembly"),
        setup.ours("step-constant-batch", "fed", loader=False),
        setup.ours("step-with-loader", "fed", loader=True),
        *setup.rival("transformers-collator", "collator"),
    ]


def compare_packing(setup: Setup) -> list[Contestant]:
    """Make an update on packed rows, and on the same examples in rows that are half padding."""
    length, most = setup.config.sequence_length, max(setup.config.packing, 4)
    count = round(setup.config.batch_size / FILLED)
    drawn = np.random.default_rng(0).normal(FILLED, FILLED / 3, count) * length
    sizes = np.clip(drawn, 5, length).astype(int).tolist()
    return [
        setup.change(packing=most).ours("ours", "train_step", sizes=sizes),
        setup.change(packing=1).ours("row-for-each", "train_step", sizes=sizes),
    ]


def compare_padding(setup: Setup) -> list[Contestant]:
    """Make an epoch of updates of fine-tuning on texts of which the median fills a quarter row."""
    length, rows = setup.config.sequence_length, BATCHES * setup.config.batch_size
    drawn = np.random.default_rng(0).lognormal(np.log(length / 4), 0.6, rows)
    sizes = np.clip(drawn, 3, length).astype(int).tolist()
    return [
        setup.change(task__group="length").ours("ours", "finetuning", sizes=sizes),
        setup.ours("any-length", "finetuning", sizes=sizes),
        setup.change(task__pad="full").ours("full-rows", "finetuning", sizes=sizes),
    ]


def compare_runs(setup: Setup) -> list[Contestant]:
    """Make an update of each of 8 runs: together one way or the other, or alone."""
    return [
        setup.ours("ours", "train_step", runs=RUNS),
        setup.change(parallel__arms="map").ours("map", "train_step", runs=RUNS),
        setup.change(parallel__arms="vmap").ours("vmap", "train_step", runs=RUNS),
        setup.ours("alone", "train_step", repeats=RUNS),
    ]


def compare_saves(setup: Setup) -> list[Contestant]:
    """Save and start the next update, which is what holds up training."""
    return [
        setup.ours("ours", "saving"),
        setup.ours("update-alone", "saving", save=False),
        setup.ours("whole-save", "saving", whole=True),
    ]


BENCHMARKS: dict[str, Callable[[Setup], list[Contestant]]] = {
    "train-step": compare_updates,
    "forward": compare_reading,
    "pipeline": compare_pipelines,
    "packing": compare_packing,
    "padding": compare_padding,
    "arms": compare_runs,
    "saving": compare_saves,
}


# --- the config -----------------------------------------------------------------------------------


def make_tree(spec: str | None, size: str | None) -> Any:
    """Make the config that a benchmark starts from: the usual shape, unless `spec` or `size` say.

    The type is bfloat16_products if the CPU multiplies bfloat16, else float32.
    """
    tree = configs.load_file(spec) if spec else configs.default()
    values: dict[str, Any] = {} if spec else dict(USUAL)
    if size or not spec:
        values |= read_size(size or SIZE)
    for path, value in values.items():
        configs.put(tree, path.split("."), value)
    has_half = {"avx512_bf16", "amx_bf16"} & set(machine.read_cpuinfo("flags").split())
    if tree.model.dtype == "auto" and _name_backend() == "cpu":
        tree.model.dtype = "bfloat16_products" if has_half else "float32"
    return tree


def _name_backend() -> str:
    """Ask a process for the backend of jax: this process must not take the device."""
    command = [sys.executable, "-c", "import jax; print(jax.default_backend())"]
    answer = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return answer.stdout.split()[-1]


def read_size(text: str) -> dict[str, Any]:
    """Read a size, which is the name of a model size or LAYERSxHIDDEN, as knobs."""
    if text in knobs.SIZES:
        derived = ("model.layers", "model.hidden", "model.heads", "model.mlp")
        return {"model.size": text, **dict.fromkeys(derived)}
    match = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)", text)
    if not match or int(match[2]) % HEAD:
        names = ", ".join(knobs.SIZES)
        raise ConfigError(
            f"--size={text} is no size",
            f"LAYERSxHIDDEN such as {SIZE}, with a multiple of {HEAD}, or one of: {names}",
        )
    layers, hidden = map(int, match.groups())
    return {
        "model.layers": layers,
        "model.hidden": hidden,
        "model.heads": hidden // HEAD,
        "model.mlp": None,
    }


def name_size(setup: Setup) -> str:
    """Name the size of a model as --size does if it still has that size, else LAYERSxHIDDEN."""
    model = setup.config.model
    asked = knobs.SIZES.get(setup.size)
    named = asked == (model.layers, model.hidden, model.heads)
    return setup.size if named else f"{model.layers}x{model.hidden}"


# --- results --------------------------------------------------------------------------------------


def make_rows(name: str, setup: Setup, results: Sequence[Result]) -> list[dict[str, Any]]:
    """Make a JSON row for each variant; every row repeats the machine, versions and shape."""
    config = setup.config
    measured = {
        "batch_size": config.batch_size,
        "sequence_length": config.sequence_length,
        "dtype": config.model.dtype,
        "machine": machine.describe_host(),
        "versions": machine.list_versions(PACKAGES),
        "commit": machine.git_commit(),
    }
    rows = []
    for result in results:
        over, low, high = turns.ratio(result, results[0])
        rows.append(
            {
                "benchmark": name,
                "size": name_size(setup),
                "variant": result.name,
                "median_ms": 1000 * result.seconds,
                "min_ms": 1000 * result.fastest,
                "ratio": over,
                "ratio_quartiles": [low, high],
                f"{result.unit}_per_second": result.units / result.seconds,
                "page_faults": result.faults,
                "first_seconds": result.first_seconds,
                "turns_ms": [1000 * turn for turn in result.turns],
                "about": dict(result.about),
                "measured": measured,
            }
        )
    return rows


def format_rows(rows: Sequence[dict[str, Any]], unit: str) -> str:
    """Format rows as a table in Markdown, with ratios to the first variant."""
    head = ("variant", "median ms", "min ms", "ratio", "quartiles", f"{unit}/s", "page faults")
    lines = [head]
    for row in rows:
        low, high = row["ratio_quartiles"]
        numbers = (f"{row['median_ms']:.1f}", f"{row['min_ms']:.1f}", f"{row['ratio']:.2f}")
        rate = f"{row[f'{unit}_per_second']:,.0f}"
        quartiles = f"{low:.2f} to {high:.2f}"
        lines.append((row["variant"], *numbers, quartiles, rate, f"{row['page_faults']:,.0f}"))
    return format_table(lines)


def main(argv: Sequence[str]) -> None:
    """Measure one benchmark, print its table and write its rows."""
    words, overrides = cli.split_overrides(list(argv))
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", metavar="NAME", choices=BENCHMARKS, help=", ".join(BENCHMARKS))
    parser.add_argument("--config", metavar="FILE.py", help="--config.a.b=VALUE changes a knob")
    parser.add_argument("--size", help=f"LAYERSxHIDDEN or a name ({SIZE}, or what --config says)")
    parser.add_argument("--against", choices=("transformers",), default="")
    parser.add_argument("--python", default=sys.executable, help="has torch and transformers")
    parser.add_argument("--rounds", type=cli.read_positive, default=9, help="of turns (9)")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the rows as JSON")
    args = parser.parse_args(words)
    if args.output:
        disk.check_output(args.output)
    tree = make_tree(args.config, args.size)
    configs.overrides(tree, overrides)
    setup = Setup(configs.resolve(tree), args.against, args.python, args.size or "")
    results = turns.compare(BENCHMARKS[args.name](setup), args.rounds)
    rows = make_rows(args.name, setup, results)
    config = setup.config
    shape = f"{rows[0]['size']}, {config.batch_size} x {config.sequence_length}"
    print(f"{args.name}: {BENCHMARKS[args.name].__doc__}\n{shape}, {config.model.dtype}\n")
    print(format_rows(rows, results[0].unit))
    print(f"\nMedians of {args.rounds} turns each; quartiles are of ratios within a round.")
    if args.output:
        disk.write_output(args.output, json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except UserError as error:
        print(f"error: {error}\nhint: {error.hint}", file=sys.stderr)
        sys.exit(error.code)
