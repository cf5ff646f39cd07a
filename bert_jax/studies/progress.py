"""The progress of a study, and the time left if the cells go on at their pace so far.

No time is given before a cell of this workdir has trained.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bert_jax.studies.cell_result import Result
from bert_jax.studies.folder import StudyFolder
from bert_jax.studies.results import gather_cells
from bert_jax.studies.spec import Cell
from bert_jax.studies.trunks import count_flops
from bert_jax.system.counts import format_count
from bert_jax.system.durations import format_duration

FINAL = ("done", "diverged")
STATES = (*FINAL, "running", "failed", "waiting")


@dataclass(frozen=True)
class Progress:
    """The results of all cells of a study, and the group of each cell."""

    cells: Sequence[Result]
    groups: Mapping[str, str]  # cell -> group

    @property
    def counts(self) -> dict[str, int]:
        """The number of cells in each state, such as {"done": 12, "running": 2}."""
        counted = Counter(cell.state.name for cell in self.cells)
        return {name: counted[name] for name in STATES}

    @property
    def unfinished(self) -> list[Result]:
        """The cells that are neither done nor diverged."""
        return [cell for cell in self.cells if cell.state.name not in FINAL]

    @property
    def pace(self) -> float:
        """The FLOP/s of a worker so far, evaluations included; 0 before any cell has trained."""
        here = [cell for cell in self.cells if not cell.taken]
        seconds = sum(cell.seconds + cell.evaluation_seconds for cell in here)
        made = sum(count_flops(cell.entry, cell.state.step) for cell in here)
        return made / seconds if seconds else 0.0

    def estimate_seconds(self, parallel: int = 0) -> float | None:
        """Estimate the seconds left; None if the speed or a cell's number of steps is unknown.

        It is also None if only evaluations are left, because nothing counts their work. The work
        is divided by the `parallel` workers, or by the groups that run if these are more, but by no
        more than the groups left.
        """
        running = {self.groups.get(c.entry.id) for c in self.cells if c.state.name == "running"}
        left = [cell for cell in self.unfinished if cell.state.name != "failed"]
        flops = sum(count_flops(cell.entry, cell.state.steps) for cell in left)
        flops -= sum(count_flops(cell.entry, cell.state.step) for cell in left)
        if not left:
            return 0.0
        if not (self.pace and flops and all(cell.state.steps for cell in left)):
            return None
        groups = {self.groups.get(cell.entry.id) for cell in left}
        return flops / self.pace / min(max(parallel, len(running), 1), len(groups))

    def format_line(self, parallel: int = 0) -> str:
        """Format a line with the counts of states, the step of running cells, and the time left."""
        line = ", ".join(f"{count} {name}" for name, count in self.counts.items() if count)
        line += f" of {format_count(len(self.cells), 'cell')}"
        running = [cell.state for cell in self.cells if cell.state.name == "running"]
        if training := [state for state in running if state.step < state.steps]:
            step = sum(state.step for state in training) / len(training)
            steps = sum(state.steps for state in training) / len(training)
            line += f"; training at step {step:,.0f} of {steps:,.0f}"
        if left := self.estimate_seconds(parallel):
            line += f"; about {format_duration(left, rough=True)} left"
        return line

    def as_dict(self) -> dict[str, Any]:
        """Return {"counts": …, "seconds_left": …, "cells": […]}, which has only types of JSON."""
        cells = [
            {
                "id": cell.entry.id,
                "labels": cell.entry.labels,
                "seed": cell.entry.seed,
                "state": cell.state.name,
                "step": cell.state.step,
                "steps": cell.state.steps,
                "missing": [*cell.state.missing],
                "error": cell.state.error,
                "group": self.groups.get(cell.entry.id, ""),
                "trunk": cell.entry.trunk,
            }
            for cell in self.cells
        ]
        return {"counts": self.counts, "seconds_left": self.estimate_seconds(), "cells": cells}

    def format_lines(self, place: StudyFolder, verbose: bool = False) -> str:
        """Format the line of `format_line`, then a line for each running, failed and diverged cell.

        With `verbose` there is a line for every cell.
        """
        lines = [self.format_line()]
        for cell in self.cells:
            state = cell.state
            if state.name in ("done", "waiting") and not verbose:
                continue
            far = f"step {state.step:,} of {state.steps:,}"
            if state.missing and state.step >= state.steps:
                far += f", no {', '.join(state.missing)} yet"
            if cell.entry.trunk:
                far += f", goes on from {cell.entry.trunk}"
            lines.append(f"{state.name:8}  {cell.entry.id}  {describe_cell(cell.entry)}: {far}")
            if state.error:
                lines.append(f"          {' '.join(state.error.split())}")
            if state.name == "failed":
                lines.append(f"          log: {place.log(self.groups.get(cell.entry.id, ''))}")
        return "\n".join(lines)


def read_progress(place: StudyFolder) -> Progress:
    """Read the progress of a study from its folder."""
    # A cell may stand in two groups: the smaller one is the newer (see `find_groups`).
    largest_first = sorted(place.read_groups().items(), key=lambda item: -len(item[1].cells))
    groups = {cell: name for name, group in largest_first for cell in group.cells}
    return Progress(gather_cells(place), groups)


def describe_cell(cell: Cell) -> str:
    """Return the labels and the seed of a cell as text."""
    labels = [f"{axis} {label}" for axis, label in cell.labels.items()]
    return ", ".join([*labels, f"seed {cell.seed}"])
