"""Run the groups of a study on an engine and show the progress.

Each group is started once. One that fails, or is killed, leaves its error in its cells, and the
same command tries it again. A group waits while another process holds its cells, or while the cells
that it goes on from have not come so far. If the disk is full, all running workers are asked to
stop.
"""

from __future__ import annotations

import contextlib
import logging
import math
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from tqdm import tqdm

from bert_jax.studies import progress
from bert_jax.studies.engines.base import FULL, PAUSE, STOPPED, Engine, describe_ending
from bert_jax.studies.folder import WORKER, StudyFolder
from bert_jax.studies.groups import Group
from bert_jax.system import signals
from bert_jax.system.disk import DiskFull

logger = logging.getLogger(__name__)

# Seconds between checks of locks, between progress lines, and between changes of a progress bar.
LOOK, SPEAK, GLANCE = 1.0, 60.0, 5.0
# Time between two reports, or changes of a bar, as a multiple of the time that one takes, in which
# workers lack a core.
REST = 20.0


class Launcher(signals.Handler):
    """A launch of groups on an engine; `report` is called when groups have ended."""

    def __init__(
        self,
        place: StudyFolder,
        groups: Sequence[Group],
        engine: Engine,
        report: Callable[[], object],
    ) -> None:
        super().__init__(signals.SIGNALS)
        self.stopped = self.full = False
        self._place, self._engine, self._report = place, engine, report
        self._waiting = list(groups)
        self._running: dict[str, tuple[Group, Any]] = {}  # with the engine's handle
        self._signals: list[int] = []
        self._looked, self._showed = float("-inf"), time.monotonic()
        self._may_report = float("-inf")
        self._pause = SPEAK
        self._bar = tqdm(unit="cell", dynamic_ncols=True) if sys.stderr.isatty() else None

    def run(self) -> None:
        """Run until nothing is left to do or, after a stop signal, nothing runs."""
        with self, contextlib.ExitStack() as closing:
            if self._bar is not None:
                closing.callback(self._bar.close)
            while self._running or (self._waiting and not self.stopped):
                if self._signals:
                    self._stop(signal.Signals(self._signals[-1]).name)
                    self._signals.clear()
                try:
                    if not self.stopped:
                        self._start()
                    for name, (group, worker) in list(self._running.items()):
                        if (code := self._engine.poll(worker)) is not None:
                            del self._running[name]
                            self._end(group, code)
                except DiskFull as error:
                    self._stop_without_room(str(error))
                self._show()
                time.sleep(PAUSE)

    def handle(self, number: int, _: Any) -> None:
        """Remember a signal for the loop."""
        self._signals.append(number)

    # --- groups -----------------------------------------------------------------------------------

    def _start(self) -> None:
        """Start as many groups as the engine takes and whose cells are free and can begin."""
        room = self._engine.most - len(self._running)
        if not self._waiting or room <= 0 or time.monotonic() - self._looked < LOOK:
            return
        ready = [group for group in self._waiting if not self._must_wait(group)]
        if len(ready) <= room:
            self._looked = time.monotonic()
        # An engine without a limit takes all of them at once. Otherwise each leaves the queue when
        # it has started, because the disk may be full at the next.
        batches = [ready] if math.isinf(room) else [[group] for group in ready[: int(room)]]
        for batch in batches:
            workers = self._engine.start([group.id for group in batch])
            for group, worker in zip(batch, workers, strict=True):
                self._running[group.id] = group, worker
                self._waiting.remove(group)

    def _must_wait(self, group: Group) -> bool:
        """Tell whether others hold the cells of a group, or have to train their trunks first."""
        if any(self._place.is_busy(cell.id) for cell in group.cells):
            return True
        others = [*self._waiting, *(running for running, _ in self._running.values())]
        coming = {cell.id for other in others if other.id != group.id for cell in other.cells}
        for cell in group.cells:
            trunk = cell.trunk.rpartition("@")[0]
            early = trunk in coming and not self._place.saved(trunk, cell.fork)
            if early and not self._place.read_trained(cell.id):
                return True
        return False

    def _end(self, group: Group, code: int) -> None:
        """Note how a group ended."""
        if code == FULL:
            self._stop_without_room("a worker found no room on the disk")
            return
        held = any(self._place.is_busy(cell.id) for cell in group.cells)
        if code == STOPPED and held and not self.stopped:
            logger.info(f"{_name(group)} is held by another worker, and waits for it")
            self._waiting.append(group)
            return
        states = {cell.id: self._place.read_state(cell) for cell in group.cells}
        left = [cell for cell in group.cells if states[cell.id].name not in progress.FINAL]
        if not left:
            diverged = sum(state.name == "diverged" for state in states.values())
            logger.info(f"{_name(group)} is done{f', {diverged} diverged' if diverged else ''}")
        elif code == STOPPED or self.stopped:
            logger.info(f"{_name(group)} was stopped")
        else:
            for cell in left:
                if not self._place.read_failure(cell.id):
                    self._place.write_failure(cell.id, WORKER, describe_ending(code))
            log = self._place.log(group.id)
            logger.info(f"{_name(group)}: {len(left)} cells failed (log: {log})")
        self._write_report()

    def _write_report(self) -> None:
        began = time.monotonic()
        if began >= self._may_report:
            try:
                self._report()
            except DiskFull as error:  # workers may need less, and the last report is written again
                logger.info(f"warning: {error}")
            now = time.monotonic()
            self._may_report = now + REST * (now - began)

    # --- stops and progress -----------------------------------------------------------------------

    def _stop_without_room(self, why: str) -> None:
        """Stop the launch, because the next worker would find no room either."""
        logger.info(why)
        self.full = True
        if not self.stopped:
            self._stop("no room")

    def _stop(self, name: str) -> None:
        if self.stopped:
            logger.info(f"{name} again: stopping without saving")
        else:
            count = f"{len(self._running)} group{'s' if len(self._running) != 1 else ''}"
            logger.info(f"{name}: waiting for {count} to save; once more stops at once")
        self.stopped = True
        self._engine.stop([worker for _, worker in self._running.values()])

    def _show(self) -> None:
        """Log a line, or move the bar, from time to time."""
        began = time.monotonic()
        if began - self._showed < self._pause:
            return
        now = progress.look(self._place, self._engine.capacity.parallel)
        self._showed = time.monotonic()
        if self._bar is None:
            logger.info(now.line())
            return
        self._pause = max(GLANCE, REST * (self._showed - began))
        self._bar.total = len(now.cells)
        self._bar.n = sum(now.counts[name] for name in progress.FINAL)
        self._bar.set_postfix_str(now.line())


def _name(group: Group) -> str:
    """Name a group or its only cell, for the log."""
    first, *others = group.cells
    if others:
        return f"group {group.id} ({len(group.cells)} cells)"
    return f"cell {first.id} ({progress.describe(first)})"
