"""Convert our parameters to Hugging Face's names and shapes, and back.

    to_ours({"bert.pooler.dense.weight": x}, names, shapes, 30_522)  {"encoder/pooler/kernel": x.T}
    to_theirs({"encoder/pooler/kernel": x.T}, names, 30_522)         {"bert.pooler.dense.weight": x}

`names` is the table of names of a family (`families/`). The table maps our module to Hugging
Face's, with {} for the number of a layer. Hugging Face's matrices are [out, in], sometimes fused.
Ours are [in, out] and split into heads. Nothing is computed, so both directions are exact.
"""

import math
import re
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

import numpy as np

from bert_jax.errors import CheckpointError
from bert_jax.system.jsons import show

Shape = tuple[int, ...]
BUFFERS = ("embeddings.position_ids", "embeddings.token_type_ids")  # constants some versions store
WORDS = ("mlm", "causal_lm")  # heads over the vocabulary
PADDED = (  # ours have rows of zeros beyond the vocabulary, theirs have none
    "encoder/embeddings/token",
    *(f"{head}/{leaf}" for head in WORDS for leaf in ("table", "bias")),
)
BELONG = "the file and its config.json must belong together"
MOST = 6  # names in a message


class Part(NamedTuple):
    """One part of a module of Hugging Face's that fuses several of our modules."""

    module: str
    part: int = 0  # the matrix and the bias are cut along their outputs
    parts: int = 1
    by_head: bool = False  # each head has its outputs of all parts side by side
    is_turned: bool = False  # rotary positions turn outputs 2i, 2i + 1 of a head, ours i, i + d/2


Names = Mapping[str, str | Part]


def find_theirs(names: Names, ours: str) -> tuple[Part, str]:
    """Find the tensor of Hugging Face that stores a parameter of ours.

    Returns which part of the tensor is ours, since theirs may be fused, and the tensor's name.
    """
    layer = re.search(r"layer_(\d+)/", ours)
    general = ours.replace(layer[0], "layer_{}/") if layer else ours
    module, _, leaf = general.rpartition("/")
    if general in names:  # a table
        module = general
    found = names[module]
    part = Part(found) if isinstance(found, str) else found
    name = part.module.format(layer[1]) if layer else part.module
    return part, f"{name}.bias" if leaf == "bias" else f"{name}.weight"


def count_layers(names: Names, tensors: Iterable[str]) -> int:
    """Count the layers that have tensors in a file."""
    down = names["encoder/layer_{}/mlp/down"]
    assert isinstance(down, str)
    before = re.escape(down.partition("{}")[0])
    matches = (re.match(rf"{before}(\d{{1,6}})\.", name) for name in tensors)
    return len({match[1] for match in matches if match})


def list_names(names: Collection[str]) -> str:
    """Write names for a message: the first few, and how many more there are."""
    shown = ", ".join(show(name).strip("'") for name in list(names)[:MOST])
    return f"{shown} and {len(names) - MOST} more" if len(names) > MOST else shown


def rename_today(tensors: Iterable[str], prefix: str, names: Names) -> dict[str, str]:
    """Return {name in the file: name that the family now gives the tensor}.

    Names of today begin with the family's prefix. Today's names end with weight and bias, instead
    of gamma and beta.
    """
    stored = list(tensors)
    ending = find_theirs(names, "encoder/embeddings/token")[1].removeprefix(prefix)
    found = next((name.removesuffix(ending) for name in stored if name.endswith(ending)), prefix)
    modules = [part if isinstance(part, str) else part.module for part in names.values()]
    firsts = {module.partition(".")[0] for module in modules} - {prefix.removesuffix(".")}
    heads = tuple(f"{first}." for first in firsts)
    today = {}
    for name in stored:
        plain = re.sub(r"gamma$", "weight", re.sub(r"beta$", "bias", name))
        if not plain.startswith(heads):
            plain = prefix + plain.removeprefix(found)
        if not plain.endswith(BUFFERS):
            today[name] = plain
    return today


def check_shapes(
    stored: Mapping[str, Shape],
    names: Names,
    shapes: Mapping[str, Shape],
    vocab_size: int,
    where: str,
) -> None:
    """Refuse a file whose tensors lack a parameter of a model, or have other shapes.

    Args:
      stored: the shape of every tensor of the file, by Hugging Face's name.
      names: the table of names of the family.
      shapes: the shape of every parameter of the model, by our name.
      vocab_size: rows of the file's token table; our table has rows of padding besides.
      where: the file, for messages.
    """
    missing = sorted({find_theirs(names, name)[1] for name in shapes} - stored.keys())
    if missing:
        raise CheckpointError(f"{where} lacks {list_names(missing)}", BELONG)
    for name, shape in shapes.items():
        part, theirs = find_theirs(names, name)
        outputs, *inputs = _shape_theirs(name, shape, vocab_size)
        wanted = (outputs * part.parts, *inputs)
        if stored[theirs] != wanted:
            raise CheckpointError(
                f"{where}: {theirs} is {[*stored[theirs]]} and config.json says {[*wanted]}", BELONG
            )


def to_ours(
    tensors: Mapping[str, np.ndarray], names: Names, shapes: Mapping[str, Shape], vocab_size: int
) -> dict[str, np.ndarray]:
    """Convert {Hugging Face's name: tensor} to {our name: parameter}.

    The shapes must be checked before, by `check_shapes`.
    """
    params = {}
    for name, shape in shapes.items():
        part, theirs = find_theirs(names, name)
        value = _cut_part(tensors[theirs], part, shape)
        if name.endswith("/kernel"):
            value = value.T
        if name in PADDED:
            value = np.pad(value, [(0, shape[0] - vocab_size)] + [(0, 0)] * (value.ndim - 1))
        params[name] = np.ascontiguousarray(value).reshape(shape)
    return params


def to_theirs(
    params: Mapping[str, np.ndarray], names: Names, vocab_size: int
) -> dict[str, np.ndarray]:
    """Convert {our name: parameter} to {Hugging Face's name: tensor}.

    A tied output matrix is left out.
    """
    tensors: dict[str, dict[int, np.ndarray]] = {}
    for name, array in params.items():
        part, theirs = find_theirs(names, name)
        value = np.asarray(array)
        if name in PADDED:
            value = value[:vocab_size]
        shape = _shape_theirs(name, value.shape, vocab_size)
        if name.endswith("/kernel"):
            value = value.reshape(shape[::-1]).T
        grouped = _group_outputs(value.reshape(shape), part, array.shape)
        tensors.setdefault(theirs, {})[part.part] = grouped
    return {
        theirs: _flatten(np.concatenate([parts[i] for i in sorted(parts)], axis=1))
        for theirs, parts in tensors.items()
    }


def _cut_part(value: np.ndarray, stored: Part, shape: Shape) -> np.ndarray:
    """Cut one part out of a fused tensor; `shape` is the shape of our parameter.

    The result has the parameter's outputs in our order, as the first axis.
    """
    groups = shape[-2] if stored.by_head else 1
    rest = value.shape[1:]
    # [groups, parts, outputs of a group and part, ...]
    part = _flatten(value.reshape(groups, stored.parts, -1, *rest)[:, stored.part])
    if not stored.is_turned:
        return part
    return part.reshape(shape[-2], -1, 2, *rest).swapaxes(1, 2).reshape(part.shape)


def _group_outputs(part: np.ndarray, stored: Part, shape: Shape) -> np.ndarray:
    """Undo `_cut_part` for one part: return [groups, outputs of a group, ...], to be fused."""
    groups = shape[-2] if stored.by_head else 1
    rest = part.shape[1:]
    if stored.is_turned:
        part = part.reshape(shape[-2], 2, -1, *rest).swapaxes(1, 2).reshape(part.shape)
    return part.reshape(groups, -1, *rest)


def _flatten(groups: np.ndarray) -> np.ndarray:
    """Join the first two axes: [groups, n, ...] becomes [groups x n, ...]."""
    return np.ascontiguousarray(groups).reshape(-1, *groups.shape[2:])


def _shape_theirs(name: str, shape: Shape, vocab_size: int) -> Shape:
    """Return the shape that one of our parameters has in Hugging Face's format.

    If the tensor is fused, this is the shape of the parameter's part.
    """
    if name in PADDED:
        return (vocab_size, *shape[1:])
    if name.endswith("/kernel"):
        contracted = 2 if name.endswith("attention/out/kernel") else 1
        return math.prod(shape[contracted:]), math.prod(shape[:contracted])
    return (math.prod(shape),) if name.endswith("/bias") else shape
