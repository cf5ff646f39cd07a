"""`bert-jax train`: prepare if needed, train, evaluate; the same command resumes."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from pathlib import Path

from bert_jax import cli
from bert_jax.config import knobs, validation
from bert_jax.system import allocator, folder_locks, supervisor

HELP = "prepare if needed, train, evaluate; the same command resumes"
EXAMPLE = "--config=configs/tiny.py --workdir=runs/tiny --config.masking.rate=0.4"
RESUMABLE = True
LIMITS = f"labelled data: texts of at most {knobs.TEXT:,} characters, in lines of at most {knobs.LINE:,} bytes"


def flags(parser: ArgumentParser) -> None:
    """Add the flags of the command."""
    parser.description = f"{parser.description}; {LIMITS}"
    cli.config_flag(parser)
    parser.add_argument("--workdir", type=Path, metavar="DIR", required=True, help="where the run lives; resumes it")
    parser.add_argument("--dry-run", action="store_true", help="print config, parameters, memory and steps only")
    allow = "resume although this knob changed, such as steps; may be repeated"
    parser.add_argument("--allow-change", action="append", default=[], metavar="KEY", help=allow)


def main(call: cli.Call) -> None:
    """Run the command line."""
    config = cli.read_config(call.args.config, call.overrides)
    if config.parallel.distributed and not supervisor.supervised():
        again = [sys.executable, "-m", "bert_jax.cli", *call.words[1:], *(["--debug"] if call.debug else [])]
        sys.exit(supervisor.run(again, call.args.workdir, call.debug))
    allocator.retain()
    allowed = tuple(key.removeprefix("config.") for key in call.args.allow_change)
    run(config, call.args.workdir, dry_run=call.args.dry_run, allow_change=allowed, command=call.words)


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
    from bert_jax import sharding
    from bert_jax.training import data, environment
    from bert_jax.training.together import together

    validation.trainable(config)
    sharding.start_processes(config.parallel)
    if dry_run:
        folder_locks.check_place(workdir)
        mesh = sharding.make_mesh(config.parallel)
        sharding.check_rows(config.batch_size // config.optim.accumulation, mesh, "batch_size / accumulation")
        config = data.gather(config).config if config.task.source else config
        validation.warn(config)
        print(environment.plan(config))
        return
    with sharding.peers():
        together([(config, workdir)], allow_change=allow_change, command=command)


if __name__ == "__main__":
    cli.main(["train", *sys.argv[1:]])
