"""Divide cells into groups that train in one program.

Cells that differ in traced numbers only may share a program (`training/program.py`). All its runs
have the prediction slots of the highest masking rate among them, which the other runs pay for and
leave empty. So cells are sorted by their slots and cut into neighbours.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import math
import re
from collections.abc import Iterator, Sequence

from bert_jax.config import flat, is_traced, knobs, to_dict
from bert_jax.config.costs import activation_bytes, own_slots, state_bytes
from bert_jax.errors import ConfigError
from bert_jax.masking import rates
from bert_jax.studies.engines.base import Capacity
from bert_jax.studies.folder import Entry
from bert_jax.studies.spec import Cell

WIDEST = 3.0  # a run has at most so many times the prediction slots that it needs


@dataclasses.dataclass(frozen=True)
class Group:
    """Cells that train in one program, and their prediction slots."""

    id: str
    cells: tuple[Entry, ...]
    slots: int  # prediction slots of a row

    @property
    def empty(self) -> float:
        """The share of prediction slots that no run uses."""
        used = sum(own_slots(cell.config) for cell in self.cells)
        return 1 - used / (self.slots * len(self.cells))


def plan_groups(cells: Sequence[Entry], fuse: str, capacity: Capacity) -> list[Group]:
    """Divide cells into groups.

    Args:
      cells: cells of a study.
      fuse: `auto`, `never`, or the most runs a group may have.
      capacity: the engine's: where several groups run at the same time, there are as many.
    """
    most = read_limit(fuse)
    alike: dict[str, list[Entry]] = {}
    # Sorted, so that the order of points and seeds in the study does not change the groups.
    for cell in sorted(cells, key=lambda cell: (own_slots(cell.config), cell.id)):
        alike.setdefault(find_signature(cell), []).append(cell)
    groups = []
    for sorted_cells in alike.values():
        bands = list(_cut_by_slots(sorted_cells))
        # As many groups as run at the same time, of all cells and so of a share of them.
        wanted = capacity.parallel * len(sorted_cells) / len(cells) if fuse == "auto" else 1
        parts = math.ceil(wanted / len(bands))
        for band in bands:
            limit = min(most, _count_in_memory(band, capacity), math.ceil(len(band) / parts))
            groups += [_make_group(part) for part in _cut(band, limit)]
    return groups


def read_limit(fuse: str) -> float:
    """Return the most cells a group may have, by the flag `--fuse`."""
    if fuse not in ("auto", "never") and not re.fullmatch(r"[1-9]\d*", fuse):
        raise ConfigError(f"--fuse={fuse}", "auto, never, or the most runs that train together")
    return {"auto": math.inf, "never": 1}.get(fuse) or int(fuse)


def trains_apart(config: knobs.Config) -> bool:
    """Tell whether a run cannot share a program."""
    # With patience each run ends at a step of its own, and pmap splits one batch.
    patient, pmap = config.checkpoints.patience, config.parallel.step == "pmap"
    return bool(patient or pmap or config.parallel.distributed)


def find_signature(cell: Cell) -> str:
    """Return a key that cells which can train together have in common."""
    if trains_apart(cell.config):
        return cell.id
    tree = {
        path: value for path, value in flat(to_dict(cell.config)).items() if not is_traced(path)
    }
    tree["drawn"] = cell.config.masking.draw != "fixed"
    tree["views"] = rates.count_views(cell.config.masking)
    return json.dumps([tree, cell.fork], sort_keys=True)


def _cut_by_slots(cells: Sequence[Entry]) -> Iterator[list[Entry]]:
    """Cut sorted cells into bands whose slots differ by a factor of WIDEST at most."""
    band: list[Entry] = []
    for cell in cells:
        if band and own_slots(cell.config) > WIDEST * own_slots(band[0].config):
            yield band
            band = []
        band.append(cell)
    yield band


def _cut(cells: list[Entry], most: float) -> list[list[Entry]]:
    """Cut cells into as few parts as `most` allows, of sizes that differ by at most one."""
    count = math.ceil(len(cells) / most)
    bounds = [len(cells) * number // count for number in range(count + 1)]
    return [cells[start:end] for start, end in itertools.pairwise(bounds)]


def _make_group(cells: Sequence[Entry]) -> Group:
    slots = max(own_slots(cell.config) for cell in cells)
    text = json.dumps([sorted(cell.id for cell in cells), slots])
    return Group(hashlib.sha256(text.encode()).hexdigest()[:12], tuple(cells), slots)


def _count_in_memory(cells: Sequence[Cell], capacity: Capacity) -> float:
    """Return how many runs fit into memory: all states, and the activations of one run.

    Under vmap the runs go through the model together, and each needs activations of its own.
    """
    if not math.isfinite(capacity.memory):
        return math.inf
    config, size = cells[0].config, cells[0].vocab_size
    rows = config.batch_size // config.optim.accumulation
    slots = max(own_slots(cell.config) for cell in cells)
    device = "cuda" if capacity.devices else "cpu"
    state = state_bytes(config, size)
    activations = activation_bytes(config, size, rows, slots, device=device)
    vmap = config.parallel.arms == "vmap"
    if vmap or (config.parallel.arms == "auto" and capacity.devices):
        return max(1.0, capacity.memory // (state + activations))
    return max(1.0, (capacity.memory - activations) // state)
