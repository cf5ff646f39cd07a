"""The three tables of a study's cells.

    results.csv   a row for each cell: what it is, what it cost, and its metrics by name
    curves.csv    cell, step, metric, value: what evaluations said during training, and its ledger
    examples.npz  CELL/EVALUATION/METRIC.sum and .count, float64 [N], and the digest of the examples

They are what a report is made from, what is committed next to a study.py, and what a launch takes
as finished. Parts of a study are rows of one table.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.errors import DataError
from bert_jax.studies import files
from bert_jax.studies.folder import DAMAGE, Entry, State, hash_evaluation
from bert_jax.studies.report.collect import SPENT, History, Result
from bert_jax.system import disk, opening

ROWS, CURVES, EXAMPLES = "results.csv", "curves.csv", "examples.npz"
POINT = ("cell", "step", "metric", "value")  # columns of curves.csv
# Columns of results.csv; those of the axes stand behind the identity, metrics at the end.
IDENTITY = ("cell", "state")
PROGRESS = ("seed", "step", "steps", *SPENT, "seconds", "evaluation_seconds")
LAST = ("parameters", "vocabulary", "error", "missing", "hardware", "ended")
OBJECTS = ("errors", "data", "evaluated")  # fields of a result that are written as JSON
FIXED = (*IDENTITY, *PROGRESS, *LAST, *OBJECTS)
MOST = 1 << 34  # bytes of the examples of all cells
LONGEST = 10_000  # characters of an error; a reader of CSV refuses fields of more than 131,072
RESTORE = "restore it; `bert-jax study` writes it from the cells"
Point = tuple[str, int, str, float]


# --- results ----------------------------------------------------------------------------------


def write_tables(folder: Path, found: Sequence[Result], read_arrays: Any) -> None:
    """Write the three tables of cells, as far as they are made, each in one move.

    Args:
      folder: where they are written.
      found: the cells.
      read_arrays: a function from a result and the name of an evaluation to arrays by example.
    """
    rows = [_write_row(result) for result in found]
    of_axes = [column for axis in found[0].entry.labels for column in _name_columns(axis)]
    fixed = [*IDENTITY, *of_axes, *PROGRESS, *LAST, *OBJECTS]
    # As evaluations report them, the order in which pages show them.
    metrics = dict.fromkeys(key for result in found for key in result.metrics)
    packed = io.BytesIO()
    np.savez_compressed(
        packed,
        **{
            f"{result.entry.id}/{name}/{key}": array
            for result in found
            for name in result.entry.evaluations
            for key, array in read_arrays(result, name).items()
        },
    )
    folder.mkdir(parents=True, exist_ok=True)
    disk.write(folder / EXAMPLES, packed.getvalue())
    points = (dict(zip(POINT, point, strict=True)) for point in _list_points(found))
    files.write_text(folder / CURVES, _write_csv(POINT, points))
    files.write_text(folder / ROWS, _write_csv([*fixed, *metrics], rows))


def _list_points(found: Sequence[Result]) -> Iterator[Point]:
    """Yield the curves of cells, and the means of their ledgers at their last step."""
    for result in found:
        cell = result.entry.id
        for name, curve in result.history.evaluations.items():
            for step, value in curve:
                yield cell, step, f"eval/{name}", value
        for name, mean in result.history.ledger.items():
            yield cell, result.state.step, f"train/{name}", mean


def read_tables(folder: Path, cells: Sequence[Entry], begun: str = "") -> dict[str, Result]:
    """Read those of some cells that the tables of a folder have; {} if there are none."""
    rows = {row.get("cell", ""): row for row in _read_csv(folder / ROWS)}
    histories = _read_histories(folder) if rows else {}
    try:
        return {
            cell.id: _read_row(cell, rows[cell.id], histories.get(cell.id, History()), begun)
            for cell in cells
            if cell.id in rows
        }
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        problem = f"{folder / ROWS}: {type(error).__name__}: {error}"
        raise DataError(problem, RESTORE) from error


def is_finished(result: Result) -> bool:
    """Tell whether a cell has the results of all its evaluations as they are defined now."""
    wanted = {name: hash_evaluation(result.entry, name) for name in result.entry.evaluations}
    return result.state.name == "done" and wanted.items() <= dict(result.evaluated).items()


def _write_row(result: Result) -> dict[str, Any]:
    """Return the row of a cell, finished or not; values that are missing have no key."""
    entry, state = result.entry, result.state
    out: dict[str, Any] = {"cell": entry.id, "state": state.name}
    for axis, label in entry.labels.items():
        name, value = _name_columns(axis)
        out |= {name: label, value: entry.values.get(axis)}
    out |= {"seed": entry.seed, "step": state.step, "steps": state.steps}
    out |= {kind: result.spent(kind) for kind in SPENT}
    out["seconds"] = round(result.seconds, 3)
    out["evaluation_seconds"] = round(result.evaluation_seconds, 3)
    out |= {"parameters": result.parameters, "vocabulary": result.vocabulary}
    # A bare carriage return would stand without quotation marks, and then not be read.
    error = state.error.replace("\r", " ")[:LONGEST]
    out |= {"error": error, "missing": " ".join(state.missing)}
    out |= {"hardware": result.hardware, "ended": result.ended}
    for name in OBJECTS:
        if value := getattr(result, name):
            out[name] = json.dumps(value, sort_keys=True)
    return out | dict(result.metrics)


def _read_row(entry: Entry, row: Mapping[str, str], history: History, begun: str) -> Result:
    """Make a result from its row."""
    metrics = {
        key: float(text)
        for key, text in row.items()
        if text and "/" in key and key.partition("/")[0] in entry.evaluations
    }
    step, steps, missing = int(row["step"]), int(row["steps"]), tuple(row["missing"].split())
    objects = {name: json.loads(row[name] or "{}") for name in OBJECTS}
    return Result(
        entry=entry,
        state=State(row["state"], row["error"], step, steps, missing=missing),
        metrics=metrics,
        seconds=float(row["seconds"]),
        evaluation_seconds=float(row["evaluation_seconds"]),
        parameters=int(row["parameters"]) if row["parameters"] else None,
        hardware=row["hardware"],
        begun=begun,
        ended=row["ended"],
        history=history,
        vocabulary=int(row["vocabulary"]) if row["vocabulary"] else None,
        costs={kind: float(row[kind]) for kind in SPENT if row[kind]},
        taken=True,
        **objects,
    )


def _read_histories(folder: Path) -> dict[str, History]:
    """Read curves.csv by cell."""
    curves: dict[str, dict[str, list[tuple[int, float]]]] = defaultdict(dict)
    ledgers: dict[str, dict[str, float]] = defaultdict(dict)
    for row in _read_csv(folder / CURVES):
        try:
            kind, _, name = row["metric"].partition("/")
            step, value = int(row["step"]), float(row["value"])
        except (KeyError, ValueError) as error:
            raise DataError(
                f"{folder / CURVES}: {type(error).__name__}: {error}", RESTORE
            ) from error
        if kind == "eval":
            curves[row["cell"]].setdefault(name, []).append((step, value))
        else:
            ledgers[row["cell"]][name] = value
    cells = {*curves, *ledgers}
    return {cell: History(curves.get(cell, {}), ledgers.get(cell, {})) for cell in cells}


def _name_columns(axis: str) -> tuple[str, str]:
    """Name the two columns of an axis, labels and values, unlike any fixed column."""
    name = f"axis.{axis}" if axis in FIXED else axis
    return name, f"{name}.value"


# --- files ----------------------------------------------------------------------------------------


def _write_csv(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _read_csv(path: Path) -> Iterator[dict[str, str]]:
    """Yield the rows of a table; none if there is no file."""
    if not os.path.lexists(path):
        return
    text = opening.read(path, DataError, files.LIMIT, RESTORE)
    try:
        yield from csv.DictReader(io.StringIO(text.decode("utf-8")), restval="")
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path}: {error}", RESTORE) from error


class Examples:
    """The sums and counts of examples.npz, which are read when they are asked for."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / EXAMPLES
        self._names: dict[tuple[str, str], list[str]] = {}
        self._arrays: Any = None
        if not os.path.lexists(self._path):
            return
        with self._reporting_damage():
            packed = opening.read(self._path, DataError, MOST, RESTORE)
            self._arrays = np.load(io.BytesIO(packed))
            for name in self._arrays.files:
                cell, evaluation, _ = name.split("/", 2)
                self._names.setdefault((cell, evaluation), []).append(name)

    def read(self, cell: str, evaluation: str) -> dict[str, np.ndarray]:
        """Read the arrays of an evaluation of a cell by name; {} if there are none."""
        with self._reporting_damage():
            names = self._names.get((cell, evaluation), [])
            return {name.split("/", 2)[2]: self._arrays[name] for name in names}

    @contextlib.contextmanager
    def _reporting_damage(self) -> Iterator[None]:
        try:
            yield
        except DAMAGE as error:
            raise DataError(f"{self._path} holds no arrays of numbers: {error}", RESTORE) from error
