"""`bert-jax benchmark`: this project beside what its users would otherwise run, in turn."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from pathlib import Path

from bert_jax import cli

HELP = "this project beside what its users would otherwise run, in turn"
EXAMPLE = "train-step --size=4x512 --against=transformers --config.model.dtype=bfloat16"


def flags(parser: ArgumentParser) -> None:
    """Add the flags of the command."""
    from bert_jax.benchmarks import table

    parser.add_argument("name", metavar="NAME", choices=table.TABLE, help=", ".join(table.TABLE))
    cli.config_flag(parser)
    size = f"LAYERSxHIDDEN or a name of the models' sizes ({table.SIZE}, or what --config says)"
    parser.add_argument("--size", type=cli.given, metavar="SIZE", help=size)
    rivals = "measure it too, in turn; needs torch and transformers"
    parser.add_argument("--against", choices=table.RIVALS, default="", help=rivals)
    parser.add_argument(
        "--python", default="", metavar="PATH", help="a Python that has them (this one)"
    )
    parser.add_argument(
        "--rounds", type=cli.positive, default=9, metavar="N", help="turns of each (%(default)s)"
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the rows there as JSON")


def main(call: cli.Call) -> None:
    """Run the command line."""
    args = call.args
    cli.make_room(args.output)
    from bert_jax.benchmarks import table

    given = {key: getattr(args, key) for key in ("size", "against", "python", "rounds", "output")}
    table.run(args.name, args.config, call.overrides, **given)


if __name__ == "__main__":
    cli.main(["benchmark", *sys.argv[1:]])
