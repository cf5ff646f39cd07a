"""`bert-jax import`: another project's model as a complete run at step 0.

The name of this module is a keyword of Python, so `cli` and `python -m bert_jax.import` find it by
its name as text.
"""

import contextlib
import json
import sys
from argparse import ArgumentParser
from pathlib import Path

from bert_jax import cli
from bert_jax.config import to_dict
from bert_jax.errors import ConfigError
from bert_jax.system import jsons, opening

EXAMPLE = "--model=google-bert/bert-base-uncased --output=runs/bert_base"


def add_flags(parser: ArgumentParser) -> None:
    """Add the flags of the command."""
    cli.add_checkpoint_flag(parser)
    cli.add_output_flag(parser, "the run")
    parser.add_argument(
        "--allow-missing", action="store_true", help="do without heads its config.json promises"
    )
    parser.add_argument(
        "--allow-unused",
        action="store_true",
        help="leave out tensors that are no part of the model",
    )
    parser.add_argument(
        "--resize-vocab", action="store_true", help="cut rows of the table that no piece has"
    )


def main(call: cli.Call) -> None:
    """Run the command line."""
    run(**vars(call.args))


def run(checkpoint: str, output: Path, tokenizer: str, **allowed: bool) -> None:
    """Import a model; print the run's folder, heads and vocabulary size as JSON.

    `allowed` has the options `allow_missing`, `allow_unused` and `resize_vocab` of
    `runs.open_foreign`.
    """
    from bert_jax.checkpoints.saving import Checkpoints
    from bert_jax.interop import runs
    from bert_jax.interop.export import fresh_folder

    given = opening.expand_home(checkpoint)
    if (given / "checkpoints").is_dir() or runs.is_step(given):
        raise ConfigError(f"{checkpoint} is a run already", "every command takes it as it is")
    opened = runs.open_foreign(checkpoint, tokenizer, **allowed)
    with fresh_folder(output) as folder:
        jsons.write(folder / "config.json", to_dict(opened.config))
        opened.tokenizer.save(folder / "tokenizer")
        checkpoints = Checkpoints(folder / "checkpoints", keep=1, keep_best=False)
        with contextlib.closing(checkpoints):
            meta = {"config": to_dict(opened.config), **opened.meta}
            checkpoints.save(0, {"params": opened.params}, meta)
    heads = list(opened.config.objectives)
    vocabulary = opened.tokenizer.size
    print(json.dumps({"output": str(output), "heads": heads, "vocabulary": vocabulary}))


if __name__ == "__main__":
    cli.main(["import", *sys.argv[1:]])
