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
from bert_jax.studies import (
    definition,
    engines,
    files,
    measures,
    parts,
    plan,
    progress,
    results,
    reuse,
    sameness,
    sources,
)
from bert_jax.studies.definition import Cell, Study, Suite
from bert_jax.studies.engines import local
from bert_jax.studies.engines.base import Capacity
from bert_jax.studies.folder import Entry, StudyFolder
from bert_jax.studies.launch import Launcher
from bert_jax.studies.report import compare, power
from bert_jax.system import disk, folder_locks, machine
from bert_jax.training import trackers

logger = logging.getLogger(__name__)

LOCK = "study.lock"
SWEEP = "sweep "  # before the config of a sweep, in place of a study's file
PACKAGES = ("bert-jax", "jax", "jaxlib", "flax", "optax", "tokenizers", "numpy")


@dataclasses.dataclass(frozen=True)
class Flags:
    """The flags of `study run` and `study sweep`."""

    engine: str = "local"
    jobs: int = 0  # 0: as many as suit the engine
    options: Mapping[str, str] = dataclasses.field(default_factory=dict)  # of the engine
    fuse: str = "auto"
    only: Sequence[str] = ()  # AXIS=VALUE
    reuse: Sequence[Path] = ()
    dry_run: bool = False
    flops_per_second: float = 0.0  # 0: not stated
    command: Sequence[str] = ()


@dataclasses.dataclass(frozen=True)
class Named:
    """A study with its name, what names it on the command line, and the folder of its file."""

    study: Study
    name: str
    spec: str
    beside: Path  # may have tables of finished cells


def run(
    spec: str | None, workdir: Path, flags: Flags, overrides: Sequence[tuple[str, str]] = ()
) -> None:
    """Run the missing cells of a study file."""
    if spec is None:
        raise ConfigError("no study given", "name one, such as experiments/masking_rate")
    folder_locks.check_place(workdir)
    name, study = definition.load(spec, overrides)
    folder = shipped.find_study(spec.partition(":")[0]).parent
    launch(Named(study, name, spec, folder), workdir, flags)


def launch(named: Named, workdir: Path, flags: Flags) -> None:
    """Expand a study, run every missing cell, and write the report; raise if cells are left."""
    folder_locks.check_place(workdir)
    engines.check(flags.engine)
    size = None if flags.dry_run else functools.partial(vocabulary_size, make=True)
    cells = definition.expand(named.study, size)
    validation.warn(*(cell.config for cell in cells))
    study, cells = parts.select(named.study, cells, flags.only)
    place, evaluations = StudyFolder(Path(workdir)), record_evaluations(study)
    entries = [
        Entry(**vars(cell), evaluations=measures.possible(cell, evaluations)) for cell in cells
    ]
    _check_same(place, named, entries)
    _check_processes(entries, flags)
    finished = reuse.find_finished(place, entries, flags.reuse, named.beside)
    missing = _find_missing(place, entries, finished)
    missing = [cell for cell in missing if cell not in finished]  # those to copy may lack results
    _check_sources(study, missing, named)
    notes = [f"text: {', '.join(_name_texts(entries))}", *measures.left_out(cells, evaluations)]
    notes += _describe_taken(place, entries, finished)
    if missing:
        notes += _describe_power(study, entries, place, named.beside)
    if flags.dry_run:
        capacity = Capacity(flags.jobs or 1)
        if flags.engine == "local":
            capacity = engines.make("local", place, flags.jobs, flags.options).capacity
        planned = plan.plan(place, missing, flags.fuse, capacity)
        speed = plan.find_speed(place, flags.flops_per_second)
        print(plan.describe(place, named.name, entries, planned, capacity, notes, speed))
        return
    trackers.check_trackers({name for cell in missing for name in cell.config.logging.trackers})
    with folder_locks.hold(place.workdir, LOCK):
        engine = engines.make(flags.engine, place, flags.jobs, flags.options)
        reuse.take(place, finished)
        missing = _find_missing(place, entries, finished)
        planned = plan.plan(place, missing, flags.fuse, engine.capacity)
        hidden = set(place.read_study().get("cells", ())) - {cell.id for cell in entries}
        if hidden:
            notes.append(f"{len(hidden)} cells of an earlier version of the study are not shown")
        known = place.groups()
        for group in planned:
            if group.id not in known:
                place.write_group(group.id, [cell.id for cell in group.cells], group.slots)
        place.write_study(_record(place, dataclasses.replace(named, study=study), flags), entries)
        _check_data(place)
        launcher = Launcher(place, planned, engine, lambda: _write_report(place))
        now = progress.look(place, engine.capacity.parallel)
        logger.info(f"study {named.name}: {now.line()}; {engine.describe()}")
        speed = plan.find_speed(place, flags.flops_per_second)
        for note in filter(None, [*notes, planned and plan.describe_cells(entries, speed)]):
            logger.info(note)
        launcher.run()
        if launcher.full:
            raise disk.full(place.workdir, what="the study")
        _conclude(place, launcher.stopped, _write_report(place))


def _find_missing(
    place: StudyFolder, cells: Sequence[Entry], finished: reuse.Finished
) -> list[Entry]:
    """Return the cells that are still to train or to evaluate here."""
    left = [cell for cell in cells if cell.id not in finished.rows]
    return [cell for cell in left if place.read_state(cell).name not in progress.FINAL]


def status(workdir: Path, *, verbose: bool = False, as_json: bool = False) -> None:
    """Print counts, the time left, and the running and failed cells; with `verbose` all cells."""
    place = _open_study(workdir)
    now = progress.look(place)
    if as_json:
        study = {"study": place.read_study()["name"], "workdir": str(place.workdir)}
        print(json.dumps(study | now.as_dict(), indent=2))
    else:
        print(now.as_text(place, verbose))


def report(workdir: Path) -> None:
    """Write the tables, the figures, the summary and the page; print the path of the page.

    In a folder of tables without cells, such as that of a committed study, the tables stay.
    """
    from bert_jax.studies.report import build

    place = _open_study(workdir)
    _check_data(place)
    print(build.write(place), place.report, sep="\n")


def _describe_power(
    study: Study, cells: Sequence[Entry], place: StudyFolder, beside: Path
) -> list[str]:
    """Return the power for the claims that the cells can judge, by runs that there are."""
    points = {
        tuple(cell.labels.items()): (dict(cell.labels), set(cell.evaluations)) for cell in cells
    }
    known = list(points.values())
    asked = [claimed for claimed in study.claims if compare.claimed_places(claimed, known)]
    if not asked:
        return []
    comparisons = [dataclasses.asdict(comparison) for comparison in study.comparisons]
    families = compare.count_families(comparisons, study.claims, known)
    sizes = {axis.name: len({labels[axis.name] for labels, _ in known}) for axis in study.factors}
    others = sorted(beside.resolve().parent.glob("*/results.csv"))
    tables = [place.csv, beside / "results.csv", *others]
    return power.describe_power(asked, power.Plan(len(study.seeds), families, sizes), tables)


# --- the study's folder ---------------------------------------------------------------------------


def record_evaluations(study: Study) -> dict[str, dict[str, Any]]:
    """Return the evaluations of a study as study.json records them."""
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


def _record(place: StudyFolder, named: Named, flags: Flags) -> dict[str, Any]:
    """Describe a study for study.json, without its cells."""
    study = named.study
    record: dict[str, Any] = {
        "name": named.name,
        "spec": named.spec,
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
        "evaluations": record_evaluations(study),
        "comparisons": [dataclasses.asdict(comparison) for comparison in study.comparisons],
        "claims": [dataclasses.asdict(claimed) for claimed in study.claims],
        "published": list(study.published),
        "notes": study.notes,
    }
    record["hash"] = hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()[:12]
    return record | {
        "begun": results.find_begin(place) or files.tell_time(),
        "versions": {"python": platform.python_version()} | machine.versions(PACKAGES),
        "git_commit": machine.git_commit(),
        "command": list(flags.command),
        "machine": {
            "platform": platform.platform(),
            "cores": len(local.find_cores()),
            "memory_bytes": machine.memory(),
            "devices": len(local.find_accelerators()),
        },
    }


def _write_report(place: StudyFolder) -> str:
    """Write the report of the present state and return its answer.

    A failure stops the study only if the disk is full.
    """
    try:
        from bert_jax.studies.report import build

        return build.write(place)
    except Exception as error:  # the cells go on, and `study report` shows the whole error
        if disk.is_full(error):
            raise disk.full(place.workdir, what="the report") from error
        logger.warning(f"no report: {type(error).__name__}: {error}")
        return ""


def _name_texts(cells: Sequence[Cell]) -> list[str]:
    """Name the texts that cells train on."""
    return list(dict.fromkeys(sameness.name_text(cell.config) for cell in cells))


def _describe_taken(
    place: StudyFolder, cells: Sequence[Entry], finished: reuse.Finished
) -> list[str]:
    """Say how many cells are taken, and how many would go on from one that has no checkpoint."""
    if not len(finished):
        return []
    sources = {folder for folder, _ in finished.rows.values()}
    sources |= {folder.parents[1] for folder in finished.folders.values()}
    named = ", ".join(sorted(str(source) for source in sources))
    notes = [f"{len(finished)} finished cells are taken from {named}"]
    forks = [
        cell.fork
        for cell in cells
        if cell.trunk.rpartition("@")[0] in finished.rows
        and not (cell in finished or place.read_trained(cell.id))
    ]
    if forks:
        notes.append(
            f"{len(forks)} cells are trained from their first update, {sum(forks):,} more than the "
            "plan counts: tables have no checkpoint to go on from"
        )
    return notes


# --- checks, and the end of a run -----------------------------------------------------------------


def _open_study(workdir: Path) -> StudyFolder:
    folder_locks.check_place(workdir)
    place = StudyFolder(Path(workdir))
    if not place.read_study():
        raise ConfigError(
            f"no study in {workdir}", "`bert-jax study run STUDY --workdir=…` makes one"
        )
    return place


def _check_data(place: StudyFolder) -> None:
    found = results.gather_cells(place, history=False)
    sameness.check_alike(place, found)
    sameness.check_unchanged(place, found)


def _check_sources(study: Study, cells: Sequence[Cell], named: Named) -> None:
    """Refuse cells to train or evaluate whose data is not here; name the scale that needs none."""
    try:
        sources.check(study, [cell.config for cell in cells])
    except DataError as error:
        if not study.instead:
            raise
        given = named.spec.partition(":")[0]
        hint = f"{given}:{study.instead} is the study of a text that every machine has"
        if (named.beside / "summary.md").exists():
            hint += f"; what was found with this text: {named.beside / 'summary.md'}"
        raise type(error)(str(error), hint) from error


def _check_same(place: StudyFolder, named: Named, cells: Sequence[Cell]) -> None:
    """Refuse a workdir that holds another study.

    The cells of the other study would be hidden, and shown again by the next command.
    """
    before = place.read_study()
    hint = "give each study a --workdir of its own"
    if not before:
        if (place.workdir / "checkpoints").exists():
            raise ConfigError(f"{place.workdir} is the folder of a run", hint)
        return
    same = before["spec"] == named.spec
    if not (SWEEP in before["spec"] or SWEEP in named.spec):  # or a file elsewhere, of one scale
        same = before["spec"].partition(":")[2] == named.spec.partition(":")[2]
    shared = {cell.id for cell in cells} & set(before["cells"])
    if before["name"] != named.name or not (same or shared):
        raise ConfigError(f"{place.workdir} holds another study, {before['spec']}", hint)
    there, here = _name_texts(place.cells()), _name_texts(cells)
    if not set(there) & set(here):
        texts = f"a study of {', '.join(there)}, and this one is of {', '.join(here)}"
        raise ConfigError(f"{place.workdir} holds {texts}", hint)


def _check_processes(cells: Sequence[Cell], flags: Flags) -> None:
    """Refuse cells of several processes where the engine starts one each, and the reverse."""
    count = engines.count_processes(flags.engine, flags.options)
    joined = [cell.config.parallel.distributed for cell in cells]
    if any(joined) and count == 1:
        raise ConfigError(
            f"parallel.distributed is set, and engine {flags.engine} starts one process for each "
            "cell",
            "--engine=slurm --engine-option nodes=N gives each cell N nodes; or leave it out",
        )
    if count > 1 and not all(joined):
        raise ConfigError(
            f"engine {flags.engine} would start {count} processes for each cell, which train one "
            "run only where parallel.distributed is set",
            "--config.parallel.distributed=true, or leave out nodes and tasks_per_node",
        )


def _conclude(place: StudyFolder, stopped: bool, answer: str) -> None:
    """Print the final counts, the answer and the report's path; raise if cells are unfinished."""
    now = progress.look(place)
    left = [cell for cell in now.cells if cell.state.name not in progress.FINAL]
    if left and (stopped or not any(cell.state.error for cell in left)):
        raise Stopped(f"stopped: {now.line()}", "the same command continues")
    if left:
        first = next(cell for cell in left if cell.state.error)
        which = f"{first.entry.id} ({progress.describe(first.entry)})"
        more = f" and {len(left) - 1} more" if left[1:] else ""
        raise IncompleteError(
            f"{len(left)} of {len(now.cells)} cells are not finished, {which}{more}: "
            f"{first.state.error}",
            f"log: {place.log(now.groups.get(first.entry.id, ''))}; `bert-jax study status` lists "
            "all; the same command tries again",
        )
    logger.info(now.line())
    print(*filter(None, [answer, str(place.report)]), sep="\n")
