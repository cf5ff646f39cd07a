"""Divide cells into groups that train in one program.

Cells may share a program if they differ only in numbers that the program takes as arguments
(`training/program.py`). All runs of a program have as many prediction slots as the highest masking
rate needs. Runs with a lower rate compute these slots too, and leave some empty. So cells are
sorted by the slots that they need, and groups are stretches of this order.

Groups are planned once. A cell stays in its group, so that an interruption or another engine does
not change its numbers, unless several processes now train it. Cells that an edited study adds form
new groups.
"""

import dataclasses
import hashlib
import itertools
import json
import math
import re
from collections.abc import Iterator, Sequence

from bert_jax.config import flatten, is_traced, to_dict
from bert_jax.config.costs import own_slots
from bert_jax.errors import need
from bert_jax.masking import rates
from bert_jax.studies.folder import StudyFolder
from bert_jax.studies.spec import Cell
from bert_jax.studies.trunks import count_work

WIDEST = 3.0  # a run has at most so many times the prediction slots that it needs


@dataclasses.dataclass(frozen=True)
class Group:
    """Cells that train in one program, and the number of prediction slots in each of their rows."""

    id: str
    cells: tuple[Cell, ...]
    slots: int  # prediction slots of a row

    @property
    def empty(self) -> float:
        """The share of the prediction slots that the runs of the group leave empty."""
        used = sum(own_slots(cell.config) for cell in self.cells)
        return 1 - used / (self.slots * len(self.cells))


def find_groups(place: StudyFolder, cells: Sequence[Cell], fuse: str, parallel: int) -> list[Group]:
    """Return the groups with cells to do: groups that are known already, and groups of new cells.

    Args:
      place: the study's folder, which lists the known groups.
      cells: the cells that are still to train or evaluate.
      fuse: `auto`, `never`, or the largest number of cells in a new group.
      parallel: the number of workers.
    """
    left = {cell.id: cell for cell in cells}
    groups = []
    for name, group in place.read_groups().items():
        known = [left[cell] for cell in group.cells if cell in left]
        # Several processes train one cell, and the group was planned before they were asked for.
        outdated = len(group.cells) > 1 and any(cell.config.parallel.distributed for cell in known)
        if known and not outdated:
            groups.append(Group(name, tuple(known), group.slots))
            left = {cell: left[cell] for cell in left if cell not in group.cells}
    groups += plan_groups([*left.values()], fuse, parallel)
    # The longest first.
    return sorted(groups, key=lambda group: (-count_work(group.cells), group.id))


def plan_groups(cells: Sequence[Cell], fuse: str, parallel: int) -> list[Group]:
    """Divide cells into groups.

    With fuse=auto there are enough groups for all workers, if there are enough cells.
    """
    most = read_limit(fuse)
    alike: dict[str, list[Cell]] = {}
    # Sorted, so that the order of points and seeds in the study does not change the groups.
    for cell in sorted(cells, key=lambda cell: (own_slots(cell.config), cell.id)):
        alike.setdefault(find_signature(cell), []).append(cell)
    groups = []
    for sorted_cells in alike.values():
        bands = list(_cut_by_slots(sorted_cells))
        # As many groups as run at the same time, of all cells and so of a share of them.
        wanted = parallel * len(sorted_cells) / len(cells) if fuse == "auto" else 1
        parts = math.ceil(wanted / len(bands))
        for band in bands:
            # The fewest parts of at most `limit` cells; their sizes differ by one at most.
            limit = min(most, math.ceil(len(band) / parts))
            count = math.ceil(len(band) / limit)
            bounds = [len(band) * number // count for number in range(count + 1)]
            groups += [_make_group(band[start:end]) for start, end in itertools.pairwise(bounds)]
    return groups


def read_limit(fuse: str) -> float:
    """Return the largest number of cells in a group, from the flag `--fuse`."""
    right = fuse in ("auto", "never") or re.fullmatch(r"[1-9]\d*", fuse)
    need(bool(right), f"--fuse={fuse}", "auto, never, or the most runs that train together")
    return {"auto": math.inf, "never": 1}.get(fuse) or int(fuse)


def find_signature(cell: Cell) -> str:
    """Return a key that is equal for cells which can train in one program."""
    config = cell.config
    # With patience each run ends at a step of its own, and pmap splits one batch.
    patient = config.checkpoints.patience
    pmap = config.parallel.step == "pmap"
    if patient or pmap or config.parallel.distributed:
        return cell.id
    tree = {path: value for path, value in flatten(to_dict(config)).items() if not is_traced(path)}
    tree["drawn"] = config.masking.draw != "fixed"
    tree["views"] = rates.count_views(config.masking)
    return json.dumps([tree, cell.fork], sort_keys=True)


def _cut_by_slots(cells: Sequence[Cell]) -> Iterator[list[Cell]]:
    """Yield lists of neighbouring cells whose slots differ by at most a factor of WIDEST.

    The cells must be sorted by the number of prediction slots that they need.
    """
    band: list[Cell] = []
    for cell in cells:
        if band and own_slots(cell.config) > WIDEST * own_slots(band[0].config):
            yield band
            band = []
        band.append(cell)
    yield band


def _make_group(cells: Sequence[Cell]) -> Group:
    slots = max(own_slots(cell.config) for cell in cells)
    text = json.dumps([sorted(cell.id for cell in cells), slots])
    return Group(hashlib.sha256(text.encode()).hexdigest()[:12], tuple(cells), slots)
