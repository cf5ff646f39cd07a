"""Plan a launch: the groups of the unfinished cells, and estimates of the time they take.

Cells that have begun stay in the group in which they began, so that an interruption does not change
their numbers. The other cells are divided anew, by the pace that trained cells of the workdir had.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from bert_jax.reporting.text_table import table
from bert_jax.studies import groups
from bert_jax.studies.definition import Cell
from bert_jax.studies.engines import Room
from bert_jax.studies.folder import Entry, Place
from bert_jax.studies.groups import Group
from bert_jax.studies.progress import FINAL
from bert_jax.studies.report.collect import Result, results
from bert_jax.system.durations import duration

DEVICE_PACE = 2e13  # FLOP/s of an accelerator, until cells of the study have been measured
MEASURED = 30.0  # seconds of training after which the measured pace is used


def plan(
    place: Place, cells: Sequence[Cell], evaluations: Mapping[str, Any], fuse: str, room: Room
) -> list[Group]:
    """Plan the groups that are still to do, the longest first.

    Args:
      place: the study's folder.
      cells: all cells of the study.
      evaluations: the evaluations, as study.json records them.
      fuse: `auto`, `never`, or the most cells a group may have.
      room: resources of the engine.
    """
    most = groups.limit(fuse)
    cells = _sized(place, cells)
    left = [cell for cell in cells if _state(place, cell, evaluations) not in FINAL]
    begun = _begun(place, cells, left, most)
    known = {cell.id for group in begun for cell in group.cells}
    rest = [cell for cell in left if cell.id not in known]
    fresh = groups.plan(
        rest,
        fuse,
        max(1, room.parallel - len(begun)),
        room.memory,
        pace(place, room),
        room.devices > 0,
    )
    return sorted([*begun, *fresh], key=lambda group: (-group.seconds, group.id))


def _sized(place: Place, cells: Sequence[Cell]) -> list[Cell]:
    """Return the cells with the vocabulary sizes that other cells of the workdir have recorded."""
    known = {
        (result.entry.config.corpus, result.entry.config.tokenizer): result.vocabulary
        for result in _results(place)
        if result.vocabulary
    }
    size = {cell.id: known.get((cell.config.corpus, cell.config.tokenizer)) for cell in cells}
    return [replace(cell, vocabulary=cell.vocabulary or size[cell.id]) for cell in cells]


def recorded(place: Place, cells: Sequence[Cell]) -> dict[str, str]:
    """Return the group that each cell was in at the last launch, for cells that had one."""
    known = [cell.id for cell in cells if (place.cell(cell.id) / "cell.json").exists()]
    group_of = {cell: place.read_cell(cell).group for cell in known}
    return {cell: name for cell, name in group_of.items() if name and place.group(name).exists()}


def pace(place: Place, room: Room) -> float:
    """Return the FLOP/s of a worker: measured on this workdir's cells, else an assumption."""
    trained = [result for result in _results(place) if result.state.step]
    seconds = sum(result.seconds for result in trained)
    if seconds >= MEASURED:
        return sum(result.spent("flops") for result in trained) / seconds
    return DEVICE_PACE * room.devices if room.devices else groups.PACE * room.cores


def _results(place: Place) -> list[Result]:
    return results(place, history=False) if place.read_study() else []


def described(
    name: str, cells: Sequence[Cell], planned: Sequence[Group], room: Room, *notes: str
) -> str:
    """Return what `--dry-run` prints: cells, groups to do, notes, and the estimated time."""
    group_of = {cell.id: group.id for group in planned for cell in group.cells}
    axes = list(cells[0].labels)
    listing = [("cell", *axes, "seed", "steps", "tokens", "group")]
    for cell in cells:
        tokens = cell.config.steps * cell.config.batch_size * cell.config.sequence_length
        steps = f"{cell.config.steps:,}", f"{tokens:,}"
        name_of_group = group_of.get(cell.id, "finished")
        listing.append((cell.id, *cell.labels.values(), str(cell.seed), *steps, name_of_group))
    parts = [("group", "runs", "slots", "empty", "about", "no more, for")]
    for group in planned:
        runs = str(len(group.cells)), str(group.slots), f"{group.empty:.0%}"
        parts.append((group.id, *runs, duration(group.seconds, rough=True), group.why))
    beside = "" if room.parallel == 1 else f", {room.parallel} at a time"
    seconds = groups.makespan((group.seconds for group in planned), room.parallel)
    total = (
        f"study {name}: {len(cells)} cells, {len(planned)} groups to do{beside}; "
        f"training takes about {duration(seconds, rough=True)}"
    )
    return "\n\n".join(filter(None, [table(listing), table(parts), *notes, total]))


def evaluation_estimate(place: Place, planned: Sequence[Group], room: Room) -> str:
    """Estimate the time of the evaluations, by those already made in this workdir."""
    known = [r.evaluation_seconds for r in _results(place) if r.evaluation_seconds]
    left = sum(len(group.cells) for group in planned)
    if not known or not left:
        return ""
    mean = sum(known) / len(known)
    more = duration(mean * left / room.parallel, rough=True)
    return f"evaluations take about {more} more: {duration(mean)} a cell so far"


def _state(place: Place, cell: Cell, evaluations: Mapping[str, Any]) -> str:
    if not place.cell(cell.id).exists():
        return "waiting"
    entry = Entry(cell.id, cell.config, cell.labels, cell.values, cell.seed, dict(evaluations))
    return place.state(entry).name


def _begun(place: Place, cells: Sequence[Cell], left: Sequence[Cell], most: float) -> list[Group]:
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
            seconds = group["estimate_seconds"] * share
            begun.append(Group(name, tuple(members), group["slots"], seconds))
    return begun
