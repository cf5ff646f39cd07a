"""`bert-jax evaluate`: the exact scores of a checkpoint, as JSON."""

from __future__ import annotations

import json
import math
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bert_jax import cli
from bert_jax.config import knobs
from bert_jax.system import allocator, disk

HELP = "exact evaluation of a checkpoint, as JSON"
EXAMPLE = "--checkpoint=runs/tiny --output=runs/tiny/evaluation.json"
LIMITS = f"labelled data: texts of at most {knobs.TEXT:,} characters, in lines of at most {knobs.LINE:,} bytes"


def flags(parser: ArgumentParser) -> None:
    """Add the flags of the command."""
    cli.checkpoint_flag(parser)
    cli.config_flag(parser)
    suites = (
        "pretrain, nsp, cross_rate, pll, blimp, sts, probe, task, glue, or a task such as squad; several with commas; "
        "if nothing is said, task or pretrain, as the checkpoint was trained"
    )
    parser.add_argument("--suite", default="", metavar="NAME[,NAME]", help=suites)
    parser.add_argument(
        "--task", type=cli.given, metavar="NAME", help="sts, probe: a row of bert_jax/data/tasks.py"
    )
    source = "texts or labelled data in place of the checkpoint's or the task's own: files:PATTERN or tfds:NAME; "
    source += LIMITS
    parser.add_argument("--source", type=cli.given, metavar="SOURCE", help=source)
    parser.add_argument("--split", type=cli.given, metavar="NAME", help="the part of a task's data")
    parser.add_argument(
        "--batch-size",
        type=cli.positive,
        default=0,
        metavar="N",
        help="rows a step; changes no result",
    )
    limit = "only the first N texts, examples (probe: of each split), or pairs of a paradigm"
    parser.add_argument("--limit", type=cli.positive, default=0, metavar="N", help=limit)
    submit = "tasks of GLUE, SQuAD: write there what their servers take, for the test splits unless --split says"
    parser.add_argument("--submission", type=cli.given, metavar="DIR", help=submit)
    within = "pll, blimp: mask the later pieces of a token's word with it (PLL-word-l2r)"
    parser.add_argument("--within-word", action="store_true", help=within)
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the JSON there too")


def main(call: cli.Call) -> None:
    """Run the command line."""
    args = call.args
    config = (
        cli.read_config(args.config, call.overrides, args.source or "") if args.config else None
    )
    allocator.retain()
    cli.make_room(args.output)
    changes = [] if config else call.overrides  # of the checkpoint's own config
    asked = {key: getattr(args, key) for key in ("batch_size", "limit", "within_word")}
    asked |= {key: getattr(args, key) or "" for key in ("task", "source", "split", "submission")}
    run(
        args.checkpoint,
        args.suite,
        config,
        args.output,
        changes=changes,
        tokenizer=args.tokenizer,
        **asked,
    )


def run(
    checkpoint: str,
    suite: str,
    config: knobs.Config | None,
    output: Path | None,
    *,
    changes: Sequence[tuple[str, str]] = (),
    tokenizer: str = "",
    **asked: Any,
) -> None:
    """`bert-jax evaluate`: prints `{suite: {metric: value}}`.

    Args:
      checkpoint: a run, or a model of others.
      suite: its name, or several with commas between; empty is what the checkpoint was trained on.
      config: of another corpus, or of a task.
      output: file for the same JSON.
      changes: knobs that differ from the run's own.
      tokenizer: the vocabulary of a model that has none.
      asked: further fields of `suites.base.SuiteOptions`.
    """
    from bert_jax import suites
    from bert_jax.interop import runs

    table = suites.named(suite.split(",") if suite else [])
    opened = runs.open_run(checkpoint, tokenizer=tokenizer)
    if not table:  # what the checkpoint was trained on
        one = config or opened.config
        table = suites.named(
            ["task" if one.task.source or set(one.objectives) & set(knobs.LABELLED) else "pretrain"]
        )
    ask = suites.ask(table, config=config, changes=tuple(changes), **asked)
    for name, row in table.items():  # not after an hour of the one before
        row.check(opened, name)
    found = {name: row.run(opened, ask) for name, row in table.items()}
    result = json.dumps(_without_nan(found), indent=2)
    print(result)
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        disk.write(output, result + "\n")


def _without_nan(value: Any) -> Any:
    """JSON has no NaN, such as the correlation with a constant: it becomes null."""
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    return None if isinstance(value, float) and math.isnan(value) else value


if __name__ == "__main__":
    cli.main(["evaluate", *sys.argv[1:]])
