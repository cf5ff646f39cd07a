"""One run while it trains: how it resumes, its step inputs, and the record of what it learned.

Runs that differ in step inputs alone train together, in one program and on one batch. Each keeps a
folder of its own, the same that it would have made alone: checkpoints, ledger, metrics, best step.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.batch import StepInputs
from bert_jax.checkpoints import reading
from bert_jax.checkpoints.saving import Checkpoints
from bert_jax.config import knobs, to_dict
from bert_jax.errors import DivergedError, need
from bert_jax.evaluation.metrics import Totals, as_lower
from bert_jax.interop import initial
from bert_jax.masking import rates
from bert_jax.training import branch, program, resume
from bert_jax.training.data import TrainingData
from bert_jax.training.ledger import Ledger
from bert_jax.training.step import State, compute_inputs
from bert_jax.training.writer import Writer

logger = logging.getLogger(__name__)


class Run:
    """One run while it trains.

    `failed` holds the error of a run that diverged: it is frozen, and the others go on undisturbed.
    """

    def __init__(
        self,
        config: knobs.Config,
        data: TrainingData,
        workdir: Path,
        resources: contextlib.ExitStack,
        shared: bool = False,
    ):
        """Open the checkpoints of a workdir; `shared` says that other runs train with this one."""
        self._fingerprints = {
            "corpus": data.fingerprint,
            "tokenizer": data.tokenizer.hash,
            "batches": data.source.fingerprint,
        }
        self.trunk, self.fork = config.trunk
        config = branch.recorded(config, self._fingerprints)
        self.config, self.workdir = config, Path(workdir)
        self.meta: dict[str, Any] = {"config": to_dict(config), **self._fingerprints}
        settings = config.checkpoints
        folder, best = self.workdir / "checkpoints", bool(settings.best)
        checkpoints = Checkpoints(folder, settings.keep, best, settings.at)
        self.checkpoints = resources.enter_context(contextlib.closing(checkpoints))
        self.failed: DivergedError | None = None
        self.shared = shared
        self.rank: tuple[int, float] | None = None  # the last ranked step, and its metric
        self.saved: dict[str, Any] = {}  # the record in the checkpoint that the run resumes from

    # --- resume -----------------------------------------------------------------------------------

    def check_resume(self, allowed: tuple[str, ...]) -> bool:
        """Refuse to continue the folder of another run; tell whether there is one to continue."""
        latest = reading.read_meta(self.checkpoints.folder)
        if latest is None:
            return False
        record, saved_step = latest
        longer = f"--config.steps={saved_step} --allow-change=steps ends there"
        if self.config.epochs is not None:
            longer = "raise epochs, with --allow-change=epochs"
        need(  # else a config of fewer steps would describe the model
            saved_step <= self.config.steps,
            f"{self.workdir} is at step {saved_step}, past the last step of this config, "
            f"{self.config.steps}",
            f"{longer}; or take another --workdir",
        )
        self.saved = resume.check_same(record, self.meta, allowed, self.workdir)
        return True

    def state_at(
        self, compiled: program.Program, data: TrainingData, step: int | None
    ) -> tuple[State, int]:
        """Return the state at a step, and the step.

        Step None is the last sound checkpoint; step 0, or no checkpoint, is a new state, or that of
        the trunk of a branch.
        """
        restored = None if step == 0 else self.checkpoints.restore(compiled.like(), step)
        if restored is not None:
            state, meta, restored_step = restored
            if restored_step != self.saved.get("step"):
                self.saved = meta
            return state, restored_step
        if self.fork:
            where = self._fingerprints, Path(self.trunk)
            state, self.saved = branch.start(self.config, *where, compiled.like())
            return state, self.fork
        state = compiled.init(self.config.seed)
        if self.config.init_from:
            state["params"] = initial.start_from(self.config, state["params"], data.tokenizer)
        return state, 0

    def begin(
        self, start: int, distinct: float, quiet: bool, resources: contextlib.ExitStack
    ) -> None:
        """Take up the record at step `start`; open the files of metrics, which `resources` closes.

        So many examples as are `distinct` have masks of their own; see `Writer` for `quiet`.
        """
        saved = self.saved = self.saved if start else {}
        masking, length = self.config.masking, self.config.sequence_length
        hybrid = self.config.objectives.get("hybrid")
        share = hybrid.share if hybrid else None
        self.ledger = Ledger(masking, distinct, saved.get("ledger"), length, share)
        self.best: float | None = saved.get("best")
        self.misses: int = saved.get("misses", 0)  # evaluations in a row without a better one
        self.window = Totals(saved.get("window"))
        writer = Writer(
            self.workdir,
            self.config.steps,
            start,
            self.config.logging.trackers,
            quiet,
            saved.get("seconds", 0.0),
            self.config.branch_from if 0 < start == self.fork else "",
            self.meta["config"],
        )
        self.writer = resources.enter_context(contextlib.closing(writer))

    @property
    def ended(self) -> bool:
        """Tell whether too many evaluations in a row were no better than the best one."""
        return 0 < self.config.checkpoints.patience <= self.misses

    # --- one update after the other ---------------------------------------------------------------

    def inputs(self, step: int) -> StepInputs:
        """Return the inputs of update `step`, from 1; a frozen run has a learning rate of 0."""
        inputs = compute_inputs(self.config, find_index(step))
        return inputs._replace(learning_rate=np.float32(0)) if self.failed else inputs

    def record(
        self, metrics: Mapping[str, tuple[float, float]], ids: np.ndarray, step: int
    ) -> None:
        """Add the metrics of an update; refuse those of a run that diverged."""
        check_learned(metrics, ids, step, self.config, str(self.workdir) if self.shared else "")
        if self.config.masked:
            rate = rates.rate_at(self.config.masking, find_index(step), self.config.steps)
            examples = metrics.get("examples_per_row", (self.config.batch_size,))[0]
            self.ledger.add(dict(metrics), rate, int(examples), step)
        self.window.add(metrics)

    def log(self, step: int, speed: Mapping[str, float]) -> None:
        """Write the sums and means of the updates since the last line."""
        window = {**self.window.values(), **speed}
        values = {f"train/{name}": value for name, value in window.items()}
        inputs = compute_inputs(self.config, find_index(step))
        values["train/learning_rate"] = float(inputs.learning_rate)
        self.writer.write(step, values)
        self.window.sums.clear()

    def evaluated(self, name: str, metrics: Mapping[str, float], step: int) -> None:
        """Write an evaluation; rank the step by it, if it is the validation."""
        self.writer.write(step, {f"eval/{name}/{key}": value for key, value in metrics.items()})
        best = self.config.checkpoints.best
        if name != "validation" or not best:
            return
        metric = as_lower(best, metrics[best])
        if not math.isfinite(metric):  # nothing was counted, or no correlation is defined
            self.misses += self.best is not None
            return
        self.misses = 0 if self.best is None or metric < self.best else self.misses + 1
        self.best = metric if self.best is None else min(self.best, metric)
        self.rank = (step, metric)

    def save(
        self,
        step: int,
        state: State,
        clock: Mapping[str, Any],
        owed: Sequence[str] = (),
    ) -> None:
        """Begin to save the state of the run and its record, with the evaluations that it owes."""
        self.writer.flush()  # a checkpoint never knows more than the metrics beside it
        record = {
            "ledger": self.ledger.totals,
            "best": self.best,
            "misses": self.misses,
            "window": self.window.sums,
            "seconds": self.writer.seconds,
            "clock": clock,
            "owed": list(owed),
        }
        metric = self.rank[1] if self.rank and self.rank[0] == step else None
        self.checkpoints.save(step, state, {**self.meta, **record}, metric)


def find_index(step: int) -> int:
    """Return the 0-based index of the update that leads to a step: the updates before it."""
    return step - 1


def check_learned(
    metrics: Mapping[str, tuple[float, float]],
    ids: np.ndarray,
    step: int,
    config: knobs.Config,
    workdir: str = "",
) -> None:
    """Warn of an update that was skipped; give up after too many in a row."""
    in_row = int(metrics["skipped_in_row"][0])
    if in_row:
        run = f" of {workdir}" if workdir else ""
        logger.warning(f"step {step}{run} skipped: its gradient is not finite ({in_row} in a row)")
    if in_row >= config.optim.nonfinite_limit:
        raise DivergedError(
            f"{in_row} updates in a row had a non-finite gradient; the last, step {step}, "
            f"held examples {ids.ravel()[:8].tolist()} and more",
            "lower --config.optim.learning_rate or lengthen the warm-up, "
            "and resume from the last checkpoint",
        )
