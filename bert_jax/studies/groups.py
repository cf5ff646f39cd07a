"""Which cells train together, and what that costs.

Cells that differ in traced numbers alone may share a program (`arms.py`). All its arms have the prediction slots of the
highest rate among them, which the others pay for and leave empty; and every program has to be compiled. So rates are
divided into the bands that take the least time in all.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import math
import re
from collections.abc import Sequence

from bert_jax import knobs, quotas
from bert_jax.config import flat, to_dict
from bert_jax.errors import ConfigError
from bert_jax.studies.definition import Cell

# Numbers that a program takes as they come, and numbers that only the host reads.
FUSABLE = re.compile(
    r"masking\.(rate|final_rate|schedule|prediction_rate|replace)|objectives\.\w+\.weight|seed"
    r"|optim\.(learning_rate|weight_decay|schedule|warmup_steps|warmup_fraction|final_fraction)"
)
COMPILE = 25.0  # seconds: a process, its data, and the compilation of its programs
PACE = 9e10  # FLOP/s of a core, until a study has told better
STATES = 4  # copies of the parameters that an arm holds: itself, two moments, what is being computed


@dataclasses.dataclass(frozen=True)
class Group:
    """Cells that train in one program with so many slots a row, and what is expected of it."""

    id: str
    cells: tuple[Cell, ...]
    slots: int
    seconds: float

    @property
    def empty(self) -> float:
        """The share of its slots that no arm uses."""
        return 1 - sum(own_slots(cell.config) for cell in self.cells) / (self.slots * len(self.cells))


def plan(
    cells: Sequence[Cell], fuse: str = "auto", parallel: int = 1, memory: float = math.inf, pace: float = PACE
) -> list[Group]:
    """The groups of a study, every cell in one of them.

    Args:
      cells: of the study.
      fuse: auto, never, or the most arms a group may have.
      parallel: groups that can run at the same time; there are as many, where there are cells for it.
      memory: bytes one of them may take.
      pace: FLOP/s it has.
    """
    if fuse not in ("auto", "never") and not re.fullmatch(r"[1-9]\d*", fuse):
        raise ConfigError(f"--fuse={fuse}", "auto, never, or the most arms that train together")
    most = 1 if fuse == "never" else math.inf if fuse == "auto" else int(fuse)
    together: dict[str, list[Cell]] = {}
    for cell in cells:
        together.setdefault(signature(cell), []).append(cell)
    found = [band for several in together.values() for band in bands(several, pace)]
    found = [part for band in found for part in _parts(band, min(most, _room(band, memory)))]
    while len(found) < parallel and max(map(len, found), default=1) > 1 and fuse == "auto":
        largest = max(found, key=lambda part: (_seconds(part, pace), len(part)))
        if len(largest) == 1:
            break
        found.remove(largest)
        found += _parts(largest, math.ceil(len(largest) / 2))
    groups = [_group(part, pace) for part in found]
    return sorted(groups, key=lambda group: (-group.seconds, group.id))


def alone(group: Group) -> list[Group]:
    """Each cell of a group by itself, with the group's slots: its numbers stay the same in every bit."""
    share = group.seconds / len(group.cells)
    return [Group(_name([cell], group.slots), (cell,), group.slots, share) for cell in group.cells]


def signature(cell: Cell) -> str:
    """What cells must have in common to train together; of one that cannot share, its own name."""
    config = cell.config
    if config.checkpoints.patience or config.parallel.step == "pmap":
        return cell.id
    tree = {path: value for path, value in flat(to_dict(config)).items() if not FUSABLE.fullmatch(path)}
    return json.dumps(tree, sort_keys=True)


def bands(cells: Sequence[Cell], pace: float) -> list[list[Cell]]:
    """Cells of one signature, divided by their slots so that their programs take the least time, compiled and run."""
    ordered = sorted(cells, key=lambda cell: own_slots(cell.config))  # stable: seeds stay in order
    edges = [0, *(i for i in range(1, len(ordered)) if _differ(ordered[i - 1], ordered[i])), len(ordered)]
    best: dict[int, tuple[float, int]] = {0: (0.0, 0)}  # by how many cells are divided: seconds, where the last begins
    for end in edges[1:]:
        starts = [edge for edge in edges if edge < end]
        best[end] = min((best[start][0] + _seconds(ordered[start:end], pace), start) for start in starts)
    found, end = [], len(ordered)
    while end:
        start = best[end][1]
        found.append(ordered[start:end])
        end = start
    return found[::-1]


def _differ(one: Cell, other: Cell) -> bool:
    return own_slots(one.config) != own_slots(other.config)


def own_slots(config: knobs.Config) -> int:
    """Prediction slots a row of a cell by itself."""
    return quotas.slots(config.masking, config.sequence_length) if "mlm" in config.objectives else 1


def _parts(cells: list[Cell], most: float) -> list[list[Cell]]:
    """As few parts as may be, as equal as may be."""
    count = max(1, math.ceil(len(cells) / max(most, 1)))
    size, longer = divmod(len(cells), count)
    bounds = [0]
    for number in range(count):
        bounds.append(bounds[-1] + size + (number < longer))
    return [cells[a:b] for a, b in itertools.pairwise(bounds)]


def _group(cells: Sequence[Cell], pace: float) -> Group:
    slots = max(own_slots(cell.config) for cell in cells)
    return Group(_name(cells, slots), tuple(cells), slots, _seconds(cells, pace))


def _name(cells: Sequence[Cell], slots: int) -> str:
    return hashlib.sha256(json.dumps([sorted(cell.id for cell in cells), slots]).encode()).hexdigest()[:12]


# --- what it costs --------------------------------------------------------------------------------------------------


def _seconds(cells: Sequence[Cell], pace: float) -> float:
    slots = max(own_slots(cell.config) for cell in cells)
    one = flops_per_step(cells[0].config, cells[0].config.tokenizer.vocab_size, slots)
    return COMPILE + len(cells) * cells[0].config.steps * one / pace


def flops_per_step(config: knobs.Config, vocab_size: int, slots: int = 0) -> float:
    """Of an update: the matrix products of the forward pass, and twice as many backwards.

    A layer multiplies each token with 4 D x D and 2 (3 when gated) D x F, and each pair of tokens twice over D. The
    head multiplies each predicted token with D x D and D x V. Embeddings, norms and the optimizer are left out.
    """
    m, length, rows = config.model, config.sequence_length, config.batch_size
    assert m.layers is not None
    assert m.hidden is not None
    assert m.mlp is not None
    tokens, width = rows * length, m.hidden
    layer = tokens * (4 * width**2 + (3 if m.gated else 2) * width * m.mlp) + 2 * tokens * length * width
    heads = {"mlm": slots or own_slots(config), "causal_lm": length}
    predicted = sum(rows * heads[name] for name in config.objectives if name in heads)
    pooled = rows * width**2 if config.pairs != "none" else 0
    return 3.0 * 2 * (m.layers * layer + predicted * (width**2 + width * vocab_size) + pooled)


def _room(cells: Sequence[Cell], memory: float) -> float:
    """Arms whose states fit beside the activations of one."""
    config = cells[0].config
    m = config.model
    assert m.layers is not None
    assert m.hidden is not None
    assert m.mlp is not None
    per_layer = 4 * m.hidden**2 + (3 if m.gated else 2) * m.hidden * m.mlp
    parameters = m.layers * per_layer + m.hidden * (config.tokenizer.vocab_size + m.max_positions + 3 * m.hidden)
    tokens = config.batch_size * config.sequence_length / config.optim.accumulation
    activations = 4 * tokens * (m.layers * (10 * m.hidden + 3 * m.mlp) + 2 * config.tokenizer.vocab_size)
    return max(1.0, (memory - activations) // (4 * STATES * parameters)) if math.isfinite(memory) else math.inf
