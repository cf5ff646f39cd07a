"""Plan a launch: the groups of the unfinished cells, and estimates of the time they take.

Cells that have begun stay in the group in which they began, so that an interruption does not change
their numbers. The other cells are divided anew, by the pace that trained cells of the workdir had.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from bert_jax.config.costs import flops_per_step
from bert_jax.reporting.text_table import table
from bert_jax.studies import groups, kept, measures, trunks
from bert_jax.studies.definition import Cell
from bert_jax.studies.engines import Capacity
from bert_jax.studies.folder import Entry, StudyFolder
from bert_jax.studies.groups import Group
from bert_jax.studies.progress import FINAL
from bert_jax.studies.report.collect import Result, read_result
from bert_jax.system.durations import duration

DEVICE_PACE = 2e13  # FLOP/s of an accelerator that groups are divided by, until cells are measured
MEASURED = 30.0  # seconds of training after which the measured pace is used


def plan(
    place: StudyFolder,
    cells: Sequence[Cell],
    evaluations: Mapping[str, Any],
    fuse: str,
    room: Capacity,
    stated: float = 0.0,
) -> list[Group]:
    """Plan the groups that are still to do, the longest first.

    Args:
      place: the study's folder.
      cells: all cells of the study.
      evaluations: the evaluations, as study.json records them.
      fuse: `auto`, `never`, or the most cells a group may have.
      room: resources of the engine.
      stated: FLOP/s of a worker, as the user says; 0: not said.
    """
    most = groups.limit(fuse)
    left = unfinished(place, cells, evaluations)
    speed = pace(place, room, stated).flops
    begun = _begun(place, cells, left, most, speed)
    known = {cell.id for group in begun for cell in group.cells}
    rest = [cell for cell in left if cell.id not in known]
    beside = max(1, room.parallel - len(begun))
    fresh = groups.plan(rest, fuse, beside, room.memory, speed, room.devices > 0)
    return sorted([*begun, *fresh], key=lambda group: (-group.seconds, group.id))


def unfinished(
    place: StudyFolder, cells: Sequence[Cell], evaluations: Mapping[str, Any]
) -> list[Cell]:
    """Return the cells that are still to train or to evaluate."""
    return [cell for cell in cells if _state(place, cell, evaluations) not in FINAL]


def recorded(place: StudyFolder, cells: Sequence[Cell]) -> dict[str, str]:
    """Return the group that each cell was in at the last launch, for cells that had one."""
    known = [cell.id for cell in cells if (place.cell(cell.id) / "cell.json").exists()]
    group_of = {cell: place.read_cell(cell).group for cell in known}
    return {cell: name for cell, name in group_of.items() if name and place.group(name).exists()}


class Pace(NamedTuple):
    """The FLOP/s of a worker, and where that number is from; empty: it is an assumption."""

    flops: float
    source: str


def pace(place: StudyFolder, room: Capacity, stated: float = 0.0) -> Pace:
    """Return the pace that is stated, else measured on this workdir's cells, else an assumption.

    An assumption divides cells into groups, and is never printed as hours. FLOPs are counted as in
    the estimates, with the vocabulary that the config asks for.
    """
    if stated:
        return Pace(stated, f"at {stated:.3g} FLOP/s a worker")
    seconds = spent = 0.0
    for result in _results(place):
        if kept.taken(place, result.entry.id):  # on another machine
            continue
        seconds, cell = seconds + result.seconds, result.entry
        made = max(0, result.state.step - cell.fork)
        spent += made * flops_per_step(cell.config, cell.vocab_size)
    if seconds >= MEASURED:
        return Pace(spent / seconds, "at the pace of the cells so far")
    return Pace(DEVICE_PACE * room.devices if room.devices else groups.PACE * room.cores, "")


def _results(place: StudyFolder) -> list[Result]:
    return [read_result(place, entry, history=False) for entry in place.cells()]


def described(
    place: StudyFolder,
    name: str,
    cells: Sequence[Cell],
    planned: Sequence[Group],
    room: Capacity,
    notes: Sequence[str],
    stated: float = 0.0,
) -> str:
    """Return what `--dry-run` prints: cells, groups to do, notes, FLOPs, and hours if known."""
    speed = pace(place, room, stated)
    group_of = {cell.id: group.id for group in planned for cell in group.cells}
    axes = list(cells[0].labels)
    evaluations = ""
    branched = any(cell.trunk for cell in cells)
    head = ("goes on from", "group") if branched else ("group",)
    listing = [("cell", *axes, "seed", "steps", "tokens", *head)]
    for cell in cells:
        tokens = cell.config.steps * cell.config.batch_size * cell.config.sequence_length
        steps = f"{cell.config.steps:,}", f"{tokens:,}"
        if cell.config.epochs is not None:  # steps are known once the data is read
            steps = f"{cell.config.epochs:g} epochs", "?"
        name_of_group = group_of.get(cell.id, "finished")
        last = (cell.trunk, name_of_group) if branched else (name_of_group,)
        listing.append((cell.id, *cell.labels.values(), str(cell.seed), *steps, *last))
    about = ("about",) if speed.source else ()
    parts = [("group", "runs", "slots", "empty", *about, "no more runs because")]
    for group in planned:
        runs = str(len(group.cells)), str(group.slots), f"{group.empty:.0%}"
        about = (duration(group.seconds, rough=True),) if speed.source else ()
        parts.append((group.id, *runs, *about, group.why))
    made = [r.evaluation_seconds for r in _results(place) if r.evaluation_seconds]
    if made and planned:
        mean, left = sum(made) / len(made), sum(len(group.cells) for group in planned)
        more = duration(mean * left / room.parallel, rough=True)
        evaluations = f"evaluations take about {more} more: {duration(mean)} a cell so far"
    beside = "" if room.parallel == 1 else f", {room.parallel} at a time"
    total = f"study {name}: {len(cells)} cells, {len(planned)} groups to do{beside}"
    if flops := sum(_flops(cell) for group in planned for cell in group.cells):
        total += f"; training takes {flops:.1e} FLOPs"
        if speed.source:
            seconds = groups.makespan((group.seconds for group in planned), room.parallel)
            total += f", about {duration(seconds, rough=True)} {speed.source}"
            total += ", one group at a time" if room.parallel == 1 < len(planned) else ""
        else:
            total += "; --flops-per-second=N, the speed of a worker, gives the hours"
    if any(cell.config.epochs is not None for group in planned for cell in group.cells):
        total += "; what epochs take follows from the data"
    costs = cost_of_cells(cells, planned, speed)
    notes = [*notes, trunks.described(cells), evaluations, costs, total]
    return "\n\n".join(filter(None, [table(listing), table(parts), *notes]))


def cost_of_cells(cells: Sequence[Cell], planned: Sequence[Group], speed: Pace) -> str:
    """Return a line that says what a cell costs, or the least and the most of them."""
    counted = [cell.config for cell in cells if cell.config.epochs is None]
    if not counted or not planned:
        return ""
    steps = [config.steps for config in counted]
    tokens = [c.steps * c.batch_size * c.sequence_length for c in counted]
    flops = [
        cell.config.steps * flops_per_step(cell.config, cell.vocab_size)
        for cell in cells
        if cell.config.epochs is None
    ]
    parts = [
        f"{_range(steps, '{:,.0f}'.format)} steps",
        f"{_range(tokens, '{:,.0f}'.format)} tokens",
        f"{_range(flops, '{:.1e}'.format)} FLOPs",
    ]
    if speed.source:
        seconds = [group.seconds / len(group.cells) for group in planned]
        about = _range(seconds, lambda value: duration(value, rough=True))
        parts.append(f"about {about} of training")
    return f"each cell: {', '.join(parts)}"


def _flops(cell: Cell) -> float:
    """Return the FLOPs of the updates that a cell makes itself; 0 before its epochs are counted."""
    steps = 0 if cell.config.epochs is not None else cell.config.steps - cell.fork
    return steps * flops_per_step(cell.config, cell.vocab_size)


def _range(values: Sequence[float], written: Callable[[float], str]) -> str:
    low, high = written(min(values)), written(max(values))
    return low if low == high else f"{low} to {high}"


def _state(place: StudyFolder, cell: Cell, evaluations: Mapping[str, Any]) -> str:
    if not place.cell(cell.id).exists():
        return "waiting"
    possible = measures.possible(cell, evaluations)
    return place.state(Entry(**vars(cell), evaluations=possible)).name


def _begun(
    place: StudyFolder, cells: Sequence[Cell], left: Sequence[Cell], most: float, speed: float
) -> list[Group]:
    """Return the begun and unfinished groups of the last launch whose cells all still exist."""
    group_of, by_id = recorded(place, cells), {cell.id: cell for cell in cells}
    unfinished = {cell.id for cell in left}
    begun = []
    for name in dict.fromkeys(group_of[cell.id] for cell in left if cell.id in group_of):
        group = place.read_group(name)
        members = [by_id[cell] for cell in group["cells"] if cell in by_id]
        whole = len(members) == len(group["cells"]) <= most
        alike = len({groups.signature(cell) for cell in members}) == 1
        if whole and alike and any(place.attempts(cell.id) for cell in members):
            share = sum(cell.id in unfinished for cell in members) / len(members)
            seconds = groups.estimate_seconds(members, speed) * share
            begun.append(Group(name, tuple(members), group["slots"], seconds))
    return begun
