"""Open a trained model, of a bert-jax run or another project: config, tokenizer, parameters."""

import dataclasses
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict

from bert_jax.checkpoints import reading
from bert_jax.config import knobs, read_recorded
from bert_jax.data import tokenizer as tokenizers
from bert_jax.errors import CheckpointError, ConfigError, DataError, suggest_path
from bert_jax.interop import huggingface
from bert_jax.interop.parameter_names import BELONG, PADDED
from bert_jax.models.encoder import pad_vocabulary
from bert_jax.objectives import diffusion, hybrid
from bert_jax.system import jsons, opening

HUB = "give a run folder, such as runs/demo, a model folder, or OWNER/NAME of the hub"
SPOILED = "restore the folder from its backup: another vocabulary makes every prediction wrong"


@dataclasses.dataclass(frozen=True)
class TrainedModel:
    """A trained model, opened for evaluation, prediction or export."""

    folder: Path
    config: knobs.Config
    tokenizer: tokenizers.Tokenizer
    tokenizer_path: Path
    params: Any
    step: int
    meta: dict[str, Any]  # of the checkpoint; has `foreign` where it was not trained here
    from_left: "TrainedModel | None" = None  # a hybrid model, as it reads causal examples

    def replace_sections(self, **sections: Any) -> "TrainedModel":
        """Return a copy with some sections of the config replaced.

        The sections are replaced in `from_left` too, the config with which a hybrid model reads
        from left to right.
        """
        config = dataclasses.replace(self.config, **sections)
        from_left = self.from_left and self.from_left.replace_sections(**sections)
        return dataclasses.replace(self, config=config, from_left=from_left)

    @property
    def sentence(self) -> dict[str, Any]:
        """The settings by which sentence-transformers makes a vector of a text; {} if unknown."""
        return self.meta.get("sentence", {})

    @property
    def longest(self) -> int:
        """The most tokens of a row.

        A model of another project states them. Of a run of ours, learned positions beyond the
        training length are untrained, so they are not used, and other positions have no limit but
        that of the model.
        """
        model = self.config.model
        limited = model.position == "learned" or "foreign" in self.meta
        most = self.config.sequence_length if limited else model.longest
        return min(most, self.sentence.get("length") or most)


def is_step(folder: Path) -> bool:
    """Tell whether a path has the form RUN/checkpoints/STEP."""
    return folder.name.isdecimal() and folder.parent.name == "checkpoints"


def open_run(path: str, *, tokenizer: str = "") -> TrainedModel:
    """Open a trained model: of a run, of one step of a run, or of another project.

    Args:
      path: RUN, RUN/checkpoints/STEP, a Hugging Face folder, a .safetensors file, a TF1 checkpoint,
        or a hub name. RUN stands for its best sound checkpoint, or for its latest if no step has a
        metric.
      tokenizer: a folder or file with the vocabulary, for a model of another project without one.
    """
    folder = opening.expand_home(path)
    step = None
    if is_step(folder):
        if not folder.exists():
            raise CheckpointError(
                f"no checkpoint at {path}", "its folder lists the steps there are"
            )
        folder, step = folder.parent.parent, int(folder.name)
    if (cells := folder / "cells").is_dir() and (folder / "study.json").is_file():
        raise CheckpointError(f"{path} is a study", f"its runs are in {cells}: name one of them")
    if not (folder / "checkpoints").is_dir():
        return open_foreign(path, tokenizer)
    if tokenizer:
        raise ConfigError(f"{path} is a run of ours, complete in itself", "leave --tokenizer out")
    params, meta = reading.read_model(folder / "checkpoints", step)
    tokenizer_path = folder / "tokenizer"
    vocabulary = tokenizers.load_tokenizer(tokenizer_path)
    if vocabulary.hash != meta["tokenizer"]:
        raise ConfigError(
            f"{tokenizer_path} is not the tokenizer step {meta['step']} was trained with", SPOILED
        )
    config = read_recorded(meta["config"])
    params = diffusion.forbid_mask_token(config, params, vocabulary.special.mask)
    model = TrainedModel(
        folder, config.as_read, vocabulary, tokenizer_path, params, meta["step"], meta
    )
    if "hybrid" not in config.objectives:
        return model
    from_left = dataclasses.replace(
        model, config=hybrid.make_causal_config(config), params=hybrid.rename_head(params)
    )
    return dataclasses.replace(model, from_left=from_left)


def read_description(path: str) -> tuple[knobs.Config, Path]:
    """Read the config and the path of the tokenizer of a model.

    The checkpoints of a bert-jax run are not opened for that.
    """
    folder = opening.expand_home(path)
    if is_step(folder):
        folder = folder.parent.parent
    if not (folder / "checkpoints").is_dir():
        run = open_run(path)
        return run.config, run.tokenizer_path
    stated = jsons.read(folder / "config.json", CheckpointError, dict)
    return read_recorded(stated), folder / "tokenizer"


def open_foreign(
    path: str,
    tokenizer: str = "",
    allow_missing: bool = False,
    allow_unused: bool = False,
    resize_vocab: bool = False,
) -> TrainedModel:
    """Open a model of another project, like a run at step 0; see `huggingface.read_model`.

    With `resize_vocab`, rows of the token table beyond the vocabulary are cut.
    """
    folder = opening.expand_home(path)
    if not folder.exists() and not Path(f"{folder}.index").is_file():
        fetched = huggingface.fetch_model(path)
        if fetched is None:
            raise CheckpointError(f"no checkpoint at {path}", _suggest_model(path))
        folder = fetched
    model = huggingface.read_model(folder, allow_missing, allow_unused)
    tokenizer_path = opening.expand_home(tokenizer) if tokenizer else model.tokenizer
    if tokenizer_path is None:
        raise CheckpointError(
            f"no vocab.txt or tokenizer.json beside {path}", "name one with --tokenizer=PATH"
        )
    try:
        vocabulary = tokenizers.load_tokenizer(tokenizer_path)
    except DataError as error:
        raise CheckpointError(str(error), error.hint) from error
    _check_tokenizer(path, model, vocabulary, tokenizer_path)
    params = model.params
    size = vocabulary.size
    if size != model.vocab_size:
        if not resize_vocab or size > model.vocab_size:
            raise CheckpointError(
                f"{tokenizer_path} has {size:,} pieces "
                f"and the model's table {model.vocab_size:,} rows",
                "bert-jax import --resize-vocab cuts rows that no piece has; "
                "rows that are missing cannot be made up",
            )
        params = _cut_vocabulary(params, pad_vocabulary(model.config.model, size), size)
    settings = dataclasses.replace(
        model.config.tokenizer, path=str(tokenizer_path), vocab_size=size
    )
    config = dataclasses.replace(model.config, tokenizer=settings)
    meta = {
        "foreign": os.fspath(path),
        "sentence": model.sentence,
        "tokenizer": vocabulary.hash,
        "stated": model.stated,
    }
    return TrainedModel(folder, config, vocabulary, tokenizer_path, params, 0, meta)


def _suggest_model(path: str) -> str:
    """Write the hint for a path that does not exist."""
    if Path(path).parts[-2:] == ("runs", "demo"):
        return "`make demo` trains it, or give another run or model folder"
    if re.fullmatch(r"bert-[\w-]+", path):
        return f"if the hub's is meant: google-bert/{path}"
    return suggest_path(path) or HUB


def _check_tokenizer(
    path: str, model: huggingface.Foreign, vocabulary: tokenizers.Tokenizer, tokenizer_path: Path
) -> None:
    """Refuse a tokenizer that contradicts the files of the model."""
    if model.tokenizer_hash not in (None, vocabulary.hash):
        raise ConfigError(
            f"{tokenizer_path} is not the tokenizer {path} was exported with", SPOILED
        )
    folder = tokenizer_path if tokenizer_path.is_dir() else tokenizer_path.parent
    added = folder / "added_tokens.json"
    is_alone = added.exists() and not (folder / "tokenizer.json").exists()
    if is_alone and vocabulary.size < model.vocab_size:
        raise CheckpointError(
            f"{added} is not read",
            "`AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR)` writes tokenizer.json",
        )
    first = model.config.model.first_position
    if first and vocabulary.special.pad != first - 1:
        raise CheckpointError(
            f"{path}: positions follow from pad_token_id = {first - 1}, and the padding token of "
            f"{tokenizer_path} is {vocabulary.special.pad}",
            BELONG,
        )
    if model.sentence.get("lowercase") and not vocabulary.lowercase:
        raise CheckpointError(
            f"{path} lower-cases texts before a cased tokenizer",
            "set lowercase in its tokenizer, or do_lower_case false",
        )


def _cut_vocabulary(params: Any, rows: int, vocab_size: int) -> Any:
    """Cut the vocabulary's tables to `vocab_size` rows, and pad them with zeros to `rows`."""
    flat = flatten_dict(params, sep="/")
    for name in flat.keys() & set(PADDED):
        kept = flat[name][:vocab_size]
        flat[name] = np.pad(kept, [(0, rows - vocab_size)] + [(0, 0)] * (kept.ndim - 1))
    return unflatten_dict(flat, sep="/")
