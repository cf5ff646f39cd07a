"""The worker of a study: it trains a group in one program, then evaluates its cells.

    python -m bert_jax.study work --workdir=W --group=ID

A worker does the work that is missing, so it may be stopped and started again at any moment. All
its inputs are in the workdir. Whatever fails is noted in the folders of its cells.

If `parallel.distributed` is set, an engine starts several workers for a group of one cell, each
with its number in JAX_PROCESS_ID. Each starts a child process, and these train the cell together;
then worker 0 evaluates it, as the worker of any other cell does. The children are needed because a
process that has joined others cannot evaluate alone. Of them only process 0 writes.
"""

from __future__ import annotations

import dataclasses
import hashlib
import logging
import os
import platform
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from bert_jax.config.knobs import Config
from bert_jax.errors import ConfigError, DataError, DivergedError, Stopped, UserError
from bert_jax.studies import files, results
from bert_jax.studies.engines.base import FAILED, FULL, STOPPED, WORKER, start_process, wait_for
from bert_jax.studies.folder import WORK, StudyFolder
from bert_jax.studies.spec import Cell
from bert_jax.system import allocator, disk, machine
from bert_jax.system.disk import DiskFull

logger = logging.getLogger(__name__)

Train = Callable[..., bool]  # bert_jax.train.train, which a study may not import
STOPS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
CHILD = "BERT_JAX_JOINED"  # set in a child process, which trains with other ones
EVALUATED = "eval/validation/"  # metrics of a fine-tuning that are its result


def work(place: StudyFolder, group: str, train: Train) -> None:
    """Train and evaluate the cells of a group as far as is missing, holding their locks."""
    from bert_jax.training import stop

    record = place.read_group(group)
    cells = [cell for cell in place.cells() if cell.id in record.cells]
    taken = results.find_taken(place, cells)  # since the group was planned
    cells = [cell for cell in cells if cell.id not in taken]
    with ExitStack() as locks:
        for cell in cells:
            try:
                locks.enter_context(stop.run_lock(place.cell(cell.id), WORK))
            except ConfigError as error:  # held by a worker of an earlier launch: not a failure
                hint = "the same command goes on when that process has ended"
                raise Stopped(str(error), hint) from error
        left = [cell for cell in cells if not place.read_trained(cell.id)]
        for together in split_by_step(place, left):
            attempt(
                place, together, "training", lambda some: _train(place, some, record.slots, train)
            )
        if CHILD not in os.environ:
            _evaluate(place, cells, train)


def attempt(
    place: StudyFolder, cells: Sequence[Cell], activity: str, act: Callable[[Sequence[Cell]], None]
) -> None:
    """Do something with several cells together and, if it fails, with each of them alone.

    Cells of an earlier failure are tried alone at once, because one of them may have killed the
    process. A failure is noted in its cell, and the other cells go on.
    """
    failed = [place.cell(cell.id) / "error.json" for cell in cells if place.read_failure(cell.id)]
    if failed and len(cells) > 1:
        for cell in sorted(cells, key=lambda cell: _read_age(place, cell)):
            # A cell that kills the process now has the last failure, and is tried last next time.
            with suppress(FileNotFoundError):
                os.utime(place.cell(cell.id) / "error.json")
            attempt(place, [cell], activity, act)
        return
    try:
        with disk.reporting_full_disk(place.workdir):
            act(cells)
    except (Stopped, DiskFull):  # no failures of the cells
        raise
    except Exception as error:  # of whatever type: the launcher reads it from the cells
        _print_error(error)
        text = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
        for cell in cells:
            if _writes():
                place.write_failure(cell.id, activity, text)
        if CHILD in os.environ:  # the other processes have to end, too
            raise
        if len(cells) > 1:
            attempt(place, cells, activity, act)
    else:
        for cell in cells:
            if _writes():
                place.clear_failure(cell.id, activity)


def _read_age(place: StudyFolder, cell: Cell) -> int:
    """Return when a cell failed last; 0 if it did not."""
    path = place.cell(cell.id) / "error.json"
    return path.stat().st_mtime_ns if path.exists() else 0


def _writes() -> bool:
    """Tell whether this process writes files of the study: of joined ones only the first does."""
    if CHILD not in os.environ:
        return True
    import jax

    return jax.process_index() == 0


def _print_error(error: Exception) -> None:
    if isinstance(error, UserError):
        hint = f"\nhint: {error.hint}" if error.hint else ""
        print(f"error: {error}{hint}", file=sys.stderr)
    else:
        traceback.print_exception(error)


# --- training -------------------------------------------------------------------------------------


def split_by_step(place: StudyFolder, cells: Sequence[Cell]) -> Iterator[list[Cell]]:
    """Yield cells that share a saved step, or begin at one: together they repeat no work."""
    saved = {cell.id: _list_saved(place, cell) for cell in cells}
    forks = {cell.id: _find_branch(place, cell).trunk[1] for cell in cells}
    left = [*cells]
    while left:
        first = min(left, key=lambda cell: max(saved[cell.id], default=0))
        at = max(saved[first.id], default=0)
        chosen = []
        for cell in left:
            fresh = not saved[cell.id] and forks[cell.id] == forks[first.id]
            if at in saved[cell.id] or (not at and fresh):
                chosen.append(cell)
        yield chosen
        left = [cell for cell in left if cell not in chosen]


def _list_saved(place: StudyFolder, cell: Cell) -> set[int]:
    from bert_jax.checkpoints.steps import list_steps

    return {*list_steps(place.cell(cell.id) / "checkpoints")}


def _find_branch(place: StudyFolder, cell: Cell) -> Config:
    """Return the config that a cell trains: a branch of its trunk's checkpoint, if that is there.

    What has begun goes on as it began.
    """
    trunk, _, step = cell.trunk.rpartition("@")
    branches = bool(trunk) and place.saved(trunk, cell.fork) is not None
    if _list_saved(place, cell):
        before = files.read_json(place.cell(cell.id) / "config.json", dict[str, Any]) or {}
        branches = bool(trunk) and str(before.get("branch_from", "")).endswith(f"@{step}")
    if not branches:
        return cell.config
    return dataclasses.replace(cell.config, branch_from=f"{place.cell(trunk)}@{step}")


def _train(place: StudyFolder, cells: Sequence[Cell], slots: int, train: Train) -> None:
    """Train cells together, and write how each ended."""
    folders = {place.cell(cell.id): cell for cell in cells}

    def write_end(cell: Cell, outcome: str, error: str = "") -> None:
        last = place.read_last_metrics(cell.id)
        step = max([last.get("step", 0), *_list_saved(place, cell)])  # metrics may be lost
        # Each clock ran while all cells were trained.
        seconds = last.get("time", 0.0) / len(cells)
        if _writes():
            place.write_trained(cell.id, step, seconds, outcome, error)

    def on_diverged(workdir: Path, error: DivergedError) -> None:
        write_end(folders[workdir], "diverged", str(error))

    runs = [(_find_branch(place, cell), folder) for folder, cell in folders.items()]
    stop = _train_together(runs, slots, train, on_diverged)
    for cell in cells:
        if not place.read_trained(cell.id):
            write_end(cell, "done")
    _raise_if(stop)


def _train_together(
    runs: list[tuple[Any, Path]],
    slots: int,
    train: Train,
    on_diverged: Callable[[Path, DivergedError], None],
) -> bool:
    """Train runs in one program; return whether a stop was requested by the time they ended."""
    logger.info(f"training {len(runs)} runs; the figures are those of the first")
    try:
        return train(runs, slots=slots, on_diverged=on_diverged)
    except DivergedError as error:  # of the last run left; `on_diverged` was called for it
        logger.info(f"all runs diverged: {error}")
        return False


def _raise_if(stop: bool) -> None:
    if stop:
        raise Stopped("stopped, with everything saved", "the same command continues")


# --- evaluation -----------------------------------------------------------------------------------


def _evaluate(place: StudyFolder, cells: Sequence[Cell], train: Train) -> None:
    """Make the missing evaluations of the trained cells, one evaluation after another."""
    trained = {cell.id: place.read_trained(cell.id) for cell in cells}
    done = [cell for cell in cells if (ended := trained[cell.id]) and ended.outcome == "done"]
    for name in dict.fromkeys(name for cell in done for name in cell.evaluations):
        missing = [cell for cell in done if name in place.missing(cell)]
        tuned = [cell for cell in missing if cell.evaluations[name]["kind"] == "finetune"]
        activity = f"evaluation {name}"
        if tuned:
            attempt(place, tuned, activity, lambda some: _finetune(place, some, name, train))  # noqa: B023  # called here
            continue
        for number, cell in enumerate(missing):
            logger.info(f"{name}: cell {number + 1} of {len(missing)}")
            attempt(place, [cell], activity, lambda some: _run_suite(place, some[0], name))  # noqa: B023  # called here


def _run_suite(place: StudyFolder, cell: Cell, name: str) -> None:
    """Evaluate the checkpoint of a trained cell's last step, which need not be its best."""
    from bert_jax import suites
    from bert_jax.interop import runs

    settings = cell.evaluations[name]
    began = time.monotonic()
    run = runs.open_run(str(_find_last(place, cell)))
    # The evaluations of the present study, which may have been edited since training.
    run = run.changed(evals=cell.config.evals)
    (options,) = suites.build([settings["name"]], **dict(settings["ask"]))
    metrics, each = suites.score(run, options)
    place.write_result(cell, name, flat(metrics), time.monotonic() - began, each)


def _find_last(place: StudyFolder, cell: Cell) -> Path:
    trained = place.read_trained(cell.id)
    return place.cell(cell.id) / "checkpoints" / str(trained.step if trained else 0)


def _finetune(place: StudyFolder, cells: Sequence[Cell], name: str, train: Train) -> None:
    """Fine-tune the checkpoints of several cells in one program; keep their last evaluations.

    Each fine-tuning has the seed and data order of its cell, so that runs which are paired in the
    study are paired here too.
    """
    from bert_jax import recipes
    from bert_jax.config import resolve

    runs = []
    for cell in cells:
        settings = cell.evaluations[name]
        changes = {"data_seed": cell.config.data_seed} | dict(settings["changes"])
        tree = recipes.finetuning(settings["task"], str(_find_last(place, cell)), changes)
        tree.seed = cell.seed
        config, folder = resolve(tree), place.finetune(cell.id, name)
        _remove_outdated(config, folder)
        runs.append((config, folder))
    errors: dict[Path, str] = {}

    def on_diverged(workdir: Path, error: DivergedError) -> None:
        errors[workdir] = str(error)

    began = time.monotonic()
    stop = _train_together(runs, 0, train, on_diverged)
    seconds = (time.monotonic() - began) / len(cells)
    for cell, (_, folder) in zip(cells, runs, strict=True):
        scores = {} if folder in errors else read_last_evaluation(folder)
        if not scores and folder not in errors and not stop:
            shutil.rmtree(folder)
            problem = f"{folder}: the last evaluation is missing from the metrics"
            raise DataError(problem, "it is fine-tuned again")
        place.write_result(cell, name, scores, seconds, {}, error=errors.get(folder, ""))
    _raise_if(stop)


def _remove_outdated(config: Config, folder: Path) -> None:
    """Remove a fine-tuning begun with another config: the evaluation or the workdir changed."""
    from bert_jax.config import differences, free_on_resume, recorded, to_dict

    before = files.read_json(folder / "config.json", dict[str, Any])
    changed = differences(to_dict(recorded(before)), to_dict(config)) if before else {}
    settled = ("steps", "optim.warmup_steps", "objectives")  # determined by the data
    if any(not free_on_resume(path) and not path.startswith(settled) for path in changed):
        shutil.rmtree(folder)


def read_last_evaluation(folder: Path) -> dict[str, float]:
    """Return the metrics of the last evaluation on the split called validation."""
    from bert_jax.reporting import records

    last: dict[str, float] = {}
    for row in records.rows(folder / records.METRICS):
        named = [name for name in row if name.startswith(EVALUATED)]
        last = {name.removeprefix(EVALUATED): row[name] for name in named} or last
    return last


def flat(metrics: dict[str, Any], prefix: str = "") -> dict[str, float]:
    """Return the numbers of a nested result by their path."""
    out: dict[str, float] = {}
    for key, value in metrics.items():
        path = f"{prefix}{key}"
        out |= flat(value, f"{path}/") if isinstance(value, dict) else {path: value}
    return out


# --- the process ----------------------------------------------------------------------------------


def main(workdir: Path, group: str, train: Train) -> int:
    """Work on a group; return 0 when done, 75 when stopped and resumable, else an error's code."""
    for number in STOPS:  # until the training loop installs its own handlers
        signal.signal(number, _interrupt)
    try:
        allocator.retain()
        place = StudyFolder(workdir)
        _keep_programs(place)
        listed = place.read_group(group).cells
        cells = [cell for cell in place.cells() if cell.id in listed]
        if any(cell.config.parallel.distributed for cell in cells):
            return _work_with_others(place, group, cells[0], train)
        work(place, group, train)
        return FAILED if any(place.read_failure(cell) for cell in listed) else 0
    except UserError as error:
        with suppress(OSError):  # the log may be on a full disk
            _print_error(error)
        return FULL if isinstance(error, DiskFull) else error.code
    except OSError as error:
        if disk.is_full(error):
            return FULL
        raise
    except KeyboardInterrupt:
        logger.info("stopped: the same command continues")
        return STOPPED


def _work_with_others(place: StudyFolder, group: str, cell: Cell, train: Train) -> int:
    """Train a cell in a child process with those of other workers; evaluate it in worker 0."""
    if CHILD in os.environ:
        from bert_jax.training import processes

        processes.start_processes(cell.config.parallel)
        with processes.translate_peer_loss():
            work(place, group, train)
        return 0
    if not place.read_trained(cell.id):
        words = [*WORKER, f"--workdir={place.workdir}", f"--group={group}"]
        code = wait_for(start_process(words, {CHILD: "1"}))
        if code:  # jax ends a process whose peers are lost by a signal, and that is resumable
            return code if code > 0 else STOPPED
    if os.environ.get("JAX_PROCESS_ID", "0") == "0":
        work(place, group, train)
    return 0


def _keep_programs(place: StudyFolder) -> None:
    """Share compiled programs between the workers on machines of the same kind."""
    import jax

    processor = f"{platform.machine()} {machine.cpuinfo('flags')}"
    kind = hashlib.sha256(processor.encode()).hexdigest()[:8]
    jax.config.update("jax_compilation_cache_dir", str(place.compiled / kind))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


def _interrupt(number: int, _: object) -> None:
    for stop in STOPS:  # a second signal must not interrupt the writes that the first one allows
        signal.signal(stop, signal.SIG_IGN)
    raise KeyboardInterrupt(signal.Signals(number).name)
