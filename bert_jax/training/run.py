"""One run during training: how it resumes, its step inputs, and the records that it writes."""

import collections
import contextlib
import functools
import logging
import math
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from bert_jax.batch import StepInputs
from bert_jax.checkpoints import reading
from bert_jax.checkpoints.saving import Checkpoints
from bert_jax.config import knobs, to_dict
from bert_jax.errors import DivergedError, need
from bert_jax.evaluation.metrics import Totals, as_lower
from bert_jax.interop import initial
from bert_jax.masking import rates
from bert_jax.reporting import run_record
from bert_jax.system import jsons, machine, opening, trees
from bert_jax.training import branch, optim, program, resume
from bert_jax.training.data import TrainingData
from bert_jax.training.ledger import Ledger
from bert_jax.training.step import State, compute_inputs
from bert_jax.training.writer import Writer

logger = logging.getLogger(__name__)

LAST = ("skipped", "skipped_in_row")  # counters, of which a line has the last value, not a mean


class Run:
    """One run during training, with its workdir: config, checkpoints, ledger and metrics.

    A Run knows of no other run, and so its folder is the same as if it trained by itself.
    `runs.Runs` holds what several runs share. `failed` is the error of a run that diverged. Such a
    run is frozen, and the other runs go on.
    """

    def __init__(
        self,
        config: knobs.Config,
        data: TrainingData,
        workdir: Path,
        resources: contextlib.ExitStack,
    ):
        """Open the checkpoints of a workdir; closing `resources` closes them."""
        self._data = data
        self._fingerprints = {
            "corpus": data.fingerprint,
            "tokenizer": data.tokenizer.hash,
            "batches": data.source.fingerprint,
        }
        # With branch_from: the run that this run branches off, and the step where; else "" and 0.
        self.trunk, self.fork = config.trunk
        config = branch.with_digest(config, self._fingerprints)
        self.config = config
        self.workdir = Path(workdir)
        self._meta: dict[str, Any] = {"config": to_dict(config), **self._fingerprints}
        saves = config.checkpoints
        folder = self.workdir / "checkpoints"
        checkpoints = Checkpoints(folder, saves.keep, bool(saves.best), saves.at)
        self.checkpoints = resources.enter_context(contextlib.closing(checkpoints))
        self.failed: DivergedError | None = None
        self.rank: tuple[int, float] | None = None  # the last ranked step, and its metric
        self.saved: dict[str, Any] = {}  # the record in the checkpoint that the run resumes from

    # --- resume -----------------------------------------------------------------------------------

    def check_resume(self, allowed: tuple[str, ...]) -> bool:
        """Tell whether there is a checkpoint to continue; refuse a folder of something else."""
        latest = reading.read_meta(self.checkpoints.folder)
        if latest is None:
            need(  # else `write_description` would replace the config.json of a model
                not (self.workdir / "config.json").exists() or run_record.is_run(self.workdir),
                f"{self.workdir} has a config.json that no run wrote",
                "another --workdir, with --config.init_from=… if a model is to be trained",
            )
            return False
        record, saved_step = latest
        need(
            "foreign" not in record,
            f"{self.workdir} is an imported model, which no config trained",
            f"another --workdir, with --config.init_from={self.workdir}",
        )
        longer = f"--config.steps={saved_step} --allow-change=steps ends there"
        if self.config.epochs is not None:
            longer = "raise epochs, with --allow-change=epochs"
        need(  # else a config of fewer steps would describe the model
            saved_step <= self.config.steps,
            f"{self.workdir} is at step {saved_step}, past the last step of this config, "
            f"{self.config.steps}",
            f"{longer}; or take another --workdir",
        )
        resume.check_same(record, self._meta, allowed, self.workdir)
        return True

    def restore_or_init(
        self, compiled: program.Program, step: int | None, allowed: tuple[str, ...]
    ) -> tuple[State, int]:
        """Return the state to begin with, and its step.

        Args:
          compiled: the program, which knows the layout of the state.
          step: the checkpoint to restore; None is the last sound one. If step is 0 or no checkpoint
            exists, the state is new, or for a branch the trunk's state at the fork.
          allowed: paths of knobs that may differ from the checkpoint.
        """
        restored = None if step == 0 else self.checkpoints.restore(compiled.describe_state(), step)
        if restored is not None:
            state, record, restored_step = restored
            # `check_resume` may have seen a later checkpoint, whose arrays turned out damaged.
            self.saved = resume.check_same(record, self._meta, allowed, self.workdir)
            return state, restored_step
        if self.fork:
            trunk = opening.expand_home(self.trunk)
            state, self.saved = branch.start_branch(
                self.config, self._fingerprints, trunk, compiled.describe_state()
            )
            return state, self.fork
        if not self.config.init_from:
            return compiled.start.draw_state(self.config.seed), 0
        layout = compiled.describe_state()["params"]
        draw = functools.partial(compiled.start.draw_params, self.config.seed)
        params = initial.start_from(self.config, layout, draw, self._data.tokenizer)
        return compiled.start.make_first_state(params), 0

    def write_description(self, params: Any, command: Sequence[str]) -> None:
        """Write config.json, environment.json and tokenizer/ into the folder of the run."""
        host = machine.describe_host()
        devices = jax.devices()
        installed = machine.list_versions(machine.RECORDED)
        versions = {name: version or "not installed" for name, version in installed.items()}
        description = {
            "command": list(command),
            "git_commit": machine.git_commit(),
            "versions": {"python": platform.python_version(), **versions},
            "machine": {
                "platform": host["system"],
                "cores": host["cores"],
                "memory_bytes": host["memory_bytes"],
                "backend": jax.default_backend(),
                "devices": [f"{len(devices)} x {devices[0].device_kind}"],
                "processes": jax.process_count(),
            },
            "parameters": sum(leaf.size for leaf in trees.flatten_tree(params).values()),
            "corpus": self._data.fingerprint,
            "vocabulary": self._data.tokenizer.size,
            "tokenizer": self._data.tokenizer.hash,
        }
        jsons.write(self.workdir / "config.json", to_dict(self.config))
        jsons.write(self.workdir / "environment.json", description)
        self._data.tokenizer.save(self.workdir / "tokenizer")

    def begin_at(self, start: int, quiet: bool, resources: contextlib.ExitStack) -> None:
        """Begin at step `start`: load ledger and counters of its checkpoint; open the `Writer`.

        Later checkpoints and lines are dropped. The checkpoints go first, because no attempt may
        continue one whose lines are lost.
        """
        self.checkpoints.delete_after(start)
        saved = self.saved = self.saved if start else {}
        if why := saved.get("unranked"):
            logger.warning(
                f"{self.workdir}: validation measures otherwise ({why}): ranks begin anew"
            )
            self.checkpoints.forget_metrics()
        hybrid = self.config.objectives.get("hybrid")
        self.ledger = Ledger(
            self.config.masking,
            self._data.count_distinct(),
            collections.Counter(saved.get("ledger")),
            self.config.sequence_length,
            hybrid.share if hybrid else None,
        )
        self.best: float | None = saved.get("best")
        self.misses: int = saved.get("misses", 0)  # evaluations in a row without a better one
        self.window = Totals(saved.get("window"))
        # Evaluations that a stop signal left out at `start`, without those that were removed since.
        self.owed = [name for name in self.config.evals if name in saved.get("owed", [])]
        writer = Writer(
            self.workdir,
            self.config,
            start,
            quiet=quiet,
            seconds=saved.get("seconds", 0.0),
            branches=0 < start == self.fork,
            owed=self.owed,
        )
        self.writer = resources.enter_context(contextlib.closing(writer))

    @property
    def ended(self) -> bool:
        """True if the last evaluations, `patience` or more, did not improve on the best one."""
        return 0 < self.config.checkpoints.patience <= self.misses

    def is_best(self, step: int) -> bool:
        """Tell whether a step was evaluated, and no step before it was better."""
        return self.rank == (step, self.best)

    # --- one update after the other ---------------------------------------------------------------

    def compute_inputs(self, step: int) -> StepInputs:
        """Return the step inputs of update `step`, from 1; a frozen run's learning rate is 0."""
        step_inputs = compute_inputs(self.config, step - 1)
        return step_inputs._replace(learning_rate=np.float32(0)) if self.failed else step_inputs

    def record_update(
        self, metrics: Mapping[str, tuple[float, float]], ids: np.ndarray, step: int
    ) -> None:
        """Record the metrics of an update in the ledger; raise an error if the run diverged."""
        self._check_learned(int(metrics["skipped_in_row"][0]), ids, step)
        if self.config.masked:
            rate = rates.rate_at(self.config.masking, step - 1, self.config.steps)
            examples = metrics.get("examples_per_row", (self.config.batch_size,))[0]
            self.ledger.add(dict(metrics), rate, int(examples), step)
        self.window.add(metrics)
        self.window.sums |= {name: metrics[name] for name in LAST}

    def _check_learned(self, in_row: int, ids: np.ndarray, step: int) -> None:
        """Warn of an update that was skipped; raise a DivergedError after too many in a row."""
        if in_row:
            logger.warning(
                f"step {step} of {self.workdir} skipped: its gradient is not finite "
                f"({in_row} in a row)"
            )
        if in_row >= self.config.optim.nonfinite_limit:
            raise DivergedError(
                f"{in_row} updates in a row had a non-finite gradient; the last, step {step}, "
                f"held examples {ids.ravel()[:8].tolist()} and more",
                "lower --config.optim.learning_rate or lengthen the warm-up, "
                "and resume from the last checkpoint",
            )

    def log_window(self, step: int, speed: Mapping[str, float]) -> None:
        """Write a line with the metrics of all updates since the last line."""
        window = {**self.window.values(), **speed}
        values = {f"train/{name}": value for name, value in window.items()}
        rate = optim.make_schedule(self.config.optim, self.config.steps)(step - 1)
        values["train/learning_rate"] = float(np.float32(rate))
        self.writer.write(step, values)
        self.window.sums.clear()

    def record_evaluation(
        self, name: str, metrics: Mapping[str, float], samples: Sequence[Any], step: int
    ) -> None:
        """Write the metrics of an evaluation; if it is the validation, rank the step by it."""
        self.writer.write(step, {f"eval/{name}/{key}": value for key, value in metrics.items()})
        self.writer.write_samples(step, samples)
        best = self.config.checkpoints.best
        if name != "validation" or not best:
            return
        metric = as_lower(best, metrics[best])
        if not math.isfinite(metric):  # nothing was counted, or no correlation is defined
            self.misses += self.best is not None
            return
        if self.best is None or metric < self.best:
            self.best = metric
            self.misses = 0
        else:
            self.misses += 1
        self.rank = (step, metric)

    def save_state(
        self, step: int, state: State, clock: Mapping[str, Any], owed: Sequence[str] = ()
    ) -> None:
        """Begin to save the state and the record of the run.

        The record names the evaluations `owed`, which are still to be run at this step.
        """
        record = {
            "ledger": self.ledger.totals,
            "window": self.window.sums,
            "seconds": self.writer.seconds,
            "clock": clock,
        }
        metric, evaluated = self._describe_evaluations(step, owed)
        self.checkpoints.save(step, state, {**self._meta, **record, **evaluated}, metric)

    def save_evaluations(self, step: int, owed: Sequence[str]) -> None:
        """Add evaluations of a step that is saved already; those in `owed` are still to be run."""
        self.checkpoints.write_evaluations(step, *self._describe_evaluations(step, owed))

    def _describe_evaluations(
        self, step: int, owed: Sequence[str]
    ) -> tuple[float | None, dict[str, Any]]:
        """Return the metric that ranks a step, if any, and the record of the evaluations so far."""
        self.writer.flush()  # a checkpoint never knows more than the metrics next to it
        metric = self.rank[1] if self.rank and self.rank[0] == step else None
        return metric, {"best": self.best, "misses": self.misses, "owed": list(owed)}
