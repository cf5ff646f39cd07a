"""`bert-jax evaluate`: the exact scores of a checkpoint, as JSON."""

import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bert_jax import cli, suites
from bert_jax.config import knobs
from bert_jax.data.tasks import TASKS
from bert_jax.system import allocator, disk

EXAMPLE = "--model=runs/demo --output=runs/demo/evaluation.json"


def add_flags(parser: cli.Parser) -> None:
    """Add the flags of the command."""
    cli.add_checkpoint_flag(parser)
    cli.add_config_flag(parser)
    names = ", ".join(name for name in suites.SUITES if name not in TASKS)
    which = f"{names}, or a task such as squad; several with commas; by default task or pretrain, "
    which += "as the checkpoint was trained"
    parser.add_argument("--suite", default="", metavar="NAME[,NAME]", help=which)
    cli.add_option_flags(parser, suites.list_flags().values())
    parser.add_argument(
        "--output", type=cli.read_path, metavar="FILE", help="write the JSON there too"
    )


def main(call: cli.Call) -> None:
    """Run the command line."""
    args = {name: value for name, value in vars(call.args).items() if value is not None}
    if spec := args.pop("config", None):
        args["config"] = cli.read_config(spec, call.overrides, args.get("source", ""))
    args["changes"] = call.overrides  # of that config, or else of the checkpoint's own
    allocator.retain_memory()
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
      checkpoint: a run, or a model of another project.
      suite: names of suites, with commas between; by default `task` for a model that was trained on
        labelled data, else `pretrain`.
      config: the config of the evaluation; by default the checkpoint's own.
      output: a file to write the JSON into too.
      changes: pairs (path, value): knobs to change in the config.
      tokenizer: the vocabulary of a model that has none.
      options: the fields of `suites.Options`.
    """
    from bert_jax.interop import runs

    names = [*dict.fromkeys(suite.split(","))] if suite else []
    for name in names:
        suites.find_row(name)
    opened = runs.open_run(checkpoint, tokenizer=tokenizer)
    if not names:
        trained = config or opened.config
        labelled = trained.task.source or set(trained.objectives) & set(knobs.LABELLED)
        names = ["task" if labelled else "pretrain"]
    asked = suites.build_options(names, config=config, changes=tuple(changes), **options)
    suites.check_heads(opened, names)  # before the first, which may run for an hour
    metrics = {}
    try:
        for one in asked:
            metrics[one.suite] = suites.score(opened, one)[0]
    finally:  # an error of one suite must not lose what others have found
        if metrics:
            _write_scores(metrics, output)


def _write_scores(metrics: dict[str, Any], output: Path | None) -> None:
    """Write scores to a file, if one is named, and print them, even if the file takes none."""
    result = json.dumps(_without_nan(metrics), indent=2)
    try:
        if output is not None:
            disk.write_output(output, result + "\n")
    finally:
        print(result)


def _without_nan(value: Any) -> Any:
    """Replace NaN by None (null in JSON), for example the correlation with a constant."""
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    return None if isinstance(value, float) and math.isnan(value) else value


if __name__ == "__main__":
    cli.main(["evaluate", *sys.argv[1:]])
