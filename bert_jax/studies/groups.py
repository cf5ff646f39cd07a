"""Divide cells into groups that train in one program, and estimate the time of each group.

Cells that differ in traced numbers alone may share a program (`training/program.py`). All runs of
a program have the prediction slots of the highest masking rate among them, which the other runs pay
for and leave empty; but every further program has to be compiled. So the masking rates are divided
into the bands that take the least time in total.
"""

from __future__ import annotations

import dataclasses
import hashlib
import heapq
import itertools
import json
import math
import re
from collections.abc import Iterable, Sequence

from bert_jax.config import flat, is_traced, knobs, to_dict
from bert_jax.config.costs import activation_bytes, flops_per_step, own_slots, state_bytes
from bert_jax.errors import ConfigError
from bert_jax.masking import rates
from bert_jax.studies.spec import Cell

COMPILE = 25.0  # seconds: a process, its data, and the compilation of its programs
PACE = 9e10  # FLOP/s of a core, until cells of the study have been measured
WORTH = 0.95  # a division must reduce the estimated time to this share: estimates are no better
TRIALS = 4  # divisions to try for every group that can run at the same time


@dataclasses.dataclass(frozen=True)
class Group:
    """Cells that train in one program, their prediction slots and the estimated time."""

    id: str
    cells: tuple[Cell, ...]
    slots: int  # prediction slots of a row
    seconds: float  # estimated
    why: str = ""  # the reason the group has no more cells

    @property
    def empty(self) -> float:
        """The share of prediction slots that no run uses."""
        used = sum(own_slots(cell.config) for cell in self.cells)
        return 1 - used / (self.slots * len(self.cells))


Part = tuple[list[Cell], str]  # cells of a group, and the reason it has no more


def plan(
    cells: Sequence[Cell],
    fuse: str = "auto",
    parallel: int = 1,
    memory: float = math.inf,
    pace: float = PACE,
    accelerator: bool = False,
) -> list[Group]:
    """Divide the cells of a study into groups, the longest first.

    Args:
      cells: cells of the study.
      fuse: `auto`, `never`, or the most runs a group may have.
      parallel: groups that can run at the same time; groups are divided where all then end sooner.
      memory: bytes that a group may take.
      pace: FLOP/s of a worker.
      accelerator: whether workers have an accelerator, where `parallel.arms=auto` means vmap.
    """
    most = limit(fuse)
    together: dict[str, list[Cell]] = {}
    # Sorted, so that the order of points and seeds in the study does not change the groups.
    for cell in sorted(cells, key=lambda cell: cell.id):
        together.setdefault(signature(cell), []).append(cell)
    parts: list[Part] = []
    for similar in together.values():
        divided = bands(similar, pace)
        for number, band in enumerate(divided):
            why = unshared(band[0].config)
            if len(divided) > 1:
                why = f"rates differ (band {number + 1} of {len(divided)})"
            room = _room(band, memory, accelerator)
            if len(band) > min(most, room):
                why = f"--fuse={fuse}" if most <= room else f"memory for {room:.0f} runs"
            parts += [(part, why) for part in _parts(band, min(most, room))]
    if fuse == "auto":
        parts = _spread(parts, parallel, pace)
    groups = []
    for part, why in parts:
        slots = max(own_slots(cell.config) for cell in part)
        groups.append(
            Group(_name(part, slots), tuple(part), slots, estimate_seconds(part, pace), why)
        )
    return sorted(groups, key=lambda group: (-group.seconds, group.id))


def limit(fuse: str) -> float:
    """Return the most cells a group may have, by the flag `--fuse`."""
    if fuse not in ("auto", "never") and not re.fullmatch(r"[1-9]\d*", fuse):
        raise ConfigError(f"--fuse={fuse}", "auto, never, or the most runs that train together")
    return 1 if fuse == "never" else math.inf if fuse == "auto" else int(fuse)


def makespan(seconds: Iterable[float], parallel: int) -> float:
    """Return when the last group ends if the longest begin first, `parallel` of them at a time."""
    ends = [0.0] * parallel
    for duration in sorted(seconds, reverse=True):
        heapq.heapreplace(ends, ends[0] + duration)
    return max(ends)


def alone(group: Group) -> list[Group]:
    """Return a group for each cell, with the slots of the common group: numbers stay bitwise."""
    share = group.seconds / len(group.cells)
    return [Group(_name([cell], group.slots), (cell,), group.slots, share) for cell in group.cells]


def signature(cell: Cell) -> str:
    """Return a key that cells which can train together have in common."""
    if unshared(cell.config):
        return cell.id
    tree = {
        path: value for path, value in flat(to_dict(cell.config)).items() if not is_traced(path)
    }
    tree["drawn"] = cell.config.masking.draw != "fixed"
    tree["views"] = rates.count_views(cell.config.masking)
    return json.dumps([tree, cell.fork], sort_keys=True)


def unshared(config: knobs.Config) -> str:
    """Return the reason why a run cannot share a program; empty if it can."""
    if config.checkpoints.patience:
        return "with checkpoints.patience each run ends at a step of its own"
    if config.parallel.distributed:
        return "several processes train one run"
    return "parallel.step=pmap splits one batch" if config.parallel.step == "pmap" else ""


def bands(cells: Sequence[Cell], pace: float) -> list[list[Cell]]:
    """Divide cells of one signature by their slots; minimise the time to compile and run them."""
    ordered = sorted(cells, key=lambda cell: own_slots(cell.config))
    slots = [own_slots(cell.config) for cell in ordered]
    edges = [i for i in range(1, len(ordered)) if slots[i - 1] != slots[i]]
    # How many of the ordered cells are divided -> (total seconds, start of the last band).
    best: dict[int, tuple[float, int]] = {0: (0.0, 0)}
    for end in [*edges, len(ordered)]:
        best[end] = min(
            (before + estimate_seconds(ordered[start:end], pace), start)
            for start, (before, _) in best.items()
        )
    divided, end = [], len(ordered)
    while end:
        start = best[end][1]
        divided.append(ordered[start:end])
        end = start
    return divided[::-1]


def _parts(cells: list[Cell], most: float) -> list[list[Cell]]:
    """Divide cells into as few parts as `most` allows, of sizes that differ by at most one."""
    count = max(1, math.ceil(len(cells) / max(most, 1)))
    size, longer = divmod(len(cells), count)
    bounds = [0]
    for number in range(count):
        bounds.append(bounds[-1] + size + (number < longer))
    return [cells[a:b] for a, b in itertools.pairwise(bounds)]


def _spread(parts: list[Part], parallel: int, pace: float) -> list[Part]:
    """Halve the longest part repeatedly; return the first division that is hard to improve on."""
    best, soonest = parts, makespan((estimate_seconds(part, pace) for part, _ in parts), parallel)
    for _ in range(TRIALS * parallel if parallel > 1 else 0):
        divisible = [part for part in parts if len(part[0]) > 1]
        if not divisible:
            break
        longest = max(divisible, key=lambda part: estimate_seconds(part[0], pace))
        halves = _parts(longest[0], math.ceil(len(longest[0]) / 2))
        why = longest[1] or f"{parallel} groups can run at the same time"
        parts = [part for part in parts if part is not longest] + [(half, why) for half in halves]
        end = makespan((estimate_seconds(part, pace) for part, _ in parts), parallel)
        if end < WORTH * soonest:
            best, soonest = parts, end
    return best


def _name(cells: Sequence[Cell], slots: int) -> str:
    text = json.dumps([sorted(cell.id for cell in cells), slots])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


# --- estimates of time and memory -----------------------------------------------------------------


def estimate_seconds(cells: Sequence[Cell], pace: float) -> float:
    """Return the seconds that cells take in one program, at so many FLOP/s."""
    slots, first = max(own_slots(cell.config) for cell in cells), cells[0].config
    steps = (
        0 if first.epochs is not None else first.steps - cells[0].fork
    )  # known once data is read
    flops = flops_per_step(first, cells[0].vocab_size, slots)
    return COMPILE + len(cells) * steps * flops / pace


def _room(cells: Sequence[Cell], memory: float, accelerator: bool) -> float:
    """Return how many runs fit into memory: all states, and the activations of one run.

    Under vmap the runs go through the model together, and each needs activations of its own.
    """
    if not math.isfinite(memory):
        return math.inf
    config, size = cells[0].config, cells[0].vocab_size
    rows = config.batch_size // config.optim.accumulation
    slots = max(own_slots(cell.config) for cell in cells)
    state = state_bytes(config, size)
    activations = activation_bytes(
        config, size, rows, slots, device="cuda" if accelerator else "cpu"
    )
    if config.parallel.arms == "vmap" or (config.parallel.arms == "auto" and accelerator):
        return max(1.0, memory // (state + activations))
    return max(1.0, (memory - activations) // state)
