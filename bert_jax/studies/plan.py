"""The plan of a launch: the groups that are still to do, and what a dry run prints of them.

Groups are planned once. A cell that belongs to a group stays in it, so that an interruption or
another engine does not change its numbers. Cells that an edited study adds make new groups.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from bert_jax.config.costs import flops_per_step
from bert_jax.reporting.text_table import table
from bert_jax.studies import progress, trunks
from bert_jax.studies.engines.base import Capacity
from bert_jax.studies.folder import Entry, StudyFolder
from bert_jax.studies.groups import Group, plan_groups, read_limit
from bert_jax.system.durations import duration


class Speed(NamedTuple):
    """The FLOP/s of a worker, and where that number is from; 0: not known."""

    flops: float
    source: str = ""


def plan(place: StudyFolder, cells: Sequence[Entry], fuse: str, capacity: Capacity) -> list[Group]:
    """Return the groups of the cells that are still to do, the longest first.

    Args:
      place: the study's folder.
      cells: the cells that are still to do.
      fuse: `auto`, `never`, or the most cells a new group may have.
      capacity: the resources of the engine.
    """
    read_limit(fuse)
    groups = []
    left = {cell.id: cell for cell in cells}
    for name, group in place.groups().items():
        known = tuple(left.pop(cell) for cell in group.cells if cell in left)
        if known:
            groups.append(Group(name, known, group.slots))
    groups += plan_groups(list(left.values()), fuse, capacity)
    return sorted(groups, key=lambda group: (-_count_flops(group.cells), group.id))


def find_speed(place: StudyFolder, stated: float = 0.0) -> Speed:
    """Return the speed that is stated, else measured on the cells of this workdir."""
    if stated:
        return Speed(stated, f"at {stated:.3g} FLOP/s a worker")
    measured = progress.look(place).pace if place.study.exists() else None
    return Speed(measured, "at the pace of the cells so far") if measured else Speed(0.0)


def describe(
    place: StudyFolder,
    name: str,
    cells: Sequence[Entry],
    planned: Sequence[Group],
    capacity: Capacity,
    notes: Sequence[str],
    speed: Speed,
) -> str:
    """Describe a launch for `--dry-run`: cells, groups to do, notes, FLOPs, and hours if known."""
    left = [cell for group in planned for cell in group.cells]
    parallel = capacity.parallel
    beside = f", {parallel} at a time" if parallel > 1 else ""
    total = f"study {name}: {len(cells)} cells, {len(planned)} groups to do{beside}"
    if flops := _count_flops(left):
        total += f"; training takes {flops:.1e} FLOPs"
        if speed.flops:
            about = duration(flops / speed.flops / min(parallel, len(planned)), rough=True)
            total += f", about {about} {speed.source}"
        else:
            total += "; --flops-per-second=N, the speed of a worker, gives the hours"
    if any(cell.config.epochs is not None for cell in left):
        total += "; what epochs take follows from the data"
    parts = [_list_cells(cells, planned), _list_groups(planned), *notes, trunks.described(cells)]
    parts += [_describe_evaluations(place, left, parallel), describe_cells(cells, speed), total]
    return "\n\n".join(filter(None, parts))


def _list_cells(cells: Sequence[Entry], planned: Sequence[Group]) -> str:
    """Return a table of the cells."""
    group_of = {cell.id: group.id for group in planned for cell in group.cells}
    branched = any(cell.trunk for cell in cells)
    head = ["cell", *cells[0].labels, "seed", "steps", "tokens", "group"]
    lines = [head + ["goes on from"] * branched]
    for cell in cells:
        steps, tokens = f"{cell.config.steps:,}", f"{_count_tokens(cell):,}"
        if cell.config.epochs is not None:  # steps are known once the data is read
            steps, tokens = f"{cell.config.epochs:g} epochs", "?"
        group = group_of.get(cell.id, "finished")
        line = [cell.id, *cell.labels.values(), str(cell.seed), steps, tokens, group]
        lines.append(line + [cell.trunk] * branched)
    return table(lines)


def _list_groups(planned: Sequence[Group]) -> str:
    """Return a table of the groups."""
    lines = [("group", "runs", "slots", "empty")]
    for group in planned:
        lines.append((group.id, str(len(group.cells)), str(group.slots), f"{group.empty:.0%}"))
    return table(lines)


def _describe_evaluations(place: StudyFolder, left: Sequence[Entry], parallel: int) -> str:
    """Return how long the evaluations of cells take, once some were made."""
    seconds = progress.look(place).evaluation_seconds if place.study.exists() else None
    if not seconds or not left:
        return ""
    count = sum(len(cell.evaluations) for cell in left)
    more = duration(seconds * count / parallel, rough=True)
    return f"evaluations take about {more} more: {duration(seconds)} each so far"


def describe_cells(cells: Sequence[Entry], speed: Speed) -> str:
    """Return a line that says what a cell costs, or the least and the most of them."""
    counted = [cell for cell in cells if cell.config.epochs is None]
    if not counted:
        return ""
    flops = [cell.config.steps * flops_per_step(cell.config, cell.vocab_size) for cell in counted]
    parts = [
        f"{_range([cell.config.steps for cell in counted], '{:,.0f}'.format)} steps",
        f"{_range([_count_tokens(cell) for cell in counted], '{:,.0f}'.format)} tokens",
        f"{_range(flops, '{:.1e}'.format)} FLOPs",
    ]
    if speed.flops:
        seconds = [_count_flops([cell]) / speed.flops for cell in counted]
        about = _range(seconds, lambda value: duration(value, rough=True))
        parts.append(f"about {about} of training")
    return f"each cell: {', '.join(parts)}"


def _count_flops(cells: Sequence[Entry]) -> float:
    """Count the FLOPs of the updates that cells make themselves, without those of epochs."""
    known = [cell for cell in cells if cell.config.epochs is None]
    return sum(progress.count_flops(cell, cell.config.steps) for cell in known)


def _count_tokens(cell: Entry) -> int:
    return cell.config.steps * cell.config.batch_size * cell.config.sequence_length


def _range(values: Sequence[float], write: Callable[[float], str]) -> str:
    low, high = write(min(values)), write(max(values))
    return low if low == high else f"{low} to {high}"
