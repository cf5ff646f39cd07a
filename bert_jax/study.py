"""`bert-jax study`: many runs that answer one question, with results and report in one folder."""

import functools
import sys
from argparse import SUPPRESS
from typing import TYPE_CHECKING, Any

from bert_jax import cli
from bert_jax.errors import ConfigError, need
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
    "output: cells/, the tables results.csv, examples.npz and curves.csv, differences.csv, "
    "figures, summary.md and report.html in the workdir, and the report's path printed; the same "
    "command continues a study that was stopped. Tables and study.json that lie next to a "
    "study.py count as finished cells"
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


def add_flags(parser: cli.Parser) -> None:
    """Add the flags of the command."""
    parser.add_parts("action", ACTIONS)

    def add(actions: str, name: str, text: str, **settings: Any) -> None:
        parser.add_for(dict.fromkeys(actions.split(), text), name, **settings)

    scaled = {"metavar": "DIR[:SCALE]", "nargs": "?", "type": cli.check_nonempty}
    add("run", "study", "the folder of the study", **scaled)
    folder = "folder of cells, results and report"
    parser.add_argument("--workdir", type=cli.read_path, metavar="DIR", required=True, help=folder)
    parser.add_argument("--group", help=SUPPRESS)
    add("sweep", "--config", "the config whose knobs are varied", metavar="FILE.py[:arg]")
    several: dict[str, Any] = {"action": "append", "default": []}
    values = "a knob and its values, the first the one that others are compared with; several are "
    add("sweep", "--axis", f"{values}crossed", metavar="KNOB=VALUE,VALUE,…", **several)
    add("sweep", "--seeds", f"how many seeds ({SEEDS})", type=cli.read_positive, metavar="N")
    each = "that every cell trains for, in place of the config's steps"
    tokens = f"tokens, padding included, {each}"
    add("sweep", "--tokens", tokens, type=cli.read_amount, metavar="N")
    add("sweep", "--flops", f"FLOPs {each}", type=cli.read_amount, metavar="N")
    part = "a part of the study: a point of an axis, or a seed; may be repeated"
    add("run", "--only", part, metavar="AXIS=VALUE", **several)
    both = "run sweep"
    engines = "local (processes of this machine), slurm or ray; a resumed study may use another "
    add(both, "--engine", f"{engines}(%(default)s)", default="local", metavar="NAME")
    option = "a setting of slurm or ray, such as mem_gb=16; may be repeated"
    add(both, "--engine-option", option, metavar="KEY=VALUE", **several)
    jobs = "groups at a time (one a core, or one with accelerators; SLURM 256)"
    add(both, "--jobs", jobs, type=cli.read_positive, default=0, metavar="N")
    fuse = "cells that train in one program: all that may, none, or at most N (%(default)s)"
    add(both, "--fuse", fuse, default="auto", metavar="auto|never|N")
    reuse = "workdir or tables of another study, whose finished cells are taken where they are the "
    folders = {"type": cli.read_path, "metavar": "DIR", **several}
    add(both, "--reuse", f"{reuse}same; may be repeated", **folders)
    speed = "speed of a worker in 10^12 FLOPs a second, for the hours of a plan (that of finished "
    speed += "cells)"
    add(both, "--tflops", speed, type=cli.read_amount, default=0.0, metavar="N")
    dry = "print cells, groups, tokens, FLOPs, and the hours at a known speed only"
    add(both, "--dry-run", dry, action="store_true")
    add("status", "--verbose", "a line for every cell, as text", action="store_true")
    cli.add_format_flag(parser, "status")


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
    from bert_jax.studies import actions, sweep

    if args.action == "status":
        form = getattr(args, "format", "text" if args.verbose else "")
        actions.show_status(
            args.workdir, verbose=args.verbose, as_json=not cli.prints_for_people(form)
        )
        return
    if args.action == "report":
        actions.report_study(args.workdir)
        return
    for text in args.engine_option:
        problem = f"--engine-option {text!r} has no value"
        need("=" in text, problem, "write --engine-option KEY=VALUE")
    given = actions.Flags(
        engine=args.engine,
        jobs=args.jobs,
        options=dict(text.partition("=")[::2] for text in args.engine_option),
        fuse=args.fuse,
        only=args.only,
        reuse=args.reuse,
        dry_run=args.dry_run,
        flops_per_second=1e12 * args.tflops,
        command=call.words,
    )
    if args.action == "sweep":
        sweep.run_sweep(_read_sweep(call), args.workdir, given)
    else:
        actions.run_study(args.study, args.workdir, given, call.overrides)


def _read_sweep(call: cli.Call) -> "sweep.Sweep":
    """Convert the arguments of `study sweep` to a Sweep."""
    from bert_jax.studies import sweep
    from bert_jax.studies.spec import Budget

    args = call.args
    hint = "--config=configs/tiny.py --axis KNOB=VALUE,VALUE, without blanks"
    need(args.config is not None, "no config given", hint)
    two = bool(args.tokens and args.flops)
    need(not two, "--tokens and --flops are two budgets", "leave one of them out")
    budget = Budget("tokens", args.tokens) if args.tokens else None
    if args.flops:
        budget = Budget("flops", args.flops)
    return sweep.Sweep(args.config, call.overrides, args.axis, args.seeds or SEEDS, budget)


if __name__ == "__main__":
    cli.main(["study", *sys.argv[1:]])
