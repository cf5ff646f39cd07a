"""Reader of metrics.jsonl and samples.jsonl, which a run writes line by line.

A line of metrics.jsonl is a JSON object: `step`, `time` (seconds the run has worked, over all its
resumes), then flat names. A number that is not finite is null. A line of samples.jsonl has `step`,
and a sentence with its predictions: `text`, `answers`, `predictions`. If the run trains on a task,
a line has counts and mistakes instead, which evaluation/mistakes.py describes.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

logger = logging.getLogger(__name__)

METRICS = "metrics.jsonl"
SAMPLES = "samples.jsonl"


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of a file; leave broken lines out with a warning.

    A last line without its newline was torn by a kill, or is being written: it is left out too.
    """
    broken = []
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                row = json.loads(line)
                step = row["step"]
            except (ValueError, TypeError, KeyError, RecursionError):
                step = None
            if isinstance(step, int):
                yield row
            elif line.endswith(b"\n"):
                broken.append(number)
    if broken:
        logger.warning(f"{path}:{broken[0]}: no JSON object with a step; {len(broken)} left out")


def read_sorted(path: Path) -> list[dict[str, Any]]:
    """Read the lines of a file by step; none if there is no file."""
    return sorted(read_rows(path), key=lambda row: row["step"]) if path.exists() else []
