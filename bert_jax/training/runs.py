"""The runs of one program: each is recorded, evaluated and saved by itself, and fails by itself."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NoReturn

import jax
import numpy as np
from jax.sharding import Mesh

from bert_jax.batch import Batch, Metrics, StepInputs
from bert_jax.checkpoints import reading
from bert_jax.checkpoints.steps import list_metrics, list_steps
from bert_jax.config import knobs, validation
from bert_jax.errors import CheckpointError, DivergedError, Stopped
from bert_jax.masking import quotas
from bert_jax.reporting import run_report
from bert_jax.training import data as training_data
from bert_jax.training import environment, trackers
from bert_jax.training.clock import Clock, peak
from bert_jax.training.data import finalize
from bert_jax.training.program import Program, State
from bert_jax.training.run import Run

logger = logging.getLogger(__name__)

Job = tuple[knobs.Config, Path]  # a config and its workdir
OnDiverged = Callable[[Path, DivergedError], None]


class Runs:
    """The runs that one program trains, on the same batches."""

    clock: Clock  # of all runs together

    def __init__(
        self,
        jobs: Sequence[Job],
        command: Sequence[str],
        on_diverged: OnDiverged,
        resources: contextlib.ExitStack,
    ):
        """Read the data that the jobs share; open each workdir, until `resources` is closed."""
        if jax.process_index() == 0:
            trackers.check_trackers(
                {name for config, _ in jobs for name in config.logging.trackers}
            )
        self.data = training_data.gather(jobs[0][0])
        shared = len(jobs) > 1
        self._runs = [
            Run(finalize(config, self.data.facts), self.data, workdir, resources, shared)
            for config, workdir in jobs
        ]
        self.config = self._runs[0].config
        self._command, self._on_diverged, self._resources = list(command), on_diverged, resources
        self._pending: tuple[int, Metrics, np.ndarray] | None = None  # step, metrics, example ids
        if jax.process_index() == 0:
            validation.warn(*(run.config for run in self._runs))

    def __len__(self) -> int:
        return len(self._runs)

    def active(self) -> Iterator[tuple[int, Run]]:
        """Yield the runs that have not diverged, each with its index in the program."""
        return ((index, run) for index, run in enumerate(self._runs) if not run.failed)

    @property
    def stop_early(self) -> bool:
        """Tell whether all runs had too many evaluations in a row without a better one."""
        return all(run.ended for _, run in self.active())

    @property
    def owed(self) -> list[str]:
        """The evaluations that the last attempt left out when it stopped."""
        return self._runs[0].saved.get("owed", [])

    # --- state ------------------------------------------------------------------------------------

    def build_program(self, mesh: Mesh, slots: int = 0) -> Program:
        """Build the program that trains the runs, with at least `slots` prediction slots a row."""
        length, packing = self.config.sequence_length, self.config.packing
        needed = (quotas.count_slots(run.config.masking, length, packing) for run in self._runs)
        special, vocab_size = self.data.tokenizer.special, self.data.tokenizer.size
        return Program(self.config, special, vocab_size, mesh, len(self), max(slots, *needed))

    def restore_or_init(
        self, program: Program, allow_change: tuple[str, ...] = ()
    ) -> tuple[State, int]:
        """Return the state of all runs at the last step that all of them have saved, and the step.

        Where nothing is saved, the state is initialised and the step is 0, or that of the fork of
        branches.
        """
        resumed = [run.check_resume(allow_change) for run in self._runs]
        restored_step: int | None = 0  # begin anew; None: a run's own last sound step
        if all(resumed):
            restored_step = last_common_step(self._runs) if len(self) > 1 else None
        states = []
        for run in self._runs:
            state, start = run.state_at(program, self.data, restored_step)
            if jax.process_index() == 0:
                params = state["params"]
                environment.describe_run(run.config, self.data, params, run.workdir, self._command)
            states.append(program.hold(state))
        if restored_step != 0:
            subject = f"{len(self)} runs" if len(self) > 1 else self._runs[0].workdir
            logger.info(f"resuming {subject} at step {start}")
        elif any(resumed):
            logger.warning(f"{len(self)} runs begin anew: {self._nothing_shared(resumed)}")
        if restored_step == 0 and start:
            logger.info(
                f"branching off {', '.join(run.trunk for run in self._runs)} at step {start}"
            )
        for run in self._runs:
            run.begin(start, self.data.distinct(), run is not self._runs[0], self._resources)
        nominal = peak(jax.devices()[0].device_kind)
        self.clock = Clock(
            self.config,
            program.vocab_size,
            len(self),
            nominal and nominal * program.mesh.size,
            self._runs[0].saved.get("clock"),
        )
        return program.place(states), start

    def _nothing_shared(self, resumed: Sequence[bool]) -> str:
        """Say why runs of which some are saved cannot go on together."""
        unsaved = [
            str(run.workdir) for run, found in zip(self._runs, resumed, strict=True) if not found
        ]
        if unsaved:
            return f"nothing is saved in {', '.join(unsaved)}"
        return "no step is saved by all of them"

    def save_is_due(self, step: int) -> bool:
        """Tell whether to save after an update: every so many steps, at some, and at the end."""
        saves = self.config.checkpoints
        due = step % saves.every == 0 or step in saves.at
        return due or self.stop_early or step == self.config.steps

    def save(self, program: Program, state: State, step: int, owed: Sequence[str] = ()) -> None:
        """Begin to save each run that has not diverged, and which evaluations it owes."""
        with self.clock.on("saving"):
            self.settle(program)
            for index, run in self.active():
                with self._freeze_if_diverged(run):
                    run.save(step, program.run_state(state, index), self.clock.state(), owed)

    # --- one update after the other ---------------------------------------------------------------

    def steps(self, start: int) -> range:
        """Return the updates still to make."""
        return range(start + 1, start + 1 if self.stop_early else self.config.steps + 1)

    def next_batch(self, batches: Iterator[Batch]) -> Batch:
        """Wait for the next batch, on the clock."""
        with self.clock.on("data"):
            return next(batches)

    def inputs(self, step: int) -> list[StepInputs]:
        """Return the step inputs of each run for an update."""
        return [run.inputs(step) for run in self._runs]

    def record(self, program: Program, step: int, metrics: Metrics, batch: Batch) -> None:
        """Settle the update before this one, and keep the metrics of this one on the device.

        While the host takes in the metrics of one update, the device computes the next.
        """
        self.settle(program)
        self._pending = (step, metrics, batch["example_ids"])
        self.clock.tick(batch)

    def settle(self, program: Program) -> None:
        """Take in the metrics that are still on the device, if there are any."""
        if self._pending is None:
            return
        step, on_device, ids = self._pending
        self._pending = None
        metrics = program.metrics(on_device)
        for index, run in self.active():
            with self._freeze_if_diverged(run):
                run.record(metrics[index], ids, step)
                if step % self.config.logging.every == 0 or step == self.config.steps:
                    run.log(step, self.clock.values())

    @contextlib.contextmanager
    def _freeze_if_diverged(self, run: Run) -> Iterator[None]:
        """Freeze a run that diverges while others go on; raise its error if it was the last."""
        try:
            yield
        except DivergedError as error:
            run.failed = error
            self._on_diverged(run.workdir, error)
            if all(other.failed for other in self._runs):
                raise
            logger.warning(f"{run.workdir} is frozen, the others go on: {error}")

    # --- the end ----------------------------------------------------------------------------------

    def interrupt(self, step: int) -> NoReturn:
        """Raise Stopped, once everything is saved."""
        for run in self._runs:
            run.checkpoints.wait()
        raise Stopped(
            f"stopped at step {step} of {self.config.steps}, saved", "the same command continues"
        )

    def conclude(self) -> None:
        """Wait until everything is on the disk, and write the reports."""
        for run in self._runs:
            run.checkpoints.wait()
            run.writer.flush()
        if jax.process_index() != 0:
            return
        for _, run in self.active():
            if self.stop_early:
                best = run.config.checkpoints.best
                text = f"ended early: {run.misses} evaluations in a row without a better {best}"
                logger.info(text)
            run.writer.finished = True
            report = run_report.write(run.workdir, list_metrics)
            if len(self) == 1:
                logger.info(f"report: {report}")


def last_common_step(runs: Sequence[Run]) -> int:
    """Return the last step that all runs have saved and that is sound in each, 0 without any."""
    folders = [run.checkpoints.folder for run in runs]
    common = sorted(set.intersection(*({*list_steps(folder)} for folder in folders)))
    while common:
        step = common.pop()
        try:
            for folder in folders:
                reading.choose_together(folder, step)
            return step
        except CheckpointError as damage:
            if not common:
                raise
            logger.warning(f"{damage}; all runs fall back to step {common[-1]}")
    return 0
