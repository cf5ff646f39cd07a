"""Read the results of a study's cells from their folders, or from the tables that they are in."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.errors import DataError
from bert_jax.reporting import records
from bert_jax.reporting.metric_names import is_result
from bert_jax.studies import files, tables
from bert_jax.studies.folder import Entry, StudyFolder
from bert_jax.studies.report.collect import LEDGER, History, Result


def read_results(place: StudyFolder) -> list[Result]:
    """Return every cell of a study from its tables, which are first written from the cells.

    A folder of tables without cells is read as it is.
    """
    found = gather_cells(place)
    if place.cells_folder.exists():
        write_tables(place, found)
        known = tables.read_tables(place.workdir, place.cells(), find_begin(place))
        found = [known[result.entry.id] for result in found]
    return found


def write_tables(place: StudyFolder, found: Sequence[Result]) -> None:
    """Write the tables of a study's cells."""
    taken = tables.Examples(place.taken)

    def read_arrays(result: Result, name: str) -> dict[str, np.ndarray]:
        if result.taken:
            return taken.read(result.entry.id, name)
        return place.read_arrays(result.entry, name)

    tables.write_tables(place.workdir, found, read_arrays)


def gather_cells(place: StudyFolder, history: bool = True) -> list[Result]:
    """Read every cell from its folder, or from the tables that it was taken from.

    Without their histories this is quicker.
    """
    if not place.study.exists():
        raise DataError(
            f"no study in {place.workdir}", "`bert-jax study run STUDY --workdir=…` makes one"
        )
    cells, begun = place.cells(), find_begin(place)
    taken = find_taken(place, cells)
    if not place.cells_folder.exists():
        taken |= tables.read_tables(place.workdir, cells, begun)
    sizes = {cell: len(group.cells) for group in place.groups().values() for cell in group.cells}
    return [
        taken.get(cell.id) or read_cell(place, cell, history, sizes.get(cell.id, 1), begun)
        for cell in cells
    ]


def find_taken(place: StudyFolder, cells: Sequence[Entry]) -> dict[str, Result]:
    """Return the cells that the tables taken have finished and that were not trained here.

    Training may have begun here. An evaluation that was edited since has no result in the tables,
    and its cell is to be made here.
    """
    rows = tables.read_tables(place.taken, cells, find_begin(place))
    return {
        cell: result
        for cell, result in rows.items()
        if tables.is_finished(result) and not place.read_trained(cell)
    }


def find_begin(place: StudyFolder) -> str:
    """Return when a study was first launched, in ISO format."""
    return str(place.read_study().get("begun", ""))


def read_cell(
    place: StudyFolder, entry: Entry, history: bool = True, together: int = 1, begun: str = ""
) -> Result:
    """Read what a cell's folder says of it.

    Args:
      place: the study's folder.
      entry: the cell.
      history: whether to read what it wrote during training.
      together: how many cells share the time of its training.
      begun: when the study was begun.
    """
    state, trained = place.read_state(entry), place.read_trained(entry.id)
    metrics: dict[str, float] = {}
    errors: dict[str, str] = {}
    evaluated: dict[str, str] = {}
    times = [trained.ended if trained else ""]
    evaluation_seconds = 0.0
    for name in entry.evaluations:
        if (record := place.read_result(entry, name)) is None:
            continue
        evaluation_seconds += record.seconds
        times.append(record.ended)
        evaluated[name] = record.spec
        for key, value in record.metrics.items():
            if _finite(value):
                metrics[f"{name}/{key}"] = float(value)
        if record.error:
            errors[name] = record.error
    environment = _read_environment(place.cell(entry.id))
    return Result(
        entry,
        state,
        metrics,
        errors,
        trained.seconds if trained else state.seconds / together,
        evaluation_seconds,
        environment.get("parameters"),
        _hardware(environment.get("machine") or {}),
        begun,
        max(times),
        _history(place, entry) if history else History(),
        environment.get("vocabulary") or entry.vocabulary,
        data=_find_data(place, entry),
        evaluated=evaluated,
    )


def _read_environment(run: Path) -> dict[str, Any]:
    return files.read_json(run / "environment.json", dict[str, Any]) or {}


def _find_data(place: StudyFolder, entry: Entry) -> dict[str, list[str]]:
    """Return the fingerprints of the data of a cell and of its fine-tunings."""
    runs = {"": place.cell(entry.id)}
    runs |= {name: place.finetune(entry.id, name) for name in entry.evaluations}
    found = {}
    for name, run in runs.items():
        environment = _read_environment(run)
        if {"corpus", "tokenizer"} <= environment.keys():
            found[name] = [str(environment["corpus"]), str(environment["tokenizer"])]
    return found


def _hardware(machine: Mapping[str, Any]) -> str:
    """Name the accelerators a cell ran on, or count the cores of its processor."""
    if machine.get("backend", "cpu") == "cpu":
        cores = machine.get("cores") or 0
        return f"{cores} CPU core{'s' * (cores != 1)}" if cores else ""
    return ", ".join(map(str, machine.get("devices", [])))


def _lines(place: StudyFolder, entry: Entry, known: Mapping[str, Entry]) -> list[dict[str, Any]]:
    """Return the lines of a cell's metrics; before the fork of a branch, those of its trunk."""
    path = place.cell(entry.id) / records.METRICS
    own = list(records.rows(path)) if path.exists() else []
    trunk = known.get(entry.trunk.rpartition("@")[0])
    if not (own and "branch_from" in own[0] and trunk):
        return own
    return [row for row in _lines(place, trunk, known) if row["step"] <= entry.fork] + own


def _history(place: StudyFolder, entry: Entry) -> History:
    curves: dict[str, dict[int, float]] = defaultdict(dict)
    ledger: dict[str, list[float]] = defaultdict(list)
    known = {cell.id: cell for cell in place.cells()} if entry.trunk else {}
    for row in _lines(place, entry, known):
        for key, value in row.items():
            kind, _, name = key.partition("/")
            if kind == "eval" and is_result(name) and _finite(value):
                curves[name][row["step"]] = value
            elif kind == "train" and name in LEDGER and _finite(value):
                ledger[name].append(value)
    means = {name: math.fsum(values) / len(values) for name, values in ledger.items()}
    return History({name: sorted(curve.items()) for name, curve in curves.items()}, means)


def _finite(value: Any) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)
