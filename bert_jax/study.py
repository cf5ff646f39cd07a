"""`bert-jax study`: many runs that answer one question, in one folder that holds all there is to know."""

from __future__ import annotations

import sys
from argparse import SUPPRESS, ArgumentParser
from pathlib import Path

from bert_jax import cli
from bert_jax.errors import ConfigError

HELP = "many runs that answer one question: run, status, report"
EXAMPLE = "run experiments/masking_rate --workdir=runs/masking_rate"
RESUMABLE = True
OVERRIDES = True

WORK = "work"  # an action for the processes that `run` starts


def flags(parser: ArgumentParser) -> None:
    """Add the flags of the command."""
    actions = ("run", "status", "report")
    does = "run what is missing and report; say how far it is; write the report again"
    parser.add_argument(
        "action", metavar="ACTION", choices=(*actions, WORK), help=f"{', '.join(actions)}: {does}"
    )
    where = "run: its folder, such as experiments/masking_rate; --config.a.b=VALUE changes a knob of all its cells"
    parser.add_argument("study", metavar="DIR[:SCALE]", nargs="?", type=cli.given, help=where)
    parser.add_argument(
        "--workdir",
        type=Path,
        metavar="DIR",
        required=True,
        help="where the study lives; resumes it",
    )
    engines = (
        "run: local (processes of this machine), slurm or ray; a study may change it (%(default)s)"
    )
    parser.add_argument("--engine", default="local", metavar="NAME", help=engines)
    option = "run: a setting of slurm or ray, such as mem_gb=16; may be repeated"
    parser.add_argument(
        "--engine-option", action="append", default=[], metavar="KEY=VALUE", help=option
    )
    jobs = "run: groups at a time (a core each; all accelerators together; what the cluster has)"
    parser.add_argument("--jobs", type=cli.positive, default=0, metavar="N", help=jobs)
    fuse = "run: cells that train in one program: as many as pay off and fit, none, or at most N (%(default)s)"
    parser.add_argument("--fuse", default="auto", metavar="auto|never|N", help=fuse)
    retries = "run: tries after the first of what fails (%(default)s)"
    parser.add_argument("--retries", type=cli.count, default=2, metavar="N", help=retries)
    reuse = "run: the workdir of another study; cells of this one that it has trained are copied; may be repeated"
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

        sys.exit(worker.main(args.workdir, args.group, train))
    for flag, action in (
        ("dry_run", "run"),
        ("reuse", "run"),
        ("verbose", "status"),
        ("json", "status"),
    ):
        if getattr(args, flag) and args.action != action:
            raise ConfigError(
                f"study {args.action} has no flag --{flag.replace('_', '-')}",
                f"study {action} has it",
            )
    options = dict(text.partition("=")[::2] for text in args.engine_option)
    if wrong := [text for text in args.engine_option if "=" not in text]:
        raise ConfigError(
            f"--engine-option {wrong[0]!r} has no value", "write --engine-option KEY=VALUE"
        )
    from bert_jax.studies import actions

    if args.action == "status":
        actions.status(args.workdir, verbose=args.verbose, as_json=args.json)
    elif args.action == "report":
        actions.report(args.workdir)
    else:
        given = {
            key: getattr(args, key)
            for key in ("engine", "jobs", "fuse", "retries", "reuse", "dry_run")
        }
        actions.run(
            args.study,
            args.workdir,
            overrides=call.overrides,
            options=options,
            command=call.words,
            **given,
        )


if __name__ == "__main__":
    cli.main(["study", *sys.argv[1:]])
