"""The actions of `bert-jax study`: run a study, show its status, write its report.

`run` trains and evaluates the cells that are missing, and writes the report. `status` shows the
progress, and `report` writes the report again. All state is in the study's folder. The same command
continues a study, on any engine. Editing a study adds cells and hides cells; a finished cell is
never trained again.
"""

import dataclasses
import functools
import json
import logging
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Any

from bert_jax.config import shipped, validation
from bert_jax.errors import ConfigError, DataError, IncompleteError, Stopped, need
from bert_jax.interop.vocabulary import vocabulary_size
from bert_jax.studies import (
    definition,
    engines,
    measures,
    plan,
    progress,
    results,
    reuse,
    sameness,
    trunks,
)
from bert_jax.studies.folder import StudyFolder
from bert_jax.studies.groups import find_groups
from bert_jax.studies.launch import Launcher
from bert_jax.studies.origin import describe_origin
from bert_jax.studies.spec import Axis, Cell, Point, Study
from bert_jax.system import disk, folder_locks
from bert_jax.system.counts import choose_verb, format_count
from bert_jax.training import trackers

logger = logging.getLogger(__name__)

LOCK = "study.lock"
SWEEP = "sweep "  # before the config of a sweep, in place of a study's file


@dataclasses.dataclass(frozen=True)
class Flags:
    """The flags that `study run` and `study sweep` have in common."""

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
    """A study with its name, the argument that named it, and the folder of its file."""

    study: Study
    name: str
    spec: str
    beside: Path  # may have tables of finished cells


def run_study(
    spec: str | None, workdir: Path, flags: Flags, overrides: Sequence[tuple[str, str]] = ()
) -> None:
    """Load a study file and run its missing cells."""
    if spec is None:
        raise ConfigError("no study given", "name one, such as experiments/masking_rate")
    name, study = definition.load_study(spec, overrides)
    folder = shipped.find_study(spec.partition(":")[0]).parent
    launch_study(Named(study, name, spec, folder), workdir, flags)


def launch_study(named: Named, workdir: Path, flags: Flags) -> None:
    """Run every missing cell of a study and write its report; raise if cells are left.

    With `flags.dry_run`, only print what would be run.
    """
    folder_locks.check_place(workdir)
    hint = f"one of: {', '.join(engines.TABLE)}"
    need(flags.engine in engines.TABLE, f"no engine {flags.engine!r}", hint)
    size = None if flags.dry_run else functools.partial(vocabulary_size, make=True)
    cells = definition.expand(named.study, size)
    validation.warn_of_warmup(*(cell.config for cell in cells))
    study, cells = definition.select_cells(named.study, cells, flags.only)
    named = dataclasses.replace(named, study=study)
    place = StudyFolder(Path(workdir))
    _check_same(place, named, cells)
    finished = reuse.find_finished(place, cells, flags.reuse, named.beside)
    todo = {cell.id for cell in _find_missing(place, cells) if not reuse.is_whole(cell, finished)}
    trained = {cell for cell in todo if cell in finished or place.read_trained(cell)}
    cells = [_drop_absent_trunk(place, cell, todo - trained, finished) for cell in cells]
    missing = [cell for cell in cells if cell.id in todo]
    _check_sources(named, missing)
    if flags.dry_run:
        _print_plan(place, named, flags, cells, missing, trained, finished)
        return
    notes = _list_notes(place, named, cells, missing, finished)
    trackers.check_trackers({name for cell in missing for name in cell.config.logging.trackers})
    with folder_locks.hold_lock(place.workdir, LOCK):
        engine = engines.TABLE[flags.engine](place, flags.jobs, flags.options)
        _check_processes(cells, engine.processes)
        reuse.copy_cells(place, finished)
        taken = results.find_taken(place, cells)
        missing = [cell for cell in _find_missing(place, cells) if cell.id not in taken]
        groups = find_groups(place, missing, flags.fuse, engine.parallel)
        before = place.read_study() if place.study.exists() else None
        if before and (hidden := len(before.cells.keys() - {cell.id for cell in cells})):
            left_out = f"{format_count(hidden, 'cell')} that this launch leaves out"
            notes.append(f"{left_out} {choose_verb(hidden)} not shown")
        known = place.read_groups()
        for group in groups:
            if group.id not in known:
                place.write_group(group.id, [cell.id for cell in group.cells], group.slots)
        sources = reuse.read_sources(finished)
        origin = describe_origin(flags.command, before, sources, trains=bool(missing))
        place.write_study(_describe_study(named) | origin, cells)
        untrained = [cell for cell in missing if not place.read_trained(cell.id)]
        sameness.check_data(place, results.gather_cells(place), untrained)
        now = progress.read_progress(place)
        line = now.format_line(engine.parallel)
        logger.info(f"study {named.name}: {line}; {engine.describe()}")
        for note in notes:
            logger.info(note)
        launcher = Launcher(place, groups, engine)
        launcher.run()
        if launcher.full:
            raise disk.make_full_error(place.workdir, what="the study")
        answer = _write_report(place)
        if launcher.unwritable:
            folder_locks.check_writable(launcher.unwritable)
        if groups and not launcher.stopped:
            sameness.check_data(place, results.gather_cells(place))
        _print_answer(place, launcher.stopped, answer)


def _find_missing(place: StudyFolder, cells: Sequence[Cell]) -> list[Cell]:
    """Return the cells that are not yet trained, or lack an evaluation."""
    return [cell for cell in cells if place.read_state(cell).name not in progress.FINAL]


def _drop_absent_trunk(
    place: StudyFolder, cell: Cell, untrained: Set[str], finished: Mapping[str, Path]
) -> Cell:
    """Return a cell without its trunk if the cell trains by itself, or was trained so.

    A cell from tables keeps its trunk, because tables do not tell how the cell was trained.
    """
    trunk = cell.trunk.rpartition("@")[0]
    folder = finished.get(cell.id, place.cell(cell.id))
    before = finished.get(trunk, place.cell(trunk))
    in_tables = folder.name != cell.id
    if in_tables or trunks.is_branch(cell, folder, before, coming=trunk in untrained):
        return cell
    return dataclasses.replace(cell, trunk="")


def show_status(workdir: Path, *, verbose: bool = False, as_json: bool = False) -> None:
    """Print the number of cells in each state, the time left, and the running and failed cells.

    With `verbose` all cells are printed, and with `as_json` all is printed as JSON.
    """
    folder_locks.check_place(workdir)
    place = StudyFolder(Path(workdir))
    now = progress.read_progress(place)
    if as_json:
        study = {"study": place.read_study().name, "workdir": str(place.workdir)}
        print(json.dumps(study | now.as_dict(), indent=2))
    else:
        print(now.format_lines(place, verbose))


def report_study(workdir: Path) -> None:
    """Write the tables, figures, summary and page of a study; print the path of the page.

    If the folder holds only tables, as that of a committed study does, the tables stay as they are.
    """
    from bert_jax.studies.report import build

    folder_locks.check_place(workdir)
    place = StudyFolder(Path(workdir))
    sameness.check_data(place, results.gather_cells(place))
    print(build.write_report(place), place.report, sep="\n")


# --- what is told before cells run ----------------------------------------------------------------


def _print_plan(
    place: StudyFolder,
    named: Named,
    flags: Flags,
    cells: Sequence[Cell],
    missing: Sequence[Cell],
    trained: Set[str],
    finished: Mapping[str, Path],
) -> None:
    """Print what a launch would run."""
    parallel = flags.jobs or 1
    if flags.engine == "local":
        parallel = engines.TABLE["local"](place, flags.jobs, flags.options).parallel
    groups = find_groups(place, missing, flags.fuse, parallel)
    pace = progress.read_progress(place).pace if place.study.exists() else 0.0
    cost = plan.describe_cost(groups, trained, parallel, flags.flops_per_second, pace)
    notes = _list_notes(place, named, cells, missing, finished)
    print(plan.describe_plan(named.name, cells, groups, notes, cost))


def _list_notes(
    place: StudyFolder,
    named: Named,
    cells: Sequence[Cell],
    missing: Sequence[Cell],
    finished: Mapping[str, Path],
) -> list[str]:
    """List the lines that a launch prints before it starts.

    They name the texts, the evaluations that some cells lack, the sources of finished cells, and
    the power of each claim.
    """
    texts = dict.fromkeys(sameness.name_text(cell.config) for cell in cells)
    notes = [f"text: {', '.join(texts)}"]
    notes += measures.describe_left_out(cells, measures.record_evaluations(named.study))
    if finished:
        taken = ", ".join(map(str, reuse.list_sources(finished)))
        count = format_count(len(finished), "finished cell")
        notes.append(f"{count} {choose_verb(len(finished))} taken from {taken}")
    if missing:
        notes += _describe_power(place, named, cells)
    return notes


def _describe_power(place: StudyFolder, named: Named, cells: Sequence[Cell]) -> list[str]:
    """Describe, in a line for each claim, how likely the study finds the claimed difference.

    Claims that the cells cannot test are left out. The spread is taken from studies that have run.
    """
    from bert_jax.studies.report import compare, power  # scipy takes a while to load

    study = named.study
    known = [(cell.labels, set(cell.evaluations)) for cell in cells]
    asked = [claimed for claimed in study.claims if compare.find_claimed_places(claimed, known)]
    if not asked:
        return []
    families = compare.count_families(study.comparisons, study.claims, known)
    points = {axis.name: len({labels[axis.name] for labels, _ in known}) for axis in study.factors}
    others = sorted(named.beside.resolve().parent.glob("*/results.csv"))
    tables = [place.csv, named.beside / "results.csv", *others]
    return power.describe_power(asked, power.Sizes(len(study.seeds), families, points), tables)


# --- the study's folder ---------------------------------------------------------------------------


def _describe_study(named: Named) -> dict[str, Any]:
    """List the fields of a study's record, without its cells and its origin."""
    study = named.study
    axes = []
    for axis in study.factors:
        points = tuple(Point(point.label, point.value) for point in axis.points)
        axes.append(Axis(axis.name, points))
    return {
        "name": named.name,
        "spec": named.spec,
        "question": study.question,
        "axes": tuple(axes),
        "seeds": study.seeds,
        "budget": study.budget,
        "evaluations": measures.record_evaluations(study),
        "comparisons": study.comparisons,
        "claims": study.claims,
        "published": study.published,
        "notes": study.notes,
    }


def _write_report(place: StudyFolder) -> str | None:
    """Write the report of the study's present state and return its answer.

    If this fails, the result is None, except when the disk is full.
    """
    try:
        from bert_jax.studies.report import build

        return build.write_report(place)
    except Exception as error:  # the cells go on, and `study report` shows the whole error
        if disk.is_full(error):
            raise disk.make_full_error(place.workdir, what="the report") from error
        logger.warning(f"no report: {type(error).__name__}: {error}")
        return None


def _print_answer(place: StudyFolder, stopped: bool, answer: str | None) -> None:
    """Print the answer and the report's path; raise if cells or the report are not finished."""
    now = progress.read_progress(place)
    left = now.unfinished
    failed = [cell for cell in left if cell.state.error]
    if left and (stopped or not failed):
        raise Stopped(f"stopped: {now.format_line()}", "the same command continues")
    if left:
        total = format_count(len(now.cells), "cell")
        first = failed[0]
        which = f"{first.entry.id} ({progress.describe_cell(first.entry)})"
        more = f" and {len(left) - 1} more" if left[1:] else ""
        raise IncompleteError(
            f"{len(left)} of {total} {choose_verb(len(left))} not finished, {which}{more}: "
            f"{first.state.error}",
            f"log: {place.log(now.groups.get(first.entry.id, ''))}; `bert-jax study status` lists "
            "all; the same command tries again",
        )
    logger.info(now.format_line())
    if answer is None:
        problem = f"all cells are finished, and {place.report} could not be written"
        raise IncompleteError(problem, "`bert-jax study report` shows why")
    print(*filter(None, [answer, str(place.report)]), sep="\n")


# --- checks ---------------------------------------------------------------------------------------


def _check_same(place: StudyFolder, named: Named, cells: Sequence[Cell]) -> None:
    """Refuse a workdir that holds a run or another study."""
    hint = "give each study a --workdir of its own"
    if not place.study.exists():
        is_run = (place.workdir / "checkpoints").exists()
        need(not is_run, f"{place.workdir} is the folder of a run", hint)
        return
    before = place.read_study()
    specs = {before.spec, named.spec}
    scales = {spec.partition(":")[2] for spec in specs}  # of a study file, wherever it lies
    swept = [spec.startswith(SWEEP) for spec in specs]
    same = len(specs) == 1 or (len(scales) == 1 and not any(swept))
    shared = any(cell.id in before.cells for cell in cells)
    # A sweep is named after its workdir, which may have been moved.
    right = (all(swept) or before.name == named.name) and (same or shared)
    need(right, f"{place.workdir} holds another study, {before.spec}", hint)


def _check_processes(cells: Sequence[Cell], count: int) -> None:
    """Refuse cells whose `parallel.distributed` does not fit the engine.

    An engine starts either one process or several processes for each cell.
    """
    for cell in cells:
        need(
            cell.config.parallel.distributed == (count > 1),
            f"the engine starts {count} process{'es' * (count > 1)} for each cell, and "
            f"parallel.distributed is {cell.config.parallel.distributed}",
            "--engine=slurm --engine-option nodes=N gives each cell N nodes, and needs "
            "--config.parallel.distributed=true",
        )


def _check_sources(named: Named, cells: Sequence[Cell]) -> None:
    """Refuse cells whose data is not on this machine.

    The hint names a variant of the study that needs no data, if the study has one.
    """
    try:
        measures.check_sources(named.study, cells)
    except DataError as error:
        if not named.study.instead:
            raise
        given = named.spec.partition(":")[0]
        hint = f"{given}:{named.study.instead} is the study of a text that every machine has"
        if (named.beside / "summary.md").exists():
            hint += f"; what was found with this text: {named.beside / 'summary.md'}"
        raise type(error)(str(error), hint) from error
