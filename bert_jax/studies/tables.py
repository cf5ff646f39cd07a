"""The three tables of a study's cells.

    results.csv   a row for each cell: what it is, what it cost, and its metrics by name
    curves.csv    cell, step, metric, value: evaluations during training, and means of the ledger
    examples.npz  CELL/EVALUATION/METRIC.sum and .count, float64 [N], and the digest of the examples

Reports are made from these tables. They are committed next to a study.py, and a launch then takes
their cells as finished. Parts of a study that are run separately are rows of the same tables.
"""

import contextlib
import csv
import io
import json
import os
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.errors import DataError, UserError
from bert_jax.studies.cell_result import SPENT, History, Result
from bert_jax.studies.folder import State, hash_evaluation
from bert_jax.studies.spec import Cell
from bert_jax.system import disk, jsons, opening

ROWS, CURVES, EXAMPLES = "results.csv", "curves.csv", "examples.npz"
POINT = ("cell", "step", "metric", "value")  # columns of curves.csv
# Columns of results.csv; those of the axes stand between both, metrics at the end.
FIRST = ("cell", "state")
LAST = (
    *("seed", "step", "steps", *SPENT, "seconds", "evaluation_seconds", "parameters"),
    *("vocabulary", "error", "missing", "hardware", "ended", "errors", "data", "evaluated"),
)
OBJECTS = ("errors", "data", "evaluated")  # fields of a result that are written as JSON
MOST = 1 << 34  # bytes of the examples of all cells
RESTORE = "restore it; `bert-jax study` writes it from the cells"
Row = Mapping[str, Any]
Arrays = dict[str, np.ndarray]


def save_tables(
    folder: Path, rows: Sequence[Row], points: Iterable[Row], arrays: Mapping[str, np.ndarray]
) -> None:
    """Write the three tables of some cells, each in one move, and results.csv last."""
    packed = io.BytesIO()
    np.savez_compressed(packed, **dict[str, Any](arrays))
    folder.mkdir(parents=True, exist_ok=True)
    disk.write(folder / EXAMPLES, packed.getvalue())
    named = dict.fromkeys(column for row in rows for column in row)
    # Metrics as evaluations report them, the order in which pages show them.
    of_axes = [name for name in named if name not in (*FIRST, *LAST) and "/" not in name]
    metrics = [name for name in named if "/" in name]
    columns = [*FIRST, *of_axes, *LAST, *metrics]
    for name, fields, lines in ((CURVES, POINT, points), (ROWS, columns, rows)):
        text = io.StringIO()
        writer = csv.DictWriter(text, fields, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)
        disk.write(folder / name, text.getvalue())


def read_tables(folder: Path, cells: Iterable[Cell]) -> dict[str, Result]:
    """Read {cell: result} of the cells that the tables of a folder have; {} without tables."""
    rows = {row.get("cell", ""): row for row in read_csv(folder / ROWS)}
    histories = _read_histories(folder / CURVES) if rows else {}
    found = {}
    with _naming_damage(folder / ROWS, KeyError, ValueError, TypeError, AttributeError):
        for cell in cells:
            if cell.id in rows:
                history = histories.get(cell.id, History())
                found[cell.id] = read_row(cell, rows[cell.id], history, taken=True)
    return found


def read_row(cell: Cell, row: Row, history: History, taken: bool) -> Result:
    """Make the result of a cell from its row of results.csv and its history.

    `taken` says that the cell was finished elsewhere.
    """
    metrics = {
        key: float(value)
        for key, value in row.items()
        if "/" in key and key.partition("/")[0] in cell.evaluations and value != ""
    }
    step = int(row["step"])
    steps = int(row["steps"])
    missing = tuple(row["missing"].split())
    objects = {name: json.loads(row[name] or "{}") for name in OBJECTS}
    made = objects["errors"].items()
    objects["errors"] = {name: error for name, error in made if name in cell.evaluations}
    return Result(
        entry=cell,
        state=State(row["state"], row["error"], step, steps, missing=missing),
        metrics=metrics,
        seconds=float(row["seconds"]),
        evaluation_seconds=float(row["evaluation_seconds"]),
        parameters=int(row["parameters"] or 0) or None,
        hardware=row["hardware"],
        ended=row["ended"],
        history=history,
        vocabulary=int(row["vocabulary"] or 0) or None,
        costs={kind: float(row[kind]) for kind in SPENT if row[kind] != ""},
        taken=taken,
        **objects,
    )


def is_finished(result: Result) -> bool:
    """Tell whether a cell has the results of all its evaluations as they are defined now."""
    wanted = {name: hash_evaluation(result.entry, name) for name in result.entry.evaluations}
    return result.state.name == "done" and wanted.items() <= dict(result.evaluated).items()


def name_columns(axis: str) -> tuple[str, str]:
    """Name the two columns of an axis, for its labels and its values.

    The names differ from all fixed columns.
    """
    name = f"axis.{axis}" if axis in (*FIRST, *LAST) else axis
    return name, f"{name}.value"


def _read_histories(path: Path) -> dict[str, History]:
    """Read the history of each cell from a curves.csv, as {cell: history}."""
    curves: dict[str, dict[str, list[tuple[int, float]]]] = defaultdict(dict)
    ledgers: dict[str, dict[str, float]] = defaultdict(dict)
    with _naming_damage(path, KeyError, ValueError):
        for row in read_csv(path):
            kind, _, name = row["metric"].partition("/")
            step = int(row["step"])
            value = float(row["value"])
            if kind == "eval":
                curves[row["cell"]].setdefault(name, []).append((step, value))
            else:
                ledgers[row["cell"]][name] = value
    return {cell: History(curves[cell], ledgers[cell]) for cell in {*curves, *ledgers}}


# --- files ----------------------------------------------------------------------------------------


def read_csv(path: Path) -> list[dict[str, str]]:
    """Read the rows of a CSV file with a column `cell`; [] if there is no file."""
    if not os.path.lexists(path):
        return []
    text = opening.read_file(path, DataError, jsons.LIMIT, RESTORE)
    with _naming_damage(path, UnicodeDecodeError, csv.Error):
        rows = [*csv.DictReader(io.StringIO(text.decode("utf-8-sig")), restval="")]
    if rows and "cell" not in rows[0]:
        raise DataError(f"{path}: its first line names no column 'cell'", RESTORE)
    return rows


@contextlib.contextmanager
def _naming_damage(path: Path, *kinds: type[Exception]) -> Iterator[None]:
    """Turn errors from reading a damaged table into a DataError that names the table."""
    try:
        yield
    except UserError:  # it names the file already
        raise
    except kinds as error:
        raise DataError(f"{path}: {type(error).__name__}: {error}", RESTORE) from error


class Examples:
    """The arrays of examples.npz: sums and counts by example, each read when it is asked for."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / EXAMPLES
        self._arrays: Mapping[str, np.ndarray] = {}
        self._names: dict[str, list[str]] = defaultdict(list)  # by CELL/EVALUATION
        if os.path.lexists(self._path):
            with _naming_damage(self._path, Exception):
                packed = opening.read_file(self._path, DataError, MOST, RESTORE)
                self._arrays = np.load(io.BytesIO(packed))
                for name in [*self._arrays]:
                    self._names["/".join(name.split("/", 2)[:2])].append(name)

    def read(self, cell: str, evaluation: str, keys: Collection[str] = ()) -> Arrays:
        """Return the arrays of an evaluation of a cell; {} if there are none.

        The result is {"METRIC.sum": array, "METRIC.count": array, …}, with `keys` only those.
        """
        found: Arrays = {}
        with _naming_damage(self._path, Exception):
            for name in self._names.get(f"{cell}/{evaluation}", []):
                key = name.split("/", 2)[2]
                if not keys or key in keys:
                    found[key] = self._arrays[name]
        return found

    def read_all(self) -> Arrays:
        """Return all arrays, as {"CELL/EVALUATION/METRIC.sum": array, …}."""
        with _naming_damage(self._path, Exception):
            return {name: self._arrays[name] for name in [*self._arrays]}
