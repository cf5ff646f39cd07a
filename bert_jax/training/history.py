"""The steps a run has written lines for, so that a resumed run can say which lines are gone.

Steps of one kind, such as training or an evaluation, are kept as ranges: [first, last, distance].
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

Ranges = list[list[int]]
SAMPLES = "samples"


def kind(line: Mapping[str, Any]) -> str:
    """Name the kind of a line of metrics.jsonl: training, or the name of an evaluation."""
    name = next((key for key in line if "/" in key), "train/")
    return "training" if name.startswith("train/") else f"evaluation {name.split('/')[1]}"


def add(ranges: Ranges, step: int) -> None:
    """Note that there is a line for a step; further lines for the same step count once."""
    if not ranges:
        ranges.append([step, step, 0])
        return
    first, last, distance = ranges[-1]
    if step == last:
        return
    if distance in (0, step - last):
        ranges[-1] = [first, step, step - last]
    else:
        ranges.append([step, step, 0])


def steps(ranges: Ranges) -> Iterator[int]:
    """Yield the steps in ranges."""
    for first, last, distance in ranges:
        yield from range(first, last + 1, distance or 1)


def missing(before: Mapping[str, Ranges], now: Mapping[str, Ranges]) -> dict[str, list[int]]:
    """Return by kind the steps that a checkpoint knew lines for and that have none now."""
    lost = {
        kind: sorted(set(steps(ranges)) - set(steps(now.get(kind, []))))
        for kind, ranges in before.items()
    }
    return {kind: gone for kind, gone in lost.items() if gone}


def described(steps: Iterable[int]) -> str:
    """Describe a list of steps for a message."""
    listed = list(steps)
    if len(listed) == 1:
        return f"step {listed[0]}"
    return f"{len(listed)} steps from {listed[0]} to {listed[-1]}"
