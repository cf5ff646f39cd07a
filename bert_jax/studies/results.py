"""The results of a study's cells, read from their folders or from tables."""

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from bert_jax.reporting import records
from bert_jax.reporting.metric_names import LEDGER, is_result
from bert_jax.studies import files, tables
from bert_jax.studies.cell_result import SPENT, History, Result, make_clock
from bert_jax.studies.folder import StudyFolder
from bert_jax.studies.spec import Cell
from bert_jax.system import jsons
from bert_jax.system.counts import format_count

LONGEST = 10_000  # characters of an error; a reader of CSV refuses fields of more than 131,072


def read_results(place: StudyFolder) -> list[Result]:
    """Write the tables of a study from its cells, and read the result of every cell from them.

    If the folder has only tables, they are read as they are. A cell that they lack is still to do.
    """
    cells = place.read_cells()
    if place.cells_folder.exists():
        _write_tables(place, cells)
    known = tables.read_tables(place.workdir, cells)
    return _add_missing(place, cells, known)


def gather_cells(place: StudyFolder) -> list[Result]:
    """Read the result of every cell, without its curves, from its folder or from tables."""
    cells = place.read_cells()
    known = find_taken(place, cells)
    if not place.cells_folder.exists():
        known |= tables.read_tables(place.workdir, cells)
    return _add_missing(place, cells, known)


def _add_missing(
    place: StudyFolder, cells: Iterable[Cell], known: Mapping[str, Result]
) -> list[Result]:
    """Return the result of each cell: from `known`, or else from the cell's folder."""
    sizes = _count_together(place)

    def read_cell(cell: Cell) -> Result:
        row = _make_row(place, cell, sizes.get(cell.id, 1))
        return tables.read_row(cell, row, History(), taken=False)

    return [known.get(cell.id) or read_cell(cell) for cell in cells]


def find_taken(place: StudyFolder, cells: Iterable[Cell]) -> dict[str, Result]:
    """Find the cells that the tables in taken/ have finished and that this workdir did not train.

    The result is {cell: result}. If an evaluation was edited since, its cell counts as unfinished
    in the tables, and is made in this workdir.
    """
    rows = tables.read_tables(place.taken, cells)
    return {
        cell: result
        for cell, result in rows.items()
        if tables.is_finished(result) and not place.read_trained(cell)
    }


# --- from the folders of cells --------------------------------------------------------------------


def _write_tables(place: StudyFolder, cells: list[Cell]) -> None:
    """Write the tables of all cells, finished or not."""
    taken = find_taken(place, cells)
    there = {row["cell"]: row for row in tables.read_csv(place.taken / tables.ROWS)}
    curves = defaultdict(list)
    for point in tables.read_csv(place.taken / tables.CURVES) if taken else ():
        curves[point["cell"]].append(point)
    examples = tables.Examples(place.taken)
    known = {cell.id: cell for cell in cells}
    sizes = _count_together(place)
    arrays: tables.Arrays = {}
    rows: list[tables.Row] = []
    points: list[tables.Row] = []
    for cell in cells:
        if cell.id in taken:
            rows.append(_take_row(cell, there[cell.id]))
            points += curves[cell.id]
        else:
            row = _make_row(place, cell, sizes.get(cell.id, 1))
            rows.append(row)
            points += _list_points(cell.id, row["step"], _list_lines(place, cell, known))
        for name in cell.evaluations:
            found = place.read_arrays(cell, name)
            if cell.id in taken:
                found = examples.read(cell.id, name)
            arrays |= {f"{cell.id}/{name}/{key}": array for key, array in found.items()}
    tables.save_tables(place.workdir, rows, points, arrays)


def _count_together(place: StudyFolder) -> dict[str, int]:
    """Return {cell: number of cells in its group}; these cells share the group's training time."""
    groups = place.read_groups().values()
    return {cell: len(group.cells) for group in groups for cell in group.cells}


def _make_row(place: StudyFolder, cell: Cell, together: int) -> dict[str, Any]:
    """Make a cell's row of results.csv from its folder; a metric that is missing has no key."""
    state = place.read_state(cell)
    trained = place.read_trained(cell.id)
    results = {name: place.read_result(cell, name) for name in cell.evaluations}
    made = {name: result for name, result in results.items() if result is not None}
    environment = _read_environment(place.cell(cell.id))
    vocabulary = environment.get("vocabulary") or cell.vocabulary
    row: dict[str, Any] = {"cell": cell.id, "state": state.name}
    row |= _list_axes(cell)
    row |= {"seed": cell.seed, "step": state.step, "steps": state.steps}
    for kind in SPENT:
        size = vocabulary or cell.config.tokenizer.vocab_size
        row[kind] = make_clock(kind, cell.config, size)(state.step)
    row["seconds"] = round(trained.seconds if trained else state.seconds / together, 3)
    row["evaluation_seconds"] = round(sum(result.seconds for result in made.values()), 3)
    row |= {"parameters": environment.get("parameters") or "", "vocabulary": vocabulary or ""}
    # A bare carriage return would stand without quotation marks, and then not be read.
    row["error"] = state.error.replace("\r", " ")[:LONGEST]
    row["missing"] = " ".join(state.missing)
    row["hardware"] = _name_hardware(environment.get("machine") or {})
    times = [trained.ended if trained else "", *(result.ended for result in made.values())]
    row["ended"] = max(times)
    objects = {
        "errors": {name: result.error for name, result in made.items() if result.error},
        "data": _find_data(place, cell),
        "evaluated": {name: result.spec for name, result in made.items()},
    }
    for name, found in objects.items():
        row[name] = json.dumps(found, sort_keys=True) if found else ""
    for name, result in made.items():
        for key, value in result.metrics.items():
            if jsons.is_finite(value):
                row[f"{name}/{key}"] = float(value)
    return row


def _take_row(cell: Cell, there: tables.Row) -> dict[str, Any]:
    """Make a cell's row of results.csv from the row that another study's table has of it."""
    row = {name: there[name] for name in (*tables.FIRST, *tables.LAST)} | _list_axes(cell)
    for name, value in there.items():
        evaluation, slash, _ = name.partition("/")
        if slash and evaluation in cell.evaluations and value != "":
            row[name] = value
    return row


def _list_axes(cell: Cell) -> dict[str, Any]:
    """Return {column: label or value} of a cell's place on the axes of its study."""
    columns: dict[str, Any] = {}
    for axis, label in cell.labels.items():
        columns |= zip(tables.name_columns(axis), (label, cell.values.get(axis)), strict=True)
    return columns


def _find_data(place: StudyFolder, cell: Cell) -> dict[str, list[str]]:
    """Return the fingerprints of a cell's data, as {"": [corpus, vocabulary], FINETUNING: […], …}.

    The key "" stands for the training of the cell itself.
    """
    runs = {"": place.cell(cell.id)}
    runs |= {name: place.finetune(cell.id, name) for name in cell.evaluations}
    read = {name: _read_environment(run) for name, run in runs.items()}
    return {
        name: [str(found["corpus"]), str(found["tokenizer"])]
        for name, found in read.items()
        if {"corpus", "tokenizer"} <= found.keys()
    }


def _read_environment(run: Path) -> dict[str, Any]:
    return files.read_json(run / "environment.json", dict[str, Any]) or {}


def _name_hardware(machine: Mapping[str, Any]) -> str:
    """Name the accelerators that a cell ran on, or the number of CPU cores."""
    if machine.get("backend", "cpu") != "cpu":
        return ", ".join(map(str, machine.get("devices", [])))
    cores = machine.get("cores") or 0
    return format_count(cores, "CPU core") if cores else ""


def _list_lines(place: StudyFolder, cell: Cell, known: Mapping[str, Cell]) -> list[dict[str, Any]]:
    """Return the lines of a cell's metrics.jsonl.

    For a branch, they begin with its trunk's lines up to the fork, the step of its own first line.
    """
    path = place.cell(cell.id) / records.METRICS
    own = [*records.read_rows(path)] if path.exists() else []
    if not (own and "branch_from" in own[0]):
        return own
    before: list[dict[str, Any]] = []
    trunk = known.get(cell.trunk.rpartition("@")[0])
    while trunk and not before:  # a trunk that has not begun has a trunk itself
        before = _list_lines(place, trunk, known)
        trunk = known.get(trunk.trunk.rpartition("@")[0])
    fork = own[0]["step"]
    return [row for row in before if row["step"] <= fork] + own


def _list_points(
    cell: str, last: int, lines: Iterable[Mapping[str, Any]]
) -> Iterator[dict[str, Any]]:
    """Yield rows of curves.csv: a cell's evaluations during training, and means of its ledger.

    The means are rows of step `last`.
    """
    curves: dict[str, dict[int, float]] = defaultdict(dict)
    ledger: dict[str, list[float]] = defaultdict(list)
    for row in lines:
        for key, value in row.items():
            kind, _, name = key.partition("/")
            if kind == "eval" and is_result(name) and jsons.is_finite(value):
                curves[key][row["step"]] = value
            elif kind == "train" and name in LEDGER and jsons.is_finite(value):
                ledger[key].append(value)
    for key, curve in curves.items():
        for step, value in sorted(curve.items()):
            yield {"cell": cell, "step": step, "metric": key, "value": value}
    for key, values in ledger.items():
        mean = math.fsum(values) / len(values)
        yield {"cell": cell, "step": last, "metric": key, "value": mean}
