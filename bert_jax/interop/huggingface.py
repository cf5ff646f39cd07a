"""Models of other projects: Hugging Face folders, safetensors files, hub names, TF1 checkpoints.

A model is converted to a config, parameters, and the path of a tokenizer, which a bert-jax run has
too. Only JSON, vocabularies and tensors are read. No code and no pickle is ever run.
"""

import contextlib
import dataclasses
import functools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict

from bert_jax.config import devices, knobs
from bert_jax.data import tokenizer as tokenizers
from bert_jax.errors import CheckpointError, ConfigError, first_line, suggest_path
from bert_jax.interop import config_json, families, parameter_names, sentence, tensor_files, tf1
from bert_jax.interop.parameter_names import BELONG, Names, Shape, find_theirs, list_names
from bert_jax.objectives import network
from bert_jax.system import disk

STORED = ("float32", "float16", "bfloat16", "float64")
HUB_FILES = (
    *("config.json", "model*.safetensors", "model.safetensors.index.json"),
    *(*tokenizers.NAMES, "merges.txt", "tokenizer_config.json", "special_tokens_map.json"),
    "added_tokens.json",
    *("modules.json", "*_Pooling/config.json", *sentence.FILES),
)
HUB_NAME = re.compile(r"hf:([\w.-]+(?:/[\w.-]+)?)|([\w.-]+/[\w.-]+)")
# What the reader of a family raises for a value of another type than transformers writes.
MALFORMED = (ConfigError, TypeError, ValueError, LookupError, AttributeError, OverflowError)


@dataclasses.dataclass(frozen=True)
class Foreign:
    """A model of another project, as read from a folder or file."""

    config: knobs.Config
    params: Any
    vocab_size: int
    tokenizer: Path | None  # its folder, if there is a tokenizer
    tokenizer_hash: str | None  # hash of the tokenizer it was exported with, if we wrote it
    sentence: dict[str, Any]  # pooling, normalize, length of a sentence-transformers folder
    stated: dict[str, Any]  # values of config.json that the config alone does not say


def fetch_model(name: str) -> Path | None:
    """Download a model from the hub, unless it is in the cache; return its folder.

    The result is None if the name cannot be a name of the hub.
    """
    match = HUB_NAME.fullmatch(name)
    if match is None:
        return None
    if match[2] and (Path(name).parent.exists() or name.startswith("runs/")):  # a mistyped path
        return None
    import huggingface_hub
    from huggingface_hub.errors import LocalEntryNotFoundError

    repository = match[1] or match[2]
    fetch = functools.partial(
        huggingface_hub.snapshot_download, repository, allow_patterns=list(HUB_FILES)
    )
    try:
        return Path(fetch())
    except Exception as error:  # versions of the library differ in HTTP client, and so in errors
        if disk.is_full(error):
            raise disk.make_full_error(huggingface_hub.constants.HF_HUB_CACHE) from error
        # After errors of some clients the library does not look into its cache.
        with contextlib.suppress(LocalEntryNotFoundError, ValueError):
            return Path(fetch(local_files_only=True))
        raise CheckpointError(
            f"no file or folder {name} here, and the hub's {repository} cannot be fetched: "
            f"{first_line(error)}",
            suggest_path(name)
            or "give an existing folder, or fetch the model where there is a "
            "network and copy its folder",
        ) from error


def read_model(path: Path, allow_missing: bool = False, allow_unused: bool = False) -> Foreign:
    """Read a model of another project.

    Names and shapes of the file are compared with the model of its config.json, before any tensor
    is read.

    Args:
      path: a folder, a .safetensors file with its config.json next to it, or a TF1 checkpoint,
        which may be named by its prefix, such as DIR/bert_model.ckpt.
      allow_missing: leave out heads that config.json promises and the file lacks, instead of
        refusing the file.
      allow_unused: ignore tensors that belong to no part of the model.
    """
    folder = path if path.is_dir() else path.parent
    tensors = _open_tensors(path)
    file, stated = config_json.find_config(folder)
    try:
        family = families.find_family(stated, tensors.shapes)
        names = _name_tensors(tensors, family, stated, path)
        shapes = {today: tensors.shapes[stored] for today, stored in names.items()}
        if file.name == config_json.GOOGLES and family.mark_head("classify") in shapes:
            # Only run_classifier.py of google's scripts has a tensor of this name.
            stated.setdefault("architectures", ["BertForSequenceClassification"])
        length = sentence.read_length(folder)
        config = config_json.read_config(stated, family, shapes, length, allow_missing)
        modules = family.name_modules(config.objectives, config.model.word_head)
        vocab_size = _read_vocabulary_size(stated, modules, shapes)
        tokenizer_hash = (stated.get(config_json.OWN) or {}).get("tokenizer")
    except MALFORMED as error:
        hint = getattr(error, "hint", "it is damaged, or of another program")
        raise CheckpointError(f"{file}: {first_line(error)[:300]}", hint) from error
    wanted = _shape_parameters(config, shapes, vocab_size, modules)
    parameter_names.check_shapes(shapes, modules, wanted, vocab_size, str(path))
    used = {find_theirs(modules, ours)[1] for ours in wanted}
    used |= {family.tied, family.second_bias} & shapes.keys()
    unused = sorted(name for name in shapes.keys() - used if not re.match(family.unused, name))
    if unused and not allow_unused:
        raise CheckpointError(
            f"{path} holds {list_names(unused)}, which the model of its config.json has not",
            "bert-jax import --allow-unused leaves them aside",
        )
    values = {name: _read_float32(tensors, names[name], path) for name in sorted(used)}
    tensor_files.check_finite(values, path)
    _check_copies(values, family, config, path)
    params = parameter_names.to_ours(values, modules, wanted, vocab_size)
    return Foreign(
        config=config,
        params=unflatten_dict(params, sep="/"),
        vocab_size=vocab_size,
        tokenizer=folder if any((folder / name).exists() for name in tokenizers.NAMES) else None,
        tokenizer_hash=tokenizer_hash,
        sentence=sentence.read_settings(folder),
        stated={key: stated[key] for key in family.kept if key in stated},
    )


def _open_tensors(path: Path) -> tensor_files.Tensors:
    """Open the tensor files at a path: a TF1 checkpoint or safetensors."""
    if tf1.is_checkpoint(path):
        return tf1.TensorFlowCheckpoint(path)
    known = (".safetensors", *tensor_files.PICKLES)
    if path.is_file() and path.suffix not in known:
        raise CheckpointError(
            f"{path} is no .safetensors file", "give the folder it is in, or its weights"
        )
    return tensor_files.SafetensorsFiles(path)


def _name_tensors(
    tensors: tensor_files.Tensors, family: families.Family, stated: Mapping[str, Any], path: Path
) -> dict[str, str]:
    """Return {name that the family gives a tensor now: the tensor's name in the file}.

    If config.json ties nothing, transformers 5 reads the second bias of the output, and not the
    first.
    """
    found: dict[str, str] = {}
    today = parameter_names.rename_today(tensors.shapes, family.prefix, family.names)
    for stored, name in today.items():
        if name in found:
            problem = f"{path} holds {list_names([name])} twice, under two names"
            raise CheckpointError(problem, "keep one of them")
        found[name] = stored
    _, bias = find_theirs(family.names, "mlm/bias")
    is_tied = stated.get("tie_word_embeddings") is not False
    if family.second_bias in found and not (is_tied and bias in found):
        found[bias] = found.pop(family.second_bias)
    return found


def _read_vocabulary_size(
    stated: Mapping[str, Any], modules: Names, shapes: Mapping[str, Shape]
) -> int:
    """Read the size of the vocabulary; refuse it if the token table has another number of rows."""
    size = stated.get("vocab_size")
    _, table = find_theirs(modules, "encoder/embeddings/token")
    count = shapes.get(table, (0,))[0]
    if size != count:
        raise ConfigError(f"vocab_size = {size}, and {table} has {count} rows", BELONG)
    return count


def _shape_parameters(
    config: knobs.Config, names: Mapping[str, Shape], vocab_size: int, modules: Names
) -> dict[str, Shape]:
    """Trace the shapes of our parameters without computing them, as {our name: shape}.

    If the file has a pooler that no head reads, its parameters are added.
    """
    with devices.trace_for("cpu"):  # a config may be read before the processes of a run have met
        init = functools.partial(network.init_params, config, vocab_size)
        tree = jax.eval_shape(init, np.uint32(0))
    shapes = {name: leaf.shape for name, leaf in flatten_dict(tree, sep="/").items()}
    if f"{modules.get('encoder/pooler')}.weight" in names:
        width = config.model.hidden
        assert width is not None
        shapes |= {"encoder/pooler/kernel": (width, width), "encoder/pooler/bias": (width,)}
    return shapes


def _read_float32(tensors: tensor_files.Tensors, name: str, path: Path) -> np.ndarray:
    """Read one tensor, converted to float32."""
    value = tensors.read(name)
    if value.dtype.name not in STORED:
        raise CheckpointError(
            f"{path}: {list_names([name])} is stored as {value.dtype.name}",
            f"weights are {', '.join(STORED)}",
        )
    with np.errstate(over="ignore"):  # too large a number becomes infinite, and is refused as such
        return value.astype(np.float32, copy=False)


def _check_copies(
    values: Mapping[str, np.ndarray], family: families.Family, config: knobs.Config, path: Path
) -> None:
    """Refuse a file whose output matrix or bias is stored twice with different values.

    transformers 5 would not tie such matrices, and would compute other logits.
    """
    copies = {family.second_bias: find_theirs(family.names, "mlm/bias")[1]}
    if config.model.word_head != "untied":
        copies[family.tied] = find_theirs(family.names, "encoder/embeddings/token")[1]
    for copy, first in copies.items():
        if copy in values and not np.array_equal(values[copy], values[first]):
            raise CheckpointError(f"{path}: {copy} is not {first}", "config.json ties the two")
