"""Opens what a run left behind: its config, tokenizer and parameters."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from bert_jax import checkpoint, knobs
from bert_jax.config import resolve
from bert_jax.data import tokenizer as tokenizers
from bert_jax.errors import CheckpointError, ConfigError


@dataclasses.dataclass(frozen=True)
class Run:
    """A trained model, ready to be evaluated or asked."""

    folder: Path
    config: knobs.Config
    tokenizer: tokenizers.Tokenizer
    params: Any
    step: int
    meta: dict[str, Any]


def open_run(path: str) -> Run:
    """Reads a run folder (its best verified step, else its latest) or one step, `RUN/checkpoints/STEP`."""
    folder = Path(path)
    if not folder.exists():
        raise CheckpointError(f"no checkpoint at {path}", "give a run folder, such as runs/demo")
    step = None
    if folder.name.isdecimal() and folder.parent.name == "checkpoints":
        folder, step = folder.parent.parent, int(folder.name)
    if not (folder / "checkpoints").is_dir():
        raise CheckpointError(f"{path} holds no checkpoints/", "give a folder that `bert-jax train --workdir` wrote")
    params, meta = checkpoint.read(folder / "checkpoints", step)
    found = meta["step"]
    tokenizer = tokenizers.load(folder / "tokenizer")
    if tokenizer.hash != meta["tokenizer"]:
        raise ConfigError(
            f"{folder / 'tokenizer'} is not the tokenizer step {found} was trained with",
            "restore the folder from the run's backup: another vocabulary makes every prediction wrong",
        )
    return Run(folder, resolve(meta["config"]), tokenizer, params, found, meta)


def write_json(path: Path, value: Any) -> None:
    """Writes JSON so that a reader never sees half of it."""
    draft = path.with_suffix(".tmp")
    draft.write_text(json.dumps(value, indent=2) + "\n")
    draft.replace(path)
