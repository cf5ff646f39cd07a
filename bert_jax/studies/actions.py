"""What `bert-jax study` does: a question, its runs and its answer, in one folder that holds all there is to know.

`run` makes what is missing and the report, `status` says how far it is, `report` writes the report again. The same
command continues a study, also on another engine; an edited study adds cells and hides others, and never makes a
finished one again.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import platform
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bert_jax.config import validation
from bert_jax.errors import ConfigError, IncompleteError, Stopped
from bert_jax.interop.vocabulary import vocabulary_size
from bert_jax.studies import definition, engines, plan, progress, sameness, sources
from bert_jax.studies import reuse as reuses
from bert_jax.studies.definition import Cell, Study, Suite
from bert_jax.studies.engines import local
from bert_jax.studies.folder import RETRIES, Place
from bert_jax.studies.groups import Group
from bert_jax.studies.launch import WORKER, Launcher
from bert_jax.system import disk, folder_locks, machine

LOCK = "study.lock"
PACKAGES = ("bert-jax", "jax", "jaxlib", "flax", "optax", "grain", "tokenizers", "numpy")


def run(
    spec: str | None,
    workdir: Path,
    *,
    overrides: Sequence[tuple[str, str]] = (),
    engine: str = "local",
    jobs: int = 0,
    options: Mapping[str, str] | None = None,
    fuse: str = "auto",
    retries: int = RETRIES,
    reuse: Sequence[Path] = (),
    dry_run: bool = False,
    command: Sequence[str] = (),
    worker: Sequence[str] = WORKER,
) -> None:
    """Expands a study, makes every cell that is missing, and writes the report; an error says what is left."""
    if spec is None:
        raise ConfigError("no study given", "name its folder, such as experiments/masking_rate")
    folder_locks.check_place(workdir)
    name, study = definition.load(spec, overrides)
    cells = definition.expand(
        study, None if dry_run else functools.partial(vocabulary_size, make=True)
    )
    validation.warn(*(cell.config for cell in cells))
    sources.check(study, [cell.config for cell in cells])
    place = Place(Path(workdir))
    _check_same(place, name, spec, cells)
    known = reuses.finished(place, cells, reuse)
    taken = (
        f"{len(known)} trained cells are taken from {', '.join(map(str, reuse))}" if reuse else ""
    )
    if dry_run:
        engines.check(engine, options)
        room = (
            engines.make(engine, place.workdir, jobs, options).room
            if engine == "local"
            else engines.Room(jobs or 1)
        )
        left = [cell for cell in cells if cell.id not in known]
        planned = plan.plan(place, left, asked(study), fuse, room)
        print(
            plan.described(
                name, cells, planned, room, taken, plan.evaluations(place, planned, room)
            )
        )
        return
    with folder_locks.hold(place.workdir, LOCK):
        hands = engines.make(engine, place.workdir, jobs, options)
        sameness.check(place)
        reuses.take(place, known)
        groups = plan.plan(place, cells, asked(study), fuse, hands.room)
        hidden = set(place.read_study().get("cells", [])) - {cell.id for cell in cells}
        _write(place, name, spec, study, cells, groups, command, retries)
        launcher = Launcher(place, groups, hands, retries, lambda: _refresh(place), worker)
        launcher.say(
            f"study {name}: {progress.look(place, hands.room.parallel).line()}; {hands.describe()}"
        )
        if taken:
            launcher.say(taken)
        if hidden:
            launcher.say(
                f"{len(hidden)} cells of an earlier version of the study stay there, and are not shown"
            )
        launcher.run()
        if launcher.full:
            raise disk.full(place.workdir, what="the study")
        _refresh(place)
        _conclude(place, launcher.stopped)


def status(workdir: Path, *, verbose: bool = False, as_json: bool = False) -> None:
    """Counts of cells, time left, the cells that run and those that failed; with `verbose` all of them."""
    place = _existing(workdir)
    now = progress.look(place)
    told = {"study": place.read_study()["name"], "workdir": str(place.workdir), **now.as_dict()}
    print(json.dumps(told, indent=2) if as_json else now.as_text(place, verbose))


def report(workdir: Path) -> None:
    """Write results.csv, the figures, the summary and the page from what there is now; print where the page is.

    Of a study that is kept without its cells, as study.json and results.csv alone, write the summary.
    """
    place = _existing(workdir)
    from bert_jax.studies.report import build as reports

    kept = not place.cells() and place.csv.exists()
    sameness.check(place)
    print(reports.write_summary(place) if kept else reports.write(place))


# --- what is written ------------------------------------------------------------------------------------------------


def asked(study: Study) -> dict[str, dict[str, Any]]:
    """The evaluations of a study, as cell.json and study.json have them."""
    found = {}
    for name, one in study.evaluations.items():
        if isinstance(one, Suite):
            found[name] = {"kind": "suite", "name": one.name, "ask": dict(one.ask)}
        else:
            found[name] = {"kind": "finetune", "task": one.task, "changes": dict(one.changes)}
    return json.loads(json.dumps(found))


def _write(
    place: Place,
    name: str,
    spec: str,
    study: Study,
    cells: Sequence[Cell],
    planned: Sequence[Group],
    command: Any,
    retries: int,
) -> None:
    """study.json, the groups, and what each cell is: all a worker or a report needs."""
    evaluations = asked(study)
    told: dict[str, Any] = {
        "name": name,
        "spec": spec,
        "question": study.question,
        "axes": [
            {
                "name": axis.name,
                "points": [{"label": point.label, "value": point.value} for point in axis.points],
            }
            for axis in study.axes
        ],
        "seeds": list(study.seeds),
        "budget": study.budget and dataclasses.asdict(study.budget),
        "evaluations": evaluations,
        "comparisons": [dataclasses.asdict(one) for one in study.comparisons],
        "published": list(study.published),
        "notes": study.notes,
        "cells": [cell.id for cell in cells],
    }
    told["hash"] = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:12]
    told |= {
        "versions": {"python": platform.python_version()} | machine.versions(PACKAGES),
        "git_commit": machine.git_commit(),
        "command": list(command),
        "retries": retries,
        "machine": {
            "platform": platform.platform(),
            "cores": len(local.cores()),
            "memory_bytes": machine.memory(),
            "devices": len(local.accelerators()),
        },
    }
    groups = plan.recorded(place, cells) | {
        cell.id: group.id for group in planned for cell in group.cells
    }
    for group in planned:
        place.write_group(group.id, [cell.id for cell in group.cells], group.slots, group.seconds)
    for cell in cells:
        place.write_cell(cell, groups.get(cell.id, ""), evaluations)
    place.write_study(told)


def _refresh(place: Place) -> None:
    """The report as of now; that it cannot be written stops no study, unless the disk is full."""
    try:
        from bert_jax.studies.report import build as reports

        reports.write(place)
    except Exception as error:  # whatever it is, the cells go on, and `study report` shows it whole
        if disk.is_full(error):
            raise disk.full(place.workdir, what="the report") from error
        print(f"warning: no report: {type(error).__name__}: {error}", file=sys.stderr)


# --- what is refused, and how it ends -------------------------------------------------------------------------------


def _existing(workdir: Path) -> Place:
    folder_locks.check_place(workdir)
    place = Place(Path(workdir))
    if not place.read_study():
        raise ConfigError(
            f"no study in {workdir}", "`bert-jax study run STUDY --workdir=…` makes one"
        )
    return place


def _check_same(place: Place, name: str, spec: str, cells: Sequence[Cell]) -> None:
    """A folder has one study: cells of another would be hidden, and shown again by the next command."""
    before = place.read_study()
    if not before:
        if (place.workdir / "checkpoints").exists():
            raise ConfigError(
                f"{place.workdir} is the folder of a run", "give a study a --workdir of its own"
            )
        return
    same_scale = before["spec"].partition(":")[2] == spec.partition(":")[2]
    if before["name"] != name or not (
        same_scale or {cell.id for cell in cells} & set(before["cells"])
    ):
        raise ConfigError(
            f"{place.workdir} holds another study, {before['spec']}",
            "give each a --workdir of its own",
        )


def _conclude(place: Place, stopped: bool) -> None:
    """Says how it ended: an error unless all cells are."""
    now = progress.look(place)
    left = [cell for cell in now.cells if cell.state.name not in progress.FINAL]
    if stopped and left:
        raise Stopped(f"stopped: {now.line()}", "the same command continues")
    if left:
        first = left[0]
        which = f"{first.entry.id} ({progress.described(first)})" + (
            f" and {len(left) - 1} more" if left[1:] else ""
        )
        why = f": {first.state.error}" if first.state.error else ""
        hint = f"log: {place.log(first.entry.group)}; `bert-jax study status` lists all; the same command tries again"
        raise IncompleteError(f"{len(left)} of {len(now.cells)} cells failed, {which}{why}", hint)
    print(now.line(), file=sys.stderr)
    print(place.report)
