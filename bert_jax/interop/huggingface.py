"""Models trained elsewhere: Hugging Face folders, safetensors files, hub names, TF1 checkpoints.

Each becomes what a run of ours has: a config, parameters, and the path of a tokenizer. Only JSON,
vocabularies and tensors are read; no code and no pickle is ever run.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict

from bert_jax.config import knobs
from bert_jax.data import tokenizer as tokenizers
from bert_jax.errors import CheckpointError, ConfigError, first_line, suggest_path
from bert_jax.interop import (
    config_json,
    families,
    parameter_names,
    sentence,
    tensor_files,
    tf1,
)
from bert_jax.interop.families.base import read_count
from bert_jax.interop.json_files import list_names
from bert_jax.interop.parameter_names import Rows, Shape
from bert_jax.objectives import network

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
    tokenizer_hash: str | None  # hash of the tokenizer it was exported with, if we wrote it
    sentence: dict[str, Any]  # pooling, normalize, length of a sentence-transformers folder
    stated: dict[str, Any]  # values of config.json that the config alone does not say


def fetch_model(name: str) -> Path | None:
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
        raise CheckpointError(
            f"no file or folder {name} here, and the hub's {repository} cannot be fetched: "
            f"{first_line(error)}",
            suggest_path(name) or hint,
        ) from error


def read_model(path: Path, allow_missing: bool = False, allow_unused: bool = False) -> Foreign:
    """Read a folder, a .safetensors file with its config.json next to it, or a TF1 checkpoint.

    Names and shapes of the file are compared with the model of its config.json, before any tensor
    is read.

    Args:
      path: the folder or file; of TF1 also the prefix, such as DIR/bert_model.ckpt.
      allow_missing: leave out heads that config.json promises and the file lacks, instead of
        refusing.
      allow_unused: ignore tensors that belong to no part of the model.
    """
    folder = path if path.is_dir() else path.parent
    tensors = _open_tensors(path)
    file, stated = config_json.find_config(folder)
    try:
        family = families.find_family(stated, tensors.shapes)
        names = _name_tensors(tensors, family, path)
        shapes = {plain: tensors.shapes[stored] for plain, stored in names.items()}
        if file.name == config_json.GOOGLES and family.mark("classify") in shapes:
            # Only run_classifier.py of google's scripts has a tensor of this name.
            stated.setdefault("architectures", ["BertForSequenceClassification"])
        length = sentence.read_length(folder)
        config = config_json.read_config(stated, family, shapes, length, allow_missing)
        vocab_size = read_count(stated, "vocab_size")
    except ConfigError as error:
        raise CheckpointError(f"{file}: {error}", error.hint) from error
    rows = family.rows(config.objectives, config.model.word_head)
    wanted = _shape_parameters(config, shapes, vocab_size, rows)
    parameter_names.check_shapes(shapes, rows, wanted, vocab_size, str(path))
    expected = {parameter_names.find_row(rows, ours)[1] for ours in wanted}
    expected |= {family.tied, family.second_bias} & shapes.keys()
    unused = sorted(name for name in shapes.keys() - expected if not re.match(family.unused, name))
    if unused and not allow_unused:
        raise CheckpointError(
            f"{path} holds {list_names(unused)}, which the model of its config.json has not",
            "bert-jax import --allow-unused leaves them aside",
        )
    values = {name: _read_float32(tensors, names[name], path) for name in sorted(expected)}
    tensor_files.check_finite(values, path)
    _check_copies(values, family, rows, config, path)
    params = parameter_names.to_ours(values, rows, wanted, vocab_size)
    own = stated.get(config_json.OWN)
    return Foreign(
        config,
        unflatten_dict(params, sep="/"),
        vocab_size,
        folder if any((folder / name).exists() for name in tokenizers.NAMES) else None,
        own.get("tokenizer") if isinstance(own, dict) else None,
        sentence.read_settings(folder),
        {key: stated[key] for key in family.kept if key in stated},
    )


def _open_tensors(path: Path) -> tensor_files.Tensors:
    """Open the files of a path, whichever their format is."""
    if tf1.is_checkpoint(path):
        return tf1.TensorFlowCheckpoint(path)
    known = path.is_file() and path.suffix in (".safetensors", *tensor_files.PICKLES)
    if path.exists() and not path.is_dir() and not known:
        raise CheckpointError(
            f"{path} is no .safetensors file", "give the folder it is in, or its weights"
        )
    return tensor_files.SafetensorsFiles(path)


def _name_tensors(
    tensors: tensor_files.Tensors, family: families.Family, path: Path
) -> dict[str, str]:
    """Map the name that the family gives a tensor today to its name in the file."""
    found: dict[str, str] = {}
    today = parameter_names.plain_names(tensors.shapes, family.prefix, family.names)
    for stored, plain in today.items():
        if plain in found:
            raise CheckpointError(
                f"{path} holds {list_names([plain])} twice, under two names", "keep one of them"
            )
        found[plain] = stored
    bias = family.names["mlm/bias"].theirs
    if family.second_bias in found and bias not in found:
        found[bias] = found.pop(family.second_bias)
    return found


def _shape_parameters(
    config: knobs.Config, names: Mapping[str, Shape], vocab_size: int, rows: Rows
) -> dict[str, Shape]:
    """Trace the shapes of our parameters; a pooler that no head reads is added if it is there."""
    tree = jax.eval_shape(lambda: network.init(config, vocab_size, jnp.uint32(0)))
    shapes = {name: leaf.shape for name, leaf in flatten_dict(tree, sep="/").items()}
    pooler = rows.get("encoder/pooler/kernel")
    if pooler and pooler.theirs in names:
        width = config.model.hidden
        assert width is not None
        shapes |= {"encoder/pooler/kernel": (width, width), "encoder/pooler/bias": (width,)}
    return shapes


def _read_float32(tensors: tensor_files.Tensors, name: str, path: Path) -> np.ndarray:
    """Read a tensor as float32."""
    value = tensors.read(name)
    if value.dtype.name not in STORED:
        raise CheckpointError(
            f"{path}: {list_names([name])} is stored as {value.dtype.name}",
            f"weights are {', '.join(STORED)}",
        )
    with np.errstate(over="ignore"):  # too large a number becomes infinite, and is refused as such
        return value.astype(np.float32, copy=False)


def _check_copies(
    values: Mapping[str, np.ndarray],
    family: families.Family,
    rows: Rows,
    config: knobs.Config,
    path: Path,
) -> None:
    """Refuse second copies of the output matrix and of its bias that differ from the first."""
    table = values[rows["encoder/embeddings/token"].theirs]
    tied = values.get(family.tied) if config.model.word_head != "untied" else None
    if tied is not None and not np.array_equal(tied, table):
        raise CheckpointError(
            f"{path}: {family.tied} is not the word embeddings",
            "config.json ties the output to that table",
        )
    bias = rows["mlm/bias"].theirs
    copy = values.get(family.second_bias)
    if copy is not None and not np.array_equal(copy, values[bias]):
        raise CheckpointError(f"{path}: {family.second_bias} and {bias} differ", "they are one")
