"""Take cells from other studies that have finished them: cells of the same name are the same run.

For example, most studies of masking contain the run with BERT's own settings. From the workdir of
another study a cell is copied with its checkpoint. Evaluations that it lacks are made afterwards.
Tables have no checkpoint. So a cell is taken from tables only if they have the results of all its
evaluations as they are defined now.
"""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from bert_jax.errors import need
from bert_jax.studies import tables
from bert_jax.studies.folder import TAKEN, StudyFolder
from bert_jax.studies.spec import Cell, StudyRecord
from bert_jax.system import disk

LEFT_OUT = shutil.ignore_patterns("*.lock", "error.json")  # of the other study


def find_finished(
    place: StudyFolder, cells: Sequence[Cell], others: Sequence[Path], beside: Path
) -> dict[str, Path]:
    """Find cells that are finished elsewhere and not trained in this workdir.

    Args:
      place: the workdir.
      cells: all cells of its study.
      others: workdirs of other studies, or folders of tables.
      beside: the folder of study.py, which may have tables.

    Returns:
      {cell: path}, where the path is the cell's folder, or the folder of the tables that have it.
    """
    for other in others:
        exists = StudyFolder(other).study.exists()
        need(exists, f"no study in {other}", "--reuse takes the workdir of another study")
    finished: dict[str, Path] = {}
    left = [cell for cell in cells if not (place.read_trained(cell.id) or place.is_busy(cell.id))]
    for study in map(StudyFolder, (place.taken, place.workdir, *others, beside)):
        for cell in left:
            trained = study.read_trained(cell.id)
            done = trained is not None and trained.outcome == "done"
            if done and not study.is_busy(cell.id):
                finished.setdefault(cell.id, study.cell(cell.id))
        for folder in (study.taken, study.workdir):
            whole = folder == study.taken or not study.cells_folder.exists()
            if whole and (folder / tables.EXAMPLES).exists():  # not in an installed package
                for name, result in tables.read_tables(folder, left).items():
                    if tables.is_finished(result):
                        finished.setdefault(name, folder)
    return finished


def is_whole(cell: Cell, finished: Mapping[str, Path]) -> bool:
    """Tell whether a cell is finished elsewhere with the results of all its evaluations."""
    source = finished.get(cell.id)
    if source is None:
        return False
    in_tables = source.name != cell.id
    return in_tables or not StudyFolder(source.parents[1]).list_missing(cell)


def list_sources(finished: Mapping[str, Path]) -> list[Path]:
    """List the workdirs and the folders of tables from which finished cells are taken."""
    paths = finished.items()
    return sorted({path.parents[1] if path.name == cell else path for cell, path in paths})


def read_sources(finished: Mapping[str, Path]) -> list[StudyRecord]:
    """Read the study.json of each study from which finished cells are taken."""
    studies = []
    for folder in list_sources(finished):
        place = StudyFolder(folder.parent if folder.name == TAKEN else folder)
        if place.study.exists():
            studies.append(place.read_study())
    return studies


def copy_cells(place: StudyFolder, finished: Mapping[str, Path]) -> None:
    """Copy the folders of finished cells, or their rows if they are finished in tables.

    A cell's folder is copied completely or not at all. It is not copied if a worker of an earlier
    launch holds the cell now, or has trained it.
    """
    _keep_tables(place)
    rows: dict[Path, set[str]] = {}
    for cell, source in finished.items():
        if source.name != cell:
            rows.setdefault(source, set()).add(cell)
            continue
        if place.is_busy(cell) or place.read_trained(cell):
            continue
        target = place.cell(cell)
        draft = target.with_name(f".{cell}.copy")
        shutil.rmtree(draft, ignore_errors=True)
        with disk.reporting_full_disk(target):
            shutil.copytree(source, draft, ignore=LEFT_OUT)
        shutil.rmtree(target, ignore_errors=True)
        draft.replace(target)
    for own in (place.taken, place.workdir):
        rows.pop(own, None)
    for folder, cells in rows.items():
        _add_rows(place.taken, folder, cells)


def _keep_tables(place: StudyFolder) -> None:
    """Copy the rows of a workdir without cells to taken/, because its tables are written anew.

    A row that taken/ already has stays, unless the cell got a result since.
    """
    if place.cells_folder.exists() or not (place.workdir / tables.EXAMPLES).exists():
        return
    taken = {
        row["cell"]: row.get("ended", "") for row in tables.read_csv(place.taken / tables.ROWS)
    }
    newer = set()
    for row in tables.read_csv(place.csv):
        if row.get("ended", "") > taken.get(row["cell"], ""):
            newer.add(row["cell"])
    if newer:
        _add_rows(place.taken, place.workdir, newer)


def _add_rows(target: Path, source: Path, cells: set[str]) -> None:
    """Copy the rows of some cells from the tables of one folder to the tables of another folder."""

    def merge(name: str) -> list[dict[str, str]]:
        kept = [row for row in tables.read_csv(target / name) if row["cell"] not in cells]
        return kept + [row for row in tables.read_csv(source / name) if row["cell"] in cells]

    arrays = tables.Examples(target).read_all()
    for name, array in tables.Examples(source).read_all().items():
        if name.partition("/")[0] in cells:
            arrays[name] = array
    tables.save_tables(target, merge(tables.ROWS), merge(tables.CURVES), arrays)
