"""Brings the groups of a study to their end: gives them to an engine, tries again what failed, says how far it is.

A worker that was stopped (75), or found its cells in other hands, goes on later. One that was killed has `KILLS` tries
in which it gets no further, one that failed `retries` more than one, and one whose config cannot be used no other. A
group of several cells that comes to nothing is tried once more with each cell alone: one of them may have taken the
others along. Where a disk has no room left, nothing is tried again: all that runs is asked to stop.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import FrameType

from tqdm import tqdm

from bert_jax.errors import ConfigError
from bert_jax.studies import progress
from bert_jax.studies.engines import FULL, LOST, STOPPED, Engine, Task
from bert_jax.studies.folder import KILLS, Place, State
from bert_jax.studies.groups import Group, alone
from bert_jax.system.disk import DiskFull

WORKER = (sys.executable, "-m", "bert_jax.study", "work")
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)
UNHEARD = tuple(
    -number for number in SIGNALS
)  # a worker that was told to stop before it could listen
LOOK, SPEAK = 1.0, 60.0  # seconds: between looks at locks, and between plain lines
REST = 20.0  # between two reports, as a multiple of what one takes: it has the same cores as the workers


@dataclass(eq=False)
class Job:
    """A group, what became of its tries, and how far it was when the present one began."""

    group: Group
    failures: int = 0
    kills: int = 0
    mark: tuple[int, int] = (0, 0)

    @property
    def name(self) -> str:
        """For the log."""
        cells = self.group.cells
        if len(cells) > 1:
            return f"group {self.group.id} ({len(cells)} cells)"
        labels = [f"{axis} {label}" for axis, label in cells[0].labels.items()]
        return f"cell {cells[0].id} ({', '.join([*labels, f'seed {cells[0].seed}'])})"


class Launcher:
    """One launch; `after` is called when groups have ended, for a report."""

    def __init__(
        self,
        place: Place,
        groups: Sequence[Group],
        engine: Engine,
        retries: int = 2,
        after: Callable[[], None] = lambda: None,
        worker: Sequence[str] = WORKER,
    ) -> None:
        self.place, self.engine, self.retries, self.after, self.worker = (
            place,
            engine,
            retries,
            after,
            tuple(worker),
        )
        self.stopped = self.full = False
        self._waiting = [
            Job(group) for group in sorted(groups, key=lambda group: -group.seconds)
        ]  # the longest first
        self._running: dict[str, Job] = {}
        self._looked, self._spoke = float("-inf"), time.monotonic()
        self._reported, self._report_took = float("-inf"), 0.0
        self._bar = tqdm(unit="cell", dynamic_ncols=True) if sys.stderr.isatty() else None

    def run(self) -> None:
        """Goes on until nothing is left to do or, after a stop signal, nothing runs."""
        with _stop_signals() as told, contextlib.ExitStack() as closing:
            if self._bar is not None:
                closing.callback(self._bar.close)
            heard = 0
            while self._running or (self._waiting and not self.stopped):
                if len(told) > heard:
                    heard = len(told)
                    self._stop(signal.Signals(told[-1]).name)
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
        """Gives the engine all groups whose cells are free: of a launch that was killed, workers may still save."""
        if not self._waiting or time.monotonic() - self._looked < LOOK:
            return
        self._looked = time.monotonic()
        ready = [job for job in self._waiting if not self._held(job)]
        self._waiting = [job for job in self._waiting if job not in ready]
        for job in ready:
            job.mark = _mark(self._states(job))
            self._running[job.group.id] = job
        self.engine.submit([self._task(job.group) for job in ready])

    def _task(self, group: Group) -> Task:
        command = (*self.worker, f"--workdir={self.place.workdir.resolve()}", f"--group={group.id}")
        return Task(group.id, command, self.place.log(group.id).resolve(), group.seconds)

    def _ended(self, job: Job, code: int) -> None:
        """Decides whether a group that has ended is done, is tried again, or has failed."""
        states = self._states(job)
        left = {cell: state for cell, state in states.items() if state.name not in progress.FINAL}
        diverged = sum(state.name == "diverged" for state in states.values())
        if not left:
            self.say(f"{job.name} is done" + (f", {diverged} of them diverged" if diverged else ""))
            self._report()
        elif code == FULL:
            self._no_room(job, "a worker found no room on the disk")
        elif self.stopped:
            self._waiting.append(job)
        elif code == STOPPED and self._held(job):
            self.say(f"{job.name} is in the hands of another worker; it goes on when that one ends")
            self._waiting.append(job)
        else:
            self._again(job, code, left)

    def _no_room(self, job: Job, why: str) -> None:
        """Stops, for whatever is started next would find no room either; what is left goes on later."""
        self._waiting.append(job)
        self.say(f"{job.name}: {why}")
        if not self.stopped:
            self._stop("no room")
        self.full = True

    def _again(self, job: Job, code: int, left: dict[str, State]) -> None:
        went_on = _mark(self._states(job)) > job.mark
        if code == STOPPED or code in UNHEARD:
            what, job.kills = "was stopped", job.kills + (not went_on)
        elif code == LOST:
            what, job.kills = "ended without a word", job.kills + (not went_on)
        elif code < 0:
            what, job.kills = f"was killed (signal {-code})", job.kills + (not went_on)
        else:
            how = f"exit code {code}" if code else "it ended before its work did"
            what, job.failures = f"failed ({how})", job.failures + 1
        error = next((state.error for state in left.values() if state.error), "")
        reason = f": {error}" if error and code > 0 and code != STOPPED else ""
        hopeless = code == ConfigError.code
        if not hopeless and job.failures <= self.retries and job.kills < KILLS:
            self.say(f"{job.name} {what}{reason}; it is tried again")
            self._waiting.append(job)
            return
        log = self.place.log(job.group.id)
        if len(job.group.cells) > 1:
            self.say(f"{job.name} {what}{reason}; each of its cells is tried alone (log: {log})")
            self._divide(job.group, left)
        else:
            self.say(f"{job.name} {what}{reason}; it is given up (log: {log})")
        self._report()

    def _divide(self, group: Group, left: dict[str, State]) -> None:
        for one in alone(group):
            (cell,) = one.cells
            if cell.id in left:
                self.place.write_group(one.id, [cell.id], one.slots, one.seconds)
                self.place.write_cell(cell, one.id, self.place.read_cell(cell.id).evaluations)
                self._waiting.append(Job(one))

    def _report(self) -> None:
        began = time.monotonic()
        if began - self._reported >= REST * self._report_took:
            try:
                self.after()
            except (
                DiskFull
            ) as error:  # what runs may need less, and the last report is asked for again
                self.say(f"warning: {error}")
            self._reported = time.monotonic()
            self._report_took = self._reported - began

    def _states(self, job: Job) -> dict[str, State]:
        return {
            c.id: self.place.state(self.place.read_cell(c.id), self.retries)
            for c in job.group.cells
        }

    def _held(self, job: Job) -> bool:
        return any(self.place.busy(cell.id) for cell in job.group.cells)

    # --- what is said -----------------------------------------------------------------------------

    def _stop(self, name: str) -> None:
        if self.stopped:
            self.say(f"{name} again: stopping without saving")
        else:
            count = f"{len(self._running)} group{'s' if len(self._running) != 1 else ''}"
            self.say(f"{name}: waiting for {count} to save; once more stops at once")
        self.stopped = True
        self.engine.stop()

    def say(self, text: str) -> None:
        """One line on standard error that leaves the bar whole."""
        if self._bar is not None:
            self._bar.write(text, file=sys.stderr)
        else:
            print(text, file=sys.stderr, flush=True)

    def _show(self) -> None:
        if time.monotonic() - self._spoke < SPEAK:
            return
        self._spoke = time.monotonic()
        now = progress.look(self.place, self.engine.room.parallel)
        if self._bar is None:
            self.say(now.line())
            return
        self._bar.total, self._bar.n = (
            len(now.cells),
            sum(now.counts[name] for name in progress.FINAL),
        )
        self._bar.set_postfix_str(now.line())


def _mark(states: dict[str, State]) -> tuple[int, int]:
    """Something that grows when work was done: evaluations that have a result, and steps."""
    return -sum(len(state.missing) for state in states.values()), sum(
        state.step for state in states.values()
    )


@contextlib.contextmanager
def _stop_signals() -> Iterator[list[int]]:
    """A list that grows with every stop signal."""
    told: list[int] = []

    def note(number: int, _: FrameType | None) -> None:
        told.append(number)

    before = {number: signal.signal(number, note) for number in SIGNALS}
    try:
        yield told
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
