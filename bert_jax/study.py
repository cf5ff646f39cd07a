"""`bert-jax study`: many runs that answer one question, with results and report in one folder."""

from __future__ import annotations

import functools
import sys
from argparse import SUPPRESS
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bert_jax import cli
from bert_jax.errors import ConfigError
from bert_jax.system.arguments import Part

if TYPE_CHECKING:
    from bert_jax.studies import sweep

EXAMPLE = "run experiments/masking_rate --workdir=runs/masking_rate"
RESUMABLE = True
OVERRIDES = True

SEEDS = 3  # of a sweep
WORK = "work"  # an action for the processes that `run` starts
KNOBS = "--config.KNOB=VALUE changes a knob of all cells"
KEPT = (
    "output: cells/, the tables results.csv, examples.npz and curves.csv, figures, summary.md and "
    "report.html in the workdir, and the report's path printed; the same command continues a study "
    "that was stopped. Tables and study.json that lie next to a study.py count as finished cells"
)
ACTIONS = {
    "run": Part(
        "run the missing cells of a study, then write its report",
        "experiments/masking_rate --workdir=runs/masking_rate",
        "input: a folder with a study.py, or the name of one of the project's, and the scale that "
        f"its get_study takes, such as masking_rate:docstrings; {KNOBS}\n\n{KEPT}",
    ),
    "sweep": Part(
        "run a study of some values of some knobs of one config, without a study.py",
        "--config=configs/tiny.py --axis masking.rate=0.15,0.3 --workdir=runs/sweep",
        f"input: a config, and the values of some of its knobs; {KNOBS}\n\n{KEPT}",
    ),
    "status": Part(
        "print the progress of a study",
        "--workdir=runs/masking_rate",
        "output on a terminal: counts, and a line for each cell that runs, failed or diverged\n"
        'output into a pipe or a file: {"study": …, "workdir": …, "counts": {…}, '
        '"seconds_left": …, "cells": [{"id": …, "labels": {…}, "seed": …, "state": …, …}, …]}; '
        "the seconds are null before a cell was measured",
    ),
    "report": Part(
        "write the report of a study again, with its tables, figures and summary.md",
        "--workdir=runs/masking_rate",
        "output: the report's path; a folder of tables and study.json is enough",
    ),
    WORK: Part(""),
}


def flags(parser: cli.Parser) -> None:
    """Add the flags of the command."""
    parser.add_parts("action", ACTIONS)
    folder = {"run": "the folder of the study"}
    parser.add_for(folder, "study", metavar="DIR[:SCALE]", nargs="?", type=cli.nonempty)
    parser.add_argument(
        "--workdir",
        type=cli.path,
        metavar="DIR",
        required=True,
        help="folder of cells, results and report",
    )
    parser.add_argument("--group", help=SUPPRESS)
    _flags_of_sweep(parser)
    _flags_of_runs(parser)
    verbose = {"status": "a line for every cell, as text"}
    parser.add_for(verbose, "--verbose", action="store_true")
    cli.format_flag(parser, "status")
    json = {"status": "the same as --format=json"}
    constant = {"action": "store_const", "const": "json", "default": SUPPRESS}
    parser.add_for(json, "--json", dest="format", **constant)


def _flags_of_sweep(parser: cli.Parser) -> None:
    def add(text: str, name: str, **settings: Any) -> None:
        parser.add_for({"sweep": text}, name, **settings)

    add("the config whose knobs are varied", "--config", metavar="FILE.py[:arg]")
    values = "a knob and its values, the first the one that others are compared with; several are "
    values += "crossed"
    add(values, "--axis", action="append", default=[], metavar="KNOB=VALUE,VALUE,…")
    add(f"how many seeds ({SEEDS})", "--seeds", type=cli.positive, metavar="N")
    each = "that every cell trains for, in place of the config's steps"
    for kind, what in (("tokens", "tokens, padding included,"), ("flops", "FLOPs")):
        add(f"{what} {each}", f"--{kind}", type=cli.amount, metavar="N")


def _flags_of_runs(parser: cli.Parser) -> None:
    def add(text: str, name: str, **settings: Any) -> None:
        parser.add_for(dict.fromkeys(("run", "sweep"), text), name, **settings)

    only = {"run": "a part of the study: a point of an axis, or a seed; may be repeated"}
    setting = {"action": "append", "default": [], "metavar": "AXIS=VALUE"}
    parser.add_for(only, "--only", **setting)
    engines = "local (processes of this machine), slurm or ray; a resumed study may use another "
    add(f"{engines}(%(default)s)", "--engine", default="local", metavar="NAME")
    option = "a setting of slurm or ray, such as mem_gb=16; may be repeated"
    add(option, "--engine-option", action="append", default=[], metavar="KEY=VALUE")
    jobs = "groups at a time (a core each; all accelerators together; what the cluster has)"
    add(jobs, "--jobs", type=cli.positive, default=0, metavar="N")
    fuse = "cells that train in one program: as many as is faster and fits in memory, none, or at "
    add(f"{fuse}most N (%(default)s)", "--fuse", default="auto", metavar="auto|never|N")
    reuse = "workdir or tables of another study, whose finished cells are taken where they are the "
    add(
        f"{reuse}same; may be repeated",
        "--reuse",
        type=cli.path,
        action="append",
        default=[],
        metavar="DIR",
    )
    speed = "speed of a worker, for the hours of a plan; else that of the cells so far"
    add(speed, "--flops-per-second", type=cli.amount, default=0.0, metavar="N")
    dry = "print cells, groups, tokens, FLOPs, and the hours at a known speed only"
    add(dry, "--dry-run", action="store_true")


def main(call: cli.Call) -> None:
    """Run the command line."""
    args = call.args
    if args.action == WORK:
        from bert_jax.studies import worker
        from bert_jax.train import train

        train_group = functools.partial(train, command=call.words)
        sys.exit(worker.main(args.workdir, args.group, train_group))
    if call.overrides and args.action in ("status", "report"):
        problem = f"study {args.action} has no flag --config.{call.overrides[0][0]}"
        raise ConfigError(problem, "study run, sweep have it")
    from bert_jax.studies import actions

    if args.action == "status":
        form = getattr(args, "format", "text" if args.verbose else "")
        actions.status(args.workdir, verbose=args.verbose, as_json=not cli.for_people(form))
    elif args.action == "report":
        actions.report(args.workdir)
    else:
        from bert_jax.studies import sweep

        given = actions.Flags(
            engine=args.engine,
            jobs=args.jobs,
            options=_read_options(args.engine_option),
            fuse=args.fuse,
            only=args.only,
            reuse=args.reuse,
            dry_run=args.dry_run,
            flops_per_second=args.flops_per_second,
            command=call.words,
        )
        if args.action == "sweep":
            sweep.run(_read_sweep(call), args.workdir, given)
            return
        actions.run(args.study, args.workdir, given, call.overrides)


def _read_options(texts: Sequence[str]) -> dict[str, str]:
    """Return the settings of an engine."""
    for text in texts:
        if "=" not in text:
            problem = f"--engine-option {text!r} has no value"
            raise ConfigError(problem, "write --engine-option KEY=VALUE")
    return dict(text.partition("=")[::2] for text in texts)


def _read_sweep(call: cli.Call) -> sweep.Sweep:
    """Read a sweep from the command line."""
    from bert_jax.studies import sweep
    from bert_jax.studies.spec import Budget

    args = call.args
    if args.config is None:
        hint = "--config=configs/tiny.py --axis KNOB=VALUE,VALUE, without blanks"
        raise ConfigError("no config given", hint)
    stated = [kind for kind in ("tokens", "flops") if getattr(args, kind)]
    if len(stated) > 1:
        raise ConfigError("--tokens and --flops are two budgets", "leave one of them out")
    budget = Budget(stated[0], getattr(args, stated[0])) if stated else None
    return sweep.Sweep(args.config, call.overrides, args.axis, args.seeds or SEEDS, budget)


if __name__ == "__main__":
    cli.main(["study", *sys.argv[1:]])
