"""Reader of metrics.jsonl and samples.jsonl, which a run writes line by line.

A line of metrics.jsonl is a JSON object: `step`, `time` (seconds the run has worked, over all its
resumes), then flat names. A number that is not finite is null. A line of samples.jsonl has `step`,
and a sentence with its predictions: `text`, `answers`, `predictions`; that of a task has counts and
mistakes (evaluation/mistakes.py says which).
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
LINE = {"step": range(2**63), "time": Maybe(float)}  # of metrics.jsonl
SAMPLE = LINE | {
    "text": str,
    "answers": Maybe([str]),
    "predictions": [[{"token": str, "probability": float}]],
}
PAIR = (str, str, range(2**63))
TASK_SAMPLE = LINE | {
    "task": str,
    "counts": Maybe([PAIR]),
    "entities": Maybe([(str, *[range(2**63)] * 3)]),
    "mistakes": [
        {
            **dict.fromkeys(("text", "pair", "truth", "predicted"), Maybe(str)),
            **dict.fromkeys(("probability", "right", "wrong"), Maybe(float)),
            "words": Maybe([(str, str, str)]),
        }
    ],
}


def rows(path: Path, schema: Any = LINE) -> Iterator[dict[str, Any]]:
    """Yield the lines of a metrics file.

    Skip a partial last line, which a killed run leaves, silently, and broken lines with a warning.
    """
    yield from jsons.lines(path, DataError, schema)
