"""`bert-jax benchmark`: this project and its alternatives, timed in interleaved rounds."""

from __future__ import annotations

import sys
from argparse import ArgumentParser

from bert_jax import cli
from bert_jax.system import disk

EXAMPLE = "train-step --size=4x512 --against=transformers --config.model.dtype=bfloat16"


def flags(parser: ArgumentParser) -> None:
    """Add the flags of the command."""
    from bert_jax.benchmarks import table

    parser.add_argument("name", metavar="NAME", choices=table.TABLE, help=", ".join(table.TABLE))
    cli.config_flag(parser)
    size = f"LAYERSxHIDDEN or a name of the models' sizes ({table.SIZE}, or what --config says)"
    parser.add_argument("--size", type=cli.nonempty, metavar="SIZE", help=size)
    rivals = "measure this library too, in turn; needs torch and transformers"
    parser.add_argument("--against", choices=table.RIVALS, default="", help=rivals)
    python = "a Python that has torch and transformers (this one)"
    parser.add_argument("--python", default="", metavar="PATH", help=python)
    rounds = "interleaved rounds (%(default)s)"
    parser.add_argument("--rounds", type=cli.positive, default=9, metavar="N", help=rounds)
    written = "write the rows there as JSON"
    parser.add_argument("--output", type=cli.path, metavar="FILE", help=written)


def main(call: cli.Call) -> None:
    """Run the command line."""
    args = call.args
    if args.output is not None:
        disk.check_output(args.output)
    from bert_jax.benchmarks import table

    options = {key: getattr(args, key) for key in ("size", "against", "python", "rounds", "output")}
    table.run(args.name, args.config, call.overrides, **options)


if __name__ == "__main__":
    cli.main(["benchmark", *sys.argv[1:]])
