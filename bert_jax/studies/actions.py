"""The actions of `bert-jax study`: run a study, show its status, write its report.

`run` trains and evaluates the cells that are missing and writes the report, `status` shows the
progress, `report` writes the report again. All state is in the study's folder. The same command
continues a study, also on another engine. An edited study adds cells and hides others; finished
cells are never trained again.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import logging
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bert_jax.config import shipped, validation
from bert_jax.errors import ConfigError, DataError, IncompleteError, Stopped
from bert_jax.interop.vocabulary import vocabulary_size
from bert_jax.studies import definition, engines, kept, measures, plan, progress, sameness, sources
from bert_jax.studies import reuse as reuses
from bert_jax.studies.definition import Cell, Study, Suite
from bert_jax.studies.engines import WORKER, local
from bert_jax.studies.folder import RETRIES, StudyFolder
from bert_jax.studies.groups import Group
from bert_jax.studies.launch import Launcher
from bert_jax.studies.report import compare, power
from bert_jax.system import disk, folder_locks, machine
from bert_jax.training import trackers

logger = logging.getLogger(__name__)

LOCK = "study.lock"
PACKAGES = ("bert-jax", "jax", "jaxlib", "flax", "optax", "tokenizers", "numpy")


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
    flops_per_second: float = 0.0,
    command: Sequence[str] = (),
    worker: Sequence[str] = WORKER,
) -> None:
    """Expand a study, run every missing cell, and write the report; raise if cells are left."""
    if spec is None:
        raise ConfigError("no study given", "name one, such as experiments/masking_rate")
    folder_locks.check_place(workdir)
    name, study = definition.load(spec, overrides)
    cells = definition.expand(
        study, None if dry_run else functools.partial(vocabulary_size, make=True)
    )
    validation.warn(*(cell.config for cell in cells))
    place = StudyFolder(Path(workdir))
    _check_same(place, name, spec, cells)
    _check_processes(cells, engine, options)
    given = spec.partition(":")[0]
    folder = shipped.find_study(given).parent
    evaluations = evaluations_of(study)
    archives = kept.beside(folder)
    known = reuses.finished(place, cells, reuse, archives, evaluations)
    unfinished = plan.unfinished(place, cells, evaluations)
    missing = [cell for cell in unfinished if cell.id not in known]
    _check_sources(study, missing, given, folder)
    notes = [f"text: {', '.join(_texts(cells))}", *measures.left_out(cells, evaluations)]
    notes += _power(study, cells, place, folder)
    notes += _without_checkpoints(place, cells, known)
    if reuse or known:
        others = ", ".join(map(str, [*reuse, *([folder / kept.FOLDER] if archives else [])]))
        notes.append(f"{len(known)} trained cells are taken from {others}")
    if dry_run:
        room = _dry_room(engine, place.workdir, jobs, options)
        left = [cell for cell in cells if cell.id not in known]
        groups = plan.plan(place, left, evaluations, fuse, room, flops_per_second)
        print(plan.described(place, name, cells, groups, room, notes, flops_per_second))
        return
    trackers.check_trackers({name for cell in missing for name in cell.config.logging.trackers})
    with folder_locks.hold(place.workdir, LOCK):
        executor = engines.make(engine, place.workdir, jobs, options)
        sameness.check(place)
        reuses.take(place, known)
        speed = plan.pace(place, executor.room, flops_per_second)
        groups = plan.plan(place, cells, evaluations, fuse, executor.room, flops_per_second)
        notes += [plan.cost_of_cells(cells, groups, speed), _hidden(place, cells)]
        _write(place, name, spec, study, cells, groups, command, retries)
        sameness.check(place)  # with the cells that were taken
        launcher = Launcher(place, groups, executor, retries, lambda: _refresh(place), worker)
        now = progress.look(place, executor.room.parallel)
        logger.info(f"study {name}: {now.line()}; {executor.describe()}")
        for note in filter(None, notes):
            logger.info(note)
        launcher.run()
        if launcher.full:
            raise disk.full(place.workdir, what="the study")
        answer = _refresh(place)
        _conclude(place, launcher.stopped, answer)


def _texts(cells: Sequence[Cell]) -> list[str]:
    """Name the texts that cells train on."""
    return list(dict.fromkeys(sameness.name_text(cell.config) for cell in cells))


def _check_sources(study: Study, cells: Sequence[Cell], given: str, folder: Path) -> None:
    """Refuse cells to train or evaluate whose data is not here; name the scale that needs none."""
    try:
        sources.check(study, [cell.config for cell in cells])
    except DataError as error:
        if not study.instead:
            raise
        hint = f"{given}:{study.instead} is the study of a text that every machine has"
        if (folder / "summary.md").exists():
            hint += f"; what was found with this text: {folder / 'summary.md'}"
        raise type(error)(str(error), hint) from error


def _without_checkpoints(
    place: StudyFolder, cells: Sequence[Cell], known: Mapping[str, Path]
) -> list[str]:
    """Say how many cells would go on from a cell of records, which has no checkpoint."""
    records = {cell for cell, source in known.items() if source.suffix == ".zip"}
    records |= {cell.id for cell in cells if kept.taken(place, cell.id)}
    alone = [
        cell.fork
        for cell in cells
        if cell.trunk.rpartition("@")[0] in records
        and not (cell.id in known or place.trained(cell.id))
    ]
    if not alone:
        return []
    return [
        f"{len(alone)} cells are trained from their first update, {sum(alone):,} more than the "
        "plan counts: records have no checkpoint to go on from"
    ]


def _hidden(place: StudyFolder, cells: Sequence[Cell]) -> str:
    """Say how many cells of the folder the study no longer has."""
    hidden = set(place.read_study().get("cells", [])) - {cell.id for cell in cells}
    if not hidden:
        return ""
    return f"{len(hidden)} cells of an earlier version of the study are kept, but not shown"


def _dry_room(
    engine: str, workdir: Path, jobs: int, options: Mapping[str, str] | None
) -> engines.Capacity:
    """Return where the runs would go; only the engine of this machine is made to find out."""
    if engine == "local":
        return engines.make(engine, workdir, jobs, options).room
    return engines.Capacity(jobs or 1)


def status(workdir: Path, *, verbose: bool = False, as_json: bool = False) -> None:
    """Print counts, the time left, and the running and failed cells; with `verbose` all cells."""
    place = _existing(workdir)
    now = progress.look(place)
    if as_json:
        study = {"study": place.read_study()["name"], "workdir": str(place.workdir)}
        print(json.dumps(study | now.as_dict(), indent=2))
    else:
        print(now.as_text(place, verbose))


def report(workdir: Path, keep: Path | None = None) -> None:
    """Write results.csv, the figures, the summary and the page; print the path of the page.

    For a study kept without its cells (records, or study.json and results.csv alone), write the
    summary and draw the figures beside it again. With `keep`, write records of its finished cells.
    """
    from bert_jax.studies.report import build as reports

    if archives := kept.beside(Path(workdir)):
        if keep is not None:
            raise ConfigError(
                f"{workdir} is made of records; --keep", "give the --workdir of a `study run`"
            )
        place = StudyFolder(Path(workdir))
        print(reports.write_kept(place, archives), place.report, sep="\n")
        return
    place = _existing(workdir)
    alone = not place.cells() and place.csv.exists()
    sameness.check(place)
    answer = reports.write_summary(place) if alone else reports.write(place)
    print(answer, place.summary if alone else place.report, sep="\n")
    if keep is not None:
        count = kept.write(place, keep)
        logger.info(f"{count} finished cells are kept in {keep}")


def _power(study: Study, cells: Sequence[Cell], place: StudyFolder, folder: Path) -> list[str]:
    """Return the power for the claims that the cells can judge, by runs that there are."""
    others = sorted(folder.resolve().parent.glob("*/results.csv"))
    evaluations = evaluations_of(study)
    points = list(
        {
            tuple(cell.labels.items()): (dict(cell.labels), measures.possible(cell, evaluations))
            for cell in cells
        }.values()
    )
    asked = [claimed for claimed in study.claims if compare.claimed_places(claimed, points)]
    comparisons = [dataclasses.asdict(comparison) for comparison in study.comparisons]
    families = compare.count_families(comparisons, study.claims, points)
    sizes = {axis.name: len({labels[axis.name] for labels, _ in points}) for axis in study.factors}
    tables = [place.csv, folder / "results.csv", *others]
    return power.describe_power(asked, power.Plan(len(study.seeds), families, sizes), tables)


# --- the study's folder ---------------------------------------------------------------------------


def evaluations_of(study: Study) -> dict[str, dict[str, Any]]:
    """Return the evaluations of a study as cell.json and study.json record them."""
    records: dict[str, dict[str, Any]] = {}
    settings: dict[str, Any]
    for name, evaluation in study.evaluations.items():
        if isinstance(evaluation, Suite):
            settings = {"kind": "suite", "name": evaluation.name, "ask": dict(evaluation.ask)}
        else:
            changes = dict(evaluation.changes)
            settings = {"kind": "finetune", "task": evaluation.task, "changes": changes}
        if evaluation.budgets:
            settings["budgets"] = evaluation.budgets
        records[name] = settings
    return json.loads(json.dumps(records))


def _write(
    place: StudyFolder,
    name: str,
    spec: str,
    study: Study,
    cells: Sequence[Cell],
    planned: Sequence[Group],
    command: Any,
    retries: int,
) -> None:
    """Write study.json, the groups and the cells: all that a worker or a report needs."""
    evaluations = evaluations_of(study)
    record: dict[str, Any] = {
        "name": name,
        "spec": spec,
        "question": study.question,
        "axes": [
            {
                "name": axis.name,
                "points": [{"label": point.label, "value": point.value} for point in axis.points],
            }
            for axis in study.factors
        ],
        "seeds": list(study.seeds),
        "budget": study.budget and dataclasses.asdict(study.budget),
        "evaluations": evaluations,
        "comparisons": [dataclasses.asdict(comparison) for comparison in study.comparisons],
        "published": list(study.published),
        "notes": study.notes,
        "texts": _texts(cells),
        "cells": [cell.id for cell in cells],
    }
    if study.claims:
        record["claims"] = [dataclasses.asdict(claimed) for claimed in study.claims]
    record["hash"] = hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()[:12]
    record |= {
        "versions": {"python": platform.python_version()} | machine.versions(PACKAGES),
        "git_commit": machine.git_commit(),
        "command": list(command),
        "retries": retries,
        "expected": {cell.id: {"labels": cell.labels, "seed": cell.seed} for cell in cells},
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
        possible = measures.possible(cell, evaluations)
        place.write_cell(cell, groups.get(cell.id, ""), possible)
    place.write_study(record)


def _refresh(place: StudyFolder) -> str:
    """Write the report of the present state and return its answer.

    A failure stops the study only if the disk is full.
    """
    try:
        from bert_jax.studies.report import build as reports

        return reports.write(place)
    except Exception as error:  # the cells go on, and `study report` shows the whole error
        if disk.is_full(error):
            raise disk.full(place.workdir, what="the report") from error
        logger.warning(f"no report: {type(error).__name__}: {error}")
        return ""


# --- checks, and the end of a run -----------------------------------------------------------------


def _existing(workdir: Path) -> StudyFolder:
    folder_locks.check_place(workdir)
    place = StudyFolder(Path(workdir))
    if not place.read_study():
        raise ConfigError(
            f"no study in {workdir}", "`bert-jax study run STUDY --workdir=…` makes one"
        )
    return place


def _check_same(place: StudyFolder, name: str, spec: str, cells: Sequence[Cell]) -> None:
    """Refuse a workdir that holds another study.

    The cells of the other study would be hidden, and shown again by the next command.
    """
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
    texts = _texts(cells)
    if "texts" in before and not set(before["texts"]) & set(texts):
        raise ConfigError(
            f"{place.workdir} holds a study of {', '.join(before['texts'])}, and this one is of "
            f"{', '.join(texts)}",
            "give each a --workdir of its own",
        )


def _check_processes(cells: Sequence[Cell], engine: str, options: Mapping[str, str] | None) -> None:
    """Refuse cells of several processes where the engine starts one each, and the reverse."""
    engines.check(engine, options)
    count = engines.processes(engine, options)
    joined = [cell.config.parallel.distributed for cell in cells]
    if any(joined) and count == 1:
        raise ConfigError(
            f"parallel.distributed is set, and engine {engine} starts one process for each cell",
            "--engine=slurm --engine-option nodes=N gives each cell N nodes; or leave it out",
        )
    if count > 1 and not all(joined):
        raise ConfigError(
            f"engine {engine} would start {count} processes for each cell, which train one run "
            "only where parallel.distributed is set",
            "--config.parallel.distributed=true, or leave out nodes and tasks_per_node",
        )


def _conclude(place: StudyFolder, stopped: bool, answer: str) -> None:
    """Print the final counts, the answer and the report's path; raise if cells are unfinished."""
    now = progress.look(place)
    left = [cell for cell in now.cells if cell.state.name not in progress.FINAL]
    if stopped and left:
        raise Stopped(f"stopped: {now.line()}", "the same command continues")
    if left:
        first = left[0]
        which = f"{first.entry.id} ({progress.described(first.entry)})"
        more = f" and {len(left) - 1} more" if left[1:] else ""
        why = f": {first.state.error}" if first.state.error else ""
        raise IncompleteError(
            f"{len(left)} of {len(now.cells)} cells failed, {which}{more}{why}",
            f"log: {place.log(first.entry.group)}; `bert-jax study status` lists all; "
            "the same command tries again",
        )
    logger.info(now.line())
    print(*filter(None, [answer, str(place.report)]), sep="\n")
