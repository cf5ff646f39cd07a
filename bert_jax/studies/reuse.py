"""Copy cells that another study has trained: cells with the same name are the same run.

Most ablation studies contain the run at BERT's own settings, for example. A cell is copied with its
checkpoint and its results; evaluations that only this study has are made afterwards.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from bert_jax.errors import ConfigError
from bert_jax.studies import kept
from bert_jax.studies.definition import Cell
from bert_jax.studies.folder import StudyFolder

LEFT_OUT = shutil.ignore_patterns("*.lock", "attempts.jsonl", "cell.json")  # of the other study


def finished(
    place: StudyFolder,
    cells: Sequence[Cell],
    others: Sequence[Path],
    archives: Sequence[Path] = (),
    evaluations: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, Path]:
    """Return the cells that this study has not trained, and where they can be taken from.

    Args:
      place: this study.
      cells: all its cells.
      others: workdirs of other studies, or files of records.
      archives: files of records, which come after these.
      evaluations: of this study: records without one of their results are of no use.
    """
    places = [StudyFolder(other) for other in others if other.suffix != ".zip"]
    archives = [*(other for other in others if other.suffix == ".zip"), *archives]
    for other in places:
        if not other.read_study():
            raise ConfigError(
                f"no study in {other.workdir}", "--reuse takes the workdir of another study"
            )
    kept.check(place, cells, evaluations)
    left = [cell for cell in cells if not (place.trained(cell.id) or place.busy(cell.id))]
    folders = kept.finished(archives, left, evaluations)
    for cell in left:
        for other in places:
            if other.trained(cell.id).get("outcome") == "done" and not other.busy(cell.id):
                folders[cell.id] = other.cell(cell.id)
                break
    return folders


def take(place: StudyFolder, folders: dict[str, Path]) -> None:
    """Copy cells, each completely or not at all."""
    with contextlib.ExitStack() as stack:
        files = {source for source in folders.values() if source.suffix == ".zip"}
        archives = {file: stack.enter_context(kept.opened(file)) for file in files}
        for cell, source in folders.items():
            target = place.cell(cell)
            draft = target.with_name(f".{cell}.copy")
            shutil.rmtree(draft, ignore_errors=True)
            if source in archives:
                kept.extract(archives[source], cell, draft, without=("cell.json",))
            else:
                shutil.copytree(source, draft, ignore=LEFT_OUT)
            shutil.rmtree(target, ignore_errors=True)
            draft.replace(target)
