"""The runs of one program: each run is recorded, evaluated and saved, and may fail, by itself."""

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
from bert_jax.checkpoints.manifest import list_steps
from bert_jax.config import knobs, validation
from bert_jax.errors import CheckpointError, DivergedError, Stopped
from bert_jax.masking import quotas
from bert_jax.reporting import run_report
from bert_jax.training import data as training_data
from bert_jax.training import trackers
from bert_jax.training.clock import Clock
from bert_jax.training.program import Program, State
from bert_jax.training.run import Run
from bert_jax.training.stop import Interrupted, StopFlag

logger = logging.getLogger(__name__)

Job = tuple[knobs.Config, Path]  # a config and its workdir
OnDiverged = Callable[[Path, DivergedError], None]


class Runs:
    """The runs, one or several, that one program trains on the same batches.

    This class holds what the runs share: the program, the data, the evaluators, the clock, the stop
    signal, and the metrics that are still on the device. `run.Run` holds what each run has of its
    own.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        mesh: Mesh,
        slots: int,
        on_diverged: OnDiverged,
        stop_flag: StopFlag,
        resources: contextlib.ExitStack,
    ):
        """Load the data that the jobs share, and open each workdir until `resources` is closed.

        The program has at least `slots` prediction slots a row.
        """
        if jax.process_index() == 0:
            trackers.check_trackers(
                {name for config, _ in jobs for name in config.logging.trackers}
            )
        self.data = training_data.load_training_data(jobs[0][0])
        self._runs = [
            Run(training_data.fill_in_facts(config, self.data.facts), self.data, workdir, resources)
            for config, workdir in jobs
        ]
        self._on_diverged = on_diverged
        self._stop_flag = stop_flag
        self._resources = resources
        self._pending: tuple[int, Metrics, np.ndarray] | None = None  # step, metrics, example ids
        self.config = config = self._runs[0].config
        if jax.process_index() == 0:
            validation.warn_of_warmup(*(run.config for run in self._runs))
            validation.warn_of_lost_best(config)
        for run in self._runs:
            own = quotas.count_slots(run.config.masking, config.sequence_length, config.packing)
            slots = max(slots, own)
        tokenizer = self.data.tokenizer
        self.program = Program(
            config, tokenizer.special, tokenizer.size, mesh, len(self._runs), slots
        )
        self._evaluators = {name: self.data.evaluator(name, mesh) for name in config.evals}

    def list_active(self) -> Iterator[tuple[int, Run]]:
        """Yield the runs that have not diverged, each with its index in the program."""
        return ((index, run) for index, run in enumerate(self._runs) if not run.failed)

    @property
    def patience_ended(self) -> bool:
        """True if patience has ended every run that has not diverged: see `Run.ended`."""
        return all(run.ended for _, run in self.list_active())

    # --- the beginning ----------------------------------------------------------------------------

    def restore_or_init(
        self, allow_change: tuple[str, ...] = (), command: Sequence[str] = ()
    ) -> tuple[State, int]:
        """Return the state of all runs at the last step that every run has saved, and that step.

        If no such step exists, the state is new and the step is 0. Branches then have the state and
        the step of their fork.
        """
        several = len(self._runs) > 1
        resumed = [run.check_resume(allow_change) for run in self._runs]
        restored_step: int | None = None  # a run's own last sound step
        if several:
            restored_step = last_common_step(self._runs)
        elif not resumed[0]:
            restored_step = 0  # begin anew
        states = []
        for run in self._runs:
            state, start = run.restore_or_init(self.program, restored_step, allow_change)
            if jax.process_index() == 0:
                run.write_description(state["params"], command)
            # Of several runs, the devices hold no state until all of them are there.
            states.append(jax.device_get(state) if several else state)
        subject = f"{len(self._runs)} runs" if several else self._runs[0].workdir
        if restored_step != 0:
            logger.info(f"resuming {subject} at step {start}")
        elif any(resumed):
            logger.warning(f"{subject} begin anew: no step is saved by all of them")
        elif start:
            trunks = ", ".join(run.trunk for run in self._runs)
            logger.info(f"branching off {trunks} at step {start}")
        for run in self._runs:
            run.begin_at(start, run is not self._runs[0], self._resources)
        saved = self._runs[0].saved.get("clock")
        self.clock = Clock(self.config, self.data.tokenizer.size, len(self._runs), saved)
        return self.program.place(states), start

    def evaluate_owed(self, state: State, step: int) -> None:
        """Run the evaluations that a stop signal prevented in an earlier attempt.

        The results are added to the saved step of each run, so that no later attempt repeats them.
        Runs may owe different evaluations, if such an attempt ended between two runs.
        """
        owed = [name for name in self.config.evals if any(name in run.owed for run in self._runs)]
        left = self.run_evaluations(owed, state, step, only_owed=True)
        for run in self._runs:
            # Of evaluations that follow the end by patience, `left` may have some that no run owed.
            still = [name for name in left if name in run.owed or name not in owed]
            if still or run.saved.get("owed"):  # also of evaluations that the config has no more
                run.save_evaluations(step, still)
        if left:
            self.raise_stopped(step)

    # --- one update after the other ---------------------------------------------------------------

    def steps(self, start: int) -> range:
        """Return the steps that remain after step `start`; none if patience has ended the run."""
        return range(start + 1, start + 1 if self.patience_ended else self.config.steps + 1)

    def next_batch(self, batches: Iterator[Batch]) -> Batch:
        """Return the next batch; the clock counts the time of waiting."""
        with self.clock.measure("data"):
            return next(batches)

    def compute_inputs(self, step: int) -> list[StepInputs]:
        """Return the step inputs of each run for an update."""
        return [run.compute_inputs(step) for run in self._runs]

    def record_update(self, step: int, metrics: Metrics, batch: Batch) -> None:
        """Record the metrics of the previous update; keep those of this update on the device.

        So the host reads the metrics of one update while the device computes the next.
        """
        self.record_pending_metrics()
        self._pending = (step, metrics, batch["example_ids"])
        self.clock.tick(batch)

    def record_pending_metrics(self) -> None:
        """Fetch the metrics that are still on the device, if there are any, and record them."""
        if self._pending is None:
            return
        step, on_device, ids = self._pending
        self._pending = None
        metrics = self.program.fetch_metrics(on_device)  # waits until the update is done
        self.clock.end_update()
        for index, run in self.list_active():
            with self._freeze_if_diverged(run):
                run.record_update(metrics[index], ids, step)
                if step % self.config.logging.every == 0 or step == self.config.steps:
                    run.log_window(step, self.clock.values())

    def list_due(self, step: int) -> list[str]:
        """List the evaluations to run after an update.

        An evaluation whose `every` is 0 runs only after the last update: see `run_evaluations`.
        """
        due = []
        for name, settings in self.config.evals.items():
            regular = settings.every and step % settings.every == 0
            if regular or step == self.config.steps:
                due.append(name)
        return due

    def run_evaluations(
        self, names: list[str], state: State, step: int, only_owed: bool = False
    ) -> list[str]:
        """Evaluate each run that has not diverged; list the evaluations that a signal left out.

        With `only_owed`, a run makes only the evaluations that it owes. If patience ends the runs
        now, this update is their last, and the evaluations that were not due follow.
        """
        went_on = not self.patience_ended
        left = self._evaluate_each(names, state, step, only_owed)
        if went_on and self.patience_ended:
            due = self.list_due(step)
            rest = [name for name in self.config.evals if name not in due]
            if left:
                return left + rest
            left = self._evaluate_each(rest, state, step)
        return left

    def _evaluate_each(
        self, names: list[str], state: State, step: int, only_owed: bool = False
    ) -> list[str]:
        """Make some evaluations; list those that a signal left out."""
        if names:
            self.record_pending_metrics()
        for position, name in enumerate(names):
            results = []
            try:
                # With the mesh in context each device keeps its own rows. Without it XLA may follow
                # the split of parameters under fsdp, and gather the activations of all rows.
                with (
                    self._stop_flag.interrupting(),
                    self.clock.measure("evaluation"),
                    self.program.context(),
                ):
                    layout = self.program.run_layout["params"]
                    evaluate = self._evaluators[name]
                    for index, run in self.list_active():
                        if only_owed and name not in run.owed:
                            continue
                        params = self.program.pick(state["params"], index, layout)
                        results.append((run, *evaluate(params, self._stop_flag.check_batch)))
            except Interrupted:
                return names[position:]
            for run, metrics, samples in results:
                run.record_evaluation(name, metrics, samples, step)
        return []

    def save_is_due(self, step: int) -> bool:
        """Tell whether to save after an update.

        A save is due by `every` and `at`, after the last update, and with patience at each best
        step so far, because training may end before a better one.
        """
        saves = self.config.checkpoints
        due = step % saves.every == 0 or step in saves.at or step == self.config.steps
        is_best = saves.patience > 0 and any(run.is_best(step) for _, run in self.list_active())
        return due or is_best or self.patience_ended

    def save_runs(self, state: State, step: int, owed: Sequence[str] = ()) -> None:
        """Begin to save each run that has not diverged.

        The record of a run names the evaluations `owed`, which are still to be run at this step.
        """
        self.record_pending_metrics()  # waits for the update, whose time is no time of saving
        with self.clock.measure("saving"):
            for index, run in self.list_active():
                with self._freeze_if_diverged(run):
                    own = self.program.pick(state, index, self.program.run_layout)
                    run.save_state(step, own, self.clock.state(), owed)

    @contextlib.contextmanager
    def _freeze_if_diverged(self, run: Run) -> Iterator[None]:
        """Freeze `run` if the body of the `with` statement finds that it diverges.

        Raise the run's error if no other run is left.
        """
        try:
            yield
        except DivergedError as error:
            run.failed = error
            self._on_diverged(run.workdir, error)
            if all(other.failed for other in self._runs):
                raise
            logger.warning(f"{run.workdir} is frozen, the others go on: {error}")

    # --- the end ----------------------------------------------------------------------------------

    def raise_stopped(self, step: int) -> NoReturn:
        """Wait until all checkpoints are saved, then raise Stopped."""
        for run in self._runs:
            run.checkpoints.wait()
        raise Stopped(
            f"stopped at step {step} of {self.config.steps}, saved", "the same command continues"
        )

    def conclude(self) -> None:
        """Wait until everything is on the disk; write the reports."""
        for run in self._runs:
            run.checkpoints.wait()
            run.writer.flush()
        if jax.process_index() != 0:
            return
        for _, run in self.list_active():
            last = max(list_steps(run.checkpoints.folder), default=0)
            if self.patience_ended and last < run.config.steps:
                best = run.config.checkpoints.best
                logger.info(
                    f"ended early: {run.misses} evaluations in a row without a better {best}"
                )
            run.writer.finished = True
            report = run_report.write_report(run.workdir)
            if len(self._runs) == 1:
                logger.info(f"report: {report}")


def last_common_step(runs: Sequence[Run]) -> int:
    """Return the last step that every run has saved and that is sound in every run; 0 if none."""
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
