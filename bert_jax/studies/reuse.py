"""Take cells that are finished elsewhere: cells with the same name are the same run.

Most ablation studies contain the run at BERT's own settings, for example. From the workdir of
another study a cell is copied with its checkpoint, and evaluations that only this study has are
made afterwards. Tables have no checkpoint: of them a cell is taken only if it has the results of
all evaluations, as they are defined now.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bert_jax.errors import ConfigError
from bert_jax.studies import tables
from bert_jax.studies.folder import Entry, StudyFolder
from bert_jax.studies.report.collect import Result

# Of the other study.
LEFT_OUT = shutil.ignore_patterns("*.lock", "error.json")


@dataclass(frozen=True)
class Finished:
    """Cells that are finished elsewhere: folders to copy, and rows of tables with their folder."""

    folders: dict[str, Path]
    rows: dict[str, tuple[Path, Result]]

    def __contains__(self, cell: Entry) -> bool:
        return cell.id in self.folders or cell.id in self.rows

    def __len__(self) -> int:
        return len(self.folders) + len(self.rows)


def find_finished(
    place: StudyFolder, cells: Sequence[Entry], others: Sequence[Path], beside: Path
) -> Finished:
    """Find the cells that this workdir has not trained and that are finished elsewhere.

    Args:
      place: the workdir.
      cells: all cells of its study.
      others: workdirs of other studies, or folders of tables.
      beside: the folder of study.py, which may have tables.
    """
    finished = Finished({}, {})
    places = [StudyFolder(other) for other in others]
    for other in places:
        if not other.study.exists():
            problem = f"no study in {other.workdir}"
            raise ConfigError(problem, "--reuse takes the workdir of another study")
    left = [cell for cell in cells if not (place.read_trained(cell.id) or place.is_busy(cell.id))]
    _add_rows(finished, place.taken, left)
    for other in [*places, StudyFolder(beside)]:
        for cell in left:
            trained = other.read_trained(cell.id)
            done = trained is not None and trained.outcome == "done"
            if cell not in finished and done and not other.is_busy(cell.id):
                finished.folders[cell.id] = other.cell(cell.id)
        _add_rows(finished, other.taken, left)
        if not other.cells_folder.exists():
            _add_rows(finished, other.workdir, left)
    return finished


def _add_rows(finished: Finished, folder: Path, cells: Sequence[Entry]) -> None:
    if not (folder / tables.EXAMPLES).exists():  # such as a table of an installed package
        return
    wanted = [cell for cell in cells if cell not in finished]
    for cell, result in tables.read_tables(folder, wanted).items():
        if tables.is_finished(result):
            finished.rows[cell] = folder, result


def take(place: StudyFolder, finished: Finished) -> None:
    """Copy cells, each completely or not at all, and write the tables of those without folders."""
    for cell, source in finished.folders.items():
        target = place.cell(cell)
        draft = target.with_name(f".{cell}.copy")
        shutil.rmtree(draft, ignore_errors=True)
        shutil.copytree(source, draft, ignore=LEFT_OUT)
        shutil.rmtree(target, ignore_errors=True)
        draft.replace(target)
    if {folder for folder, _ in finished.rows.values()} - {place.taken}:
        # With the cells that were taken for another part of the study.
        others = tables.read_tables(place.taken, place.cells())
        rows = {cell: (place.taken, result) for cell, result in others.items()} | finished.rows
        sources = {folder: tables.Examples(folder) for folder, _ in rows.values()}

        def read_arrays(result: Result, name: str) -> dict[str, np.ndarray]:
            folder, _ = rows[result.entry.id]
            return sources[folder].read(result.entry.id, name)

        tables.write_tables(place.taken, [result for _, result in rows.values()], read_arrays)
