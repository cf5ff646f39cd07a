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

EXAMPLE = "--model=runs/demo --output=runs/demo/evaluation.json"


def flags(parser: ArgumentParser) -> None:
    """Add the flags of the command."""
    cli.checkpoint_flag(parser)
    cli.config_flag(parser)
    suites = (
        "pretrain, nsp, cross_rate, nelbo, pll, blimp, babylm, sts, probe, task, glue, or a task "
        "such as squad; several with commas; by default task or pretrain, as the checkpoint was "
        "trained"
    )
    parser.add_argument("--suite", default="", metavar="NAME[,NAME]", help=suites)
    parser.add_argument(
        "--task",
        type=cli.nonempty,
        metavar="NAME",
        help="sts, probe: a row of bert_jax/data/tasks.py",
    )
    source = "texts or labelled data in place of the checkpoint's or the task's own"
    source += ": files:PATTERN or tfds:NAME; of cross_rate, nelbo and pll also a file or folder of "
    source += "text, on which models of any vocabulary compare; of babylm its FOLDER; labelled "
    source += "data: texts of at most "
    source += f"{knobs.TEXT:,} characters, in lines of at most {knobs.LINE:,} bytes"
    parser.add_argument("--source", type=cli.nonempty, metavar="SOURCE", help=source)
    parser.add_argument(
        "--split", type=cli.nonempty, metavar="NAME", help="the part of a task's data"
    )
    parser.add_argument(
        "--batch-size",
        type=cli.rows,
        default=0,
        metavar="N",
        help="rows a step; changes no result",
    )
    limit = "only the first N texts or passages, examples (probe: of each split), pairs of a "
    limit += "paradigm, or rows of a file (babylm)"
    parser.add_argument("--limit", type=cli.positive, default=0, metavar="N", help=limit)
    submit = "tasks of GLUE, SQuAD: write the files that their servers take, for the test splits "
    submit += "or that of --split; babylm: the predictions as its pipeline saves them"
    parser.add_argument("--submission", type=cli.nonempty, metavar="DIR", help=submit)
    within = "pll, blimp: mask the later pieces of a token's word with it (PLL-word-l2r)"
    draws = "nelbo: numbers of masked tokens that an example is read under (default: 8)"
    parser.add_argument("--draws", type=cli.positive, default=0, metavar="N", help=draws)
    words = (
        "cross_rate, nelbo of a --source: most words of a passage, which is whole sentences (64)"
    )
    parser.add_argument("--words", type=cli.positive, default=0, metavar="N", help=words)
    parser.add_argument("--within-word", action="store_true", help=within)
    parser.add_argument("--output", type=cli.path, metavar="FILE", help="write the JSON there too")


def main(call: cli.Call) -> None:
    """Run the command line."""
    args = {name: value for name, value in vars(call.args).items() if value is not None}
    if spec := args.pop("config", None):
        args["config"] = cli.read_config(spec, call.overrides, args.get("source", ""))
    args["changes"] = call.overrides  # of that config, or else of the checkpoint's own
    allocator.retain()
    if "output" in args:
        disk.check_output(args["output"])
    run(**args)


def run(
    checkpoint: str,
    suite: str = "",
    config: knobs.Config | None = None,
    output: Path | None = None,
    *,
    changes: Sequence[tuple[str, str]] = (),
    tokenizer: str = "",
    **options: Any,
) -> None:
    """Evaluate a checkpoint and print `{suite: {metric: value}}`.

    Args:
      checkpoint: a run, or another project's model.
      suite: names of suites, with commas between; empty is that of the checkpoint's training.
      config: the config of another corpus, or of a task.
      output: file for the same JSON.
      changes: knobs that differ from the run's own, or that `config` has from the command line.
      tokenizer: the vocabulary of a model that has none.
      options: further fields of `suites.base.SuiteOptions`.
    """
    from bert_jax import suites
    from bert_jax.interop import runs

    table = suites.named(suite.split(",") if suite else [])
    opened = runs.open_run(checkpoint, tokenizer=tokenizer)
    if not table:
        trained = config or opened.config
        labelled = trained.task.source or set(trained.objectives) & set(knobs.LABELLED)
        table = suites.named(["task" if labelled else "pretrain"])
    suite_options = suites.build_options(table, config=config, changes=tuple(changes), **options)
    suites.need_heads(opened, table)  # before the first, which may run for an hour
    metrics = {name: row.run(opened, suite_options) for name, row in table.items()}
    result = json.dumps(_without_nan(metrics), indent=2)
    print(result)
    if output is not None:
        disk.write_output(output, result + "\n")


def _without_nan(value: Any) -> Any:
    """Replace NaN, such as the correlation with a constant, by null: JSON has no NaN."""
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    return None if isinstance(value, float) and math.isnan(value) else value


if __name__ == "__main__":
    cli.main(["evaluate", *sys.argv[1:]])
