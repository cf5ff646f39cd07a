"""What a run has written: metrics.jsonl and samples.jsonl, line by line.

A line of metrics.jsonl is a JSON object: `step`, `time` (seconds the run has worked, over all its
resumes), then flat names. A number that is not finite is null. A line of samples.jsonl has `step`,
and a sentence with its predictions: `text`, `answers`, `predictions`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bert_jax.errors import DataError
from bert_jax.system import jsons
from bert_jax.system.jsons import Maybe

METRICS = "metrics.jsonl"
SAMPLES = "samples.jsonl"
LINE = {"step": range(2**63), "time": Maybe(float)}  # what is relied on of a line of metrics.jsonl
SAMPLE = LINE | {
    "text": str,
    "answers": Maybe([str]),
    "predictions": [[{"token": str, "probability": float}]],
}


def rows(path: Path, schema: Any = LINE) -> Iterator[dict[str, Any]]:
    """Yield the lines of a metrics file.

    The part of a line that a kill left is passed over; a broken line is, with a warning.
    """
    yield from jsons.lines(path, DataError, schema)
