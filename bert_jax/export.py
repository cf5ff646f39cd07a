"""`bert-jax export`: a checkpoint as a folder for transformers and sentence-transformers."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from pathlib import Path

from bert_jax import cli

EXAMPLE = "--checkpoint=runs/tiny --output=exported"


def flags(parser: ArgumentParser) -> None:
    """Add the flags of the command."""
    cli.checkpoint_flag(parser)
    cli.output_flag(parser, "the folder for transformers and sentence-transformers")


def main(call: cli.Call) -> None:
    """Run the command line."""
    run(**vars(call.args))


def run(checkpoint: str, output: Path, tokenizer: str = "") -> None:
    """Export a checkpoint; print the folder, the transformers class and the step as JSON."""
    from bert_jax.interop import export, runs

    opened = runs.open_run(checkpoint, tokenizer=tokenizer)
    export.check(opened.config)  # before a folder is made
    name, _ = export.kind(opened.config)
    with export.fresh_folder(output) as folder:
        export.write(opened, folder)
    print(json.dumps({"output": str(output), "architecture": name, "step": opened.step}))


if __name__ == "__main__":
    cli.main(["export", *sys.argv[1:]])
