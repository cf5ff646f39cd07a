"""Trunks: the updates that several cells have in common, made once.

Under `optim.schedule=wsd` no update before the decay depends on the length of the run. So of cells
that differ in length or decay alone, each goes on from the next shorter one, at the step where that
one begins to decay (`training/branch.py`): the first makes all its updates, each other one its own
last ones.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Sequence

from bert_jax.errors import ConfigError
from bert_jax.studies.identity import trained_knobs
from bert_jax.studies.spec import Cell

# Knobs that act after the stable phase; a warm-up counts by its steps.
LATER = ("steps", "optim.decay_fraction", "optim.final_fraction", "optim.warmup_fraction")


def shared(cells: Sequence[Cell]) -> list[Cell]:
    """Name the trunk of each cell that has one, and keep the checkpoints where others may go on."""
    together: dict[str, list[Cell]] = {}
    for cell in cells:
        if stable(cell):
            together.setdefault(_beginning(cell), []).append(cell)
    if not together:
        raise ConfigError(
            "the study has trunk=True, and no cell has a stable phase that others may share",
            'base.optim.schedule = "wsd", and the length in steps or a budget',
        )
    trunks: dict[str, str] = {}
    for alike in together.values():
        alike.sort(key=lambda cell: (stable(cell), cell.config.steps, cell.id))
        for before, cell in itertools.pairwise(alike):
            trunks[cell.id] = f"{before.id}@{stable(before)}"
    return [
        dataclasses.replace(_keeping(cell), trunk=trunks.get(cell.id, "")) if stable(cell) else cell
        for cell in cells
    ]


def stable(cell: Cell) -> int:
    """Return the updates of a cell before its decay; 0 where it is not known or has none."""
    config = cell.config
    known = config.optim.schedule == "wsd" and config.epochs is None
    return min(config.optim.stable_until(config.steps), config.steps) if known else 0


def described(cells: Sequence[Cell]) -> str:
    """Return the share of the updates that are made once for several cells; empty if none are."""
    branches = [cell for cell in cells if cell.trunk]
    if not branches:
        return ""
    spared, total = sum(c.fork for c in branches), sum(c.config.steps for c in cells)
    return (
        f"{len(branches)} of {len(cells)} cells continue another cell, which saves {spared:,} of "
        f"{total:,} updates ({spared / total:.0%})"
    )


def _beginning(cell: Cell) -> str:
    """Return a key of all that the stable phase depends on."""
    config = cell.config
    length = config.steps if config.masking.phases else 0  # phases are shares of all steps
    knobs = {path: value for path, value in trained_knobs(config).items() if path not in LATER}
    return json.dumps([knobs, config.optim.warmup_steps, length], sort_keys=True)


def _keeping(cell: Cell) -> Cell:
    """Return a cell that keeps the checkpoint at the end of its stable phase."""
    saves = cell.config.checkpoints
    saves = dataclasses.replace(saves, at=tuple(sorted({*saves.at, stable(cell)})))
    return dataclasses.replace(cell, config=dataclasses.replace(cell.config, checkpoints=saves))
