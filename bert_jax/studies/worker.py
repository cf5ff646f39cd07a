"""The worker of a study: a process that trains a group in one program, then evaluates its cells.

    python -m bert_jax.study work --workdir=W --group=ID

A worker does the work that is missing, so it may be stopped and started again at any moment. All
its inputs are in the workdir.

Where `parallel.distributed` is set, an engine starts several workers for a group of one cell, each
with its number in JAX_PROCESS_ID. Each starts a supervised process, and these train the cell
together; then worker 0 evaluates it alone, as the worker of any other cell does. Process 0 alone
writes the study's files.
"""

from __future__ import annotations

import dataclasses
import hashlib
import logging
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from bert_jax.config.knobs import Config
from bert_jax.errors import ConfigError, DataError, DivergedError, Stopped, UserError
from bert_jax.studies import files
from bert_jax.studies.engines import FULL, WORKER
from bert_jax.studies.folder import WORK, Entry, StudyFolder
from bert_jax.system import allocator, disk, machine
from bert_jax.system.disk import DiskFull

logger = logging.getLogger(__name__)

CODE_STOPPED, CODE_INTERNAL = 75, 1
Train = Callable[..., bool]  # bert_jax.train.train
STOPS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
JOINED = "BERT_JAX_JOINED"  # is set for a process that trains a cell with those of other nodes


def work(place: StudyFolder, group: str, train: Train) -> None:
    """Train and evaluate the cells of a group as far as is missing, holding their locks."""
    from bert_jax.training import stop

    plan = place.read_group(group)
    cells = [place.read_cell(name) for name in plan["cells"]]
    with ExitStack() as closing:
        for cell in cells:
            try:
                closing.enter_context(stop.run_lock(place.cell(cell.id), WORK))
            except ConfigError as error:  # held by a worker of an earlier launch: not a failure
                raise Stopped(
                    str(error), "the same command goes on when that process has ended"
                ) from error
        _train(place, group, cells, plan["slots"], train)
        if JOINED not in os.environ:
            _evaluate(place, group, cells, train)


def _run_joined(words: Sequence[str]) -> int:
    """Train a cell in a child that joins the processes of other nodes; return its exit code.

    Afterwards this process evaluates alone, which one that has joined others cannot do. Stop
    signals are passed on. A child that a signal ended, as jax ends one whose peers are lost, is
    resumable.
    """
    child = subprocess.Popen(words, env={**os.environ, JOINED: "1"})
    for number in STOPS:
        signal.signal(number, lambda number, _: child.send_signal(number))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: the child has it too
    code = child.wait()
    return code if code >= 0 else CODE_STOPPED


def _train_joined(place: StudyFolder, group: str, cell: Entry, train: Train) -> None:
    """Join the other processes of a cell, and train it with them."""
    import jax

    from bert_jax.training import processes

    processes.start_processes(cell.config.parallel)
    place.writes = jax.process_index() == 0
    with processes.translate_peer_loss():
        work(place, group, train)


def _evaluate(place: StudyFolder, group: str, cells: Sequence[Entry], train: Train) -> None:
    trained = [cell for cell in cells if place.trained(cell.id).get("outcome") == "done"]
    for name in dict.fromkeys(name for cell in trained for name in cell.evaluations):
        missing = [
            cell
            for cell in trained
            if name in cell.evaluations and place.read_result(cell, name) is None
        ]
        kinds = {cell.evaluations[name]["kind"] for cell in missing}
        if "finetune" in kinds:
            _finetune(place, group, missing, name, train)
        elif kinds:
            for number, cell in enumerate(missing):
                logger.info(f"{name}: cell {number + 1} of {len(missing)}")
                _suite(place, group, cell, name)


# --- training -------------------------------------------------------------------------------------


def _train(
    place: StudyFolder, group: str, cells: Sequence[Entry], slots: int, train: Train
) -> None:
    from bert_jax.checkpoints.steps import list_steps

    left = [cell for cell in cells if not place.trained(cell.id)]
    saved = {cell.id: set(list_steps(place.cell(cell.id) / "checkpoints")) for cell in left}
    configs = {cell.id: _branched(place, cell, bool(saved[cell.id])) for cell in left}
    for together in in_step(left, saved, {name: c.trunk[1] for name, c in configs.items()}):
        folders = {place.cell(cell.id): cell for cell in together}

        def on_diverged(
            workdir: Path, error: DivergedError, folders: dict[Path, Entry] = folders
        ) -> None:
            cell = folders[workdir]
            step, seconds = place.progress(cell.id)
            place.write_trained(cell.id, step, seconds / len(folders), "diverged", str(error))

        with _attempt(place, group, together, "training"):
            runs = [(configs[cell.id], place.cell(cell.id)) for cell in together]
            stop = _train_together(runs, slots, train, on_diverged)
            for cell in together:
                step, seconds = place.progress(cell.id)
                saved_steps = list_steps(place.cell(cell.id) / "checkpoints")
                step = max([step, *saved_steps])  # metrics may be lost
                if not place.trained(cell.id):  # each clock ran while all cells were trained
                    place.write_trained(cell.id, step, seconds / len(together), "done")
        _raise_if(stop)


def _branched(place: StudyFolder, cell: Entry, begun: bool) -> Config:
    """Return the config that a cell trains: a branch of its trunk's checkpoint, if that is there.

    What has begun goes on as it began.
    """
    trunk, _, step = cell.trunk.rpartition("@")
    branches = place.saved(cell.trunk) is not None
    if begun:
        before = files.read(place.cell(cell.id) / "config.json") or {}
        branches = bool(trunk) and str(before.get("branch_from", "")).endswith(f"@{step}")
    if not branches:
        return cell.config
    return dataclasses.replace(cell.config, branch_from=f"{place.cell(trunk)}@{step}")


def in_step(
    cells: Sequence[Entry], saved: dict[str, set[int]], forks: dict[str, int]
) -> Iterator[list[Entry]]:
    """Yield cells that share a saved step, or begin at one: together they repeat no work."""
    left = list(cells)
    while left:
        first = min(left, key=lambda cell: max(saved[cell.id], default=0))
        at, fork = max(saved[first.id], default=0), forks[first.id]
        chosen = [
            cell
            for cell in left
            if (at in saved[cell.id] if at else not saved[cell.id] and forks[cell.id] == fork)
        ]
        yield chosen
        left = [cell for cell in left if cell not in chosen]


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


# --- evaluation -----------------------------------------------------------------------------------


def _suite(place: StudyFolder, group: str, cell: Entry, name: str) -> None:
    from bert_jax import suites
    from bert_jax.interop import runs

    settings = cell.evaluations[name]
    with _attempt(place, group, [cell], f"evaluation {name}"):
        began = time.monotonic()
        run = runs.open_run(str(place.checkpoint(cell.id)))
        # The evaluations of the present study, which may have been edited since training.
        run = run.changed(evals=cell.config.evals)
        options = suites.SuiteOptions(**dict(settings["ask"]))
        metrics, each = suites.detailed(settings["name"], run, options)
        place.write_result(cell, name, flat(metrics), time.monotonic() - began, each)


def _finetune(
    place: StudyFolder, group: str, cells: Sequence[Entry], name: str, train: Train
) -> None:
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
        tree = recipes.finetuning(settings["task"], str(place.checkpoint(cell.id)), changes)
        tree.seed = cell.seed
        runs.append((resolve(tree), place.finetune(cell.id, name)))
        _make_way(*runs[-1])
    errors: dict[Path, str] = {}
    began = time.monotonic()
    with _attempt(place, group, cells, f"evaluation {name}"):
        stop = _train_together(
            runs, 0, train, lambda workdir, error: errors.update({workdir: str(error)})
        )
        seconds = (time.monotonic() - began) / len(cells)
        for cell, (_, folder) in zip(cells, runs, strict=True):
            scores = {} if folder in errors else last_evaluation(folder)
            if not scores and folder not in errors and not stop:
                shutil.rmtree(folder)
                raise DataError(
                    f"{folder}: the last evaluation is missing from the metrics",
                    "it is fine-tuned again",
                )
            place.write_result(cell, name, scores, seconds, {}, error=errors.get(folder, ""))
    _raise_if(stop)


def _make_way(config: Any, folder: Path) -> None:
    """Remove a fine-tuning begun with another config: the evaluation or the workdir changed."""
    from bert_jax.config import differences, free_on_resume, recorded, to_dict

    before = files.read(folder / "config.json")
    changed = differences(to_dict(recorded(before)), to_dict(config)) if before else {}
    settled = ("steps", "optim.warmup_steps", "objectives")  # determined by the data
    if any(not free_on_resume(path) and not path.startswith(settled) for path in changed):
        shutil.rmtree(folder)


def _raise_if(stop: bool) -> None:
    if stop:
        raise Stopped("stopped, with everything saved", "the same command continues")


def last_evaluation(folder: Path) -> dict[str, float]:
    """Return the metrics of the last evaluation on the split called validation."""
    from bert_jax.reporting import records

    prefix = "eval/validation/"
    last: dict[str, float] = {}
    for row in records.rows(folder / records.METRICS):
        scores = {k.removeprefix(prefix): v for k, v in row.items() if k.startswith(prefix)}
        last = scores or last
    return last


def flat(metrics: dict[str, Any], prefix: str = "") -> dict[str, float]:
    """Return the numbers of a nested result by their path."""
    out: dict[str, float] = {}
    for key, value in metrics.items():
        path = f"{prefix}{key}"
        out |= flat(value, f"{path}/") if isinstance(value, dict) else {path: value}
    return out


# --- the process ----------------------------------------------------------------------------------


@contextmanager
def _attempt(
    place: StudyFolder, group: str, cells: Sequence[Entry], activity: str
) -> Iterator[None]:
    """Record in each cell the start of training or an evaluation, and how it ended."""
    for cell in cells:
        place.note_start(cell.id, group, activity)
    outcome, code, error = "done", 0, ""
    try:
        with disk.reporting_full_disk(place.workdir):
            yield
    except (Stopped, KeyboardInterrupt):
        outcome, code = "stopped", CODE_STOPPED
        raise
    except DiskFull as failure:  # not a failure of the cell
        outcome, code, error = "stopped", FULL, str(failure)
        raise
    except UserError as failure:
        outcome, code, error = "failed", failure.code, str(failure)
        raise
    except Exception as failure:  # of whatever type: the launcher reads it from the cells
        outcome, code, error = "failed", CODE_INTERNAL, f"{type(failure).__name__}: {failure}"
        raise
    finally:
        with suppress(DiskFull):  # the worker ends of it anyway, or meets it at its next write
            for cell in cells:
                place.note_end(cell.id, group, activity, outcome, code, error)


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


def main(workdir: Path, group: str, train: Train) -> int:
    """Work on a group; return 0 when done, 75 when stopped and resumable, else the error's code.

    Args:
      workdir: the study's folder.
      group: the group's name.
      train: the training loop, `bert_jax.train.train`; a study may not import it.
    """
    for number in STOPS:  # until the training loop installs its own handlers
        signal.signal(number, _interrupt)
    try:
        allocator.retain()
        place = StudyFolder(workdir)
        _keep_programs(place)
        first = place.read_cell(place.read_group(group)["cells"][0])
        if first.config.parallel.distributed:
            if JOINED in os.environ:
                _train_joined(place, group, first, train)
                return 0
            if not place.trained(first.id):
                words = (*WORKER, f"--workdir={workdir}", f"--group={group}")
                if code := _run_joined(words):
                    return code
            if os.environ.get("JAX_PROCESS_ID", "0") != "0":
                return 0
        work(place, group, train)
    except UserError as error:
        with suppress(OSError):  # the log may be on a full disk
            hint = f"\nhint: {error.hint}" if error.hint else ""
            print(f"error: {error}{hint}", file=sys.stderr)
        return FULL if isinstance(error, DiskFull) else error.code
    except OSError as error:
        if disk.is_full(error):
            return FULL
        raise
    except KeyboardInterrupt:
        logger.info("stopped: the same command continues")
        return CODE_STOPPED
    return 0
