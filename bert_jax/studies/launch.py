"""Run the groups of a study on an engine and log the progress.

Each group is started once. If a group fails, or its worker is killed, the error is noted in its
cells, and the next `study run` tries again. A group waits while another process holds its cells. It
also waits until other cells, whose updates its cells continue, have saved the step it needs. If the
disk is full, all running workers are asked to stop.
"""

import logging
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bert_jax.studies import progress, trunks
from bert_jax.studies.engines.base import FULL, HELD, LOST, STOPPED, Engine
from bert_jax.studies.folder import WORKER, Failure, StudyFolder
from bert_jax.studies.groups import Group
from bert_jax.system import signals
from bert_jax.system.counts import format_count
from bert_jax.system.disk import DiskFull

logger = logging.getLogger(__name__)

# Seconds between looks at workers, between looks for groups to start, and between progress lines.
PAUSE, LOOK, SPEAK = 0.1, 1.0, 60.0


class Launcher(signals.Handler):
    """Starts the workers of groups on an engine and waits for them."""

    def __init__(self, place: StudyFolder, groups: Sequence[Group], engine: Engine) -> None:
        super().__init__(signals.SIGNALS)
        self.stopped = self.full = False
        self._place, self._engine = place, engine
        self._waiting = [*groups]
        self.unwritable: Path | None = None  # a cell's folder
        self._running: list[tuple[Group, Any]] = []  # with the engine's handle
        self._failures: dict[str, Failure | None] = {}  # of cells before their group was started
        self._signal = ""  # one that came since the last look
        self._next_start = 0.0
        self._next_line = time.monotonic() + SPEAK

    def run(self) -> None:
        """Run all groups; after a stop signal, wait for the running groups only."""
        with self:
            while self._running or (self._waiting and not self.stopped):
                if self._signal:
                    self._stop(self._signal)
                    self._signal = ""
                try:
                    self.start_groups()
                    self._end_groups()
                except DiskFull as error:
                    self._stop_without_room(str(error))
                if time.monotonic() > self._next_line:
                    logger.info(
                        progress.read_progress(self._place).format_line(self._engine.parallel)
                    )
                    self._next_line = time.monotonic() + SPEAK
                time.sleep(PAUSE)

    def handle(self, number: int, _: Any) -> None:
        """Note that a stop signal came; the loop in `run` acts on it."""
        again = self.again(number)
        if again or (again is False and not self.stopped):
            self._signal = signal.Signals(number).name

    def start_groups(self) -> None:
        """Start the groups that need not wait, as many as the engine takes."""
        room = self._engine.most - len(self._running)
        if self.stopped or room <= 0 or time.monotonic() < self._next_start:
            return
        ready = [group for group in self._waiting if not self._must_wait(group)][:room]
        for cell in (cell.id for group in ready for cell in group.cells):
            self._failures[cell] = self._place.read_failure(cell)
        workers = self._engine.start([group.id for group in ready])
        for group, worker in zip(ready, workers, strict=True):
            self._running.append((group, worker))
            self._waiting.remove(group)
        if self._waiting:
            self._next_start = time.monotonic() + LOOK

    def _must_wait(self, group: Group) -> bool:
        """Tell whether a group cannot start yet.

        It waits if another process holds its cells, or if the trunks of cells that have not begun
        are not trained far enough.
        """
        if any(self._place.is_busy(cell.id) for cell in group.cells):
            return True
        others = [*self._waiting, *(running for running, _ in self._running)]
        coming = {cell.id for other in others if other.id != group.id for cell in other.cells}
        for cell in group.cells:
            trunk = cell.trunk.rpartition("@")[0]
            early = trunk in coming and not trunks.has_reached(self._place.cell(trunk), cell.fork)
            if early and trunks.read_branch(self._place.cell(cell.id)) is None:
                return True
        return False

    def _end_groups(self) -> None:
        """Remove the groups whose workers have ended, and act on the workers' exit codes."""
        for group, worker in [*self._running]:
            code = self._engine.poll(worker)
            if code is None:
                continue
            self._running.remove((group, worker))
            if code == FULL:
                self._stop_without_room("a worker found no room on the disk")
            elif code == HELD:
                logger.info(f"{_name_group(group)} is held by another worker, and waits for it")
                self._waiting.append(group)
            else:
                self._note_end(group, code)

    def _note_end(self, group: Group, code: int) -> None:
        """Log how a group ended; note in its unfinished cells that its worker died."""
        states = {cell.id: self._place.read_state(cell).name for cell in group.cells}
        left = [cell for cell in group.cells if states[cell.id] not in progress.FINAL]
        if not left:
            diverged = [*states.values()].count("diverged")
            logger.info(f"{_name_group(group)} is done{f', {diverged} diverged' * bool(diverged)}")
        elif code == STOPPED or self.stopped:
            logger.info(f"{_name_group(group)} was stopped")
        else:
            ending = f"killed (signal {-code})" if code < 0 else f"ended with exit code {code}"
            if code == LOST:
                ending = "its job ended without a result"
            for cell in left:
                self._note_death(cell.id, ending)
            log = self._place.log(group.id)
            count = format_count(len(left), "cell")
            logger.info(f"{_name_group(group)}: {count} failed (log: {log})")

    def _note_death(self, cell: str, ending: str) -> None:
        """Note in a cell how its worker ended, unless that worker has noted a failure itself.

        A record that is replaced keeps its time, by which workers order the cells that failed.
        """
        path = self._place.cell(cell) / "error.json"
        failure = self._place.read_failure(cell)
        if failure and failure != self._failures[cell]:
            return
        try:
            noted = path.stat().st_mtime_ns if path.exists() else None
            self._place.write_failure(cell, WORKER, ending)
            if noted is not None:
                os.utime(path, ns=(noted, noted))
        except OSError as error:
            logger.info(f"{path}: {error.strerror}")
            self.unwritable = path.parent

    def _stop_without_room(self, why: str) -> None:
        """Ask all workers to stop, because the disk is full."""
        logger.info(why)
        self.full = True
        if not self.stopped:
            self._stop("no room")

    def _stop(self, name: str) -> None:
        said = f"{name} again: stopping without saving"
        if not self.stopped:
            count = format_count(len(self._running), "group")
            said = f"{name}: waiting for {count} to save; once more stops at once"
        self.stopped = True
        self._engine.stop([worker for _, worker in self._running])
        logger.info(said)


def _name_group(group: Group) -> str:
    """Name a group, or its cell if it has only one, for the log."""
    first, *others = group.cells
    if others:
        return f"group {group.id} ({len(group.cells)} cells)"
    return f"cell {first.id} ({progress.describe_cell(first)})"
