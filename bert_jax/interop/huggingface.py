"""Models trained elsewhere: Hugging Face folders, safetensors files, hub names, TF1 checkpoints.

Each becomes what a run of ours has: a config, parameters, and the path of a tokenizer. Only JSON,
vocabularies and tensors are read; no code and no pickle is ever run.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.config import knobs
from bert_jax.data import tokenizer as tokenizers
from bert_jax.errors import CheckpointError, ConfigError, suggest_path
from bert_jax.interop import (
    config_json,
    families,
    parameter_names,
    safetensors,
    sentence,
    tf1,
)
from bert_jax.objectives import network
from bert_jax.system import trees

STORED = ("float32", "float16", "bfloat16", "float64")
HUB_FILES = (
    *("config.json", "model*.safetensors", "model.safetensors.index.json"),
    *(*tokenizers.NAMES, "merges.txt", "tokenizer_config.json", "special_tokens_map.json"),
    *("modules.json", "*_Pooling/config.json", *sentence.FILES),
)
HUB_NAME = re.compile(r"hf:([\w.-]+(?:/[\w.-]+)?)|([\w.-]+/[\w.-]+)")


@dataclasses.dataclass(frozen=True)
class Foreign:
    """The contents of a folder or file from elsewhere."""

    config: knobs.Config
    params: Any
    vocab_size: int
    tokenizer: Path | None  # its folder, if there is a tokenizer
    tokenizer_hash: str | None  # of the tokenizer it was exported with, if we wrote it
    sentence: dict[str, Any]  # pooling, normalize, length of a sentence-transformers folder
    stated: dict[str, Any]  # values of config.json that the config alone does not say


def fetch(name: str) -> Path | None:
    """Download a model from the hub, or find it in the cache; None if the name cannot be one."""
    match = HUB_NAME.fullmatch(name)
    if match is None:
        return None
    if match[2] and (Path(name).parent.exists() or name.startswith("runs/")):  # a mistyped path
        return None
    import huggingface_hub
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    repository = match[1] or match[2]
    # ValueError: the hub allows no such name.
    failures = (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError)
    try:
        return Path(huggingface_hub.snapshot_download(repository, allow_patterns=list(HUB_FILES)))
    except failures as error:
        hint = (
            "give an existing folder, "
            "or fetch the model where there is a network and copy its folder"
        )
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise CheckpointError(
            f"no file or folder {name} here, and the hub's {repository} cannot be fetched: {first}",
            suggest_path(name) or hint,
        ) from error


def read(path: Path, allow_missing: bool = False, allow_unused: bool = False) -> Foreign:
    """Read a folder, a .safetensors file with its config.json beside it, or a TF1 checkpoint.

    Args:
      path: the folder or file; of TF1 also the prefix, such as DIR/bert_model.ckpt.
      allow_missing: leave out heads that config.json promises and the file lacks, instead of
        refusing.
      allow_unused: ignore tensors that belong to no part of the model.
    """
    folder = path if path.is_dir() else path.parent
    raw, names = _values(path)
    file, stated = config_json.load(folder)
    try:
        family = families.of(stated, names.values())
        values = _plain(raw, names, family, path)
        config_json.complete(stated, file, family, values)
        config, vocab_size = config_json.parse(
            stated, family, values, sentence.length(folder), allow_missing
        )
    except ConfigError as error:
        raise CheckpointError(f"{file}: {error}", error.hint) from error
    rows = family.names(config)
    shapes = _shapes(config, values, vocab_size, rows)
    expected = {parameter_names.find_row(rows, ours)[1] for ours in shapes}
    expected |= {family.tied, family.second_bias}
    unused = sorted(values.keys() - expected)
    unused = [name for name in unused if not re.match(family.unused, name)]
    if unused and not allow_unused:
        raise CheckpointError(
            f"{path} holds {parameter_names.listing(unused)}, "
            "which the model of its config.json has not",
            "bert-jax import --allow-unused leaves them aside",
        )
    values = {
        name: _float32(name, value, path) for name, value in values.items() if name in expected
    }
    safetensors.check_finite(values, path)
    tied = "" if config.model.word_head == "untied" else family.tied
    once = parameter_names.without_copies(values, rows, tied, family.second_bias, str(path))
    params = trees.nested(parameter_names.to_ours(once, rows, shapes, vocab_size, str(path)))
    has_tokenizer = any(os.path.lexists(folder / name) for name in tokenizers.NAMES)
    our_entry = stated.get(config_json.OWN)
    tokenizer_hash = our_entry.get("tokenizer") if isinstance(our_entry, dict) else None
    return Foreign(
        config,
        params,
        vocab_size,
        folder if has_tokenizer else None,
        tokenizer_hash,
        sentence.read(folder),
        {key: stated[key] for key in family.kept if key in stated},
    )


def _float32(name: str, value: np.ndarray, path: Path) -> np.ndarray:
    if value.dtype.name not in STORED:
        raise CheckpointError(
            f"{path}: {name} is stored as {value.dtype.name}", f"weights are {', '.join(STORED)}"
        )
    with np.errstate(over="ignore"):  # too large a number becomes infinite, and is refused as such
        return value.astype(np.float32, copy=False)


def _values(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Read the tensors, and Hugging Face's names of them, where Google's code stored them."""
    if path.is_file() and path.suffix not in (".safetensors", ".index", *safetensors.PICKLES):
        raise CheckpointError(
            f"{path} is no .safetensors file", "give the folder it is in, or its weights"
        )
    is_tf1 = path.suffix == ".index" or Path(f"{path}.index").is_file()
    if path.is_dir():
        is_tf1 |= any(path.glob("*.index")) and not any(path.glob("*.safetensors*"))
    if is_tf1:
        raw = tf1.read(path, lambda name: parameter_names.from_tf1(name) is not None)
        # A dense kernel of Google's code is [in, out].
        values = {n: raw[n].T if n.endswith("kernel") else raw[n] for n in raw}
        return values, {name: str(parameter_names.from_tf1(name)) for name in raw}
    values = safetensors.read(path)
    return values, {name: name for name in values}


def _plain(
    raw: dict[str, np.ndarray], names: dict[str, str], family: families.Family, path: Path
) -> dict[str, np.ndarray]:
    """Return the tensors by the names that the family gives them today."""
    today = parameter_names.plain_names(names.values(), family.prefix, family.rows(()))
    plain_of = {name: today[theirs] for name, theirs in names.items() if theirs in today}
    values = {plain: raw[name] for name, plain in plain_of.items()}
    if len(values) < len(plain_of):
        twice = sorted(plain for plain in values if list(plain_of.values()).count(plain) > 1)
        raise CheckpointError(
            f"{path} holds {parameter_names.listing(twice)} twice, under two names",
            "keep one of them",
        )
    return values


def _shapes(
    config: knobs.Config,
    names: Collection[str],
    vocab_size: int,
    rows: parameter_names.Rows,
) -> dict[str, tuple[int, ...]]:
    """Return the shapes of our parameters, and of an unused pooler if the file has one."""
    tree = jax.eval_shape(lambda: network.init(config, vocab_size, jnp.uint32(0)))
    shapes = {name: leaf.shape for name, leaf in trees.flat(tree).items()}
    pooler = rows.get("encoder/pooler/kernel")
    if pooler and pooler.theirs in names:
        width = config.model.hidden
        assert width is not None
        shapes |= {"encoder/pooler/kernel": (width, width), "encoder/pooler/bias": (width,)}
    return shapes
