"""Read the results of a study's cells from their folders, or from the tables that they are in."""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.errors import DataError
from bert_jax.reporting import records
from bert_jax.reporting.metric_names import is_result
from bert_jax.studies import files, tables
from bert_jax.studies.folder import StudyFolder
from bert_jax.studies.report.collect import LEDGER, History, Result
from bert_jax.studies.spec import Cell


def read_results(place: StudyFolder) -> list[Result]:
    """Return every cell of a study from its tables, which are first written from the cells.

    A folder of tables without cells is read as it is.
    """
    found = gather_cells(place)
    if place.cells_folder.exists():
        taken = tables.Examples(place.taken)

        def read_arrays(result: Result, name: str) -> dict[str, np.ndarray]:
            if result.taken:
                return taken.read(result.entry.id, name)
            return place.read_arrays(result.entry, name)

        tables.write_tables(place.workdir, found, read_arrays)
        begun = str(place.read_study().get("begun", ""))
        known = tables.read_tables(place.workdir, place.cells(), begun)
        found = [known[result.entry.id] for result in found]
    return found


def gather_cells(place: StudyFolder, history: bool = True) -> list[Result]:
    """Read every cell from its folder, or from the tables that it was taken from.

    Without their histories this is quicker.
    """
    check_study(place)
    cells, begun = place.cells(), str(place.read_study().get("begun", ""))
    taken = find_taken(place, cells, begun)
    if not place.cells_folder.exists():
        taken |= tables.read_tables(place.workdir, cells, begun)
    sizes = {cell: len(group.cells) for group in place.groups().values() for cell in group.cells}
    found = []
    for cell in cells:
        result = taken.get(cell.id) or _read_cell(place, cell, sizes.get(cell.id, 1), begun)
        if history and not result.taken:
            lines = _list_lines(place, cell, {other.id: other for other in cells})
            result = dataclasses.replace(result, history=_read_history(lines))
        found.append(result)
    return found


def check_study(place: StudyFolder) -> None:
    """Refuse a folder without a study."""
    if not place.study.exists():
        hint = "`bert-jax study run STUDY --workdir=…` makes one"
        raise DataError(f"no study in {place.workdir}", hint)


def find_taken(place: StudyFolder, cells: Iterable[Cell], begun: str = "") -> dict[str, Result]:
    """Return the cells that the tables taken have finished and that were not trained here.

    Training may have begun here. An evaluation that was edited since has no result in the tables,
    and its cell is to be made here.
    """
    rows = tables.read_tables(place.taken, cells, begun)
    return {
        cell: result
        for cell, result in rows.items()
        if tables.is_finished(result) and not place.read_trained(cell)
    }


def _read_cell(place: StudyFolder, cell: Cell, together: int, begun: str) -> Result:
    """Read what the folder of a cell says, which shared its training with others."""
    state, trained = place.read_state(cell), place.read_trained(cell.id)
    results = {name: place.read_result(cell, name) for name in cell.evaluations}
    made = {name: result for name, result in results.items() if result is not None}
    metrics = {
        f"{name}/{key}": float(value)
        for name, result in made.items()
        for key, value in result.metrics.items()
        if _is_finite(value)
    }
    environment = _read_environment(place.cell(cell.id))
    machine = environment.get("machine") or {}
    data = {}
    for name in ("", *cell.evaluations):
        run = _read_environment(place.finetune(cell.id, name) if name else place.cell(cell.id))
        if {"corpus", "tokenizer"} <= run.keys():
            data[name] = [str(run["corpus"]), str(run["tokenizer"])]
    return Result(
        cell,
        state,
        metrics,
        errors={name: result.error for name, result in made.items() if result.error},
        seconds=trained.seconds if trained else state.seconds / together,
        evaluation_seconds=sum(result.seconds for result in made.values()),
        parameters=environment.get("parameters"),
        hardware=_name_hardware(machine),
        begun=begun,
        ended=max([trained.ended if trained else "", *(one.ended for one in made.values())]),
        vocabulary=environment.get("vocabulary") or cell.vocabulary,
        data=data,
        evaluated={name: result.spec for name, result in made.items()},
    )


def _read_environment(run: Path) -> dict[str, Any]:
    return files.read_json(run / "environment.json", dict[str, Any]) or {}


def _name_hardware(machine: Mapping[str, Any]) -> str:
    """Name the accelerators a cell ran on, or count the cores of its processor."""
    if machine.get("backend", "cpu") == "cpu":
        cores = machine.get("cores") or 0
        return f"{cores} CPU core{'s' * (cores != 1)}" if cores else ""
    return ", ".join(map(str, machine.get("devices", [])))


def _list_lines(place: StudyFolder, cell: Cell, known: Mapping[str, Cell]) -> list[dict[str, Any]]:
    """Return the lines of a cell's metrics; before the fork of a branch, those of its trunk."""
    path = place.cell(cell.id) / records.METRICS
    own = [*records.rows(path)] if path.exists() else []
    trunk = known.get(cell.trunk.rpartition("@")[0])
    if not (own and "branch_from" in own[0] and trunk):
        return own
    return [row for row in _list_lines(place, trunk, known) if row["step"] <= cell.fork] + own


def _read_history(lines: Iterable[Mapping[str, Any]]) -> History:
    curves: dict[str, dict[int, float]] = defaultdict(dict)
    ledger: dict[str, list[float]] = defaultdict(list)
    for row in lines:
        for key, value in row.items():
            kind, _, name = key.partition("/")
            if kind == "eval" and is_result(name) and _is_finite(value):
                curves[name][row["step"]] = value
            elif kind == "train" and name in LEDGER and _is_finite(value):
                ledger[name].append(value)
    means = {name: math.fsum(values) / len(values) for name, values in ledger.items()}
    return History({name: sorted(curve.items()) for name, curve in curves.items()}, means)


def _is_finite(value: Any) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)
