"""Which steps a run has written lines of, so that a resumed run can say which of them are gone.

Steps of one kind, such as training or an evaluation, are kept as runs of equal distances: [first, last, distance].
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

Runs = list[list[int]]
SAMPLES = "samples"


def kind(line: Mapping[str, Any]) -> str:
    """Return what a line of metrics.jsonl is of: training, or the name of an evaluation."""
    name = next((key for key in line if "/" in key), "train/")
    return "training" if name.startswith("train/") else f"evaluation {name.split('/')[1]}"


def add(runs: Runs, step: int) -> None:
    """Note that there is a line of a step; several of one step count once."""
    if not runs:
        runs.append([step, step, 0])
        return
    first, last, distance = runs[-1]
    if step == last:
        return
    if distance in (0, step - last):
        runs[-1] = [first, step, step - last]
    else:
        runs.append([step, step, 0])


def steps(runs: Runs) -> Iterator[int]:
    """Yield the steps of runs."""
    for first, last, distance in runs:
        yield from range(first, last + 1, distance or 1)


def missing(before: Mapping[str, Runs], now: Mapping[str, Runs]) -> dict[str, list[int]]:
    """Return by kind the steps that a checkpoint knew lines of, and of which there are none now."""
    found = {
        kind: sorted(set(steps(runs)) - set(steps(now.get(kind, []))))
        for kind, runs in before.items()
    }
    return {kind: gone for kind, gone in found.items() if gone}


def described(gone: Iterable[int]) -> str:
    """Return a list of steps for a message."""
    listed = list(gone)
    if len(listed) == 1:
        return f"step {listed[0]}"
    return f"{len(listed)} steps from {listed[0]} to {listed[-1]}"
