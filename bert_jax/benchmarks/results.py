"""The results of a benchmark, as a table for people and as JSON rows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from bert_jax.benchmarks import harness
from bert_jax.benchmarks.harness import Result
from bert_jax.benchmarks.setup import Row, Setup
from bert_jax.config import knobs
from bert_jax.reporting.text_table import table
from bert_jax.system import machine

MACHINE = ("system", "processor", "cores", "memory_bytes")
PACKAGES = ("bert-jax", "jax", "jaxlib", "flax", "optax", "numpy", "tokenizers")


def size_of(model: knobs.Model, name: str = "") -> str:
    """Return the size's name if the model still has that size, else LAYERSxHIDDEN."""
    named = knobs.SIZES.get(name) == (model.layers, model.hidden, model.heads)
    return name if named else f"{model.layers}x{model.hidden}"


def as_text(name: str, row: Row, setup: Setup, results: Sequence[Result], rounds: int) -> str:
    """Return the table as Markdown, and the shares below it."""
    times = "variant", "median ms", "min ms", "ratio", "quartiles"
    head = (*times, f"{results[0].unit}/s", "page faults", "first call, s")
    lines = []
    for result in results:
        over, low, high = harness.ratio(result, results[0])
        lines.append(
            (
                result.name,
                f"{1000 * result.seconds:.1f}",
                f"{1000 * result.fastest:.1f}",
                f"{over:.2f}",
                f"{low:.2f} to {high:.2f}",
                f"{result.rate:,.0f}",
                f"{result.faults:,.0f}",
                f"{result.first_seconds:.1f}",
            )
        )
    config = setup.config
    size = size_of(config.model, setup.size)
    shape = f"{size}, {config.batch_size} x {config.sequence_length}, {config.model.dtype}"
    note = (
        f"Medians of {rounds} turns each, in turn; ratio: of medians, to the first; "
        "quartiles: within a round."
    )
    by_name = {result.name: result for result in results}
    shares = []
    for part, whole in row.shares:
        if part in by_name and whole in by_name:
            share = harness.ratio(by_name[part], by_name[whole])[0]
            shares.append(f"{part} takes {share:.2%} of the time of {whole}.")
    title = f"{name}: {row.what}; {shape}"
    return "\n".join([title, "", table([head, *lines]), "", note, *shares])


def as_rows(
    name: str, setup: Setup, results: Sequence[Result], rounds: int
) -> list[dict[str, Any]]:
    """Return a row for each variant; every row repeats the machine, versions and config."""
    tree, m = setup.tree, setup.config.model
    measured = {
        "batch_size": setup.config.batch_size,
        "sequence_length": setup.config.sequence_length,
        "dtype": m.dtype,
        "rounds": rounds,
        "machine": {key: value for key, value in machine.machine().items() if key in MACHINE},
        "versions": machine.versions(PACKAGES),
        "commit": machine.git_commit(),
        "config": hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()[:16],
    }
    rows = []
    for result in results:
        over, low, high = harness.ratio(result, results[0])
        rows.append(
            {
                "benchmark": name,
                "size": size_of(m, setup.size),
                "variant": result.name,
                "median_ms": 1000 * result.seconds,
                "min_ms": 1000 * result.fastest,
                "ratio": over,
                "ratio_quartiles": [low, high],
                f"{result.unit}_per_second": result.rate,
                "page_faults": result.faults,
                "first_seconds": result.first_seconds,
                "turns_ms": [1000 * turn for turn in result.turns],
                "about": dict(result.about),
                "measured": measured,
            }
        )
    return rows
