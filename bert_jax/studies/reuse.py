"""Cells of one study that another has trained already: a name is a config and a seed, so they are the same run.

The arm at BERT's own settings is in most studies of an ablation. It is copied with its checkpoint and its results; an
evaluation that only this study asks for is made here.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from bert_jax.errors import ConfigError
from bert_jax.studies.definition import Cell
from bert_jax.studies.folder import Place

LEFT_OUT = shutil.ignore_patterns(
    "*.lock", "attempts.jsonl", "cell.json"
)  # what is of the other study


def finished(place: Place, cells: Iterable[Cell], others: Sequence[Path]) -> dict[str, Path]:
    """Cells that are not trained here, and the folder of each where one of the others has it trained and at rest."""
    places = [Place(other) for other in others]
    for other in places:
        if not other.read_study():
            raise ConfigError(
                f"no study in {other.workdir}", "--reuse takes the workdir of another study"
            )
    found = {}
    for cell in cells:
        if place.trained(cell.id) or place.busy(cell.id):
            continue
        for other in places:
            if other.trained(cell.id).get("outcome") == "done" and not other.busy(cell.id):
                found[cell.id] = other.cell(cell.id)
                break
    return found


def take(place: Place, found: dict[str, Path]) -> None:
    """Copies cells, each whole or not at all."""
    for cell, source in found.items():
        target = place.cell(cell)
        draft = target.with_name(f".{cell}.copy")
        shutil.rmtree(draft, ignore_errors=True)
        shutil.copytree(source, draft, ignore=LEFT_OUT)
        shutil.rmtree(target, ignore_errors=True)
        draft.replace(target)
