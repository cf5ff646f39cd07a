"""`bert-jax study`: many runs that answer one question, with results and report in one folder."""

from __future__ import annotations

import contextlib
import functools
import sys
import tempfile
from argparse import SUPPRESS, ArgumentParser
from collections.abc import Callable
from pathlib import Path

from bert_jax import cli
from bert_jax.errors import ConfigError

EXAMPLE = "run experiments/masking_rate --workdir=runs/masking_rate"
RESUMABLE = True
OVERRIDES = True

SEEDS = 3  # of a sweep
OWNERS = {  # flag -> the actions that have it
    **dict.fromkeys(("dry_run", "reuse"), ("run", "sweep")),
    **dict.fromkeys(("verbose", "json"), ("status",)),
    **dict.fromkeys(("config", "axis", "seeds"), ("sweep",)),
}
WORK = "work"  # an action for the processes that `run` starts


def flags(parser: ArgumentParser) -> None:
    """Add the flags of the command."""
    actions = ("run", "sweep", "status", "report")
    does = "run the missing cells and report; the same of values of knobs of one config; print the "
    does += "progress; write the report again"
    parser.add_argument(
        "action", metavar="ACTION", choices=(*actions, WORK), help=f"{', '.join(actions)}: {does}"
    )
    folder = "run: the folder of the study, such as experiments/masking_rate; --config.a.b=VALUE "
    folder += "changes a knob of all its cells"
    parser.add_argument("study", metavar="DIR[:SCALE]", nargs="?", type=cli.nonempty, help=folder)
    parser.add_argument(
        "--workdir",
        type=Path,
        metavar="DIR",
        required=True,
        help="folder of cells, results and report; resumes a study that is there",
    )
    _flags_of_sweep(parser)
    engines = (
        "run, sweep: local (processes of this machine), slurm or ray; a resumed study may use "
    )
    engines += "another (%(default)s)"
    parser.add_argument("--engine", default="local", metavar="NAME", help=engines)
    option = "run, sweep: a setting of slurm or ray, such as mem_gb=16; may be repeated"
    parser.add_argument(
        "--engine-option", action="append", default=[], metavar="KEY=VALUE", help=option
    )
    jobs = "run, sweep: groups at a time (a core each; all accelerators together; what the cluster "
    jobs += "has)"
    parser.add_argument("--jobs", type=cli.positive, default=0, metavar="N", help=jobs)
    fuse = "run, sweep: cells that train in one program: as many as is faster and fits in memory, "
    fuse += "none, or at most N (%(default)s)"
    parser.add_argument("--fuse", default="auto", metavar="auto|never|N", help=fuse)
    retries = "run, sweep: how often a cell that fails is tried again (%(default)s)"
    parser.add_argument("--retries", type=cli.count, default=2, metavar="N", help=retries)
    reuse = (
        "run, sweep: workdir of another study, whose trained cells are copied where they are the "
    )
    reuse += "same; may be repeated"
    parser.add_argument(
        "--reuse", type=Path, action="append", default=[], metavar="DIR", help=reuse
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="run, sweep: print cells, groups and the estimated time only",
    )
    parser.add_argument("--verbose", action="store_true", help="status: a line for every cell")
    parser.add_argument("--group", help=SUPPRESS)
    parser.add_argument("--json", action="store_true", help="status: one JSON object")


def _flags_of_sweep(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--config", metavar="FILE.py[:arg]", help="sweep: the config whose knobs are varied"
    )
    values = "sweep: a knob and its values, the first the one that others are compared with; "
    values += "several are crossed"
    parser.add_argument(
        "--axis", action="append", default=[], metavar="KNOB=VALUE,VALUE,…", help=values
    )
    parser.add_argument(
        "--seeds", type=cli.positive, metavar="N", help=f"sweep: their number ({SEEDS})"
    )


def main(call: cli.Call) -> None:
    """Run the command line."""
    args = call.args
    if args.action == WORK:
        from bert_jax.studies import worker
        from bert_jax.train import train

        sys.exit(
            worker.main(args.workdir, args.group, functools.partial(train, command=call.words))
        )
    for flag, owners in OWNERS.items():
        if getattr(args, flag) and args.action not in owners:
            problem = f"study {args.action} has no flag --{flag.replace('_', '-')}"
            raise ConfigError(problem, f"study {owners[0]} has it")
    for text in args.engine_option:
        if "=" not in text:
            problem = f"--engine-option {text!r} has no value"
            raise ConfigError(problem, "write --engine-option KEY=VALUE")
    from bert_jax.studies import actions

    if args.action == "status":
        actions.status(args.workdir, verbose=args.verbose, as_json=args.json)
    elif args.action == "report":
        actions.report(args.workdir)
    else:
        names = ("engine", "jobs", "fuse", "retries", "reuse", "dry_run")
        run = functools.partial(
            actions.run,
            workdir=args.workdir,
            options=dict(text.partition("=")[::2] for text in args.engine_option),
            command=call.words,
            **{name: getattr(args, name) for name in names},
        )
        _sweep(call, run) if args.action == "sweep" else run(
            spec=args.study, overrides=call.overrides
        )


def _sweep(call: cli.Call, run: Callable[..., None]) -> None:
    """Run the study of a sweep, which is written into its workdir; of a dry run, nowhere."""
    from bert_jax.studies import sweep

    args = call.args
    if args.study is not None or args.config is None:
        stray = f"study sweep takes no folder, {args.study!r}" if args.study else "no config given"
        raise ConfigError(stray, "name a config, such as --config=configs/tiny.py")
    with contextlib.ExitStack() as closing:
        folder = args.workdir
        if args.dry_run:
            folder = Path(closing.enter_context(tempfile.TemporaryDirectory())) / folder.name
        seeds = args.seeds or SEEDS
        file = sweep.write(folder, args.config, call.overrides, args.axis, seeds, call.words)
        run(spec=str(file))


if __name__ == "__main__":
    cli.main(["study", *sys.argv[1:]])
