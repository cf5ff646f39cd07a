"""What a launch has to do: the groups of the cells that are not finished, and what they will take.

Cells that have begun go on in the group in which they began, so that an interruption changes nothing of the numbers.
The others are planned anew, at the pace that finished cells of this workdir had.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from bert_jax.reporting.text_table import table
from bert_jax.studies import groups
from bert_jax.studies.definition import Cell
from bert_jax.studies.engines import Room
from bert_jax.studies.folder import Entry, Place
from bert_jax.studies.groups import Group
from bert_jax.studies.progress import FINAL, duration
from bert_jax.studies.report.collect import results

DEVICE_PACE = 2e13  # FLOP/s of an accelerator, until a study has told better
MEASURED = 30.0  # seconds of training from which their pace is taken for that of the rest


def plan(
    place: Place, cells: Sequence[Cell], asked: Mapping[str, Any], fuse: str, room: Room
) -> list[Group]:
    """The groups that are still to do, the longest first."""
    groups.plan([], fuse)  # refuses what `fuse` cannot be
    cells = _sized(place, cells)
    left = [cell for cell in cells if _state(place, cell, asked) not in FINAL]
    begun = _begun(
        place, cells, left, math.inf if fuse == "auto" else 1 if fuse == "never" else int(fuse)
    )
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
    """The cells with the size of their vocabulary, where another cell of this workdir has it already."""
    found = results(place, history=False) if place.read_study() else []
    known = {
        (one.entry.config.corpus, one.entry.config.tokenizer): one.vocabulary
        for one in found
        if one.vocabulary
    }
    size = {cell.id: known.get((cell.config.corpus, cell.config.tokenizer)) for cell in cells}
    return [replace(cell, vocabulary=cell.vocabulary or size[cell.id]) for cell in cells]


def recorded(place: Place, cells: Sequence[Cell]) -> dict[str, str]:
    """The group that each cell was in last time, where there was one."""
    known = [cell.id for cell in cells if (place.cell(cell.id) / "cell.json").exists()]
    found = {cell: place.read_cell(cell).group for cell in known}
    return {cell: group for cell, group in found.items() if group and place.group(group).exists()}


def pace(place: Place, room: Room) -> float:
    """FLOP/s of a worker: what the trained cells of this workdir had, else an assumption."""
    trained = (
        [one for one in results(place, history=False) if one.state.step]
        if place.read_study()
        else []
    )
    seconds = sum(one.seconds for one in trained)
    if seconds >= MEASURED:
        return sum(one.spent("flops") for one in trained) / seconds
    return DEVICE_PACE * room.devices if room.devices else groups.PACE * room.cores


def described(
    name: str, cells: Sequence[Cell], planned: Sequence[Group], room: Room, *notes: str
) -> str:
    """What `--dry-run` prints: the cells, the groups that are left, notes, and what it will take."""
    of = {cell.id: group.id for group in planned for cell in group.cells}
    axes = list(cells[0].labels)
    listing = [("cell", *axes, "seed", "steps", "tokens", "group")]
    for cell in cells:
        tokens = cell.config.steps * cell.config.batch_size * cell.config.sequence_length
        steps = f"{cell.config.steps:,}", f"{tokens:,}"
        listing.append(
            (cell.id, *cell.labels.values(), str(cell.seed), *steps, of.get(cell.id, "finished"))
        )
    parts = [("group", "arms", "slots", "empty", "about", "no more, for")]
    for group in planned:
        arms = str(len(group.cells)), str(group.slots), f"{group.empty:.0%}"
        parts.append((group.id, *arms, duration(group.seconds), group.why))
    beside = "" if room.parallel == 1 else f", {room.parallel} at a time"
    total = f"study {name}: {len(cells)} cells, {len(planned)} groups to do{beside}; training takes about "
    seconds = groups.makespan((group.seconds for group in planned), room.parallel)
    return "\n\n".join(
        filter(None, [table(listing), table(parts), *notes, total + duration(seconds)])
    )


def evaluations(place: Place, planned: Sequence[Group], room: Room) -> str:
    """What evaluating the cells of groups will take, by those of this workdir that are."""
    known = (
        [one.evaluation_seconds for one in results(place, history=False)]
        if place.read_study()
        else []
    )
    known = [seconds for seconds in known if seconds]
    left = sum(len(group.cells) for group in planned)
    if not known or not left:
        return ""
    each = sum(known) / len(known)
    return f"evaluations take about {duration(each * left / room.parallel)} more: {duration(each)} a cell so far"


def _state(place: Place, cell: Cell, asked: Mapping[str, Any]) -> str:
    if not place.cell(cell.id).exists():
        return "waiting"
    return place.state(
        Entry(cell.id, cell.config, cell.labels, cell.values, cell.seed, dict(asked))
    ).name


def _begun(place: Place, cells: Sequence[Cell], left: Sequence[Cell], most: float) -> list[Group]:
    """Groups of last time that have begun and are not finished, if all their cells are still there."""
    of, here = recorded(place, cells), {cell.id: cell for cell in cells}
    unfinished = {cell.id for cell in left}
    found = []
    for name in dict.fromkeys(of[cell.id] for cell in left if cell.id in of):
        group = place.read_group(name)
        members = [here[cell] for cell in group["cells"] if cell in here]
        whole = (
            len(members) == len(group["cells"]) <= most
            and len({groups.signature(cell) for cell in members}) == 1
        )
        if whole and any(place.attempts(cell.id) for cell in members):
            share = sum(cell.id in unfinished for cell in members) / len(members)
            found.append(
                Group(name, tuple(members), group["slots"], group["estimate_seconds"] * share)
            )
    return found
