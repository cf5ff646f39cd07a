"""The worker of a study: trains a group in one program, then evaluates its cells.

    python -m bert_jax.study work --workdir=W --group=ID

A worker does only work that is missing, so it may be stopped and started again at any moment. All
its inputs are in the workdir. Failures are noted in the folders of the cells.

If `parallel.distributed` is set, an engine starts several workers for a group of one cell, each
with its number in JAX_PROCESS_ID. Each worker starts a child process, and the children train the
cell together. Then worker 0 evaluates the cell as any other worker does. Children are needed
because a process that has joined others cannot evaluate alone. Of the children, only process 0
writes files.
"""

import dataclasses
import functools
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
from bert_jax.studies import files, identity, results, trunks
from bert_jax.studies.engines import base
from bert_jax.studies.folder import WORK, StudyFolder
from bert_jax.studies.spec import Cell
from bert_jax.system import allocator, disk, folder_locks, machine
from bert_jax.system.disk import DiskFull

logger = logging.getLogger(__name__)

Train = Callable[..., bool]  # bert_jax.train.train, which a study may not import
Act = Callable[[Sequence[Cell]], None]
STOPS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
CHILD = "BERT_JAX_JOINED"  # set in a child process, which trains with other ones
EVALUATED = "eval/validation/"  # metrics of a fine-tuning that are its result


class HeldError(Stopped):
    """Raised if another worker, such as one of an earlier launch, holds the cells."""

    code = base.HELD


def work(place: StudyFolder, group: str, train: Train) -> None:
    """Train and evaluate what is missing of the cells of a group, while holding their locks."""
    from bert_jax.training import stop

    record = place.read_group(group)
    cells = [cell for cell in place.read_cells() if cell.id in record.cells]
    taken = results.find_taken(place, cells)  # since the group was planned
    cells = [cell for cell in cells if cell.id not in taken]
    worker = Worker(place, record.slots, train)
    for cell in cells:
        folder_locks.check_writable(place.cell(cell.id))
    with ExitStack() as locks:
        for cell in cells:
            try:
                locks.enter_context(stop.hold_run_lock(place.cell(cell.id), WORK))
            except ConfigError as error:  # held by a worker of an earlier launch: not a failure
                hint = "the same command goes on when that process has ended"
                raise HeldError(str(error), hint) from error
        left = [cell for cell in cells if not place.read_trained(cell.id)]
        for together in worker.split_by_step(left):
            worker.attempt(together, "training", worker.train)
        if CHILD not in os.environ:
            worker.evaluate(cells)


class Worker:
    """Trains and evaluates cells of a group whose rows have `slots` prediction slots."""

    def __init__(self, place: StudyFolder, slots: int, train: Train) -> None:
        self._place = place
        self._slots = slots
        self._train = train

    def attempt(self, cells: Sequence[Cell], activity: str, act: Act) -> None:
        """Call `act` on several cells together and, if it fails, on each half of them.

        So cells that do not fit on a device together are trained in parts. If one cell fails by
        itself, the others go on. Cells that failed before are tried one at a time, because one of
        them may have killed the process.
        """
        paths = {cell.id: self._place.cell(cell.id) / "error.json" for cell in cells}
        failed = {name: path.stat().st_mtime_ns for name, path in paths.items() if path.exists()}
        if failed and len(cells) > 1:
            for cell in sorted(cells, key=lambda cell: failed.get(cell.id, 0)):
                # A cell that kills the process now has the last failure, and is last next time.
                if cell.id in failed:
                    os.utime(paths[cell.id])
                self.attempt([cell], activity, act)
        elif not self._succeeds(cells, activity, act) and len(cells) > 1:
            middle = len(cells) // 2
            self.attempt(cells[:middle], activity, act)
            self.attempt(cells[middle:], activity, act)

    def _succeeds(self, cells: Sequence[Cell], activity: str, act: Act) -> bool:
        """Call `act` on cells; return whether it succeeded, and note a single cell's failure."""
        try:
            with disk.reporting_full_disk(self._place.workdir):
                act(cells)
        except (Stopped, DiskFull):  # no failures of the cells
            raise
        except Exception as error:  # of whatever type: the launcher reads it from the cell
            _print_error(error)
            kind = "" if isinstance(error, UserError) else f"{type(error).__name__}: "
            if len(cells) == 1 and _writes():
                self._place.write_failure(cells[0].id, activity, f"{kind}{error}")
            if CHILD in os.environ:  # the other processes have to end, too
                raise
            return False
        for cell in cells:
            if _writes():
                self._place.clear_failure(cell.id, activity)
        return True

    # --- training ---------------------------------------------------------------------------------

    def split_by_step(self, cells: Sequence[Cell]) -> Iterator[list[Cell]]:
        """Yield lists of cells that can continue from the same step."""
        saved = {cell.id: self.list_saved(cell) for cell in cells}
        forks = {cell.id: self.find_branch(cell).trunk[1] for cell in cells}
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

    def list_saved(self, cell: Cell) -> set[int]:
        """Return the steps of a cell's checkpoints."""
        from bert_jax.checkpoints.manifest import list_steps

        return {*list_steps(self._place.cell(cell.id) / "checkpoints")}

    def find_branch(self, cell: Cell) -> Config:
        """Return the config to train a cell with, as a branch of its trunk or from step 0."""
        folder = self._place.cell(cell.id)
        trunk = self._place.cell(cell.trunk.rpartition("@")[0])
        if not trunks.is_branch(cell, folder, trunk):
            return cell.config
        begun = trunks.read_branch(folder)
        return dataclasses.replace(cell.config, branch_from=begun or f"{trunk}@{cell.fork}")

    def train(self, cells: Sequence[Cell]) -> None:
        """Train cells together, and write for each how its training ended.

        A cell that diverged before the others failed has its end already.
        """
        cells = [cell for cell in cells if not self._place.read_trained(cell.id)]
        if not cells:
            return
        jobs = {self._place.cell(cell.id): (cell, self.find_branch(cell)) for cell in cells}

        def write_end(folder: Path, error: DivergedError | None = None) -> None:
            cell, _ = jobs[folder]
            last = self._place.read_last_metrics(cell.id)
            step = max([last.get("step", 0), *self.list_saved(cell)])  # metrics may be lost
            # Each clock ran while all cells were trained.
            seconds = last.get("time", 0.0) / len(cells)
            outcome = "diverged" if error else "done"
            if _writes():
                self._place.write_trained(cell.id, step, seconds, outcome, str(error or ""))

        runs = [(config, folder) for folder, (_, config) in jobs.items()]
        stop = self._train_together(runs, self._slots, write_end)
        for folder, (cell, _) in jobs.items():
            if not self._place.read_trained(cell.id):
                write_end(folder)
        if stop:
            raise Stopped("stopped, with everything saved", "the same command continues")

    def _train_together(
        self,
        runs: list[tuple[Any, Path]],
        slots: int,
        on_diverged: Callable[[Path, DivergedError], None],
    ) -> bool:
        """Train runs in one program; return whether a stop signal had come when they ended."""
        logger.info(f"training {len(runs)} runs; the figures are those of the first")
        try:
            return self._train(runs, slots=slots, on_diverged=on_diverged)
        except DivergedError as error:  # of the last run left; `on_diverged` was called for it
            logger.info(f"all runs diverged: {error}")
            return False

    # --- evaluation -------------------------------------------------------------------------------

    def evaluate(self, cells: Sequence[Cell]) -> None:
        """Make the missing evaluations of the trained cells, one evaluation after another."""
        done = []
        for cell in cells:
            trained = self._place.read_trained(cell.id)
            if trained and trained.outcome == "done":
                done.append(cell)
        for name in dict.fromkeys(name for cell in done for name in cell.evaluations):
            missing = [cell for cell in done if name in self._place.list_missing(cell)]
            tuned = [cell for cell in missing if cell.evaluations[name]["kind"] == "finetune"]
            if tuned:
                changed = dict(tuned[0].evaluations[name]["changes"])
                # With these knobs each run trains by itself: see `groups.find_signature`.
                alone = set(identity.COUNT) & changed.keys()
                parts = [[cell] for cell in tuned] if alone else [tuned]
                for part in parts:
                    self.attempt(part, f"evaluation {name}", functools.partial(self.finetune, name))
                continue
            for number, cell in enumerate(missing):
                logger.info(f"{name}: cell {number + 1} of {len(missing)}")
                self.attempt([cell], f"evaluation {name}", functools.partial(self.run_suite, name))

    def run_suite(self, name: str, cells: Sequence[Cell]) -> None:
        """Evaluate the last checkpoint of each cell, which may not be its best, by a suite."""
        from flax.traverse_util import flatten_dict

        from bert_jax import suites
        from bert_jax.interop import runs

        for cell in cells:
            settings = cell.evaluations[name]
            began = time.monotonic()
            run = runs.open_run(str(self._find_last(cell)))
            # The evaluations of the present study, which may have been edited since training.
            run = run.replace_sections(evals=cell.config.evals)
            (options,) = suites.build_options([settings["name"]], **dict(settings["ask"]))
            metrics, each = suites.score(run, options)
            seconds = time.monotonic() - began
            flat = flatten_dict(metrics, sep="/")  # PART/…/METRIC
            self._place.write_result(cell, name, flat, seconds, each)

    def _find_last(self, cell: Cell) -> Path:
        trained = self._place.read_trained(cell.id)
        return self._place.cell(cell.id) / "checkpoints" / str(trained.step if trained else 0)

    def finetune(self, name: str, cells: Sequence[Cell]) -> None:
        """Fine-tune the checkpoints of several cells in one program, as one of their evaluations.

        The results are the metrics of the last evaluation on validation. Each fine-tuning has the
        seed and data order of its cell, unless the evaluation names others, so that runs which are
        paired in the study are paired here too.
        """
        from bert_jax import recipes
        from bert_jax.config import resolve

        jobs = []
        for cell in cells:
            settings = cell.evaluations[name]
            seeds = {"seed": cell.seed, "data_seed": cell.config.data_seed}
            changes = seeds | dict(settings["changes"])
            tree = recipes.finetuning(settings["task"], str(self._find_last(cell)), changes)
            config = resolve(tree)
            folder = self._place.finetune(cell.id, name)
            remove_outdated(config, folder)
            jobs.append((config, folder))
        diverged: dict[Path, DivergedError] = {}
        began = time.monotonic()
        stop = self._train_together(jobs, 0, diverged.__setitem__)
        seconds = (time.monotonic() - began) / len(cells)
        for cell, (_, folder) in zip(cells, jobs, strict=True):
            error = str(diverged.get(folder, ""))
            scores = {} if error else read_last_evaluation(folder)
            if not (scores or error):
                shutil.rmtree(folder)
                problem = f"{folder}: the last evaluation is missing from the metrics"
                raise DataError(problem, "it is fine-tuned again")
            self._place.write_result(cell, name, scores, seconds, {}, error)
        if stop:
            raise Stopped("stopped, with everything saved", "the same command continues")


def remove_outdated(config: Config, folder: Path) -> None:
    """Remove the folder of a fine-tuning that cannot be resumed with `config`."""
    from bert_jax.config import differences, free_on_resume, read_recorded, to_dict

    before = files.read_json(folder / "config.json", dict[str, Any])
    changed = differences(to_dict(read_recorded(before)), to_dict(config)) if before else {}
    settled = ("steps", "optim.warmup_steps", "objectives")  # determined by the data
    if any(not free_on_resume(path) and not path.startswith(settled) for path in changed):
        shutil.rmtree(folder)


def read_last_evaluation(folder: Path) -> dict[str, float]:
    """Return {metric: value} of the last evaluation `validation` of a run."""
    from bert_jax.reporting import records

    last: dict[str, float] = {}
    for row in records.read_rows(folder / records.METRICS):
        named = [name for name in row if name.startswith(EVALUATED)]
        last = {name.removeprefix(EVALUATED): row[name] for name in named} or last
    return last


def _writes() -> bool:
    """Tell whether this process writes the study's files; of joined processes, only one does."""
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


# --- the process ----------------------------------------------------------------------------------


def main(workdir: Path, group: str, train: Train) -> int:
    """Run the worker of a group; return an exit code.

    The code is 0 if all is done, 75 if the worker was stopped and can go on, else the code of an
    error.
    """
    for number in STOPS:  # until the training loop installs its own handlers
        signal.signal(number, _interrupt)
    try:
        allocator.retain_memory()
        place = StudyFolder(workdir)
        _keep_programs(place)
        listed = place.read_group(group).cells
        cells = [cell for cell in place.read_cells() if cell.id in listed]
        if any(cell.config.parallel.distributed for cell in cells):
            return _work_with_others(place, group, cells[0], train)
        work(place, group, train)
        return base.FAILED if any(place.read_failure(cell) for cell in listed) else 0
    except UserError as error:
        with suppress(OSError):  # the log may be on a full disk
            _print_error(error)
        return base.FULL if isinstance(error, DiskFull) else error.code
    except OSError as error:
        if disk.is_full(error):
            return base.FULL
        raise
    except KeyboardInterrupt:
        logger.info("stopped: the same command continues")
        return base.STOPPED


def _work_with_others(place: StudyFolder, group: str, cell: Cell, train: Train) -> int:
    """Train a cell in the child processes of its workers; let worker 0 evaluate the cell."""
    if CHILD in os.environ:
        from bert_jax.training import processes

        processes.start_processes(cell.config.parallel)
        with processes.translate_peer_loss():
            work(place, group, train)
        return 0
    if not place.read_trained(cell.id):
        words = [*base.WORKER, f"--workdir={place.workdir}", f"--group={group}"]
        code = base.wait_for(base.start_process(words, {CHILD: "1"}))
        if code:  # jax ends a process whose peers are lost by a signal, and that is resumable
            return code if code > 0 else base.STOPPED
    if os.environ.get("JAX_PROCESS_ID", "0") != "0":
        return 0
    work(place, group, train)
    return base.FAILED if place.read_failure(cell.id) else 0


def _keep_programs(place: StudyFolder) -> None:
    """Cache compiled programs in the study's folder, for workers on machines of the same kind."""
    import jax

    processor = f"{platform.machine()} {machine.read_cpuinfo('flags')}"
    kind = hashlib.sha256(processor.encode()).hexdigest()[:8]
    jax.config.update("jax_compilation_cache_dir", str(place.compiled / kind))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


def _interrupt(number: int, _: object) -> None:
    for stop in STOPS:  # a second signal must not interrupt the writes that the first one allows
        signal.signal(stop, signal.SIG_IGN)
    raise KeyboardInterrupt(signal.Signals(number).name)
