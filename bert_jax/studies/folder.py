"""The layout of a study's folder, which is all the state there is. Nothing else knows the names of files.

study.json                   what was asked for, rewritten by every `study run`; cells it does not list are hidden
groups/GROUP.json            cells that train together, and their prediction slots
cells/CELL/                  a run folder, as `bert-jax train` makes it, and
    cell.json                what the cell is: config, labels, evaluations
    trained.json             how training ended
    results/NAME.json, .npz  what an evaluation found, in all and of each example
    finetune/NAME/           the run folder of an evaluation by fine-tuning
    attempts.jsonl           what began, and how it ended
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
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_jax.config import knobs, recorded, to_dict
from bert_jax.errors import ConfigError, DataError
from bert_jax.studies import files
from bert_jax.system import disk, folder_locks, opening
from bert_jax.system.jsons import Maybe

if TYPE_CHECKING:
    from bert_jax.studies.definition import Cell

WORK = "work.lock"  # of a worker, all the time; a run's own lock is held while it trains
RETRIES = 2  # after a failure
WHEN = (
    "every",
    "epochs",
    "batch_size",
)  # settings of an evaluation that change nothing of its result
KILLS = 5  # tries that ended without a word, before a cell counts as failed: a kill is the machine's fault


COUNT = range(2**63)
STUDY = {
    **dict.fromkeys(("name", "question", "spec", "hash", "git_commit", "notes"), Maybe(str)),
    **dict.fromkeys(("budget", "versions", "machine"), Maybe(dict)),
    "command": Maybe(str | list),
    "axes": Maybe([{"name": str, "points": [{"label": str, "value": object}]}]),
    "seeds": Maybe([int]),
    "evaluations": Maybe({str: dict}),
    "comparisons": Maybe([dict]),
    "published": Maybe([str]),
    "cells": Maybe([str]),
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
class Entry:
    """What cell.json says."""

    id: str
    config: knobs.Config
    labels: dict[str, str]
    values: dict[str, float | str | None]
    seed: int
    evaluations: dict[str, dict[str, Any]]
    group: str = ""
    vocabulary: int | None = None  # its real size, where the budget needed it


@dataclass(frozen=True)
class State:
    """How far a cell is."""

    name: str  # done, diverged, running, failed, waiting
    attempts: int = 0
    error: str = ""
    step: int = 0
    steps: int = 0
    seconds: float = 0.0
    missing: tuple[str, ...] = field(default=())  # evaluations that have no result yet


@dataclass(frozen=True)
class Place:
    """A study's workdir."""

    workdir: Path

    # --- paths ------------------------------------------------------------------------------------------------------

    @property
    def study(self) -> Path:
        return self.workdir / "study.json"

    @property
    def compiled(self) -> Path:
        return self.workdir.resolve() / "compiled"

    @property
    def csv(self) -> Path:
        return self.workdir / "results.csv"

    @property
    def report(self) -> Path:
        return self.workdir / "report.html"

    @property
    def summary(self) -> Path:
        return self.workdir / "summary.md"

    @property
    def figures(self) -> Path:
        return self.workdir / "figures"

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
        """The last step of a trained cell: what it ends with, not what was best by the way."""
        return self.cell(cell) / "checkpoints" / str(self.trained(cell)["step"])

    # --- what was asked for -----------------------------------------------------------------------------------------

    def read_study(self) -> dict[str, Any]:
        """study.json; {} where there is none."""
        return files.read(self.study, STUDY) or {}

    def write_study(self, study: Mapping[str, Any]) -> None:
        """Replaces study.json in one move."""
        files.write(self.study, dict(study))

    def cells(self) -> list[Entry]:
        """The cells that study.json lists, in its order."""
        listed = self.read_study().get("cells", [])
        return [self.read_cell(cell) for cell in listed if (self.cell(cell) / "cell.json").exists()]

    def write_cell(self, cell: Cell, group: str, evaluations: Mapping[str, dict[str, Any]]) -> None:
        """Says what a cell is, before anything of it runs."""
        entry = {
            "id": cell.id,
            "labels": cell.labels,
            "values": cell.values,
            "seed": cell.seed,
            "group": group,
        }
        entry |= {
            "config": to_dict(cell.config),
            "evaluations": dict(evaluations),
            "vocabulary": cell.vocabulary,
        }
        files.write(self.cell(cell.id) / "cell.json", entry)

    def read_cell(self, cell: str) -> Entry:
        """What a cell is."""
        found = files.need(self.cell(cell) / "cell.json", CELL)
        names = ("id", "labels", "values", "seed", "evaluations", "group")
        known = found.get("vocabulary")  # which older cells do not say
        try:
            config = recorded(found["config"])
        except ConfigError as error:
            raise DataError(f"{self.cell(cell) / 'cell.json'}: {error}", error.hint) from error
        return Entry(config=config, vocabulary=known, **{name: found[name] for name in names})

    def write_group(self, group: str, cells: Iterable[str], slots: int, seconds: float) -> None:
        """Says which cells train together."""
        files.write(
            self.group(group), {"cells": list(cells), "slots": slots, "estimate_seconds": seconds}
        )

    def read_group(self, group: str) -> dict[str, Any]:
        """Which cells train together."""
        return files.need(self.group(group), GROUP)

    # --- what came of it --------------------------------------------------------------------------------------------

    def trained(self, cell: str) -> dict[str, Any]:
        """How training ended: step, seconds, outcome (done, diverged), error; {} while it has not."""
        return files.read(self.cell(cell) / "trained.json", TRAINED) or {}

    def write_trained(
        self, cell: str, step: int, seconds: float, outcome: str, error: str = ""
    ) -> None:
        """Notes how training ended."""
        found = {"step": step, "seconds": seconds, "outcome": outcome, "error": error}
        files.write(self.cell(cell) / "trained.json", found)

    def read_result(self, entry: Entry, name: str) -> dict[str, Any] | None:
        """What an evaluation found, if it is of this very evaluation."""
        found = files.read(self.result(entry.id, name), RESULT)
        return found if found and found.get("spec") == spec_hash(entry, name) else None

    def write_result(
        self,
        entry: Entry,
        name: str,
        metrics: Mapping[str, float],
        seconds: float,
        each: Mapping[str, np.ndarray],
        error: str = "",
    ) -> None:
        """Keeps what an evaluation found; the arrays first, so that a result is never without them or with others'."""
        path = self.result(entry.id, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        self.each(entry.id, name).unlink(missing_ok=True)
        if each:
            packed = io.BytesIO()
            np.savez_compressed(packed, **dict(each))  # type: ignore[arg-type]  # its stub takes names for flags
            disk.write(self.each(entry.id, name), packed.getvalue())
        found = {
            "spec": spec_hash(entry, name),
            "metrics": dict(metrics),
            "seconds": seconds,
            "error": error,
        }
        files.write(path, found)

    def read_each(self, entry: Entry, name: str) -> dict[str, np.ndarray]:
        """METRIC.sum and METRIC.count of every example; {} where there is none."""
        if not self.read_result(entry, name) or not self.each(entry.id, name).exists():
            return {}
        file = self.each(entry.id, name)
        try:
            with (
                opening.regular(file, DataError) as stream,
                np.load(stream, allow_pickle=False) as found,
            ):
                return {key: found[key] for key in found.files}
        except (OSError, ValueError, EOFError, TypeError, zipfile.BadZipFile) as error:
            # ValueError: a pickle, or an array of objects; TypeError: one array, not an archive of them
            raise DataError(
                f"{file} holds no arrays of numbers: {error}", "delete it and its .json"
            ) from error

    def missing(self, entry: Entry) -> list[str]:
        """Evaluations that have no result yet."""
        return [name for name in entry.evaluations if self.read_result(entry, name) is None]

    def progress(self, cell: str) -> tuple[int, float]:
        """Step and seconds of the last line a cell wrote; zeros before the first."""
        return files.last_step(self.cell(cell) / "metrics.jsonl")

    # --- attempts ---------------------------------------------------------------------------------------------------

    def note_start(self, cell: str, group: str, what: str) -> None:
        """Something begins."""
        self._note(cell, {"event": "start", "group": group, "what": what})

    def note_end(
        self, cell: str, group: str, what: str, outcome: str, code: int, error: str
    ) -> None:
        """It ended: done, failed or stopped."""
        entry = {
            "event": "end",
            "group": group,
            "what": what,
            "outcome": outcome,
            "code": code,
            "error": error,
        }
        self._note(cell, entry)

    def _note(self, cell: str, entry: dict[str, Any]) -> None:
        now = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
        who = {"time": now, "host": socket.gethostname(), "pid": os.getpid()}
        files.append(self.cell(cell) / "attempts.jsonl", who | entry)

    def attempts(self, cell: str) -> list[dict[str, Any]]:
        """What began and what ended, in order."""
        return files.lines(self.cell(cell) / "attempts.jsonl", ATTEMPT)

    # --- how far it is ----------------------------------------------------------------------------------------------

    def busy(self, cell: str) -> bool:
        """Whether somebody trains or evaluates a cell now."""
        folder = self.cell(cell)
        return folder_locks.held(folder) or folder_locks.held(folder, WORK)

    def state(self, entry: Entry, retries: int | None = None) -> State:
        """How far a cell is, from its folder alone."""
        trained = self.trained(entry.id)
        retries = self.read_study().get("retries", RETRIES) if retries is None else retries
        step, seconds = self.progress(entry.id)
        step = max(step, trained["step"] if trained else 0)  # its metrics may be lost
        notes = self.attempts(entry.id)
        starts = sum(note["event"] == "start" for note in notes)
        here = [
            note for note in notes if note.get("group", entry.group) == entry.group
        ]  # what failed in company is
        # tried alone, and what failed before a new plan is tried in it
        lately = here[
            1
            + max((i for i, note in enumerate(here) if note.get("outcome") == "done"), default=-1) :
        ]
        failures = [note for note in lately if note.get("outcome") == "failed"]
        killed = sum({"start": 1, "end": -1}[note["event"]] for note in lately)
        missing = tuple(self.missing(entry))
        error = trained.get("error") or ""
        if trained.get("outcome") == "diverged":
            name = "diverged"
        elif trained and not missing:
            name = "done"
        elif self.busy(entry.id):
            name = "running"
        else:
            usage = (
                bool(failures) and failures[-1].get("code") == ConfigError.code
            )  # no other try can help
            name = "failed" if usage or len(failures) > retries or killed >= KILLS else "waiting"
            error = failures[-1].get("error") or "" if failures else error
        return State(name, starts, error, step, entry.config.steps, seconds, missing)

    def states(self, retries: int | None = None) -> dict[str, State]:
        """Of all cells that are listed."""
        return {entry.id: self.state(entry, retries) for entry in self.cells()}


def spec_hash(entry: Entry, name: str) -> str:
    """Names an evaluation of a cell: another evaluation under the same name is another one."""
    evals = to_dict(entry.config)["evals"]  # masks, which are no part of what is trained
    masks = {key: {k: v for k, v in one.items() if k not in WHEN} for key, one in evals.items()}
    text = json.dumps([entry.id, entry.evaluations[name], masks], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
