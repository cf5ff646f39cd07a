"""The golden weights as other versions of other libraries would store them, written by the
safetensors library.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from bert_jax.errors import CheckpointError
from bert_jax.interop import huggingface

GOLDEN = Path(__file__).parent / "golden"
Tensors = dict[str, np.ndarray]


def golden(name: str) -> Tensors:
    """The weights of tests/golden/huggingface/NAME."""
    return load_file(GOLDEN / "huggingface" / name / "model.safetensors")


def old_names(tensors: Tensors) -> Tensors:
    """LayerNorm's gamma and beta, as the checkpoints of 2018 and 2019 have them."""
    pairs = (("LayerNorm.weight", "LayerNorm.gamma"), ("LayerNorm.bias", "LayerNorm.beta"))
    found = {}
    for name, array in tensors.items():
        for new, old in pairs:
            name = name.replace(new, old)
        found[name] = array
    return found


def with_extras(tensors: Tensors) -> Tensors:
    """The buffer and the tied copies that older versions stored beside the weights."""
    found = dict(tensors)
    table = "bert.embeddings.word_embeddings.weight"
    positions = len(tensors["bert.embeddings.position_embeddings.weight"])
    found["bert.embeddings.position_ids"] = np.arange(positions)[None]
    if "cls.predictions.bias" in tensors:
        found["cls.predictions.decoder.weight"] = tensors[table].copy()
        found["cls.predictions.decoder.bias"] = tensors["cls.predictions.bias"].copy()
    return found


def save(folder: Path, tensors: Tensors) -> Path:
    """One model.safetensors, as save_pretrained leaves it."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def save_sharded(folder: Path, tensors: Tensors, parts: int) -> Path:
    """An index and its shards, as save_pretrained(max_shard_size=...) leaves them."""
    folder.mkdir(parents=True, exist_ok=True)
    places = {}
    for part in range(parts):
        shard = f"model-{part + 1:05d}-of-{parts:05d}.safetensors"
        names = sorted(tensors)[part::parts]
        save_file(
            {name: tensors[name] for name in names}, folder / shard, metadata={"format": "pt"}
        )
        places |= dict.fromkeys(names, shard)
    size = sum(array.nbytes for array in tensors.values())
    index = {"metadata": {"total_size": size}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(
        json.dumps(index, indent=2, sort_keys=True) + "\n"
    )
    return folder


def folder(
    path: Path, name: str = "pretraining", tensors: Tensors | None = None, **changes: Any
) -> Path:
    """Write a golden model as a folder, with other tensors or lines of config.json."""
    save(path, golden(name) if tensors is None else tensors)
    shutil.copy(GOLDEN / "huggingface" / name / "config.json", path)
    shutil.copy(GOLDEN / "huggingface" / "pretraining" / "vocab.txt", path)
    stated = json.loads((path / "config.json").read_text()) | changes
    (path / "config.json").write_text(json.dumps(stated))
    return path


def read_changed(folder: Path, stated: dict[str, Any]) -> huggingface.Foreign | None:
    """Read a folder with another config.json; return None if it is refused, with a hint."""
    (folder / "config.json").write_text(json.dumps(stated))
    try:
        return huggingface.read_model(folder, allow_unused=True)
    except CheckpointError as error:
        hint = error.hint
    assert hint
    return None
