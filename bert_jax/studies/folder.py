"""The folder of a study: its layout, and reading and writing its files.

All state of a study is in its folder, and this module alone knows the names of the files:

study.json                   the study, rewritten by every `study run`; unlisted cells are hidden
groups/GROUP.json            cells that train together, and their prediction slots
cells/CELL/                  a run folder, as `bert-jax train` makes it, and
    cell.json                the cell's config, labels and evaluations
    trained.json             how training ended
    results/NAME.json, .npz  the metrics of an evaluation, in total and per example
    finetune/NAME/           the run folder of an evaluation by fine-tuning
    attempts.jsonl           the start and end of every attempt
logs/GROUP.log  compiled/  results.csv  figures/  summary.md  report.html
"""

from __future__ import annotations

import datetime
import hashlib
import io
import json
import os
import socket
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.config import recorded, to_dict
from bert_jax.errors import ConfigError, DataError
from bert_jax.studies import files
from bert_jax.studies.spec import Cell
from bert_jax.system import disk, folder_locks, opening
from bert_jax.system.jsons import Maybe

WORK = "work.lock"  # held by a worker from start to end; a run's own lock, only while it trains
RETRIES = 2  # after a failure
WHEN = ("every", "epochs", "batch_size")  # settings that do not change an evaluation's result
# Attempts that ended without an exit code before a cell counts as failed; more than RETRIES, for
# a kill is the machine's fault.
KILLS = 5

# Schemas of the files.
COUNT = range(2**63)
STUDY = {
    **dict.fromkeys(("name", "question", "spec", "hash", "git_commit", "notes"), Maybe(str)),
    **dict.fromkeys(("budget", "versions", "machine"), Maybe(dict)),
    "command": Maybe(str | list),
    "axes": Maybe([{"name": str, "points": [{"label": str, "value": object}]}]),
    "seeds": Maybe([int]),
    "evaluations": Maybe({str: dict}),
    "comparisons": Maybe([dict]),
    "claims": Maybe([dict]),
    "published": Maybe([str]),
    "parts": Maybe([str]),
    "commits": Maybe([str]),
    "cells": Maybe([str]),
    "texts": Maybe([str]),
    "expected": Maybe({str: {"labels": {str: str}, "seed": int}}),  # cell -> what it is
    "retries": Maybe(COUNT),
}
CELL = {
    "id": str,
    "labels": {str: str},
    "values": dict,
    "seed": int,
    "evaluations": {str: dict},
    "group": str,
    "config": dict,
    "vocabulary": Maybe(COUNT),
    "trunk": Maybe(str),
}
GROUP = {"cells": [str], "slots": COUNT, "estimate_seconds": float}
TRAINED = {"step": COUNT, "seconds": float, "outcome": str, "error": Maybe(str)}
RESULT = {"spec": str, "metrics": dict, "seconds": float, "error": Maybe(str)}
ATTEMPT = {
    "event": {"start", "end"},
    "code": Maybe(int),
    **dict.fromkeys(("group", "outcome", "error"), Maybe(str)),
}


@dataclass(frozen=True)
class Entry(Cell):
    """The content of cell.json: a cell, its evaluations and its group."""

    evaluations: dict[str, dict[str, Any]] = field(default_factory=dict)
    group: str = ""


@dataclass(frozen=True)
class State:
    """The progress of a cell."""

    name: str  # done, diverged, running, failed, waiting
    attempts: int = 0
    error: str = ""
    step: int = 0
    steps: int = 0
    seconds: float = 0.0
    missing: tuple[str, ...] = field(default=())  # evaluations that have no result yet


class StudyFolder:
    """The workdir of a study."""

    def __init__(self, workdir: Path) -> None:
        self.workdir = workdir
        self.writes = True  # false in all processes of a cell but one
        self.study, self.csv = workdir / "study.json", workdir / "results.csv"
        self.report, self.summary = workdir / "report.html", workdir / "summary.md"
        self.figures, self.compiled = workdir / "figures", workdir.resolve() / "compiled"

    # --- paths ------------------------------------------------------------------------------------

    def group(self, group: str) -> Path:
        return self.workdir / "groups" / f"{group}.json"

    def log(self, group: str) -> Path:
        return self.workdir / "logs" / f"{group}.log"

    def cell(self, cell: str) -> Path:
        return self.workdir / "cells" / cell

    def result(self, cell: str, name: str) -> Path:
        return self.cell(cell) / "results" / f"{name}.json"

    def each(self, cell: str, name: str) -> Path:
        return self.cell(cell) / "results" / f"{name}.npz"

    def finetune(self, cell: str, name: str) -> Path:
        return self.cell(cell) / "finetune" / name

    def checkpoint(self, cell: str) -> Path:
        """Return the checkpoint of a trained cell's last step, which need not be its best."""
        return self.cell(cell) / "checkpoints" / str(self.trained(cell)["step"])

    def saved(self, trunk: str) -> Path | None:
        """Return the checkpoint CELL@STEP, or None while it is not there."""
        cell, _, step = trunk.rpartition("@")
        folder = self.cell(cell) / "checkpoints" / step
        return folder if cell and folder.is_dir() else None

    # --- the plan: study, cells, groups -----------------------------------------------------------

    def read_study(self) -> dict[str, Any]:
        """Read study.json; return {} if it does not exist."""
        return files.read(self.study, STUDY, "it") or {}

    def write_study(self, study: Mapping[str, Any]) -> None:
        """Replace study.json atomically."""
        files.write(self.study, dict(study))

    def cells(self) -> list[Entry]:
        """Return the cells that study.json lists, in its order."""
        listed = self.read_study().get("cells", [])
        return [self.read_cell(cell) for cell in listed if (self.cell(cell) / "cell.json").exists()]

    def write_cell(self, cell: Cell, group: str, evaluations: Mapping[str, dict[str, Any]]) -> None:
        """Write cell.json, before the cell is trained."""
        more = {"group": group, "evaluations": dict(evaluations), "config": to_dict(cell.config)}
        files.write(self.cell(cell.id) / "cell.json", vars(cell) | more)

    def read_cell(self, cell: str) -> Entry:
        """Read cell.json."""
        path = self.cell(cell) / "cell.json"
        content = files.need(path, CELL)
        try:
            content["config"] = recorded(content["config"])
        except ConfigError as error:
            raise DataError(f"{path}: {error}", error.hint) from error
        names = (field.name for field in fields(Entry))
        return Entry(**{name: content[name] for name in names if name in content})

    def write_group(self, group: str, cells: Iterable[str], slots: int, seconds: float) -> None:
        """Write the cells of a group, their prediction slots and the estimated time."""
        record = {"cells": list(cells), "slots": slots, "estimate_seconds": seconds}
        files.write(self.group(group), record)

    def read_group(self, group: str) -> dict[str, Any]:
        """Read the record of a group."""
        return files.need(self.group(group), GROUP, "it")

    # --- results ----------------------------------------------------------------------------------

    def trained(self, cell: str) -> dict[str, Any]:
        """Return how training ended: step, seconds, outcome (done, diverged), error; or {}."""
        return files.read(self.cell(cell) / "trained.json", TRAINED) or {}

    def write_trained(
        self, cell: str, step: int, seconds: float, outcome: str, error: str = ""
    ) -> None:
        """Write trained.json when training has ended."""
        record = {"step": step, "seconds": seconds, "outcome": outcome, "error": error}
        if self.writes:
            files.write(self.cell(cell) / "trained.json", record)

    def read_result(self, entry: Entry, name: str) -> dict[str, Any] | None:
        """Read the result of an evaluation; return None if it belongs to an older definition."""
        result = files.read(self.result(entry.id, name), RESULT, "it")
        return result if result and result["spec"] == spec_hash(entry, name) else None

    def write_result(
        self,
        entry: Entry,
        name: str,
        metrics: Mapping[str, float],
        seconds: float,
        each: Mapping[str, np.ndarray],
        error: str = "",
    ) -> None:
        """Write the result of an evaluation.

        The old result is removed first and the new arrays are written before the new result, so
        that a result never stands beside missing or foreign arrays.
        """
        path = self.result(entry.id, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        self.each(entry.id, name).unlink(missing_ok=True)
        if each:
            packed = io.BytesIO()
            np.savez_compressed(packed, **dict[str, Any](each))
            disk.write(self.each(entry.id, name), packed.getvalue())
        result = {"metrics": dict(metrics), "seconds": seconds, "error": error}
        files.write(path, {"spec": spec_hash(entry, name)} | result)

    def read_each(self, entry: Entry, name: str) -> dict[str, np.ndarray]:
        """Read METRIC.sum and METRIC.count of every example; return {} if there are none."""
        file = self.each(entry.id, name)
        if not self.read_result(entry, name) or not file.exists():
            return {}
        try:
            with opening.regular(file, DataError) as stream, np.load(stream) as arrays:
                return {key: arrays[key] for key in arrays.files}
        except (OSError, ValueError, EOFError, TypeError, zipfile.BadZipFile) as error:
            # ValueError: a pickle, or an array of objects; TypeError: an array, not an archive
            raise DataError(
                f"{file} holds no arrays of numbers: {error}", "delete it and its .json"
            ) from error

    def missing(self, entry: Entry) -> list[str]:
        """Return the evaluations that have no result yet."""
        return [name for name in entry.evaluations if self.read_result(entry, name) is None]

    def progress(self, cell: str) -> tuple[int, float]:
        """Return step and seconds of the last line of a cell's metrics; zeros before the first."""
        return files.last_step(self.cell(cell) / "metrics.jsonl")

    # --- attempts ---------------------------------------------------------------------------------

    def note_start(self, cell: str, group: str, activity: str) -> None:
        """Record that training or an evaluation begins."""
        self._note(cell, group, activity, event="start")

    def note_end(
        self, cell: str, group: str, activity: str, outcome: str, code: int, error: str
    ) -> None:
        """Record how training or an evaluation ended: done, failed or stopped."""
        self._note(cell, group, activity, event="end", outcome=outcome, code=code, error=error)

    def note_death(self, cell: str, group: str, outcome: str, code: int, error: str) -> None:
        """Record how an attempt ended whose worker could not: killed or cancelled."""
        notes = [note for note in self.attempts(cell) if note.get("group") == group]
        if notes and notes[-1]["event"] == "start":
            self.note_end(cell, group, str(notes[-1].get("what", "")), outcome, code, error)

    def _note(self, cell: str, group: str, activity: str, **entry: Any) -> None:
        if not self.writes:
            return
        now = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
        who = {"time": now, "host": socket.gethostname(), "pid": os.getpid()}
        files.append(
            self.cell(cell) / "attempts.jsonl", who | {"group": group, "what": activity} | entry
        )

    def attempts(self, cell: str) -> list[dict[str, Any]]:
        """Return the recorded starts and ends, in order."""
        return files.lines(self.cell(cell) / "attempts.jsonl", ATTEMPT)

    # --- progress ---------------------------------------------------------------------------------

    def busy(self, cell: str) -> bool:
        """Return whether a process trains or evaluates the cell now."""
        folder = self.cell(cell)
        return folder_locks.held(folder) or folder_locks.held(folder, WORK)

    def state(self, entry: Entry, retries: int | None = None) -> State:
        """Derive the state of a cell from its folder alone."""
        trained = self.trained(entry.id)
        retries = self.read_study().get("retries", RETRIES) if retries is None else retries
        step, seconds = self.progress(entry.id)
        step = max(step, trained["step"] if trained else 0)  # metrics may be lost
        notes = self.attempts(entry.id)
        starts = sum(note["event"] == "start" for note in notes)
        # Attempts of other groups do not count: a cell that failed with others is tried alone, and
        # one that failed before a new plan is tried in its new group.
        recent: list[dict[str, Any]] = []
        for note in notes:
            if note.get("group", entry.group) == entry.group:
                recent = [] if note.get("outcome") == "done" else [*recent, note]
        outcomes = [note.get("outcome") for note in recent]
        failures = [note for note in recent if note.get("outcome") == "failed"]
        bad = [note for note in recent if note.get("outcome") in ("failed", "killed", "cancelled")]
        # Starts without an end are of workers that were killed when no launcher saw it.
        killed = outcomes.count("killed")
        killed += sum({"start": 1, "end": -1}[note["event"]] for note in recent)
        missing, steps = tuple(self.missing(entry)), entry.config.steps
        if entry.config.epochs is not None:  # the run itself counts them, once it knows its data
            steps = (files.read(self.cell(entry.id) / "config.json") or {}).get("steps", 0)
        error = trained.get("error") or ""
        if trained.get("outcome") == "diverged":
            name = "diverged"
        elif trained and not missing:
            name = "done"
        elif self.busy(entry.id):
            name = "running"
        else:
            # After an error of the config, another attempt cannot help.
            usage = bool(failures) and failures[-1].get("code") == ConfigError.code
            name = "failed" if usage or len(failures) > retries or killed >= KILLS else "waiting"
            error = bad[-1].get("error") or "" if bad else error
        return State(name, starts, error, step, steps, seconds, missing)

    def states(self, retries: int | None = None) -> dict[str, State]:
        """Return the state of every listed cell."""
        return {entry.id: self.state(entry, retries) for entry in self.cells()}


def spec_hash(entry: Entry, name: str) -> str:
    """Return a hash of an evaluation's definition, which tells a result from an outdated one."""
    evals = to_dict(entry.config)["evals"]  # evaluation masks, which the cell's id does not cover
    masks = {
        name: {knob: value for knob, value in settings.items() if knob not in WHEN}
        for name, settings in evals.items()
    }
    text = json.dumps([entry.id, entry.evaluations[name], masks], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
