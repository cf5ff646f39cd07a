"""One run while it trains: its resume state, its step inputs, its account of what it learned.

Runs that differ in step inputs alone train together, in one program and on one batch. Each keeps a
folder of its own, the same that it would have made alone: checkpoints, ledger, metrics, best step.
"""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.batch import StepInputs
from bert_jax.checkpoints.manager import Checkpoints
from bert_jax.config import (
    BEFORE,
    differences,
    free_on_resume,
    knobs,
    quotas,
    recorded,
    to_dict,
)
from bert_jax.errors import ConfigError, DivergedError
from bert_jax.evaluation.metrics import Totals, as_lower
from bert_jax.interop import initial
from bert_jax.training import program
from bert_jax.training.data import TrainingData
from bert_jax.training.ledger import Ledger
from bert_jax.training.writer import Writer

BATCH_KNOBS = (
    "corpus.",
    "task.",
    "examples.",
    "masking.",
    "pairs",
    "data_seed",
    "batch_size",
    "sequence_length",
)
FOLLOW = {  # knobs that follow from another one
    "epochs": ("steps", "optim.warmup_steps"),
    "steps": ("optim.warmup_steps",),
    "optim.warmup_fraction": ("optim.warmup_steps",),
    "batch_size": ("steps", "optim.warmup_steps"),
    "task.rows": ("steps", "optim.warmup_steps"),
}


class Run:
    """One run while it trains.

    `failed` holds the error of a run that cannot go on: it is frozen, and the others go on undisturbed.
    """

    def __init__(
        self,
        config: knobs.Config,
        data: TrainingData,
        workdir: Path,
        closing: contextlib.ExitStack,
        among_others: bool = False,
    ):
        self.config, self.workdir = config, Path(workdir)
        self.meta: dict[str, Any] = {
            "config": to_dict(config),
            "corpus": data.fingerprint,
            "tokenizer": data.tokenizer.hash,
            "batches": data.source.fingerprint,
        }
        saves = config.checkpoints
        self.checkpoints = closing.enter_context(
            contextlib.closing(
                Checkpoints(self.workdir / "checkpoints", saves.keep, bool(saves.best))
            )
        )
        self.failed: DivergedError | None = None
        self.among_others = among_others
        self.rank: tuple[int, float] | None = None  # the last ranked step, and its metric
        self.saved: dict[str, Any] = {}  # the account, as of the step it goes on from

    # --- where it stands ---------------------------------------------------------------------------

    def check_resume(self, allowed: tuple[str, ...]) -> bool:
        """Refuse to continue another run's folder; tell whether there is anything to continue."""
        latest = self.checkpoints.peek()
        if latest is None:
            return False
        self.saved = check_same(latest[0], self.meta, allowed, self.workdir)
        return True

    def state_at(
        self, compiled: program.Program, data: TrainingData, step: int | None
    ) -> tuple[program.State, int]:
        """Restore the state at a step, or at the last sound one for None; initialise it for 0."""
        restored = None if step == 0 else self.checkpoints.restore(compiled.like(), step)
        if restored is not None:
            state, meta, at = restored
            if at != self.saved.get("step"):
                self.saved = meta
            return state, at
        state = compiled.init(self.config.seed)
        if self.config.init_from:
            state["params"] = initial.start_from(self.config, state["params"], data.tokenizer)
        return state, 0

    def begin(
        self, start: int, distinct: float, quiet: bool, closing: contextlib.ExitStack
    ) -> None:
        """Take the account up at `start`; `distinct` examples have masks of their own."""
        saved = self.saved = self.saved if start else {}
        self.ledger = Ledger(self.config.masking, distinct, saved.get("ledger"))
        self.best, self.misses = (
            saved.get("best"),
            saved.get("misses", 0),
        )  # of evaluations in a row
        self.window = Totals(saved.get("window"))
        self.skipped = dict.fromkeys(("updates", "spikes"), 0) | saved.get("skipped", {})
        writer = Writer(
            self.workdir,
            self.config.steps,
            start,
            self.config.logging.tensorboard,
            quiet,
            saved.get("history"),
            saved.get("seconds"),
        )
        self.writer = closing.enter_context(contextlib.closing(writer))

    @property
    def ended(self) -> bool:
        """Whether so many evaluations in a row without a better one end training."""
        return 0 < self.config.checkpoints.patience <= self.misses

    # --- one update after the other ----------------------------------------------------------------

    def inputs(self, step: int) -> StepInputs:
        """Return the numbers of update `step`, from 1; a frozen run learns nothing more."""
        inputs = program.inputs_at(self.config, step - 1)
        return inputs._replace(learning_rate=np.float32(0)) if self.failed else inputs

    def record(
        self, metrics: Mapping[str, tuple[float, float]], ids: np.ndarray, done: int
    ) -> None:
        """Adds the metrics of an update, if they are what they may be."""
        spiked = int(metrics.get("spike_fraction", (0,))[0])
        self.skipped["updates"] += int(metrics["skipped_in_row"][0] > 0)
        self.skipped["spikes"] += spiked
        check_learned(
            metrics, ids, done, self.config, str(self.workdir) if self.among_others else ""
        )
        if self.config.masked:
            rate = quotas.rate_at(self.config.masking, done - 1, self.config.steps)
            examples = metrics.get("examples_per_row", (self.config.batch_size,))[0]
            self.ledger.add(dict(metrics), rate, int(examples), done)
        self.window.add(metrics)

    def log(self, done: int, speed: Mapping[str, float]) -> None:
        """Writes what the updates since the last line sum up to."""
        values = {
            f"train/{name}": value for name, value in {**self.window.values(), **speed}.items()
        }
        if self.config.optim.spike_window:
            values |= {
                "train/skipped": self.skipped["updates"],
                "train/spikes": self.skipped["spikes"],
            }
        values["train/learning_rate"] = float(
            program.inputs_at(self.config, done - 1).learning_rate
        )
        self.writer.write(done, values)
        self.window.sums.clear()

    def evaluated(self, name: str, found: Mapping[str, float], done: int) -> None:
        """Write an evaluation; rank the step, if it is the one that does."""
        self.writer.write(done, {f"eval/{name}/{key}": value for key, value in found.items()})
        best = self.config.checkpoints.best
        if name != "validation" or not best:
            return
        metric = as_lower(best, found[best])
        if not math.isfinite(metric):  # nothing was counted, or no correlation is defined
            self.misses += self.best is not None
            return
        self.misses = 0 if self.best is None or metric < self.best else self.misses + 1
        self.best = metric if self.best is None else min(self.best, metric)
        self.rank = (done, metric)

    def save(self, done: int, state: program.State, clock: Mapping[str, Any]) -> None:
        """Begin to save the run's state and its account."""
        self.writer.flush()  # a checkpoint never knows more than the metrics beside it
        account = {
            "ledger": self.ledger.totals,
            "best": self.best,
            "misses": self.misses,
            "window": self.window.sums,
            "history": self.writer.history,
            "seconds": self.writer.seconds,
            "clock": clock,
        }
        account |= {"skipped": self.skipped} if self.config.optim.spike_window else {}
        metric = self.rank[1] if self.rank and self.rank[0] == done else None
        self.checkpoints.save(done, state, {**self.meta, **account}, metric)


def check_learned(
    metrics: Mapping[str, tuple[float, float]],
    ids: np.ndarray,
    done: int,
    config: knobs.Config,
    whose: str = "",
) -> None:
    """Says that an update was skipped, and gives up after too many in a row."""
    in_row = int(metrics["skipped_in_row"][0])
    spiked = bool(metrics.get("spike_fraction", (0,))[0])
    if in_row:
        of = f" of {whose}" if whose else ""
        why = (
            f"its loss of {metrics['loss'][0]:.4g} is a spike"
            if spiked
            else "its gradient is not finite"
        )
        print(f"warning: step {done}{of} skipped: {why} ({in_row} in a row)", file=sys.stderr)
    if in_row >= config.optim.nonfinite_limit:
        what = (
            "a non-finite gradient or a loss that is a spike"
            if config.optim.spike_window
            else "a non-finite gradient"
        )
        raise DivergedError(
            f"{in_row} updates in a row had {what}; the last, step {done}, "
            f"held examples {ids.ravel()[:8].tolist()} and more",
            "lower --config.optim.learning_rate or lengthen the warm-up, and resume from the last checkpoint",
        )


def check_same(
    found: dict[str, Any], now: dict[str, Any], allowed: tuple[str, ...], workdir: Path
) -> dict[str, Any]:
    """What an earlier attempt saved; refuses to continue a run as another one."""
    saved = dict(found)
    before = recorded(saved["config"])  # with the knobs that it did not know
    changed = differences(to_dict(before), now["config"])
    followers = [to for knob in allowed for to in FOLLOW.get(knob, ())]
    refused = {
        k: v
        for k, v in changed.items()
        if not free_on_resume(k) and k not in (*allowed, *followers)
    }
    if "checkpoints.best" in changed and saved.get("best") is not None:
        old, new = changed["checkpoints.best"]
        raise ConfigError(
            f"checkpoints.best: {old!r} -> {new!r}, and the steps kept so far are ranked by the first",
            "another --workdir, with --config.init_from if the parameters are to be kept",
        )
    if refused:
        listing = "; ".join(f"{key}: {old!r} -> {new!r}" for key, (old, new) in refused.items())
        keys = " ".join(f"--allow-change={key}" for key in refused)
        as_before = " ".join(
            f"--config.{key}={str(old).lower()}"
            for key, (old, _) in refused.items()
            if key in BEFORE
        )
        hint = (
            f"{as_before} is what it was trained with"
            if as_before
            else f"another --workdir, or {keys}"
        )
        raise ConfigError(f"{workdir} was trained with another config: {listing}", hint)
    data = ("corpus.", "task.", "evals.validation.split")
    waived = {
        "corpus": data,
        "tokenizer": (),
        "batches": BATCH_KNOBS,
    }  # by a change that was asked for
    for key, knobs_behind in waived.items():
        if saved[key] != now[key] and not any(
            k in allowed and k.startswith(knobs_behind) for k in changed
        ):
            raise ConfigError(
                f"{workdir} was trained on another {key}: {saved[key][:12]} -> {now[key][:12]}",
                "the files behind corpus.path, task.source or tokenizer.path changed: put them back, "
                "or use another --workdir",
            )
    if any(key.startswith("masking.") for key in changed):
        saved["ledger"] = None  # other masks, another account
    return saved
