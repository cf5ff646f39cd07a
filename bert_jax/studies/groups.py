"""Which cells train together, and what that costs.

Cells that differ in traced numbers alone may share a program (`arms.py`). All its arms have the prediction slots of the
highest rate among them, which the others pay for and leave empty; and every program has to be compiled. So rates are
divided into the bands that take the least time in all.
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

from bert_jax.config import flat, knobs, to_dict
from bert_jax.config.costs import activation_bytes, flops_per_step, own_slots, state_bytes
from bert_jax.errors import ConfigError
from bert_jax.studies.spec import Cell

# Numbers that a program takes as they come, and numbers that only the host reads.
FUSABLE = re.compile(
    r"masking\.(rate|final_rate|schedule|prediction_rate|replace)|objectives\.\w+\.weight|seed"
    r"|optim\.(learning_rate|weight_decay|schedule|warmup_steps|warmup_fraction|final_fraction|spike_sigmas)"
)
COMPILE = 25.0  # seconds: a process, its data, and the compilation of its programs
PACE = 9e10  # FLOP/s of a core, until a study has told better
WORTH = 0.95  # of the time, at most, that a division leaves: estimates are no better
TRIALS = 4  # divisions that are tried for every group that can run at the same time


@dataclasses.dataclass(frozen=True)
class Group:
    """Cells that train in one program with so many slots a row, and what is expected of it."""

    id: str
    cells: tuple[Cell, ...]
    slots: int
    seconds: float
    why: str = ""  # it has no more cells

    @property
    def empty(self) -> float:
        """The share of its slots that no arm uses."""
        return 1 - sum(own_slots(cell.config) for cell in self.cells) / (
            self.slots * len(self.cells)
        )


Part = tuple[list[Cell], str]  # cells, and why there are no more of them


def plan(
    cells: Sequence[Cell],
    fuse: str = "auto",
    parallel: int = 1,
    memory: float = math.inf,
    pace: float = PACE,
    accelerator: bool = False,
) -> list[Group]:
    """The groups of a study, every cell in one of them, the longest first.

    Args:
      cells: of the study.
      fuse: auto, never, or the most arms a group may have.
      parallel: groups that can run at the same time; groups are divided where all then end sooner.
      memory: bytes one of them may take.
      pace: FLOP/s it has.
      accelerator: whether arms run all at once by themselves, as they do where it is no CPU.
    """
    if fuse not in ("auto", "never") and not re.fullmatch(r"[1-9]\d*", fuse):
        raise ConfigError(f"--fuse={fuse}", "auto, never, or the most arms that train together")
    most = 1 if fuse == "never" else math.inf if fuse == "auto" else int(fuse)
    together: dict[str, list[Cell]] = {}
    for cell in sorted(
        cells, key=lambda cell: cell.id
    ):  # so that the order of points and seeds changes no group
        together.setdefault(signature(cell), []).append(cell)
    found: list[Part] = []
    for several in together.values():
        divided = bands(several, pace)
        for number, band in enumerate(divided):
            why = (
                f"band {number + 1} of {len(divided)} of rates"
                if len(divided) > 1
                else unshared(band[0].config)
            )
            room = _room(band, memory, accelerator)
            if len(band) > min(most, room):
                why = f"--fuse={fuse}" if most <= room else f"memory for {room:.0f} arms"
            found += [(part, why) for part in _parts(band, min(most, room))]
    if fuse == "auto":
        found = _spread(found, parallel, pace)
    groups = [_group(part, pace, why) for part, why in found]
    return sorted(groups, key=lambda group: (-group.seconds, group.id))


def makespan(seconds: Iterable[float], parallel: int) -> float:
    """When the last of several groups ends, if the longest begin first and each when there is room for it."""
    until = [0.0] * parallel
    for one in sorted(seconds, reverse=True):
        heapq.heapreplace(until, until[0] + one)
    return max(until)


def alone(group: Group) -> list[Group]:
    """Each cell of a group by itself, with the group's slots: its numbers stay the same in every bit."""
    share = group.seconds / len(group.cells)
    return [Group(_name([cell], group.slots), (cell,), group.slots, share) for cell in group.cells]


def signature(cell: Cell) -> str:
    """What cells must have in common to train together; of one that cannot share, its own name."""
    if unshared(cell.config):
        return cell.id
    tree = {
        path: value
        for path, value in flat(to_dict(cell.config)).items()
        if not FUSABLE.fullmatch(path)
    }
    return json.dumps(tree, sort_keys=True)


def unshared(config: knobs.Config) -> str:
    """Why a run trains by itself; empty where it need not."""
    if config.checkpoints.patience:
        return "with checkpoints.patience each ends at a step of its own"
    if config.parallel.distributed:
        return "several processes train one run"
    return "parallel.step=pmap splits one batch" if config.parallel.step == "pmap" else ""


def bands(cells: Sequence[Cell], pace: float) -> list[list[Cell]]:
    """Cells of one signature, divided by their slots so that their programs take the least time, compiled and run."""
    ordered = sorted(cells, key=lambda cell: own_slots(cell.config))
    edges = [
        0,
        *(i for i in range(1, len(ordered)) if _differ(ordered[i - 1], ordered[i])),
        len(ordered),
    ]
    best: dict[int, tuple[float, int]] = {
        0: (0.0, 0)
    }  # by how many cells are divided: seconds, where the last begins
    for end in edges[1:]:
        starts = [edge for edge in edges if edge < end]
        best[end] = min(
            (best[start][0] + _seconds(ordered[start:end], pace), start) for start in starts
        )
    found, end = [], len(ordered)
    while end:
        start = best[end][1]
        found.append(ordered[start:end])
        end = start
    return found[::-1]


def _differ(one: Cell, other: Cell) -> bool:
    return own_slots(one.config) != own_slots(other.config)


def _parts(cells: list[Cell], most: float) -> list[list[Cell]]:
    """As few parts as may be, as equal as may be."""
    count = max(1, math.ceil(len(cells) / max(most, 1)))
    size, longer = divmod(len(cells), count)
    bounds = [0]
    for number in range(count):
        bounds.append(bounds[-1] + size + (number < longer))
    return [cells[a:b] for a, b in itertools.pairwise(bounds)]


def _spread(found: list[Part], parallel: int, pace: float) -> list[Part]:
    """Divides the longest over and over, and takes the first division that is hard to better."""
    best, soonest = found, makespan((_seconds(part, pace) for part, _ in found), parallel)
    for _ in range(TRIALS * parallel if parallel > 1 else 0):
        longest = max(
            (part for part in found if len(part[0]) > 1),
            key=lambda p: _seconds(p[0], pace),
            default=None,
        )
        if longest is None:
            break
        halves = _parts(longest[0], math.ceil(len(longest[0]) / 2))
        why = longest[1] or f"{parallel} groups run at the same time"
        found = [part for part in found if part is not longest] + [(half, why) for half in halves]
        ends = makespan((_seconds(part, pace) for part, _ in found), parallel)
        if ends < WORTH * soonest:
            best, soonest = found, ends
    return best


def _group(cells: Sequence[Cell], pace: float, why: str) -> Group:
    slots = max(own_slots(cell.config) for cell in cells)
    return Group(_name(cells, slots), tuple(cells), slots, _seconds(cells, pace), why)


def _name(cells: Sequence[Cell], slots: int) -> str:
    return hashlib.sha256(
        json.dumps([sorted(cell.id for cell in cells), slots]).encode()
    ).hexdigest()[:12]


# --- what it takes --------------------------------------------------------------------------------------------------


def _seconds(cells: Sequence[Cell], pace: float) -> float:
    slots = max(own_slots(cell.config) for cell in cells)
    one = flops_per_step(cells[0].config, cells[0].vocab_size, slots)
    return COMPILE + len(cells) * cells[0].config.steps * one / pace


def _room(cells: Sequence[Cell], memory: float, accelerator: bool) -> float:
    """Arms that fit: their states, beside the activations of one of them or, where they run all at once, of all."""
    if not math.isfinite(memory):
        return math.inf
    config, size = cells[0].config, cells[0].vocab_size
    rows, slots = (
        config.batch_size // config.optim.accumulation,
        max(own_slots(cell.config) for cell in cells),
    )
    state, activations = state_bytes(config, size), activation_bytes(config, size, rows, slots)
    if config.parallel.arms == "vmap" or (config.parallel.arms == "auto" and accelerator):
        return max(1.0, memory // (state + activations))
    return max(1.0, (memory - activations) // state)
