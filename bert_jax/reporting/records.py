"""Reads metrics.jsonl and samples.jsonl, which a run writes line by line.

A line of metrics.jsonl is a JSON object: `step`, `time` (seconds that the run has worked, over all
its resumes), then the metrics by name. A number that is not finite is null. A line of samples.jsonl
has `step`, and a sentence with its predictions: `text`, `answers`, `predictions`. If the run trains
on a task, a line has counts and mistakes instead, as described in evaluation/mistakes.py.
"""

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

logger = logging.getLogger(__name__)

METRICS = "metrics.jsonl"
SAMPLES = "samples.jsonl"


def read_rows(path: Path, *keys: str) -> Iterator[dict[str, Any]]:
    """Yield the lines of a file as dicts; leave out broken lines and lines without one of the keys.

    Warn of lines that are left out. A last line without a newline was torn by a kill, or is being
    written now, so it is left out without a warning.
    """
    needed = {"step", *keys}
    broken = []
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                row = None
            whole = isinstance(row, dict) and row.keys() >= needed
            if whole and isinstance(row["step"], int):
                yield row
            elif line.endswith(b"\n"):
                broken.append(number)
    if broken:
        what = " and ".join(["a step", *keys])
        logger.warning(f"{path}:{broken[0]}: no JSON object with {what}; {len(broken)} left out")


def read_sorted(path: Path, *keys: str) -> list[dict[str, Any]]:
    """Read the lines of a file that have some keys, sorted by step; [] if there is no file."""
    if not path.exists():
        return []
    return sorted(read_rows(path, *keys), key=lambda row: row["step"])
