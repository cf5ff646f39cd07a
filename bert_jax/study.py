"""`bert-jax study`: many runs that answer one question, with results and report in one folder."""

from __future__ import annotations

import functools
import sys
from argparse import SUPPRESS, ArgumentParser
from pathlib import Path

from bert_jax import cli
from bert_jax.errors import ConfigError

EXAMPLE = "run experiments/masking_rate --workdir=runs/masking_rate"
RESUMABLE = True
OVERRIDES = True

WORK = "work"  # an action for the processes that `run` starts


def flags(parser: ArgumentParser) -> None:
    """Add the flags of the command."""
    actions = ("run", "status", "report")
    does = "run the missing cells and report; print the progress; write the report again"
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
    engines = "run: local (processes of this machine), slurm or ray; a resumed study may use "
    engines += "another (%(default)s)"
    parser.add_argument("--engine", default="local", metavar="NAME", help=engines)
    option = "run: a setting of slurm or ray, such as mem_gb=16; may be repeated"
    parser.add_argument(
        "--engine-option", action="append", default=[], metavar="KEY=VALUE", help=option
    )
    jobs = "run: groups at a time (a core each; all accelerators together; what the cluster has)"
    parser.add_argument("--jobs", type=cli.positive, default=0, metavar="N", help=jobs)
    fuse = "run: cells that train in one program: as many as is faster and fits in memory, none, "
    fuse += "or at most N (%(default)s)"
    parser.add_argument("--fuse", default="auto", metavar="auto|never|N", help=fuse)
    retries = "run: how often a cell that fails is tried again (%(default)s)"
    parser.add_argument("--retries", type=cli.count, default=2, metavar="N", help=retries)
    reuse = "run: workdir of another study, whose trained cells are copied where they are the "
    reuse += "same; may be repeated"
    parser.add_argument(
        "--reuse", type=Path, action="append", default=[], metavar="DIR", help=reuse
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="run: print cells, groups and the estimated time only",
    )
    parser.add_argument("--verbose", action="store_true", help="status: a line for every cell")
    parser.add_argument("--group", help=SUPPRESS)
    parser.add_argument("--json", action="store_true", help="status: one JSON object")


def main(call: cli.Call) -> None:
    """Run the command line."""
    args = call.args
    if args.action == WORK:
        from bert_jax.studies import worker
        from bert_jax.train import train

        sys.exit(
            worker.main(args.workdir, args.group, functools.partial(train, command=call.words))
        )
    owners = {"dry_run": "run", "reuse": "run", "verbose": "status", "json": "status"}
    for flag, action in owners.items():
        if getattr(args, flag) and args.action != action:
            problem = f"study {args.action} has no flag --{flag.replace('_', '-')}"
            raise ConfigError(problem, f"study {action} has it")
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
        actions.run(
            args.study,
            args.workdir,
            overrides=call.overrides,
            options=dict(text.partition("=")[::2] for text in args.engine_option),
            command=call.words,
            **{name: getattr(args, name) for name in names},
        )


if __name__ == "__main__":
    cli.main(["study", *sys.argv[1:]])
