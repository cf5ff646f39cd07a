"""Progress of a study, and the time left at the pace that its cells have now.

Nothing is said of the time left before a cell has been measured.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bert_jax.errors import DataError
from bert_jax.reporting import records
from bert_jax.studies import files
from bert_jax.studies.folder import StudyFolder
from bert_jax.studies.report.collect import Result, results
from bert_jax.studies.spec import Cell
from bert_jax.system.durations import duration

FINAL = ("done", "diverged")
STATES = (*FINAL, "running", "failed", "waiting")
EVALUATION = 1 / 9  # seconds of all evaluations for a second of training, until one was made


@dataclass(frozen=True)
class Progress:
    """Cells of a study, and the estimated time that the unfinished ones take."""

    cells: Sequence[Result]
    expected: Mapping[str, float]  # cell -> seconds, as estimated before the launch
    groups: Mapping[str, str]  # cell -> group
    parallel: int
    # Of the last batches, of each cell that trains now.
    losses: Mapping[str, float] = field(default_factory=dict)
    # Seconds of the whole training, measured: of trained cells, and of those that train now.
    measured: Mapping[str, float] = field(default_factory=dict)

    @property
    def counts(self) -> dict[str, int]:
        """The number of cells in each state."""
        counted = Counter(cell.state.name for cell in self.cells)
        return {name: counted[name] for name in STATES}

    @property
    def ratio(self) -> float | None:
        """The measured seconds over the expected ones, of the cells that train now, else of all.

        None before any was measured.
        """
        if not self.measured:
            return None
        now = [cell for cell in self.measured if cell in self.losses] or list(self.measured)
        expected = sum(self.expected[cell] for cell in now)
        return sum(self.measured[cell] for cell in now) / expected

    def left(self, cell: Result) -> float | None:
        """Estimate the seconds of work that a cell still takes; None before any was measured."""
        if cell.state.name in (*FINAL, "failed"):
            return 0.0
        whole, ratio = self.measured.get(cell.entry.id), self.ratio
        if whole is None and ratio is not None:
            whole = ratio * self.expected[cell.entry.id]
        if whole is None:
            return None
        return whole * (1 - share(cell)) + len(cell.state.missing) * self._evaluation(cell, whole)

    def _evaluation(self, cell: Result, training: float) -> float:
        """Return the mean seconds of the evaluations so far, else a share of the training."""
        own = [each for each in self.cells if each.entry.id in self.measured]
        made = sum(len(each.entry.evaluations) - len(each.state.missing) for each in own)
        if made:
            return sum(each.evaluation_seconds for each in own) / made
        return EVALUATION * training / max(1, len(cell.entry.evaluations))

    @property
    def seconds_left(self) -> float | None:
        """The estimated time until all groups have ended, `parallel` of them at a time.

        A lower bound of it: the work over all workers, and the work of the longest group.
        """
        by_group: defaultdict[str, float] = defaultdict(float)
        for cell in self.cells:
            left = self.left(cell)
            if left is None:
                return None
            by_group[self.groups[cell.entry.id]] += left
        return max(sum(by_group.values()) / self.parallel, *by_group.values(), 0.0)

    def line(self) -> str:
        """Return the counts, how far the running cells are, and the time left in one line."""
        counts = ", ".join(f"{count} {name}" for name, count in self.counts.items() if count)
        left = self.seconds_left
        rest = f"; about {duration(left, rough=True)} left" if left else ""
        return f"{counts} of {len(self.cells)} cells{self._training()}{rest}"

    def _training(self) -> str:
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
            "seconds_left": _rounded(self.seconds_left),
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
                    "seconds_left": _rounded(self.left(cell)),
                    "group": self.groups[cell.entry.id],
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
            quiet = state.name == "done" or (state.name == "waiting" and not state.error)
            if quiet and not verbose:
                continue
            far = f"step {state.step:,} of {state.steps:,}"
            if state.missing and state.step >= state.steps:
                far += f", no {', '.join(state.missing)} yet"
            if state.name == "waiting" and state.attempts:
                far += ", interrupted"
            if cell.entry.trunk:
                far += f", goes on from {cell.entry.trunk}"
            if state.name == "running" and (left := self.left(cell)):
                far += f", about {duration(left, rough=True)} left"
            lines.append(f"{state.name:8}  {cell.entry.id}  {described(cell.entry)}: {far}")
            if state.error:
                lines.append(f"          {' '.join(state.error.split())}")
            if state.name == "failed":
                log = place.log(self.groups[cell.entry.id])
                lines.append(f"          {state.attempts} tries; log: {log}")
        return "\n".join(lines)


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)


def look(place: StudyFolder, parallel: int = 0) -> Progress:
    """Read the progress from the folders; `parallel` is by default the number of running groups."""
    cells = results(place, history=False)
    expected, groups = {}, {}
    losses, measured = {}, {}
    for cell in cells:
        name, path = cell.entry.id, place.cell(cell.entry.id) / records.METRICS
        groups[name] = cell.entry.group
        try:
            group = place.read_group(cell.entry.group)
        except DataError:  # taken from another study, or not written yet
            expected[name] = max(1.0, cell.seconds + cell.evaluation_seconds)
            continue
        expected[name] = max(1.0, group["estimate_seconds"] / len(group["cells"]))
        if 0 < cell.state.steps <= cell.state.step:
            measured[name] = cell.seconds
        elif cell.state.name == "running":
            if (loss := files.last_value(path, "train/loss")) is not None:
                losses[name] = loss
            if (seconds := files.seconds_per_step(path)) is not None:
                length = cell.state.steps - cell.entry.fork
                measured[name] = seconds * length / len(group["cells"])
    running = {groups[cell.entry.id] for cell in cells if cell.state.name == "running"}
    return Progress(cells, expected, groups, parallel or max(1, len(running)), losses, measured)


def share(cell: Result) -> float:
    """Return the share of a cell's training that is done, from 0 to 1."""
    if cell.state.name in FINAL:
        return 1.0
    fork = min(cell.entry.fork, cell.state.step)  # updates of the trunk are not its work
    length = cell.state.steps - cell.entry.fork
    return min(1.0, (cell.state.step - fork) / length) if cell.state.steps else 0.0


def described(cell: Cell) -> str:
    """Return the labels and the seed of a cell as text."""
    labels = [f"{axis} {label}" for axis, label in cell.labels.items()]
    return ", ".join([*labels, f"seed {cell.seed}"])
