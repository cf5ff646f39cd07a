"""`bert-jax train`: prepare if needed, train, evaluate; the same command resumes."""

from __future__ import annotations

import contextlib
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Sequence
from pathlib import Path

from bert_jax import cli
from bert_jax.config import knobs, validation
from bert_jax.errors import DivergedError
from bert_jax.system import allocator, folder_locks, supervisor

HELP = "prepare if needed, train, evaluate; the same command resumes"
EXAMPLE = "--config=configs/tiny.py --workdir=runs/tiny --config.masking.rate=0.4"
RESUMABLE = True
LIMITS = f"labelled data: texts of at most {knobs.TEXT:,} characters, in lines of at most {knobs.LINE:,} bytes"


def flags(parser: ArgumentParser) -> None:
    """Add the flags of the command."""
    parser.description = f"{parser.description}; {LIMITS}"
    cli.config_flag(parser)
    parser.add_argument(
        "--workdir", type=Path, metavar="DIR", required=True, help="where the run lives; resumes it"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print config, parameters, memory and steps only"
    )
    allow = "resume although this knob changed, such as steps; may be repeated"
    parser.add_argument("--allow-change", action="append", default=[], metavar="KEY", help=allow)


def main(call: cli.Call) -> None:
    """Run the command line."""
    config = cli.read_config(call.args.config, call.overrides)
    if config.parallel.distributed and not supervisor.supervised():
        again = [
            sys.executable,
            "-m",
            "bert_jax.cli",
            *call.words[1:],
            *(["--debug"] if call.debug else []),
        ]
        sys.exit(supervisor.run(again, call.args.workdir, call.debug))
    allocator.retain()
    allowed = tuple(key.removeprefix("config.") for key in call.args.allow_change)
    run(
        config,
        call.args.workdir,
        dry_run=call.args.dry_run,
        allow_change=allowed,
        command=call.words,
    )


def run(
    config: knobs.Config,
    workdir: Path,
    *,
    dry_run: bool = False,
    allow_change: tuple[str, ...] = (),
    command: list[str],
) -> None:
    """Train to `config.steps`, from wherever `workdir` stands.

    Args:
      config: the run.
      workdir: its folder.
      dry_run: print config, parameters, memory and steps instead.
      allow_change: knobs that may differ from those of an earlier attempt.
      command: the command line, for the record.
    """
    from bert_jax import sharding  # here: --help and usage errors answer before jax is loaded
    from bert_jax.training import environment

    validation.trainable(config)
    sharding.start_processes(config.parallel)
    if dry_run:
        folder_locks.check_place(workdir)
        print(environment.plan(config))
        return
    with sharding.peers():
        train([(config, workdir)], allow_change=allow_change, command=command)


def train(
    jobs: Sequence[tuple[knobs.Config, Path]],
    *,
    slots: int = 0,
    allow_change: tuple[str, ...] = (),
    command: Sequence[str] = (),
    on_diverged: Callable[[Path, DivergedError], None] = lambda workdir, error: None,
) -> bool:
    """THE loop: train runs to their last step, from the last step that all of them have saved.

    Args:
      jobs: configs and their workdirs; configs of several differ in step inputs alone.
      slots: prediction slots of a row, where other runs of the same study need more.
      allow_change: knobs that may differ from those of an earlier attempt.
      command: the command line, for the record.
      on_diverged: told of a run that diverged, which stays as it last was saved; the error is raised
        where none is left.

    Returns:
      Whether a stop was asked for when nothing was left to stop.
    """
    from bert_jax.training import environment, stop
    from bert_jax.training.program import Program, mesh_for
    from bert_jax.training.runs import Evaluations, Runs

    with contextlib.ExitStack() as closing:
        mesh = mesh_for(jobs[0][0], len(jobs))
        closing.enter_context(stop.run_locks([workdir for _, workdir in jobs]))
        stopping = closing.enter_context(stop.StopFlag())
        runs = Runs(jobs, command, on_diverged, closing)
        config, data = runs.config, runs.data
        closing.enter_context(environment.out_of_memory(config, data.tokenizer.size, mesh))
        program = Program(
            config,
            data.tokenizer.special,
            data.tokenizer.size,
            mesh,
            len(runs),
            max(slots, runs.slots()),
        )
        state, start = runs.restore_or_init(program, allow_change)
        evaluations = Evaluations(runs, program)
        batches = closing.enter_context(data.batches(start, mesh))
        for step in runs.steps(start):
            with runs.clock.on("data"):
                batch = next(batches)
            state, metrics = program.update(state, batch, runs.inputs(step))
            runs.record(program, step, metrics, batch["example_ids"])  # of the update before
            runs.clock.tick(batch)
            if due := evaluations.due(step):
                evaluations.run(due, state, step)
            stop_now = stopping.should_stop(step)
            if (
                stop_now
                or runs.ended
                or step == config.steps
                or step % config.checkpoints.every == 0
            ):
                with runs.clock.on("saving"):
                    runs.save(program, state, step)
            if runs.ended:
                break
            if stop_now and step < config.steps:
                runs.interrupt(step)
        runs.conclude()
        return stopping.signal is not None


if __name__ == "__main__":
    cli.main(["train", *sys.argv[1:]])
