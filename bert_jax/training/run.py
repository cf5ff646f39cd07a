"""Arms: runs that differ in traced numbers alone train together, in one program and on one batch.

A run by itself is one arm, and no array of it has an axis more. Each arm keeps an account of its own, in a folder of
its own, which is the one it would have made alone: checkpoints, ledger, metrics, best step.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.batch import Traced
from bert_jax.checkpoints.manager import Checkpoints
from bert_jax.config import BEFORE, differences, free_on_resume, knobs, quotas, recorded, to_dict
from bert_jax.errors import ConfigError, DivergedError
from bert_jax.evaluation.metrics import Totals, as_lower
from bert_jax.training import program as steps
from bert_jax.training.data import Material
from bert_jax.training.ledger import Ledger
from bert_jax.training.writer import Writer

BATCH_KNOBS = ("corpus.", "task.", "examples.", "masking.", "pairs", "data_seed", "batch_size", "sequence_length")
FOLLOW = {  # knobs that follow from another one
    "epochs": ("steps", "optim.warmup_steps"),
    "steps": ("optim.warmup_steps",),
    "optim.warmup_fraction": ("optim.warmup_steps",),
    "batch_size": ("steps", "optim.warmup_steps"),
    "task.rows": ("steps", "optim.warmup_steps"),
}


class Arm:
    """One run while it trains. `failed` once it cannot go on: it is frozen then, and the others are not disturbed."""

    def __init__(self, given: Material, workdir: Path, closing: contextlib.ExitStack, several: bool):
        self.config, self.workdir = given.config, Path(workdir)
        self.meta: dict[str, Any] = {
            "config": to_dict(given.config),
            "corpus": given.fingerprint,
            "tokenizer": given.tokenizer.hash,
            "batches": given.source.fingerprint,
        }
        saves = given.config.checkpoints
        self.checkpoints = closing.enter_context(
            contextlib.closing(Checkpoints(self.workdir / "checkpoints", saves.keep, bool(saves.best)))
        )
        self.failed: DivergedError | None = None
        self.several = several
        self._saved: dict[str, Any] = {}

    # --- where it stands --------------------------------------------------------------------------------------------

    def check_resume(self, allowed: tuple[str, ...]) -> bool:
        """Refuses to continue a run as another one; whether there is anything to continue."""
        found = self.checkpoints.peek()
        if found is None:
            return False
        self._saved = check_same(found[0], self.meta, allowed, self.workdir)
        return True

    def restore(self, like: Any, step: int | None) -> tuple[steps.State, int] | None:
        """The state at a step, or at the last sound one; the account goes back to it too."""
        found = self.checkpoints.restore(like, step)
        if found is None:
            return None
        state, meta, at = found
        if at != self._saved.get("step"):
            self._saved = meta
        return state, at

    def begin(self, start: int, distinct: float, quiet: bool, closing: contextlib.ExitStack) -> None:
        """Takes the account up at `start`; `distinct` examples have masks of their own."""
        saved = self._saved if start else {}
        self.ledger = Ledger(self.config.masking, distinct, saved.get("ledger"))
        self.best, self.misses = saved.get("best"), saved.get("misses", 0)  # of evaluations in a row
        self.window = Totals(saved.get("window"))
        self.skipped = dict.fromkeys(("updates", "spikes"), 0) | saved.get("skipped", {})
        settings = self.config.logging
        self.writer = closing.enter_context(
            contextlib.closing(
                Writer(self.workdir, self.config.steps, start, settings.tensorboard, quiet, saved.get("history"))
            )
        )

    @property
    def ended(self) -> bool:
        """Whether so many evaluations in a row without a better one end training."""
        return 0 < self.config.checkpoints.patience <= self.misses

    # --- one update after the other ---------------------------------------------------------------------------------

    def traced(self, step: int) -> Traced:
        """Its numbers for an update; a frozen arm learns nothing more."""
        found = steps.traced_at(self.config, step)
        return found._replace(learning_rate=np.float32(0)) if self.failed else found

    def take(self, metrics: Mapping[str, tuple[float, float]], ids: np.ndarray, done: int) -> None:
        """Adds the metrics of an update, if they are what they may be."""
        spiked = int(metrics.get("spike_fraction", (0,))[0])
        self.skipped["updates"] += int(metrics["skipped_in_row"][0] > 0)
        self.skipped["spikes"] += spiked
        check_learned(metrics, ids, done, self.config, str(self.workdir) if self.several else "")
        if self.config.masked:
            rate = quotas.rate_at(self.config.masking, done - 1, self.config.steps)
            examples = metrics.get("examples_per_row", (self.config.batch_size,))[0]
            self.ledger.add(dict(metrics), rate, int(examples), done)
        self.window.add(metrics)

    def log(self, done: int, speed: Mapping[str, float]) -> None:
        """Writes what the updates since the last line sum up to."""
        values = {f"train/{name}": value for name, value in {**self.window.values(), **speed}.items()}
        if self.config.optim.spike_window:
            values |= {"train/skipped": self.skipped["updates"], "train/spikes": self.skipped["spikes"]}
        values["train/learning_rate"] = float(steps.traced_at(self.config, done - 1).learning_rate)
        self.writer.write(done, values)
        self.window.sums.clear()

    def evaluated(self, name: str, found: Mapping[str, float], done: int) -> float | None:
        """Writes an evaluation; the metric that ranks the step, if it is the one that does."""
        self.writer.write(done, {f"eval/{name}/{key}": value for key, value in found.items()})
        best = self.config.checkpoints.best
        if name != "validation" or not best:
            return None
        metric = as_lower(best, found[best])
        if not math.isfinite(metric):  # nothing was counted, or no correlation is defined
            self.misses += self.best is not None
            return None
        self.misses = 0 if self.best is None or metric < self.best else self.misses + 1
        self.best = metric if self.best is None else min(self.best, metric)
        return metric

    def save(self, done: int, state: steps.State, metric: float | None) -> None:
        """Starts to save the arm's own state."""
        self.writer.flush()  # a checkpoint never knows more than the metrics beside it
        account = {"ledger": self.ledger.totals, "best": self.best, "misses": self.misses, "window": self.window.sums}
        account["history"] = self.writer.history
        account |= {"skipped": self.skipped} if self.config.optim.spike_window else {}
        self.checkpoints.save(done, state, {**self.meta, **account}, metric)


def check_learned(
    metrics: Mapping[str, tuple[float, float]], ids: np.ndarray, done: int, config: knobs.Config, whose: str = ""
) -> None:
    """Says that an update was skipped, and gives up after too many in a row."""
    in_row = int(metrics["skipped_in_row"][0])
    spiked = bool(metrics.get("spike_fraction", (0,))[0])
    if in_row:
        of = f" of {whose}" if whose else ""
        why = f"its loss of {metrics['loss'][0]:.4g} is a spike" if spiked else "its gradient is not finite"
        print(f"warning: step {done}{of} skipped: {why} ({in_row} in a row)", file=sys.stderr)
    if in_row >= config.optim.nonfinite_limit:
        what = (
            "a non-finite gradient or a loss that is a spike" if config.optim.spike_window else "a non-finite gradient"
        )
        raise DivergedError(
            f"{in_row} updates in a row had {what}; the last, step {done}, "
            f"held examples {ids.ravel()[:8].tolist()} and more",
            "lower --config.optim.learning_rate or lengthen the warm-up, and resume from the last checkpoint",
        )


@contextlib.contextmanager
def alone(arm: Arm, arms: Sequence[Arm], frozen: Callable[[Path, DivergedError], None]) -> Iterator[None]:
    """What diverges is this arm's own affair, unless there is no other left."""
    try:
        yield
    except DivergedError as error:
        arm.failed = error
        frozen(arm.workdir, error)
        if all(other.failed for other in arms):
            raise
        print(f"warning: {arm.workdir} is frozen, the others go on: {error}", file=sys.stderr)


def check_same(found: dict[str, Any], now: dict[str, Any], allowed: tuple[str, ...], workdir: Path) -> dict[str, Any]:
    """What an earlier attempt saved; refuses to continue a run as another one."""
    saved = dict(found)
    before = recorded(saved["config"])  # with the knobs that it did not know
    changed = differences(to_dict(before), now["config"])
    followers = [to for knob in allowed for to in FOLLOW.get(knob, ())]
    refused = {k: v for k, v in changed.items() if not free_on_resume(k) and k not in (*allowed, *followers)}
    if "checkpoints.best" in changed and saved.get("best") is not None:
        old, new = changed["checkpoints.best"]
        raise ConfigError(
            f"checkpoints.best: {old!r} -> {new!r}, and the steps kept so far are ranked by the first",
            "another --workdir, with --config.init_from if the parameters are to be kept",
        )
    if refused:
        listing = "; ".join(f"{key}: {old!r} -> {new!r}" for key, (old, new) in refused.items())
        keys = " ".join(f"--allow-change={key}" for key in refused)
        as_before = " ".join(f"--config.{key}={str(old).lower()}" for key, (old, _) in refused.items() if key in BEFORE)
        hint = f"{as_before} is what it was trained with" if as_before else f"another --workdir, or {keys}"
        raise ConfigError(f"{workdir} was trained with another config: {listing}", hint)
    data = ("corpus.", "task.", "evals.validation.split")
    waived = {"corpus": data, "tokenizer": (), "batches": BATCH_KNOBS}  # by a change that was asked for
    for key, knobs_behind in waived.items():
        if saved[key] != now[key] and not any(k in allowed and k.startswith(knobs_behind) for k in changed):
            raise ConfigError(
                f"{workdir} was trained on another {key}: {saved[key][:12]} -> {now[key][:12]}",
                "the files behind corpus.path, task.source or tokenizer.path changed: put them back, "
                "or use another --workdir",
            )
    if any(key.startswith("masking.") for key in changed):
        saved["ledger"] = None  # other masks, another account
    return saved


# --- several at once ------------------------------------------------------------------------------------------------


def alike(given: Material, first: knobs.Config, config: knobs.Config) -> Material:
    """The material of the first arm for another one: what followed from the data follows for it too."""
    tree = to_dict(config)
    for path, (_, value) in differences(to_dict(first), to_dict(given.config)).items():
        if path != "optim.warmup_steps":  # which follows from its own share of the steps
            *sections, name = path.split(".")
            functools.reduce(dict.__getitem__, sections, tree)[name] = value
    return dataclasses.replace(given, config=recorded(tree))


def common_step(arms: Sequence[Arm]) -> int:
    """The last step that all arms have saved, 0 if there is none."""
    shared = set.intersection(*(set(arm.checkpoints.steps()) for arm in arms))
    return max(shared, default=0)
