"""Takes a model of somebody else in: what it writes is a run, complete in itself, at step 0.

The module's name is a keyword, so it is run, as `python -m bert_jax.import` or by the command line, and never imported.
"""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path

from bert_jax.checkpoints.manager import Checkpoints
from bert_jax.config import to_dict
from bert_jax.errors import ConfigError
from bert_jax.export import fresh_folder
from bert_jax.interop import runs


def run(
    model: str, output: Path, tokenizer: str, *, allow_missing: bool, allow_unused: bool, resize_vocab: bool
) -> None:
    """`bert-jax import`: prints where the run is and what it can do."""
    if (Path(model) / "checkpoints").is_dir() or runs.step_folder(Path(model)):
        raise ConfigError(f"{model} is a run already", "every command takes it as it is")
    opened = runs.foreign(model, tokenizer, allow_missing, allow_unused, resize_vocab)
    with fresh_folder(output) as folder:
        runs.write_json(folder / "config.json", to_dict(opened.config))
        opened.tokenizer.save(folder / "tokenizer")
        with contextlib.closing(Checkpoints(folder / "checkpoints", keep=1, keep_best=False)) as checkpoints:
            checkpoints.save(0, {"params": opened.params}, {"config": to_dict(opened.config), **opened.meta})
    print(
        json.dumps(
            {"output": str(output), "heads": list(opened.config.objectives), "vocabulary": opened.tokenizer.size}
        )
    )


if __name__ == "__main__":
    from bert_jax import cli

    cli.main(["import", *sys.argv[1:]])
