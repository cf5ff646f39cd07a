"""How far a study is, and how long it will still take: from what its cells have done, in seconds they really took."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tqdm import tqdm

from bert_jax.errors import DataError
from bert_jax.studies.folder import Place
from bert_jax.studies.report.collect import Result, results

FINAL = ("done", "diverged")
STATES = (*FINAL, "running", "failed", "waiting")
TRAINING = 0.9  # of a cell's work where it is evaluated too, until it is known
BELIEVED = 0.02  # share of all work from which its pace is believed


@dataclass(frozen=True)
class Progress:
    """Cells, and the seconds that those which are neither done nor failed will take."""

    cells: Sequence[Result]
    expected: Mapping[str, float]  # cell -> seconds, as they were estimated
    groups: Mapping[str, str]  # cell -> group
    parallel: int

    @property
    def counts(self) -> dict[str, int]:
        """Cells by state."""
        counted = Counter(cell.state.name for cell in self.cells)
        return {name: counted[name] for name in STATES}

    @property
    def ratio(self) -> float:
        """Seconds that work takes, as a multiple of what it was expected to."""
        done = sum(self.expected[cell.entry.id] * share(cell) for cell in self.cells)
        if done < BELIEVED * sum(self.expected.values()):
            return 1.0
        return sum(cell.seconds + cell.evaluation_seconds for cell in self.cells) / done

    def left(self, cell: Result) -> float:
        """Seconds of work that a cell is still expected to take, of its own."""
        return (
            0.0
            if cell.state.name == "failed"
            else self.ratio * self.expected[cell.entry.id] * (1 - share(cell))
        )

    @property
    def seconds_left(self) -> float:
        """Of the whole: groups run beside each other, and none is shorter than its own work."""
        by_group: defaultdict[str, float] = defaultdict(float)
        for cell in self.cells:
            by_group[self.groups[cell.entry.id]] += self.left(cell)
        return max(sum(by_group.values()) / self.parallel, *by_group.values(), 0.0)

    def line(self) -> str:
        """All of it in one line."""
        counts = {name: count for name, count in self.counts.items() if count}
        left = self.seconds_left
        said = ", ".join(f"{count} {name}" for name, count in counts.items())
        return f"{said} of {len(self.cells)} cells" + (
            f"; about {duration(left)} left" if left else ""
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {
            "counts": self.counts,
            "seconds_left": round(self.seconds_left, 1),
            "cells": [
                {
                    "id": cell.entry.id,
                    "labels": cell.entry.labels,
                    "seed": cell.entry.seed,
                    "state": cell.state.name,
                    "step": cell.state.step,
                    "steps": cell.state.steps,
                    "missing": list(cell.state.missing),
                    "attempts": cell.state.attempts,
                    "error": cell.state.error,
                    "seconds_left": round(self.left(cell), 1),
                    "group": self.groups[cell.entry.id],
                }
                for cell in self.cells
            ],
        }

    def as_text(self, place: Place, verbose: bool = False) -> str:
        """Counts, then the cells that run and those that did not come to a good end; with `verbose` all of them."""
        shown = [
            cell
            for cell in self.cells
            if verbose or cell.state.name in ("running", "failed", "diverged")
        ]
        lines = [self.line()]
        for cell in shown:
            state = cell.state
            far = f"step {state.step:,} of {state.steps:,}"
            if state.missing and state.step >= state.steps:
                far += f", no {', '.join(state.missing)} yet"
            if state.name == "waiting" and state.attempts:
                far += ", interrupted"
            if state.name == "running":
                far += f", about {duration(self.left(cell))} left"
            lines.append(f"{state.name:8}  {cell.entry.id}  {described(cell)}: {far}")
            if state.error:
                lines.append(f"          {' '.join(state.error.split())}")
            if state.name == "failed":
                lines.append(
                    f"          {state.attempts} tries; log: {place.log(self.groups[cell.entry.id])}"
                )
        return "\n".join(lines)


def look(place: Place, parallel: int = 0) -> Progress:
    """What the folders say now; without `parallel`, as many groups go on as run."""
    cells = results(place, history=False)
    expected, groups = {}, {}
    for cell in cells:
        groups[cell.entry.id] = cell.entry.group
        try:
            group = place.read_group(cell.entry.group)
            expected[cell.entry.id] = max(1.0, group["estimate_seconds"] / len(group["cells"]))
        except DataError:  # taken from another study, or not written yet
            expected[cell.entry.id] = max(1.0, cell.seconds + cell.evaluation_seconds)
    running = {groups[cell.entry.id] for cell in cells if cell.state.name == "running"}
    return Progress(cells, expected, groups, parallel or max(1, len(running)))


def share(cell: Result) -> float:
    """How much of a cell's work is done, from 0 to 1."""
    if cell.state.name in FINAL:
        return 1.0
    trained = min(1.0, cell.state.step / cell.state.steps) if cell.state.steps else 0.0
    evaluations = len(cell.entry.evaluations)
    if not evaluations:
        return trained
    return TRAINING * trained + (1 - TRAINING) * (1 - len(cell.state.missing) / evaluations)


def described(cell: Result) -> str:
    """Which cell it is, in words."""
    labels = [f"{axis} {label}" for axis, label in cell.entry.labels.items()]
    return ", ".join([*labels, f"seed {cell.entry.seed}"])


def duration(seconds: float) -> str:
    """Hours, minutes and seconds."""
    return tqdm.format_interval(round(seconds))
