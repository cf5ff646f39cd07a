"""Opens a trained model, ours or somebody else's: its config, tokenizer and parameters."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.checkpoints import manager
from bert_jax.config import knobs, recorded, suggest
from bert_jax.data import tokenizer as tokenizers
from bert_jax.errors import CheckpointError, ConfigError, DataError
from bert_jax.interop import huggingface
from bert_jax.models.bert import padded_vocab
from bert_jax.system import disk, jsons

BACKUP = "restore it from the run's backup"
META = {
    "step": range(2**63),
    "config": dict,
    "tokenizer": str,
}  # what every checkpoint of a run says


@dataclasses.dataclass(frozen=True)
class Run:
    """A trained model, ready to be evaluated or asked."""

    folder: Path
    config: knobs.Config
    tokenizer: tokenizers.Tokenizer
    tokenizer_path: Path
    params: Any
    step: int
    meta: dict[
        str, Any
    ]  # what the checkpoint says of itself; `foreign` where it was not trained here

    @property
    def sentence(self) -> dict[str, Any]:
        """How sentence-transformers would make one vector of a text, where the model says so."""
        return self.meta.get("sentence", {})

    @property
    def longest(self) -> int:
        """Tokens a row may have: learned positions past the training length were never trained."""
        learned = self.config.model.position == "learned"
        return min(
            self.config.sequence_length if learned else sys.maxsize,
            self.sentence.get("length") or sys.maxsize,
        )


def step_folder(folder: Path) -> bool:
    """Whether a path has the form RUN/checkpoints/STEP."""
    return folder.name.isdecimal() and folder.parent.name == "checkpoints"


def open_run(path: str, *, tokenizer: str = "", **allowed: bool) -> Run:
    """Reads a run folder (its best verified step, else its latest), one step of it, or a model of somebody else.

    Args:
      path: RUN, RUN/checkpoints/STEP, a Hugging Face folder, a .safetensors file, a TF1 checkpoint, or a hub name.
      tokenizer: a folder or file with the vocabulary, for a model of somebody else that has none beside it.
      allowed: `allow_missing`, `allow_unused` and `resize_vocab` of `foreign`.
    """
    folder = Path(path)
    step = None
    if step_folder(folder):
        if not folder.exists():
            raise CheckpointError(
                f"no checkpoint at {path}", "its folder lists the steps there are"
            )
        folder, step = folder.parent.parent, int(folder.name)
    if (
        folder.name == "checkpoints"
        and folder.is_dir()
        and any(step_folder(one) for one in folder.iterdir())
    ):
        raise CheckpointError(
            f"{path} is where a run keeps its steps",
            f"{folder.parent} is the run, {folder}/N a step",
        )
    if not (folder / "checkpoints").is_dir():
        return foreign(path, tokenizer, **allowed)
    if tokenizer or any(allowed.values()):
        raise ConfigError(
            f"{path} is a run of ours, complete in itself", "leave --tokenizer and --allow-… out"
        )
    params, meta = manager.read(folder / "checkpoints", step)
    if problem := jsons.wrong(meta, META):
        raise CheckpointError(
            f"{folder / 'checkpoints'}: of a checkpoint's meta, {problem}", BACKUP
        )
    found = meta["step"]
    vocabulary = tokenizers.load(folder / "tokenizer")
    if vocabulary.hash != meta["tokenizer"]:
        raise ConfigError(
            f"{folder / 'tokenizer'} is not the tokenizer step {found} was trained with",
            "restore the folder from the run's backup: another vocabulary makes every prediction wrong",
        )
    return Run(
        folder, recorded(meta["config"]), vocabulary, folder / "tokenizer", params, found, meta
    )


def described(path: str) -> tuple[knobs.Config, Path]:
    """The config and the tokenizer's place of a model; of a run of ours without its parameters, nor any device."""
    folder = Path(path)
    folder = folder.parent.parent if step_folder(folder) else folder
    if not (folder / "checkpoints").is_dir():
        run = open_run(path)
        return run.config, run.tokenizer_path
    file = folder / "config.json"
    return recorded(jsons.read(file, CheckpointError, hint=BACKUP)), folder / "tokenizer"


def _meant(path: str) -> str:
    """The hint for a path where nothing is."""
    if re.fullmatch(r"bert-[\w-]+", path):
        return f"if the hub's is meant: google-bert/{path}"
    there = Path(path).parent
    near = (
        [str(there / one) for one in sorted(os.listdir(there))]
        if there.is_dir() and "/" in path
        else []
    )
    if near:
        return suggest(path, near[:20])
    return "give a run folder, such as runs/demo, a model folder, or OWNER/NAME of the hub"


def foreign(
    path: str,
    tokenizer: str = "",
    allow_missing: bool = False,
    allow_unused: bool = False,
    resize_vocab: bool = False,
) -> Run:
    """A model of somebody else as a run at step 0."""
    there = Path(path)
    if not there.exists() and not Path(f"{path}.index").is_file():
        fetched = huggingface.fetch(path)
        if fetched is None:
            raise CheckpointError(f"no checkpoint at {path}", _meant(path))
        there = fetched
    found = huggingface.read(there, allow_missing, allow_unused)
    place = Path(tokenizer) if tokenizer else found.tokenizer
    if place is None:
        raise CheckpointError(
            f"no vocab.txt or tokenizer.json beside {path}", "name one with --tokenizer=PATH"
        )
    try:
        vocabulary = tokenizers.load(place)
    except DataError as error:
        raise CheckpointError(str(error), error.hint) from error
    if found.tokenizer_hash not in (None, vocabulary.hash):
        raise ConfigError(
            f"{place} is not the tokenizer {path} was exported with",
            "restore its files, or export again: another vocabulary makes every prediction wrong",
        )
    if found.sentence.get("lowercase") and not vocabulary.style.lowercase:
        raise CheckpointError(
            f"{path} lower-cases texts before a cased tokenizer",
            "set lowercase in its tokenizer, or do_lower_case false",
        )
    params = found.params
    if vocabulary.size != found.vocab_size:
        if not resize_vocab or vocabulary.size > found.vocab_size:
            raise CheckpointError(
                f"{place} has {vocabulary.size:,} pieces and the model's table {found.vocab_size:,} rows",
                "bert-jax import --resize-vocab cuts rows that no piece has; rows that are missing cannot be made up",
            )
        params = _cut(params, padded_vocab(found.config.model, vocabulary.size), vocabulary.size)
    settings = dataclasses.replace(
        found.config.tokenizer, path=str(place), vocab_size=vocabulary.size
    )
    config = dataclasses.replace(found.config, tokenizer=settings)
    meta = {"foreign": os.fspath(path), "sentence": found.sentence, "tokenizer": vocabulary.hash}
    return Run(there, config, vocabulary, place, params, 0, meta)


def _cut(params: Any, rows: int, vocab_size: int) -> Any:
    """The parameters of a smaller vocabulary: the rows of its ids, zero in the padding."""

    def cut(table: np.ndarray) -> np.ndarray:
        padding = [(0, rows - vocab_size)] + [(0, 0)] * (table.ndim - 1)
        return np.pad(table[:vocab_size], padding)

    encoder = params["encoder"]
    embeddings = encoder["embeddings"] | {"token": cut(encoder["embeddings"]["token"])}
    params = params | {"encoder": encoder | {"embeddings": embeddings}}
    heads = {
        name: params[name] | {"bias": cut(params[name]["bias"])}
        for name in ("mlm", "causal_lm")
        if name in params
    }
    return params | heads


def write_json(path: Path, value: Any) -> None:
    """Writes JSON so that a reader never sees half of it."""
    disk.write(path, json.dumps(value, indent=2) + "\n")
