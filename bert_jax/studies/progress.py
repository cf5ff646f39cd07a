"""Progress of a study, and the time left at the pace of its cells so far.

Nothing is said of the time left before a cell has been measured.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bert_jax.config.costs import flops_per_step
from bert_jax.studies.folder import StudyFolder
from bert_jax.studies.report.collect import Result
from bert_jax.studies.results import gather_cells
from bert_jax.studies.spec import Cell
from bert_jax.system.durations import duration

FINAL = ("done", "diverged")
STATES = (*FINAL, "running", "failed", "waiting")


@dataclass(frozen=True)
class Progress:
    """The cells of a study, and the time that the unfinished ones take."""

    cells: Sequence[Result]
    groups: Mapping[str, str]  # cell -> group
    parallel: int
    losses: Mapping[str, float]  # of the last batches, of each cell that trains now

    @property
    def counts(self) -> dict[str, int]:
        """The number of cells in each state."""
        counted = Counter(cell.state.name for cell in self.cells)
        return {name: counted[name] for name in STATES}

    @property
    def pace(self) -> float | None:
        """The FLOP/s of a worker, over the cells so far; None before any was measured.

        FLOPs are counted with the vocabulary that the config asks for.
        """
        here = [cell for cell in self.cells if not cell.taken and cell.seconds]
        seconds = sum(cell.seconds for cell in here)
        made = sum(count_flops(cell.entry, cell.state.step) for cell in here)
        return made / seconds if made else None

    @property
    def evaluation_seconds(self) -> float | None:
        """The mean seconds of an evaluation so far; None before any was made."""
        cells = [cell for cell in self.cells if cell.evaluation_seconds and not cell.taken]
        made = sum(len(cell.entry.evaluations) - len(cell.state.missing) for cell in cells)
        return sum(cell.evaluation_seconds for cell in cells) / made if made else None

    def estimate_seconds(self, cell: Result) -> float | None:
        """Estimate the seconds of work that a cell still takes; None if nothing was measured."""
        if cell.state.name in (*FINAL, "failed"):
            return 0.0
        if self.pace is None:
            return None
        left = count_flops(cell.entry, cell.state.steps)
        left -= count_flops(cell.entry, cell.state.step)
        return left / self.pace + len(cell.state.missing) * (self.evaluation_seconds or 0.0)

    @property
    def seconds_left(self) -> float | None:
        """The time until all groups have ended: all work over all workers, or the longest group."""
        by_group: defaultdict[str, float] = defaultdict(float)
        for cell in self.cells:
            left = self.estimate_seconds(cell)
            if left is None:
                return None
            by_group[self.groups.get(cell.entry.id, "")] += left
        return max(sum(by_group.values()) / self.parallel, *by_group.values(), 0.0)

    def line(self) -> str:
        """Return the counts, how far the running cells are, and the time left in one line."""
        counts = ", ".join(f"{count} {name}" for name, count in self.counts.items() if count)
        left = self.seconds_left
        rest = f"; about {duration(left, rough=True)} left" if left else ""
        return f"{counts} of {len(self.cells)} cells{self._describe_training()}{rest}"

    def _describe_training(self) -> str:
        """Return the mean step and loss of the cells that train now."""
        running = [cell.state for cell in self.cells if cell.entry.id in self.losses]
        if not running:
            return ""
        step = sum(state.step for state in running) / len(running)
        steps = sum(state.steps for state in running) / len(running)
        loss = sum(self.losses.values()) / len(running)
        return f"; training at step {step:,.0f} of {steps:,.0f}, loss {loss:.3f}"

    def as_dict(self) -> dict[str, Any]:
        """Return the progress as plain JSON types."""
        return {
            "counts": self.counts,
            "seconds_left": _round(self.seconds_left),
            "cells": [
                {
                    "id": cell.entry.id,
                    "labels": cell.entry.labels,
                    "seed": cell.entry.seed,
                    "state": cell.state.name,
                    "step": cell.state.step,
                    "steps": cell.state.steps,
                    "missing": list(cell.state.missing),
                    "error": cell.state.error,
                    "seconds_left": _round(self.estimate_seconds(cell)),
                    "group": self.groups.get(cell.entry.id, ""),
                    "trunk": cell.entry.trunk,
                }
                for cell in self.cells
            ],
        }

    def as_text(self, place: StudyFolder, verbose: bool = False) -> str:
        """Return the counts, then the running, failed and diverged cells; with `verbose` all."""
        lines = [self.line()]
        for cell in self.cells:
            state = cell.state
            if state.name in ("done", "waiting") and not verbose:
                continue
            far = f"step {state.step:,} of {state.steps:,}"
            if state.missing and state.step >= state.steps:
                far += f", no {', '.join(state.missing)} yet"
            if state.name == "waiting" and state.step:
                far += ", interrupted"
            if cell.entry.trunk:
                far += f", goes on from {cell.entry.trunk}"
            if state.name == "running" and (left := self.estimate_seconds(cell)):
                far += f", about {duration(left, rough=True)} left"
            lines.append(f"{state.name:8}  {cell.entry.id}  {describe(cell.entry)}: {far}")
            if state.error:
                lines.append(f"          {' '.join(state.error.split())}")
            if state.name == "failed":
                lines.append(f"          log: {place.log(self.groups.get(cell.entry.id, ''))}")
        return "\n".join(lines)


def _round(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)


def look(place: StudyFolder, parallel: int = 0) -> Progress:
    """Read the progress from the folders; `parallel` is by default the number of running groups."""
    cells = gather_cells(place, history=False)
    groups = {cell: name for name, group in place.groups().items() for cell in group.cells}
    running = [cell.entry.id for cell in cells if cell.state.name == "running"]
    last = {cell: place.read_last_metrics(cell).get("train/loss") for cell in running}
    losses = {cell: loss for cell, loss in last.items() if loss is not None}
    at_once = len({groups.get(cell, "") for cell in running})
    return Progress(cells, groups, parallel or max(1, at_once), losses)


def count_flops(cell: Cell, step: int) -> float:
    """Count the FLOPs of the updates that a cell makes itself, up to a step."""
    return max(0, step - cell.fork) * flops_per_step(cell.config, cell.vocab_size)


def describe(cell: Cell) -> str:
    """Return the labels and the seed of a cell as text."""
    labels = [f"{axis} {label}" for axis, label in cell.labels.items()]
    return ", ".join([*labels, f"seed {cell.seed}"])
