"""The folder of a study: names of its files, and functions that read and write them.

All state of a study is in its folder:

    study.json                   the study and its cells, rewritten by every `study run`
    groups/GROUP.json            cells that train together; written once and never changed
    cells/CELL/                  a run folder, as `bert-jax train` makes it, and
        trained.json             how training ended
        results/NAME.json, .npz  the metrics of an evaluation, in total and per example
        finetune/NAME/           the run folder of an evaluation by fine-tuning
        error.json               how the last attempt failed; removed by a successful attempt
    taken/                       tables of cells that were finished elsewhere
    results.csv examples.npz curves.csv   the tables of all cells, from which reports are made
    logs/GROUP.log  compiled/  figures/  summary.md  report.html
"""

import contextlib
import functools
import hashlib
import io
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

from bert_jax.config import flatten, list_usual_values, read_recorded, to_dict
from bert_jax.config.knobs import Config
from bert_jax.errors import ConfigError, DataError
from bert_jax.reporting.records import METRICS
from bert_jax.studies import files
from bert_jax.studies.spec import Cell, StudyRecord
from bert_jax.system import disk, folder_locks, opening

WORK = "work.lock"  # held by a worker from start to end; a run's own lock, only while it trains
TAKEN = "taken"  # the folder of the tables of cells that were finished elsewhere
WORKER = "worker"  # the activity of a worker that ended without naming one
WHEN = ("every", "epochs", "batch_size")  # settings that do not change an evaluation's result
NAMED = ("objectives.", "evals.")  # sections of knobs whose keys are names
TAIL = 20_000  # bytes at the end of metrics.jsonl that certainly hold its last line


@dataclass(frozen=True)
class State:
    """How far a cell is: its state, its last step, and the evaluations that are missing."""

    name: str  # done, diverged, running, failed, waiting
    error: str = ""
    step: int = 0
    steps: int = 0
    seconds: float = 0.0
    missing: tuple[str, ...] = ()  # evaluations that have no result yet


class Trained(msgspec.Struct):
    """How the training of a cell ended, as trained.json has it."""

    step: int
    seconds: float  # the cell's share of the time its group trained
    outcome: Literal["done", "diverged"]
    error: str = ""
    ended: str = ""


class Evaluated(msgspec.Struct):
    """The result of an evaluation of a cell, as results/NAME.json has it."""

    spec: str  # a hash of what was evaluated
    metrics: dict[str, Any]
    seconds: float
    error: str = ""
    ended: str = ""


class Failure(msgspec.Struct):
    """How the last attempt at a cell failed, as error.json has it."""

    activity: str
    error: str
    time: str = ""


class GroupRecord(msgspec.Struct):
    """A group in groups/GROUP.json: the names of its cells, and the prediction slots of a row."""

    cells: list[str]
    slots: int


class StudyFolder:
    """The workdir of a study: paths of its files, and their content."""

    def __init__(self, workdir: Path) -> None:
        self.workdir = workdir
        self.study = workdir / "study.json"
        self.csv = workdir / "results.csv"
        self.report = workdir / "report.html"
        self.summary = workdir / "summary.md"
        self.figures = workdir / "figures"
        self.compiled = workdir.resolve() / "compiled"
        self.cells_folder = workdir / "cells"
        self.taken = workdir / TAKEN

    # --- paths ------------------------------------------------------------------------------------

    def log(self, group: str) -> Path:
        """Return the path of the log of a group's workers."""
        return self.workdir / "logs" / f"{group}.log"

    def cell(self, cell: str) -> Path:
        """Return the path of a cell's folder."""
        return self.cells_folder / cell

    def result(self, cell: str, name: str) -> Path:
        """Return the path of the file with the metrics of a cell's evaluation."""
        return self.cell(cell) / "results" / f"{name}.json"

    def arrays_path(self, cell: str, name: str) -> Path:
        """Return the path of the file with each example's sums and counts in an evaluation."""
        return self.cell(cell) / "results" / f"{name}.npz"

    def finetune(self, cell: str, name: str) -> Path:
        """Return the path of the run folder of a cell's fine-tuning."""
        return self.cell(cell) / "finetune" / name

    # --- the study, its cells and its groups ------------------------------------------------------

    def read_study(self) -> StudyRecord:
        """Read study.json; refuse a folder without it."""
        study = files.read_json(self.study, StudyRecord, "it")
        if study is None:
            hint = "`bert-jax study run STUDY --workdir=…` makes one"
            raise ConfigError(f"no study in {self.workdir}", hint)
        return study

    def write_study(self, study: Mapping[str, Any], cells: Sequence[Cell]) -> None:
        """Write study.json: the study, the config of its first cell, and all cells.

        For each cell, only the knobs that differ from the first cell's config are written.
        """
        base = _list_knobs(cells[0].config)
        listed = {cell.id: _record_cell(cell, base) for cell in cells}
        self.cells_folder.mkdir(parents=True, exist_ok=True)
        files.write_json(self.study, StudyRecord(**study, config=base, cells=listed))

    def read_cells(self) -> list[Cell]:
        """Return the cells that study.json lists, in its order."""
        study = self.read_study()
        try:
            return [_read_cell(name, study) for name in study.cells]
        except (ConfigError, KeyError, TypeError, AttributeError) as error:
            hint = f"restore it, or remove it: {files.AGAIN}"
            raise DataError(f"{self.study}: {type(error).__name__}: {error}", hint) from error

    def read_groups(self) -> dict[str, GroupRecord]:
        """Read the record of every group, as {group: record}."""
        found = sorted((self.workdir / "groups").glob("*.json"))
        return {path.stem: self.read_group(path.stem) for path in found}

    def read_group(self, group: str) -> GroupRecord:
        """Read the record of a group."""
        path = self.workdir / "groups" / f"{group}.json"
        content = files.read_json(path, GroupRecord, "it")
        if content is None:
            raise DataError(f"no {path}", files.AGAIN)
        return content

    def write_group(self, group: str, cells: Iterable[str], slots: int) -> None:
        """Write the record of a new group: its cells and their prediction slots."""
        path = self.workdir / "groups" / f"{group}.json"
        files.write_json(path, GroupRecord([*cells], slots))

    # --- results ----------------------------------------------------------------------------------

    def read_trained(self, cell: str) -> Trained | None:
        """Read how the training of a cell ended; None before it has ended."""
        return files.read_json(self.cell(cell) / "trained.json", Trained)

    def write_trained(
        self, cell: str, step: int, seconds: float, outcome: Any, error: str = ""
    ) -> None:
        """Write how the training of a cell ended."""
        record = Trained(step, seconds, outcome, error, files.tell_time())
        files.write_json(self.cell(cell) / "trained.json", record)

    def read_result(self, cell: Cell, name: str) -> Evaluated | None:
        """Read the result of an evaluation; None if there is none for its present definition."""
        result = files.read_json(self.result(cell.id, name), Evaluated, "it")
        return result if result and result.spec == hash_evaluation(cell, name) else None

    def write_result(
        self,
        cell: Cell,
        name: str,
        metrics: Mapping[str, Any],
        seconds: float,
        each: Mapping[str, np.ndarray],
        error: str = "",
    ) -> None:
        """Write the result of an evaluation of a cell.

        The old result is removed first, and the new arrays are written before the new result. So no
        result ever stands next to missing arrays, or to arrays of another result.
        """
        path = self.result(cell.id, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        self.arrays_path(cell.id, name).unlink(missing_ok=True)
        if each:
            packed = io.BytesIO()
            np.savez_compressed(packed, **dict[str, Any](each))
            disk.write(self.arrays_path(cell.id, name), packed.getvalue())
        spec = hash_evaluation(cell, name)
        now = files.tell_time()
        files.write_json(path, Evaluated(spec, dict(metrics), seconds, error, now))

    def read_arrays(self, cell: Cell, name: str) -> dict[str, np.ndarray]:
        """Read the sums and counts of an evaluation's examples; {} if there are none.

        The result is {"METRIC.sum": array, "METRIC.count": array, …}.
        """
        path = self.arrays_path(cell.id, name)
        if not self.read_result(cell, name) or not path.exists():
            return {}
        with opening.open_regular(path, DataError) as stream:
            try:
                with np.load(stream) as arrays:
                    return {key: arrays[key] for key in arrays.files}
            except Exception as error:  # there are a dozen kinds, by the place of the damage
                hint = "delete it and its .json"
                raise DataError(f"{path} holds no arrays of numbers: {error}", hint) from error

    def list_missing(self, cell: Cell) -> list[str]:
        """List the evaluations of a cell that have no result yet."""
        return [name for name in cell.evaluations if self.read_result(cell, name) is None]

    # --- progress ---------------------------------------------------------------------------------

    def read_failure(self, cell: str) -> Failure | None:
        """Read how the last attempt at a cell failed; None if it did not fail."""
        return files.read_json(self.cell(cell) / "error.json", Failure)

    def write_failure(self, cell: str, activity: str, error: str) -> None:
        """Write how an attempt at a cell failed."""
        record = Failure(activity, error, files.tell_time())
        files.write_json(self.cell(cell) / "error.json", record)

    def clear_failure(self, cell: str, activity: str) -> None:
        """Remove the record of a cell's failure in `activity`, or by the death of a worker."""
        failure = self.read_failure(cell)
        if failure and failure.activity in (activity, WORKER):
            (self.cell(cell) / "error.json").unlink(missing_ok=True)

    def read_last_metrics(self, cell: str) -> dict[str, Any]:
        """Read the last value of each metric from the end of a cell's metrics.jsonl.

        The result is {metric: value}.
        """
        path = self.cell(cell) / METRICS
        newest: dict[str, Any] = {}
        if not path.exists():
            return newest
        with opening.open_regular(path, DataError) as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL))
            tail = file.read().splitlines()
        for line in tail:
            with contextlib.suppress(ValueError):  # torn by a kill, or cut where reading began
                row = json.loads(line)
                if isinstance(row, dict) and isinstance(row.get("step"), int):
                    newest |= {name: value for name, value in row.items() if value is not None}
        return newest

    def is_busy(self, cell: str) -> bool:
        """Tell whether a process trains or evaluates the cell now."""
        folder = self.cell(cell)
        return folder_locks.is_held(folder) or folder_locks.is_held(folder, WORK)

    def read_state(self, cell: Cell) -> State:
        """Find out the state of a cell from the files in its folder."""
        trained = self.read_trained(cell.id)
        failure = self.read_failure(cell.id)
        last = self.read_last_metrics(cell.id)
        missing = tuple(self.list_missing(cell))
        name, error = "waiting", trained.error if trained else ""
        if trained and trained.outcome == "diverged":
            name = "diverged"
        elif trained and not missing:
            name = "done"
        elif self.is_busy(cell.id):
            name = "running"
        elif failure:
            name = "failed"
            error = f"{failure.activity}: {failure.error}"
        steps = cell.config.steps
        if cell.config.epochs is not None:  # the run itself counts them, once it knows its data
            run = files.read_json(self.cell(cell.id) / "config.json", dict[str, Any]) or {}
            steps = run.get("steps", 0)
        step = max(last.get("step", 0), trained.step if trained else 0)  # metrics may be lost
        return State(name, error, step, steps, float(last.get("time", 0.0)), missing)


# --- cells in study.json --------------------------------------------------------------------------


def _list_knobs(config: Config) -> dict[str, Any]:
    """Return {path: value} of the knobs of a config that do not have their usual value.

    So a study that never set a knob can be read after that knob is removed or gets another default.
    """
    return {
        path: value
        for path, value in flatten(to_dict(config)).items()
        if path.startswith(NAMED) or list_usual_values().get(path, ...) != value
    }


def _record_cell(cell: Cell, base: Mapping[str, Any]) -> dict[str, Any]:
    """Make the record of a cell for study.json, with only those knobs that differ from `base`."""
    own = _list_knobs(cell.config)
    record = {key: value for key, value in asdict(cell).items() if value and key != "id"}
    record["config"] = {path: own[path] for path in own if base.get(path, ...) != own[path]}
    if without := [path for path in base if path not in own]:
        record["without"] = without
    return record | {"seed": cell.seed, "evaluations": [*cell.evaluations]}


def _read_cell(name: str, study: StudyRecord) -> Cell:
    record, base = study.cells[name], study.config
    values = {
        path: value for path, value in list_usual_values().items() if not path.startswith(NAMED)
    }
    values |= {path: base[path] for path in base if path not in record.get("without", ())}
    evaluations = {made: study.evaluations[made] | {} for made in record["evaluations"]}
    for settings in evaluations.values():
        settings.pop("budgets", None)  # of the study: after which budgets it is made
    return Cell(
        name,
        _read_config(json.dumps(values | record["config"], sort_keys=True)),
        record.get("labels", {}),
        record.get("values", {}),
        record["seed"],
        record.get("vocabulary"),
        record.get("trunk", ""),
        evaluations,
    )


@functools.lru_cache(maxsize=4096)
def _read_config(text: str) -> Config:
    """Make a config from a JSON object {path of a knob: value}.

    Results are cached, because cells are read again and again.
    """
    tree: dict[str, Any] = {}
    for path, value in json.loads(text).items():
        *sections, knob = path.split(".")
        section = tree
        for part in sections:
            section = section.setdefault(part, {})
        section[knob] = value
    return read_recorded(tree)


def hash_evaluation(cell: Cell, name: str) -> str:
    """Return a hash of an evaluation's definition; a result with another hash is outdated.

    It covers the settings of `validation`, or of all evaluations of labelled data, which suites
    read and the cell's id leaves out.
    """
    masks = {
        name: {knob: value for knob, value in asdict(settings).items() if knob not in WHEN}
        for name, settings in cell.config.evals.items()
        if name == "validation" or cell.config.task.source
    }
    text = json.dumps([cell.id, cell.evaluations[name], masks], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
