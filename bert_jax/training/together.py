"""THE loop: from raw text or labelled data to a trained, evaluated, resumable checkpoint.

Read `together` top to bottom: material, state, loop, end. An update is `step.py`; a batch is a pure function of its
step; what each run keeps of its own is `arms.py`. One run is one arm; several share the program and the batches.
"""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from bert_jax import sharding
from bert_jax.config import knobs, quotas, validation
from bert_jax.data.batches import pipeline
from bert_jax.errors import ConfigError, DivergedError, Stopped
from bert_jax.interop import initial
from bert_jax.reporting import run_report
from bert_jax.system import fault_points, run_lock
from bert_jax.training import data, environment
from bert_jax.training import program as steps
from bert_jax.training.clock import Clock, peak
from bert_jax.training.run import Arm, alike, alone, common_step


def together(
    runs: Sequence[tuple[knobs.Config, Path]],
    *,
    slots: int = 0,
    allow_change: tuple[str, ...] = (),
    command: list[str],
    frozen: Callable[[Path, DivergedError], None] = lambda workdir, error: None,
) -> bool:
    """Trains runs that differ in traced numbers alone, each in its own workdir, from the last step all have saved.

    Args:
      runs: configs and workdirs.
      slots: prediction slots a row, where more are wanted than these runs need: those of all runs of a study's group.
      allow_change: knobs that may differ from the earlier attempt's.
      command: for the record.
      frozen: told at once of a run that diverged, which stays as it last was saved; where none is left, that is raised.

    Returns:
      Whether a stop was asked for when nothing was left to stop.
    """
    config, several = runs[0][0], len(runs) > 1
    if several and (config.parallel.step == "pmap" or jax.process_count() > 1):
        raise ConfigError("runs train together under jit and in one process", "train them one by one")
    mesh = sharding.make_mesh(config.parallel, len(runs))
    sharding.check_rows(config.batch_size // config.optim.accumulation, mesh, "batch_size / accumulation")
    for _, workdir in runs:
        run_lock.check_writable(workdir)
    with contextlib.ExitStack() as closing:
        for _, workdir in runs:
            closing.enter_context(run_lock.run_lock(workdir))
        stop = closing.enter_context(run_lock.StopFlag())
        # --- material -----------------------------------------------------------------------------------------------
        given = data.gather(config)
        source, tokenizer = given.source, given.tokenizer
        materials = [given, *(alike(given, config, other) for other, _ in runs[1:])]
        arms = [Arm(own, workdir, closing, several) for own, (_, workdir) in zip(materials, runs, strict=True)]
        config = given.config
        if jax.process_index() == 0:
            validation.warn(*(arm.config for arm in arms))

        # --- state --------------------------------------------------------------------------------------------------
        vocab_size = tokenizer.size
        closing.enter_context(environment.out_of_memory(config, vocab_size, mesh))
        shapes = jax.eval_shape(lambda seed: steps.init_state(config, vocab_size, seed), np.uint32(0))
        layout = sharding.state_layout(shapes, mesh, config.parallel)  # of one arm
        like = jax.tree.map(lambda s, where: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=where), shapes, layout)
        init = jax.jit(lambda seed: steps.init_state(config, vocab_size, seed), out_shardings=layout)
        resumed = [arm.check_resume(allow_change) for arm in arms]
        start = common_step(arms) if several else None  # a run by itself goes on from its last sound step
        states = []
        for arm, own in zip(arms, materials, strict=True):
            found = arm.restore(like, start) if all(resumed) and start != 0 else None
            if found is None:
                state = init(np.uint32(arm.config.seed))
                if arm.config.init_from:
                    state["params"] = initial.start_from(arm.config, state["params"], tokenizer)
                found = state, 0
            states.append(jax.device_get(found[0]) if several else found[0])  # placed once, all together
            start = found[1]
            if jax.process_index() == 0:
                environment.describe_run(own, found[0]["params"], arm.workdir, command)
        assert start is not None
        if any(resumed):
            print(f"resuming {f'{len(arms)} runs' if several else arms[0].workdir} at step {start}", file=sys.stderr)
        state, whole = states[0], layout  # of all arms
        if several:
            whole = sharding.stacked(layout, mesh)
            state = sharding.stack(states, whole)
        del states, found
        copies = range(config.masking.dupe_factor)
        distinct = sum(source.count(copy) for copy in copies) if copies else math.inf
        for arm in arms:
            arm.begin(start, distinct, arm is not arms[0], closing)
        evaluators = {name: given.evaluator(e, mesh) for name, e in config.evals.items()}
        sampler = given.sampler(mesh)
        slots = max(slots, *(quotas.slots(arm.config.masking, config.sequence_length, config.packing) for arm in arms))
        update = steps.compile_step(config, tokenizer.special, vocab_size, mesh, whole, several=several, slots=slots)

        # --- loop ---------------------------------------------------------------------------------------------------
        rows = sharding.local_rows(config.batch_size, mesh)
        batches = pipeline.prefetch(source, start, config.steps, config.loader, rows)
        closing.callback(getattr(batches, "close", lambda: None))
        nominal = peak(jax.devices()[0].device_kind)
        clock = Clock(config, vocab_size, len(arms), nominal and nominal * mesh.size)
        if start:
            clock.resume(arms[0].workdir)
        pending: tuple[int, Any, Any] | None = None  # (step, metrics, example ids): fetched one update late

        def living() -> list[tuple[int, Arm]]:
            return [(index, arm) for index, arm in enumerate(arms) if not arm.failed]

        def ended() -> bool:
            return all(arm.ended for _, arm in living())

        def of_arm(tree: Any, index: int, where: Any) -> Any:
            return sharding.pick(tree, index, where) if several else tree

        def settle() -> None:
            """Takes in the metrics of the update before this one, when the device has long finished it."""
            nonlocal pending
            if pending is None:
                return
            done, device_metrics, ids = pending
            pending = None
            metrics = sharding.to_host(device_metrics)
            for index, arm in living():
                mine = {
                    n: (float(a[index]), float(b[index])) if several else (float(a), float(b))
                    for n, (a, b) in metrics.items()
                }
                with alone(arm, arms, frozen):
                    arm.take(mine, ids, done)
                    if done % config.logging.every == 0 or done == config.steps:
                        arm.log(done, clock.values())

        def save(done: int, ranks: dict[int, float | None]) -> None:
            settle()
            for index, arm in living():
                with alone(arm, arms, frozen):
                    arm.save(done, of_arm(state, index, layout), ranks.get(index))

        over = ended()
        for done in range(start + 1, start + 1 if over else config.steps + 1):
            fault_points.point("step", done)
            with clock.on("data"):
                batch = next(batches)
            on_device = sharding.place(batch, config.batch_size, mesh) if config.parallel.step == "jit" else batch
            traced = [arm.traced(done - 1) for arm in arms]
            numbers = jax.tree.map(lambda *each: np.stack(each), *traced) if several else traced[0]
            state, metrics = update(state, on_device, numbers)
            settle()
            pending = (done, metrics, batch["example_ids"])
            clock.tick(batch, jax.process_count())

            ranks: dict[int, float | None] = {}  # by arm, the metric that ranks this step
            for name, evaluator in evaluators.items():
                every = config.evals[name].every
                if done == config.steps or (every and done % every == 0):
                    settle()
                    with clock.on("evaluation"):
                        for index, arm in living():
                            params = of_arm(state["params"], index, layout["params"])
                            rank = arm.evaluated(name, evaluator(params), done)
                            if sampler and name == "validation":
                                arm.writer.show(done, sampler(params))
                            ranks |= {} if rank is None else {index: rank}
                    over = ended()
            stopping = stop.should_stop(done)
            if stopping or over or done == config.steps or done % config.checkpoints.every == 0:
                with clock.on("saving"):
                    save(done, ranks)
            if over:
                break
            if stopping and done < config.steps:
                for arm in arms:
                    arm.checkpoints.wait()
                raise Stopped(f"stopped at step {done} of {config.steps}, saved", "the same command continues")

        # --- end ----------------------------------------------------------------------------------------------------
        for arm in arms:
            arm.checkpoints.wait()
            arm.writer.flush()
        if jax.process_index() == 0:
            for _, arm in living():
                if over:
                    best = arm.config.checkpoints.best
                    print(f"ended early: {arm.misses} evaluations in a row without a better {best}", file=sys.stderr)
                written = run_report.write(arm.workdir)
                if not several:
                    print(f"report: {written}", file=sys.stderr)
        return stop.signal is not None
