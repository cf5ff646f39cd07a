"""Progress of a study and an estimate of the time left, from the seconds that cells have taken."""

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
TRAINING = 0.9  # share of training in the work of a cell that is also evaluated
BELIEVED = 0.02  # share of all work that must be done before its pace is used


@dataclass(frozen=True)
class Progress:
    """Cells of a study, and the estimated time that the unfinished ones take."""

    cells: Sequence[Result]
    expected: Mapping[str, float]  # cell -> seconds, as estimated before the launch
    groups: Mapping[str, str]  # cell -> group
    parallel: int
    # Of the last batches, of each cell that trains now.
    losses: Mapping[str, float] = field(default_factory=dict)

    @property
    def counts(self) -> dict[str, int]:
        """The number of cells in each state."""
        counted = Counter(cell.state.name for cell in self.cells)
        return {name: counted[name] for name in STATES}

    @property
    def ratio(self) -> float:
        """The seconds that the work done took, over the seconds expected for it."""
        done = sum(self.expected[cell.entry.id] * share(cell) for cell in self.cells)
        if done < BELIEVED * sum(self.expected.values()):
            return 1.0
        return sum(cell.seconds + cell.evaluation_seconds for cell in self.cells) / done

    def left(self, cell: Result) -> float:
        """Estimate the seconds of work that a cell still takes; a failed one takes none."""
        if cell.state.name == "failed":
            return 0.0
        return self.ratio * self.expected[cell.entry.id] * (1 - share(cell))

    @property
    def seconds_left(self) -> float:
        """The estimated time until all groups have ended, `parallel` of them at a time.

        A lower bound of it: the work over all workers, and the work of the longest group.
        """
        by_group: defaultdict[str, float] = defaultdict(float)
        for cell in self.cells:
            by_group[self.groups[cell.entry.id]] += self.left(cell)
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
            if state.name == "running":
                far += f", about {duration(self.left(cell), rough=True)} left"
            lines.append(f"{state.name:8}  {cell.entry.id}  {described(cell.entry)}: {far}")
            if state.error:
                lines.append(f"          {' '.join(state.error.split())}")
            if state.name == "failed":
                log = place.log(self.groups[cell.entry.id])
                lines.append(f"          {state.attempts} tries; log: {log}")
        return "\n".join(lines)


def look(place: StudyFolder, parallel: int = 0) -> Progress:
    """Read the progress from the folders; `parallel` is by default the number of running groups."""
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
    losses = {}
    for cell in cells:
        if cell.state.name == "running" and cell.state.step < cell.state.steps:
            path = place.cell(cell.entry.id) / records.METRICS
            if (loss := files.last_value(path, "train/loss")) is not None:
                losses[cell.entry.id] = loss
    return Progress(cells, expected, groups, parallel or max(1, len(running)), losses)


def share(cell: Result) -> float:
    """Return the share of a cell's work that is done, from 0 to 1."""
    if cell.state.name in FINAL:
        return 1.0
    fork = min(cell.entry.fork, cell.state.step)  # updates of the trunk are not its work
    length = cell.state.steps - cell.entry.fork
    trained = min(1.0, (cell.state.step - fork) / length) if cell.state.steps else 0.0
    evaluations = len(cell.entry.evaluations)
    if not evaluations:
        return trained
    return TRAINING * trained + (1 - TRAINING) * (1 - len(cell.state.missing) / evaluations)


def described(cell: Cell) -> str:
    """Return the labels and the seed of a cell as text."""
    labels = [f"{axis} {label}" for axis, label in cell.labels.items()]
    return ", ".join([*labels, f"seed {cell.seed}"])
