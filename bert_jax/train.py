"""`bert-jax train`: prepare if needed, train, evaluate; the same command resumes.

`main` reads the command line, `run` checks the config, and `train` is the only training loop, for
pre-training, fine-tuning and the runs of a study. Its lines mostly call two objects:

- `Runs` (training/runs.py): the runs that train together, each with a workdir of its own. They
  restore or initialise the state, give the inputs of an update, record its metrics, evaluate and
  save. A run that diverges is frozen, and the others go on.
- `Runs.program` (training/program.py): the compiled update and the placement of its state on
  devices. Only a program knows how runs are stacked, and whether jit or pmap compiles the update.
  The update itself, with mask, loss and gradient, is in training/step.py.

`Runs.data` holds the batches and evaluators that all runs share (training/data.py).

A step is the number of completed updates: the pass of the loop that makes the first update is step
1. That update reads the batch with index 0. A batch is a function of its index, so a resumed run
reads the batches that it would have read without the interruption.
"""

import contextlib
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Sequence
from pathlib import Path

from bert_jax import cli
from bert_jax.config import knobs, table, validation
from bert_jax.errors import DivergedError
from bert_jax.system import allocator, folder_locks

EXAMPLE = "--config=configs/tiny.py --workdir=runs/tiny --config.masking.rate=0.4"
RESUMABLE = True  # read by cli.py: after an interrupt the exit code says that one may resume
LIMITS = (
    f"labelled data: texts of at most {knobs.TEXT:,} characters, "
    f"in lines of at most {knobs.LINE:,} bytes"
)


def add_flags(parser: ArgumentParser) -> None:
    """Add the flags of the command."""
    parser.description = f"{parser.description}; `bert-jax knobs` lists the knobs; {LIMITS}"
    cli.add_config_flag(parser)
    where = "the folder of the run; a run that is there is resumed"
    parser.add_argument("--workdir", type=cli.read_path, metavar="DIR", required=True, help=where)
    parser.add_argument(
        "--dry-run", action="store_true", help="print parameters, memory, steps and config only"
    )
    allow = "resume although this knob changed, such as steps; may be repeated"
    parser.add_argument("--allow-change", action="append", default=[], metavar="KEY", help=allow)


def main(call: cli.Call) -> None:
    """Run the command line."""
    config = cli.read_config(call.args.config, call.overrides)
    allocator.retain_memory()  # memory that was freed is kept for the next arrays
    run(
        config,
        call.args.workdir,
        dry_run=call.args.dry_run,
        # On a terminal the resolved config is left out; "" because there is no flag --format.
        with_config=not cli.prints_for_people(""),
        allow_change=tuple(key.removeprefix("config.") for key in call.args.allow_change),
        command=call.words,
    )


def run(
    config: knobs.Config,
    workdir: Path,
    *,
    dry_run: bool = False,
    with_config: bool = True,
    allow_change: tuple[str, ...] = (),
    command: list[str],
) -> None:
    """Train a config in a folder up to `config.steps`, from the last step saved there.

    Args:
      config: the config.
      workdir: the folder of the run.
      dry_run: only print a description of the run.
      with_config: whether this description ends with the resolved config.
      allow_change: knobs whose values may differ from an earlier attempt.
      command: the command line, to be recorded in environment.json.
    """
    # Here, so that --help and usage errors answer before jax is loaded.
    from bert_jax.training import processes

    for key in allow_change:
        if not table.is_entry(key):  # such as objectives.nsp, which one of two configs may lack
            table.find_knob(key)
    validation.check_trainable(config)
    processes.start_processes(config.parallel)
    if dry_run:
        from bert_jax.training.dry_run import describe_config

        folder_locks.check_place(workdir)
        print(describe_config(config, with_config))
        return
    with processes.translate_peer_loss():
        train([(config, workdir)], allow_change=allow_change, command=command)


def train(
    jobs: Sequence[tuple[knobs.Config, Path]],
    *,
    slots: int = 0,
    allow_change: tuple[str, ...] = (),
    command: Sequence[str] = (),
    on_diverged: Callable[[Path, DivergedError], None] = lambda workdir, error: None,
) -> bool:
    """Train all jobs in one compiled program; resume from the last step that every job has saved.

    Args:
      jobs: a config and a workdir for each run. The configs differ only in step inputs, which are
        the traced numbers of an update (`batch.StepInputs`).
      slots: the least number of prediction slots of a row (`batch.py`): what all runs of a group of
        a study need, so that a run computes the same numbers if only some of them resume. 0 means
        as many as these runs need.
      allow_change: knobs whose values may differ from an earlier attempt.
      command: the command line, to be recorded in environment.json.
      on_diverged: called with the workdir and the error of a run that diverged. The folder of this
        run stays as it was last saved. If no run is left, the error is raised.

    Returns:
      Whether this process got a stop signal after the last update: the caller must not start more
      work.
    """
    from bert_jax.training import memory, stop
    from bert_jax.training.program import mesh_for
    from bert_jax.training.runs import Runs

    with contextlib.ExitStack() as resources:
        mesh = mesh_for(jobs[0][0], len(jobs))
        resources.enter_context(stop.hold_run_locks([workdir for _, workdir in jobs]))
        stop_flag = resources.enter_context(stop.StopFlag())
        runs = Runs(jobs, mesh, slots, on_diverged, stop_flag, resources)
        config, data = runs.config, runs.data
        vocab_size = data.tokenizer.size
        resources.enter_context(memory.explain_out_of_memory(config, vocab_size, mesh, len(jobs)))
        state, start = runs.restore_or_init(allow_change, command)
        runs.evaluate_owed(state, start)  # what a stop signal cut off in an earlier attempt
        batches = resources.enter_context(data.batches(start, mesh))
        for step in runs.steps(start):
            batch = runs.next_batch(batches)
            state, metrics = runs.program.update(state, batch, runs.compute_inputs(step))
            # `record_update` reads the metrics of the update before this one, so that the device
            # never waits for the host; evaluations and saves read the metrics of this update too.
            runs.record_update(step, metrics, batch)
            due = runs.list_due(step)
            # A stop signal saves at once, and the evaluations that it leaves out are owed: if it
            # comes at step 10, where `validation` is due, step 10 is saved with that debt. Then
            # Stopped ends the run, and the same command begins by evaluating step 10.
            stopping = stop_flag.should_stop()
            owed = due if stopping else runs.run_evaluations(due, state, step)
            stopping = stopping or bool(owed)  # a signal cut an evaluation off
            if stopping or runs.save_is_due(step):
                runs.save_runs(state, step, owed)
            if runs.patience_ended and not owed:
                break
            work_left = owed or step < config.steps
            if stopping and work_left:
                runs.raise_stopped(step)
        runs.conclude()
        return stop_flag.signal is not None


if __name__ == "__main__":
    cli.main(["train", *sys.argv[1:]])
