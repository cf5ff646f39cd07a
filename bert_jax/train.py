"""THE loop: one config, one workdir, from raw text or labelled data to a trained, evaluated, resumable checkpoint.

Read `run` top to bottom: material, state, loop, end. An update is `step.py`; a batch is a pure function of its step.
"""

from __future__ import annotations

import contextlib
import math
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from bert_jax import environment, faults, initial, knobs, lock, material, quotas, report, rules, sharding
from bert_jax import step as steps
from bert_jax.checkpoint import Checkpoints
from bert_jax.config import differences, free_on_resume, resolve, to_dict
from bert_jax.data import pipeline
from bert_jax.errors import ConfigError, DivergedError, Stopped
from bert_jax.ledger import Ledger
from bert_jax.metrics import Totals, as_lower
from bert_jax.writer import Writer

BATCH_KNOBS = ("corpus.", "task.", "examples.", "masking.", "pairs", "data_seed", "batch_size", "sequence_length")
FOLLOW = {  # knobs that follow from another one
    "epochs": ("steps", "optim.warmup_steps"),
    "steps": ("optim.warmup_steps",),
    "optim.warmup_fraction": ("optim.warmup_steps",),
    "batch_size": ("steps", "optim.warmup_steps"),
    "task.rows": ("steps", "optim.warmup_steps"),
}
WARM = 10  # steps left out of the timings: compilation, caches, the loader's first batches


def run(
    config: knobs.Config,
    workdir: Path,
    *,
    dry_run: bool = False,
    allow_change: tuple[str, ...] = (),
    command: list[str],
) -> None:
    """`bert-jax train`: trains to `config.steps`, from wherever `workdir` stands."""
    rules.trainable(config)
    sharding.start_processes(config.parallel)
    mesh = sharding.make_mesh(config.parallel)
    sharding.check_rows(config.batch_size // config.optim.accumulation, mesh, "batch_size / accumulation")
    if dry_run:
        print(environment.plan(material.gather(config).config if config.task.source else config))
        return
    lock.check_writable(workdir)
    with lock.run_lock(workdir), lock.StopFlag() as stop, contextlib.ExitStack() as closing:
        # --- material -----------------------------------------------------------------------------------------------
        given = material.gather(config)
        config, source, tokenizer = given.config, given.source, given.tokenizer
        meta: dict[str, Any] = {
            "config": to_dict(config),
            "corpus": given.fingerprint,
            "tokenizer": tokenizer.hash,
            "batches": source.fingerprint,
        }

        # --- state --------------------------------------------------------------------------------------------------
        vocab_size = tokenizer.size
        shapes = jax.eval_shape(lambda seed: steps.init_state(config, vocab_size, seed), np.uint32(0))
        layout = sharding.state_layout(shapes, mesh, config.parallel)
        checkpoints = closing.enter_context(
            contextlib.closing(
                Checkpoints(workdir / "checkpoints", config.checkpoints.keep, bool(config.checkpoints.best))
            )
        )
        saved = _check_resume(checkpoints.peek(), meta, allow_change, workdir)
        like = jax.tree.map(lambda s, where: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=where), shapes, layout)
        restored = checkpoints.restore(like)
        if restored is None:
            start = 0
            init = jax.jit(lambda seed: steps.init_state(config, vocab_size, seed), out_shardings=layout)
            state = init(np.uint32(config.seed))
            if config.init_from:
                state["params"] = initial.start_from(config, state["params"], tokenizer)
        else:
            state, _, start = restored
        if jax.process_index() == 0:
            environment.describe_run(given, state["params"], workdir, command)
        copies = range(config.masking.dupe_factor)
        distinct = sum(source.count(copy) for copy in copies) if copies else math.inf
        ledger = Ledger(config.masking, distinct, saved.get("ledger"))
        best, misses = saved.get("best"), saved.get("misses", 0)  # of evaluations in a row
        writer = closing.enter_context(
            contextlib.closing(Writer(workdir, config.steps, start, config.logging.tensorboard))
        )
        evaluators = {name: given.evaluator(e, mesh) for name, e in config.evals.items()}
        update = steps.compile_step(config, tokenizer.special, vocab_size, mesh, layout)

        # --- loop ---------------------------------------------------------------------------------------------------
        rows = sharding.local_rows(config.batch_size, mesh)
        batches = pipeline.prefetch(source, start, config.steps, config.loader, rows)
        ended = _enough(config.checkpoints, misses)
        closing.callback(getattr(batches, "close", lambda: None))
        window, clock = Totals(saved["window"] if saved else None), Clock()
        pending: tuple[int, Any, Any] | None = None  # (step, metrics, example ids): fetched one update late

        def settle() -> None:
            """Takes in the metrics of the update before this one, when the device has long finished it."""
            nonlocal pending
            if pending is None:
                return
            done, device_metrics, ids = pending
            pending = None
            metrics = {name: (float(a), float(b)) for name, (a, b) in sharding.to_host(device_metrics).items()}
            _check_finite(metrics, ids, done, config)
            if not config.task.source:
                rate = quotas.rate_at(config.masking, done - 1, config.steps)
                ledger.add(metrics, rate, config.batch_size, done)
            window.add(metrics)
            if done % config.logging.every == 0 or done == config.steps:
                values = {f"train/{name}": value for name, value in window.values().items()}
                values |= {f"train/{name}": value for name, value in clock.values().items()}
                values["train/learning_rate"] = float(steps.traced_at(config, done - 1).learning_rate)
                writer.write(done, values)
                window.sums.clear()

        def save(done: int, metric: float | None) -> None:
            settle()
            writer.flush()  # a checkpoint never knows more than the metrics beside it
            progress = {"ledger": ledger.totals, "best": best, "misses": misses, "window": window.sums}
            checkpoints.save(done, state, {**meta, **progress}, metric)

        for done in range(start + 1, start + 1 if ended else config.steps + 1):
            faults.point("step", done)
            with clock.waiting():
                batch = next(batches)
            on_device = sharding.place(batch, config.batch_size, mesh) if config.parallel.step == "jit" else batch
            state, metrics = update(state, on_device, steps.traced_at(config, done - 1))
            settle()
            pending = (done, metrics, batch["example_ids"])
            clock.tick(int(np.count_nonzero(batch["segment_ids"])) * jax.process_count())

            metric = None
            for name, evaluator in evaluators.items():
                every = config.evals[name].every
                if done == config.steps or (every and done % every == 0):
                    settle()
                    with clock.paused():
                        found = evaluator(state["params"])
                    writer.write(done, {f"eval/{name}/{key}": value for key, value in found.items()})
                    if name == "validation" and config.checkpoints.best:
                        metric = as_lower(config.checkpoints.best, found[config.checkpoints.best])
                        misses = 0 if best is None or metric < best else misses + 1
                        best = metric if best is None else min(best, metric)
                        ended = _enough(config.checkpoints, misses)
            stopping = stop.should_stop(done)
            if stopping or ended or done == config.steps or done % config.checkpoints.every == 0:
                with clock.paused():
                    save(done, metric)
            if ended:
                break
            if stopping and done < config.steps:
                checkpoints.wait()
                raise Stopped(f"stopped at step {done} of {config.steps}, saved", "the same command continues")

        # --- end ----------------------------------------------------------------------------------------------------
        checkpoints.wait()
        writer.flush()
        if ended and jax.process_index() == 0:
            print(
                f"ended early: {misses} evaluations in a row without a better {config.checkpoints.best}",
                file=sys.stderr,
            )
        if jax.process_index() == 0:
            print(f"report: {report.write(workdir)}", file=sys.stderr)


class Clock:
    """Where wall time goes: compiling, waiting for data, stepping; evaluation and saving are left out."""

    def __init__(self) -> None:
        self.compile_seconds = 0.0
        self.count = self.tokens = 0
        self.waited = self.left_out = 0.0
        self.began = time.perf_counter()

    @contextlib.contextmanager
    def waiting(self) -> Any:
        """Time blocked on the loader."""
        began = time.perf_counter()
        yield
        self.waited += time.perf_counter() - began

    @contextlib.contextmanager
    def paused(self) -> Any:
        """Time that is not training."""
        began = time.perf_counter()
        yield
        self.left_out += time.perf_counter() - began

    def tick(self, tokens: int) -> None:
        """One update was dispatched."""
        self.count += 1
        self.tokens += tokens
        if self.count == 1:  # the first call returns when it is compiled
            self.compile_seconds = time.perf_counter() - self.began - self.waited
        if self.count == WARM:
            self.tokens, self.waited, self.left_out, self.began = 0, 0.0, 0.0, time.perf_counter()

    def values(self) -> dict[str, float]:
        """Figures since the warm-up steps."""
        out = {"compile_seconds": self.compile_seconds}
        wall = time.perf_counter() - self.began - self.left_out
        if self.count > WARM and wall > 0:
            taken = self.count - WARM
            out |= {
                "step_seconds": wall / taken,
                "tokens_per_second": self.tokens / wall,
                "data_wait": self.waited / wall,
            }
        return out


def _check_finite(metrics: dict[str, tuple[float, float]], ids: np.ndarray, done: int, config: knobs.Config) -> None:
    in_row = int(metrics["skipped_in_row"][0])
    if in_row:
        print(f"warning: step {done} skipped: its gradient is not finite ({in_row} in a row)", file=sys.stderr)
    if in_row >= config.optim.nonfinite_limit:
        raise DivergedError(
            f"{in_row} updates in a row had a non-finite gradient; the last, step {done}, "
            f"held examples {ids.ravel()[:8].tolist()} and more",
            "lower --config.optim.learning_rate or lengthen the warm-up, and resume from the last checkpoint",
        )


def _enough(settings: knobs.Checkpoints, misses: int) -> bool:
    """Whether so many evaluations in a row without a better one end training."""
    return 0 < settings.patience <= misses


def _check_resume(
    found: tuple[dict[str, Any], int] | None, now: dict[str, Any], allowed: tuple[str, ...], workdir: Path
) -> dict[str, Any]:
    """What an earlier attempt saved, empty if there was none; refuses to continue a run as another one."""
    if found is None:
        return {}
    saved, step = found
    print(f"resuming {workdir} at step {step}", file=sys.stderr)
    changed = differences(to_dict(resolve(saved["config"])), now["config"])  # knobs it did not know have their defaults
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
        raise ConfigError(f"{workdir} was trained with another config: {listing}", f"another --workdir, or {keys}")
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


if __name__ == "__main__":
    from bert_jax import cli

    cli.main(["train", *sys.argv[1:]])
