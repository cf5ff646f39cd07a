"""Take cells that are finished elsewhere: cells with the same name are the same run.

Most ablation studies contain the run at BERT's own settings, for example. From the workdir of
another study a cell is copied with its checkpoint, and evaluations that only this study has are
made afterwards. Tables have no checkpoint: of them a cell is taken only if it has the results of
all evaluations, as they are defined now.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bert_jax.errors import ConfigError
from bert_jax.studies import tables
from bert_jax.studies.folder import StudyFolder
from bert_jax.studies.spec import Cell

LEFT_OUT = shutil.ignore_patterns("*.lock", "error.json")  # of the other study


@dataclass(frozen=True)
class Finished:
    """Cells that are finished elsewhere: the folder to copy, or the folder of tables, of each."""

    folders: dict[str, Path] = field(default_factory=dict)
    rows: dict[str, Path] = field(default_factory=dict)

    def __contains__(self, cell: str) -> bool:
        return cell in self.folders or cell in self.rows

    @property
    def sources(self) -> list[str]:
        """The folders that the cells are taken from."""
        studies = {folder.parents[1] for folder in self.folders.values()}
        return sorted(str(source) for source in studies | {*self.rows.values()})


def find_finished(
    place: StudyFolder, cells: Sequence[Cell], others: Sequence[Path], beside: Path
) -> Finished:
    """Find the cells that this workdir has not trained and that are finished elsewhere.

    Args:
      place: the workdir.
      cells: all cells of its study.
      others: workdirs of other studies, or folders of tables.
      beside: the folder of study.py, which may have tables.
    """
    finished = Finished()
    places = [StudyFolder(other) for other in others]
    for other in places:
        if not other.study.exists():
            problem = f"no study in {other.workdir}"
            raise ConfigError(problem, "--reuse takes the workdir of another study")
    left = [cell for cell in cells if not (place.read_trained(cell.id) or place.is_busy(cell.id))]
    finished.rows.update(dict.fromkeys(_list_rows(place.taken, left), place.taken))
    for other in [*places, StudyFolder(beside)]:
        left = [cell for cell in left if cell.id not in finished]
        for cell in left:
            trained = other.read_trained(cell.id)
            if trained and trained.outcome == "done" and not other.is_busy(cell.id):
                finished.folders[cell.id] = other.cell(cell.id)
        left = [cell for cell in left if cell.id not in finished]
        for folder in (other.taken, *([] if other.cells_folder.exists() else [other.workdir])):
            finished.rows.update(dict.fromkeys(_list_rows(folder, left), folder))
    return finished


def _list_rows(folder: Path, cells: Sequence[Cell]) -> Iterator[str]:
    """Yield the cells that are finished in the tables of a folder."""
    if (folder / tables.EXAMPLES).exists():  # not in an installed package
        for cell, result in tables.read_tables(folder, cells).items():
            if tables.is_finished(result):
                yield cell


def take(place: StudyFolder, finished: Finished) -> None:
    """Copy cells, each completely or not at all, and add the rows of those without folders."""
    for cell, source in finished.folders.items():
        target = place.cell(cell)
        draft = target.with_name(f".{cell}.copy")
        shutil.rmtree(draft, ignore_errors=True)
        shutil.copytree(source, draft, ignore=LEFT_OUT)
        shutil.rmtree(target, ignore_errors=True)
        draft.replace(target)
    for folder in {*finished.rows.values()} - {place.taken}:
        _add_rows(place.taken, folder, {c for c, other in finished.rows.items() if other == folder})


def _add_rows(target: Path, source: Path, cells: set[str]) -> None:
    """Add the rows of some cells to the tables of a folder, whose other rows stay."""

    def merge(name: str) -> list[dict[str, str]]:
        kept = [row for row in tables.read_csv(target / name) if row["cell"] not in cells]
        return kept + [row for row in tables.read_csv(source / name) if row["cell"] in cells]

    arrays = tables.Examples(target).read_all()
    for name, array in tables.Examples(source).read_all().items():
        if name.partition("/")[0] in cells:
            arrays[name] = array
    tables.save_tables(target, merge(tables.ROWS), merge(tables.CURVES), arrays)
