"""Run the groups of a study on an engine, retry failures, and show the progress.

A worker that was stopped (75), or whose cells another worker holds, is submitted again later. A
worker that was killed or cancelled is submitted again until `KILLS` attempts in all made no
progress, one that failed at most `retries` times more, and one whose config is invalid never. When
a group of several cells is given up, each of its cells is tried alone, for one of them may have
made the others fail.
A group whose cells go on from those of another one waits until these have come so far; where they
are given up, its cells make all their updates themselves.
When the disk is full, nothing is retried: all running workers are asked to stop.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tqdm import tqdm

from bert_jax.errors import ConfigError
from bert_jax.studies import progress
from bert_jax.studies.engines import (
    CANCELLED,
    FULL,
    STOPPED,
    WORKER,
    Engine,
    Task,
    ending,
    local,
)
from bert_jax.studies.folder import KILLS, State, StudyFolder
from bert_jax.studies.groups import Group, alone
from bert_jax.system.disk import DiskFull
from bert_jax.system.signals import SIGNALS

logger = logging.getLogger(__name__)

UNHANDLED = tuple(-number for number in SIGNALS)  # signalled before the handlers were installed
# Seconds between checks of locks, between progress lines, and between changes of a progress bar.
LOOK, SPEAK, GLANCE = 1.0, 60.0, 5.0
# Time between two reports, or changes of a bar, as a multiple of the time that one takes, in which
# workers lack a core.
REST = 20.0


@dataclass(eq=False)
class Job:
    """A group, its failed attempts, and its progress when the present attempt began."""

    group: Group
    failures: int = 0
    kills: int = 0
    mark: tuple[int, int] = (0, 0)

    @property
    def name(self) -> str:
        """The group or its only cell, for the log."""
        first, *others = self.group.cells
        if others:
            return f"group {self.group.id} ({len(self.group.cells)} cells)"
        return f"cell {first.id} ({progress.described(first)})"


class Launcher:
    """A launch of groups on an engine; `after` is called when groups have ended, for a report."""

    def __init__(
        self,
        place: StudyFolder,
        groups: Sequence[Group],
        engine: Engine,
        retries: int = 2,
        after: Callable[[], object] = lambda: None,
        worker: Sequence[str] = WORKER,
    ) -> None:
        self.place, self.engine, self.retries = place, engine, retries
        self.after, self.worker = after, tuple(worker)
        self.stopped = self.full = False
        self._waiting = [Job(group) for group in sorted(groups, key=lambda group: -group.seconds)]
        self._running: dict[str, Job] = {}
        self._looked, self._spoke, self._look_took = float("-inf"), time.monotonic(), 0.0
        self._reported, self._report_took = float("-inf"), 0.0
        self._bar = tqdm(unit="cell", dynamic_ncols=True) if sys.stderr.isatty() else None

    def run(self) -> None:
        """Run until nothing is left to do or, after a stop signal, nothing runs."""
        with local.caught(SIGNALS) as signals, contextlib.ExitStack() as closing:
            if self._bar is not None:
                closing.callback(self._bar.close)
            handled = 0
            while self._running or (self._waiting and not self.stopped):
                if len(signals) > handled:
                    handled = len(signals)
                    self._stop(signal.Signals(signals[-1]).name)
                if not self.stopped:
                    self._submit()
                for task, code in self.engine.poll():
                    job = self._running.pop(task.name)
                    try:
                        self._ended(job, code)
                    except DiskFull as error:
                        self._no_room(job, str(error))
                self._show()
                time.sleep(self.engine.pause)

    # --- one group --------------------------------------------------------------------------------

    def _submit(self) -> None:
        """Submit the groups whose cells are free: workers of a killed launch may still save."""
        if not self._waiting or time.monotonic() - self._looked < LOOK:
            return
        self._looked = time.monotonic()
        ready = [job for job in self._waiting if not self._held(job) and not self._early(job)]
        self._waiting = [job for job in self._waiting if job not in ready]
        for job in ready:
            job.mark = _mark(self._states(job))
            self._running[job.group.id] = job
        self.engine.submit([self._task(job.group) for job in ready])

    def _task(self, group: Group) -> Task:
        command = (*self.worker, f"--workdir={self.place.workdir.resolve()}", f"--group={group.id}")
        return Task(group.id, command, self.place.log(group.id).resolve(), group.seconds)

    def _ended(self, job: Job, code: int) -> None:
        """Decide whether a group that has ended is done, is tried again, or has failed."""
        if code < 0 and code not in UNHANDLED and not self._held(job):
            outcome = "cancelled" if code == CANCELLED else "killed"
            for cell in job.group.cells:
                self.place.note_death(cell.id, job.group.id, outcome, code, ending(code))
        states = self._states(job)
        left = {cell: state for cell, state in states.items() if state.name not in progress.FINAL}
        diverged = sum(state.name == "diverged" for state in states.values())
        if not left:
            logger.info(
                f"{job.name} is done" + (f", {diverged} of them diverged" if diverged else "")
            )
            self._report()
        elif code == FULL:
            self._no_room(job, "a worker found no room on the disk")
        elif self.stopped:
            self._waiting.append(job)
        elif code == STOPPED and self._held(job):
            logger.info(f"{job.name} is held by another worker; it goes on when that worker ends")
            self._waiting.append(job)
        else:
            self._again(job, code, left)

    def _no_room(self, job: Job, why: str) -> None:
        """Stop the launch, for the next worker would find no room either."""
        self._waiting.append(job)
        logger.info(f"{job.name}: {why}")
        if not self.stopped:
            self._stop("no room")
        self.full = True

    def _again(self, job: Job, code: int, left: dict[str, State]) -> None:
        stopped = code == STOPPED or code in UNHANDLED
        if code < 0 or stopped:
            job.kills += _mark(self._states(job)) <= job.mark
        else:
            job.failures += 1
        if code < 0 or stopped:
            outcome = ending(STOPPED if stopped else code)
        else:
            how = f"exit code {code}" if code else "it ended before its work did"
            error = next((state.error for state in left.values() if state.error), "")
            outcome = f"failed ({how})" + (f": {error}" if error and code else "")
        hopeless = code == ConfigError.code
        if not hopeless and job.failures <= self.retries and job.kills < KILLS:
            logger.info(f"{job.name} {outcome}; it is tried again")
            self._waiting.append(job)
            return
        log = self.place.log(job.group.id)
        if len(job.group.cells) > 1:
            logger.info(f"{job.name} {outcome}; each of its cells is tried alone (log: {log})")
            self._divide(job.group, left)
        else:
            logger.info(f"{job.name} {outcome}; it is given up (log: {log})")
        self._report()

    def _divide(self, group: Group, left: dict[str, State]) -> None:
        for single in alone(group):
            (cell,) = single.cells
            if cell.id in left:
                self.place.write_group(single.id, [cell.id], single.slots, single.seconds)
                self.place.write_cell(cell, single.id, self.place.read_cell(cell.id).evaluations)
                self._waiting.append(Job(single))

    def _report(self) -> None:
        began = time.monotonic()
        if began - self._reported >= REST * self._report_took:
            try:
                self.after()
            except DiskFull as error:  # workers may need less, and the last report is written again
                logger.info(f"warning: {error}")
            self._reported = time.monotonic()
            self._report_took = self._reported - began

    def _states(self, job: Job) -> dict[str, State]:
        entries = [self.place.read_cell(cell.id) for cell in job.group.cells]
        return {entry.id: self.place.state(entry, self.retries) for entry in entries}

    def _held(self, job: Job) -> bool:
        return any(self.place.busy(cell.id) for cell in job.group.cells)

    def _early(self, job: Job) -> bool:
        """Tell whether a group waits for another one to reach the step at which it goes on."""
        others = {*self._waiting, *self._running.values()} - {job}
        coming = {cell.id for other in others for cell in other.group.cells}
        trunks = {cell.trunk for cell in job.group.cells if not self.place.trained(cell.id)}
        return any(t.rpartition("@")[0] in coming and not self.place.saved(t) for t in trunks)

    # --- what is said (above the progress bar) ----------------------------------------------------

    def _stop(self, name: str) -> None:
        if self.stopped:
            logger.info(f"{name} again: stopping without saving")
        else:
            count = f"{len(self._running)} group{'s' if len(self._running) != 1 else ''}"
            logger.info(f"{name}: waiting for {count} to save; once more stops at once")
        self.stopped = True
        self.engine.stop()

    def _show(self) -> None:
        began = time.monotonic()
        pause = SPEAK if self._bar is None else max(GLANCE, REST * self._look_took)
        if began - self._spoke < pause:
            return
        now = progress.look(self.place, self.engine.room.parallel)
        self._spoke = time.monotonic()
        self._look_took = self._spoke - began
        if self._bar is None:
            logger.info(now.line())
            return
        self._bar.total = len(now.cells)
        self._bar.n = sum(now.counts[name] for name in progress.FINAL)
        self._bar.set_postfix_str(now.line())


def _mark(states: dict[str, State]) -> tuple[int, int]:
    """Return a key that grows with the work done: evaluations with a result, then steps."""
    missing = sum(len(state.missing) for state in states.values())
    return -missing, sum(state.step for state in states.values())
