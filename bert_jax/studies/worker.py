"""Trains one group of a study in one program, then evaluates its cells: a process of its own, whatever started it.

    python -m bert_jax.study work --workdir=W --group=ID

It does what is missing, so it may be stopped and started again at any moment. All it knows is in the workdir.
"""

from __future__ import annotations

import dataclasses
import hashlib
import platform
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from bert_jax.errors import ConfigError, DataError, DivergedError, Stopped, UserError
from bert_jax.studies import files
from bert_jax.studies.engines import FULL
from bert_jax.studies.folder import WORK, Entry, Place
from bert_jax.system import allocator, disk, folder_locks, machine
from bert_jax.system.disk import DiskFull

CODE_STOPPED, CODE_INTERNAL = 75, 1
Train = Callable[..., bool]  # bert_jax.train.train
STOPS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)


def work(place: Place, group: str, train: Train) -> None:
    """Trains what is not trained, evaluates what is not evaluated; its cells are nobody else's meanwhile."""
    plan = place.read_group(group)
    cells = [place.read_cell(name) for name in plan["cells"]]
    with ExitStack() as closing:
        for cell in cells:
            try:
                closing.enter_context(folder_locks.hold(place.cell(cell.id), WORK))
            except ConfigError as error:  # of an earlier launch: no fault of this one's
                raise Stopped(
                    str(error), "the same command goes on when that one has ended"
                ) from error
        _work(place, group, cells, plan["slots"], train)


def _work(place: Place, group: str, cells: Sequence[Entry], slots: int, train: Train) -> None:
    _train(place, group, cells, slots, train)
    trained = [cell for cell in cells if place.trained(cell.id).get("outcome") == "done"]
    names = dict.fromkeys(name for cell in trained for name in cell.evaluations)
    for name in names:
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
                print(f"{name}: cell {number + 1} of {len(missing)}", file=sys.stderr)
                _suite(place, group, cell, name)


# --- training -------------------------------------------------------------------------------------


def _train(place: Place, group: str, cells: Sequence[Entry], slots: int, train: Train) -> None:
    from bert_jax.checkpoints import manifest

    left = [cell for cell in cells if not place.trained(cell.id)]
    saved = {cell.id: set(manifest.finished(place.cell(cell.id) / "checkpoints")) for cell in left}
    for several in in_step(left, saved):
        folders = {place.cell(cell.id): cell for cell in several}

        def on_diverged(
            workdir: Path, error: DivergedError, folders: dict[Path, Entry] = folders
        ) -> None:
            cell = folders[workdir]
            step, seconds = place.progress(cell.id)
            place.write_trained(cell.id, step, seconds / len(folders), "diverged", str(error))

        with _attempt(place, group, several, "training"):
            stop = _together(
                [(cell.config, place.cell(cell.id)) for cell in several], slots, train, on_diverged
            )
            for cell in several:
                step, seconds = place.progress(cell.id)
                step = max(
                    [step, *manifest.finished(place.cell(cell.id) / "checkpoints")]
                )  # metrics may be lost
                if not place.trained(cell.id):  # the clock of each ran while all were trained
                    place.write_trained(cell.id, step, seconds / len(several), "done")
        _heed(stop)


def in_step(cells: Sequence[Entry], saved: dict[str, set[int]]) -> Iterator[list[Entry]]:
    """Cells that can go on together, without work that is done being done again: those that share a saved step."""
    left = list(cells)
    while left:
        first = min(left, key=lambda cell: max(saved[cell.id], default=0))
        at = max(saved[first.id], default=0)
        chosen = [cell for cell in left if (at in saved[cell.id] if at else not saved[cell.id])]
        yield chosen
        left = [cell for cell in left if cell not in chosen]


def _together(
    runs: list[tuple[Any, Path]],
    slots: int,
    train: Train,
    on_diverged: Callable[[Path, DivergedError], None],
) -> bool:
    """Train runs; tell whether a stop was asked for as they ended: what comes after must not begin."""
    print(f"training {len(runs)} arms; the figures are those of the first", file=sys.stderr)
    try:
        return train(runs, slots=slots, command=["bert-jax", "study"], on_diverged=on_diverged)
    except DivergedError as error:  # of the last one left; `on_diverged` was told
        print(f"all arms diverged: {error}", file=sys.stderr)
        return False


# --- evaluation -----------------------------------------------------------------------------------


def _suite(place: Place, group: str, cell: Entry, name: str) -> None:
    from bert_jax import suites
    from bert_jax.interop import runs

    asked = cell.evaluations[name]
    with _attempt(place, group, [cell], f"evaluation {name}"):
        began = time.monotonic()
        run = runs.open_run(str(place.checkpoint(cell.id)))
        config = dataclasses.replace(
            run.config, evals=cell.config.evals
        )  # as the study has them now
        run = dataclasses.replace(run, config=config)
        found, each = suites.detailed(asked["name"], run, suites.SuiteOptions(**dict(asked["ask"])))
        place.write_result(cell, name, flat(found), time.monotonic() - began, each)


def _finetune(place: Place, group: str, cells: Sequence[Entry], name: str, train: Train) -> None:
    """Fine-tunes the checkpoints of several cells in one program; a cell's result is its last evaluation.

    Seeds and the order of the data are those of each cell, so that what a study pairs is paired here too.
    """
    from bert_jax import recipes
    from bert_jax.config import resolve

    runs = []
    for cell in cells:
        asked = cell.evaluations[name]
        changes = {"data_seed": cell.config.data_seed} | dict(asked["changes"])
        tree = recipes.finetuning(asked["task"], str(place.checkpoint(cell.id)), changes)
        tree.seed = cell.seed
        runs.append((resolve(tree), place.finetune(cell.id, name)))
        _make_way(*runs[-1])
    errors: dict[Path, str] = {}
    began = time.monotonic()
    with _attempt(place, group, cells, f"evaluation {name}"):
        stop = _together(
            runs, 0, train, lambda workdir, error: errors.update({workdir: str(error)})
        )
        seconds = (time.monotonic() - began) / len(cells)
        for cell, (_, folder) in zip(cells, runs, strict=True):
            scores = {} if folder in errors else last_evaluation(folder)
            if not scores and folder not in errors and not stop:
                shutil.rmtree(folder)
                raise DataError(
                    f"{folder}: its last evaluation is gone from its metrics",
                    "it is fine-tuned anew",
                )
            place.write_result(cell, name, scores, seconds, {}, error=errors.get(folder, ""))
    _heed(stop)


def _make_way(config: Any, folder: Path) -> None:
    """Removes a fine-tuning that was begun as another one: its evaluation was edited, or the study was moved."""
    from bert_jax.config import differences, free_on_resume, recorded, to_dict

    before = files.read(folder / "config.json")
    changed = differences(to_dict(recorded(before)), to_dict(config)) if before else {}
    settled = ("steps", "optim.warmup_steps", "objectives")  # by the data
    if any(not free_on_resume(path) and not path.startswith(settled) for path in changed):
        shutil.rmtree(folder)


def _heed(stop: bool) -> None:
    if stop:
        raise Stopped("stopped, with everything saved", "the same command continues")


def last_evaluation(folder: Path) -> dict[str, float]:
    """Metrics of the last evaluation on the split called validation."""
    from bert_jax.reporting import records

    prefix = "eval/validation/"
    found = [
        row
        for row in records.rows(folder / records.METRICS)
        if any(key.startswith(prefix) for key in row)
    ]
    last = found[-1] if found else {}
    return {
        key.removeprefix(prefix): value for key, value in last.items() if key.startswith(prefix)
    }


def flat(found: dict[str, Any], prefix: str = "") -> dict[str, float]:
    """Numbers of a nested result by their path."""
    out: dict[str, float] = {}
    for key, value in found.items():
        out |= (
            flat(value, f"{prefix}{key}/") if isinstance(value, dict) else {f"{prefix}{key}": value}
        )
    return out


# --- the process ----------------------------------------------------------------------------------


@contextmanager
def _attempt(place: Place, group: str, cells: Sequence[Entry], what: str) -> Iterator[None]:
    """Notes in each cell that something began, and how it ended."""
    for cell in cells:
        place.note_start(cell.id, group, what)
    outcome, code, error = "done", 0, ""
    try:
        with disk.room(place.workdir):
            yield
    except (Stopped, KeyboardInterrupt):
        outcome, code = "stopped", CODE_STOPPED
        raise
    except DiskFull as failure:  # no fault of the cell's
        outcome, code, error = "stopped", FULL, str(failure)
        raise
    except UserError as failure:
        outcome, code, error = "failed", failure.code, str(failure)
        raise
    except Exception as failure:  # whatever it is, the cells must know
        outcome, code, error = "failed", CODE_INTERNAL, f"{type(failure).__name__}: {failure}"
        raise
    finally:
        with suppress(DiskFull):  # which it then ends of anyway, or finds at its next write
            for cell in cells:
                place.note_end(cell.id, group, what, outcome, code, error)


def _keep_programs(place: Place) -> None:
    """Programs that one worker compiled are there for the next, on machines of the same kind."""
    import jax

    kind = hashlib.sha256(f"{platform.machine()} {machine.cpuinfo('flags')}".encode()).hexdigest()[
        :8
    ]
    jax.config.update("jax_compilation_cache_dir", str(place.compiled / kind))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


def _interrupt(number: int, _: object) -> None:
    for one in STOPS:  # a second one must not tear what the first lets be written
        signal.signal(one, signal.SIG_IGN)
    raise KeyboardInterrupt(signal.Signals(number).name)


def main(workdir: Path, group: str, train: Train) -> int:
    """Work on a group; return 0 when done, 75 when stopped and resumable, else the error's code.

    Args:
      workdir: the study's.
      group: its name.
      train: the loop, which a study knows no more of than its call.
    """
    for number in STOPS:  # the training loop has a better answer of its own
        signal.signal(number, _interrupt)
    try:
        allocator.retain()
        place = Place(workdir)
        _keep_programs(place)
        work(place, group, train)
    except UserError as error:
        with suppress(OSError):  # the log may be on a full disk
            print(
                f"error: {error}" + (f"\nhint: {error.hint}" if error.hint else ""), file=sys.stderr
            )
        return FULL if isinstance(error, DiskFull) else error.code
    except OSError as error:
        if disk.is_full(error):
            return FULL
        raise
    except KeyboardInterrupt:
        print("stopped: the same command continues", file=sys.stderr)
        return CODE_STOPPED
    return 0
