"""Trunks: updates that several cells have in common and that are made only once.

With `optim.schedule=wsd` the updates before the decay do not depend on the length of the run. So
cells that differ only in length or decay share updates (`training/branch.py`). The shortest cell
makes all its updates. Each longer cell continues the next shorter cell from the step where that
cell begins to decay. Of several such cells, the first one is continued.
"""

import contextlib
import dataclasses
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bert_jax.checkpoints import manifest
from bert_jax.config.costs import flops_per_step
from bert_jax.errors import CheckpointError, ConfigError
from bert_jax.studies import files
from bert_jax.studies.identity import list_trained_knobs
from bert_jax.studies.spec import Cell

# Knobs that act after the stable phase; a warm-up counts by its steps.
LATER = ("steps", "optim.decay_fraction", "optim.final_fraction", "optim.warmup_fraction")


def assign_trunks(cells: Sequence[Cell]) -> list[Cell]:
    """Set the trunk of each cell that continues another cell, such as "CELL@800"; return all cells.

    Cells also save a checkpoint at the step where others may continue them.
    """
    together: dict[str, list[Cell]] = {}
    for cell in cells:
        if count_stable(cell):
            together.setdefault(_make_beginning_key(cell), []).append(cell)
    if not together:
        raise ConfigError(
            "the study has trunk=True, and no cell has a stable phase that others may share",
            'base.optim.schedule = "wsd", and the length in steps or a budget',
        )
    trunks: dict[str, str] = {}
    for alike in together.values():
        alike.sort(key=lambda cell: (count_stable(cell), cell.config.steps, cell.id))
        # By stable length. Further cells of this length begin at its end, and never save there.
        first: dict[int, Cell] = {}
        for before, cell in itertools.pairwise(alike):
            step = count_stable(before)
            trunks[cell.id] = f"{first.setdefault(step, before).id}@{step}"
    shared = []
    for cell in cells:
        if end := count_stable(cell):
            saves = cell.config.checkpoints
            saves = dataclasses.replace(saves, at=tuple(sorted({*saves.at, end})))
            config = dataclasses.replace(cell.config, checkpoints=saves)
            cell = dataclasses.replace(cell, config=config, trunk=trunks.get(cell.id, ""))
        shared.append(cell)
    return shared


def count_stable(cell: Cell) -> int:
    """Return the number of a cell's updates before its decay.

    This is 0 if the schedule is not wsd, or if the config counts epochs instead of steps.
    """
    config = cell.config
    if config.optim.schedule != "wsd" or config.epochs is not None:
        return 0
    return min(config.optim.stable_until(config.steps), config.steps)


def is_branch(cell: Cell, folder: Path, trunk: Path, *, coming: bool = False) -> bool:
    """Tell whether a cell continues its trunk; another cell trains by itself, from step 0.

    A cell that has begun goes on as it began, whatever its trunk is now. A cell that has not begun
    needs the checkpoint of its trunk at the fork.

    Args:
      cell: the cell.
      folder: the cell's folder.
      trunk: the folder of its trunk.
      coming: whether the trunk is still to be trained, and will have the checkpoint.
    """
    begun = read_branch(folder)
    if begun is not None:
        return bool(begun)
    there = (trunk / "checkpoints" / str(cell.fork)).is_dir()
    return bool(cell.trunk) and (coming or there)


def read_branch(folder: Path) -> str | None:
    """Read the `branch_from` that a cell began with, such as "DIGEST@800"; None before it began.

    With it a branch goes on without its trunk. Its fork stays, although a study that was edited may
    give the cell another trunk.
    """
    if not (manifest.list_steps(folder / "checkpoints") or (folder / "trained.json").exists()):
        return None
    begun = files.read_json(folder / "config.json", dict[str, Any]) or {}
    return str(begun.get("branch_from", ""))


def has_reached(trunk: Path, step: int) -> bool:
    """Tell whether a trunk has saved a step, and made the evaluations that a stop left out there.

    A damaged step counts as saved: the worker that reads it says what is wrong.
    """
    folder = trunk / "checkpoints" / str(step)
    with contextlib.suppress(CheckpointError, OSError, ValueError):
        return not manifest.read_record(folder).get("owed")
    return folder.is_dir()


def count_flops(cell: Cell, step: int) -> float:
    """Count the FLOPs of a cell's updates up to a step, without the updates of its trunk."""
    size = cell.vocabulary or cell.config.tokenizer.vocab_size
    return max(0, step - cell.fork) * flops_per_step(cell.config, size)


def count_work(cells: Sequence[Cell]) -> float:
    """Count the FLOPs of training cells, without cells whose epochs follow from the data."""
    known = [cell for cell in cells if cell.config.epochs is None]
    return sum(count_flops(cell, cell.config.steps) for cell in known)


def describe_saving(cells: Sequence[Cell]) -> str:
    """Say how many updates are saved by sharing them; return "" if no cell continues another."""
    branches = [cell for cell in cells if cell.trunk]
    if not branches:
        return ""
    spared = sum(cell.fork for cell in branches)
    total = sum(cell.config.steps for cell in cells)
    return (
        f"{len(branches)} of {len(cells)} cells continue another cell, which saves {spared:,} of "
        f"{total:,} updates ({spared / total:.0%})"
    )


def _make_beginning_key(cell: Cell) -> str:
    """Return a key that is equal for cells whose updates before the decay are the same."""
    config = cell.config
    length = config.steps if config.masking.phases else 0  # phases are shares of all steps
    knobs = {path: value for path, value in list_trained_knobs(config).items() if path not in LATER}
    return json.dumps([knobs, config.optim.warmup_steps, length], sort_keys=True)
