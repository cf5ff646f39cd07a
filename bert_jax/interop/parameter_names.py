"""Our parameters under Hugging Face's names and shapes.

    to_ours({"bert.pooler.dense.weight": ...}, rows, shapes, 30_522) -> {"encoder/pooler/kernel": …}
    to_theirs({"encoder/pooler/kernel": ...}, rows, 30_522)          -> the names and arrays back

`rows` are the name table of a family (`families/`). Their matrices are [out, in], sometimes fused,
or with another order of a head's outputs. Ours are [in, out] and split into heads. A row has {} for
the number of a layer, in our name and in theirs. Nothing is computed, so both directions are exact.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from bert_jax.errors import CheckpointError
from bert_jax.interop.json_files import list_names

Shape = tuple[int, ...]
LEAVES = {
    "norm": {"scale": "weight", "bias": "bias"},
    "dense": {"kernel": "weight", "bias": "bias"},
}
BUFFERS = ("embeddings.position_ids", "embeddings.token_type_ids")  # constants some versions store
WORDS = ("mlm", "causal_lm")  # heads over the vocabulary
PADDED = (  # ours have rows of zeros beyond the vocabulary, theirs have none
    "encoder/embeddings/token",
    *(f"{head}/{leaf}" for head in WORDS for leaf in ("table", "bias")),
)
BELONG = "the file and its config.json must belong together"


class Row(NamedTuple):
    """One of our tensors: its name there, with {} for the layer, and how it is stored there."""

    theirs: str
    transposed: bool = False
    part: int = 0  # of a fused matrix or bias, which is cut along its outputs
    parts: int = 1
    by_head: bool = False  # each head has its outputs of all parts side by side
    turned: bool = False  # rotary positions turn outputs 2i, 2i + 1 of a head, ours i, i + d/2


Rows = Mapping[str, Row]  # by our name


def name_module(ours: str, theirs: str, **stored: Any) -> dict[str, Row]:
    """Name the tensors of a norm, if our name ends so, or of a dense layer."""
    leaves = LEAVES["norm" if ours.endswith("norm") else "dense"]
    return {
        f"{ours}/{leaf}": Row(f"{theirs}.{other}", leaf == "kernel", **stored)
        for leaf, other in leaves.items()
    }


def find_row(rows: Rows, ours: str) -> tuple[Row, str]:
    """Find the row of one of our tensors, and the tensor's name there."""
    layer = re.search(r"/layer_(\d+)/", ours)
    if layer is None:
        return rows[ours], rows[ours].theirs
    row = rows[ours.replace(layer[0], "/layer_{}/")]
    return row, row.theirs.format(layer[1])


def count_layers(rows: Rows, tensors: Iterable[str]) -> int:
    """Count the layers of which a file has tensors."""
    before = re.escape(rows["encoder/layer_{}/mlp/up/kernel"].theirs.partition("{}")[0])
    matches = (re.match(rf"{before}(\d{{1,6}})\.", name) for name in tensors)
    return len({match[1] for match in matches if match})


def check_shapes(
    stored: Mapping[str, Shape],
    rows: Rows,
    shapes: Mapping[str, Shape],
    vocab_size: int,
    where: str,
) -> None:
    """Compare names and shapes of a file with those of a model.

    Args:
      stored: name there -> shape of every tensor of the file.
      rows: how our parameters are stored there.
      shapes: our name -> shape of every parameter of the model.
      vocab_size: rows of the table of tokens there; ours is padded beyond.
      where: the file, for messages.
    """
    missing = sorted({find_row(rows, name)[1] for name in shapes} - stored.keys())
    if missing:
        raise CheckpointError(f"{where} lacks {list_names(missing)}", BELONG)
    for name, shape in shapes.items():
        row, theirs = find_row(rows, name)
        part = _shape_theirs(name, row, shape, vocab_size)
        wanted = [part[0] * row.parts, *part[1:]]
        if list(stored[theirs]) != wanted:
            problem = f"{theirs} is {list(stored[theirs])} and config.json says {wanted}"
            raise CheckpointError(f"{where}: {problem}", BELONG)


def to_ours(
    tensors: Mapping[str, np.ndarray], rows: Rows, shapes: Mapping[str, Shape], vocab_size: int
) -> dict[str, np.ndarray]:
    """Convert their float32 tensors, whose shapes are checked, to our flat parameters."""
    params = {}
    for name, shape in shapes.items():
        row, theirs = find_row(rows, name)
        value = _cut_part(tensors[theirs], row, shape)
        value = value.T if row.transposed else value
        if name in PADDED:
            padding = np.zeros((shape[0] - vocab_size, *shape[1:]), np.float32)
            value = np.concatenate([value, padding])
        params[name] = np.ascontiguousarray(value).reshape(shape)
    return params


def to_theirs(
    params: Mapping[str, np.ndarray], rows: Rows, vocab_size: int
) -> dict[str, np.ndarray]:
    """Convert our flat parameters to their tensors; the tied output matrix is left out."""
    tensors: dict[str, dict[int, np.ndarray]] = {}
    for name, array in params.items():
        row, theirs = find_row(rows, name)
        value = np.asarray(array)
        value = value[:vocab_size] if name in PADDED else value
        shape = _shape_theirs(name, row, value.shape, vocab_size)
        matrix = value.reshape(shape[::-1]).T if row.transposed else value
        own = _group_outputs(matrix.reshape(shape), row, value.shape)
        tensors.setdefault(theirs, {})[row.part] = own
    return {
        theirs: _flatten(np.concatenate([parts[i] for i in sorted(parts)], axis=1))
        for theirs, parts in tensors.items()
    }


def plain_names(tensors: Iterable[str], prefix: str, rows: Rows) -> dict[str, str]:
    """Map names in a file to the names that a family gives to these tensors today.

    Today's names have the family's prefix in front, and weight and bias for gamma and beta.
    """
    stored = list(tensors)
    ending = rows["encoder/embeddings/token"].theirs.removeprefix(prefix)
    found = next((n.removesuffix(ending) for n in stored if n.endswith(ending)), prefix)
    theirs = {row.theirs.partition(".")[0] for row in rows.values()}
    heads = tuple(f"{name}." for name in theirs - {prefix.removesuffix(".")})
    plain_of = {}
    for name in stored:
        plain = re.sub(r"gamma$", "weight", re.sub(r"beta$", "bias", name))
        plain = plain if plain.startswith(heads) else prefix + plain.removeprefix(found)
        if not plain.endswith(BUFFERS):
            plain_of[name] = plain
    return plain_of


def _cut_part(value: np.ndarray, row: Row, shape: Shape) -> np.ndarray:
    """Cut one of our tensors, of this shape, out of a fused one; its outputs are in our order."""
    groups = shape[-2] if row.by_head else 1
    rest = value.shape[1:]
    # [groups, parts, outputs of a group and part, ...]
    part = _flatten(value.reshape(groups, row.parts, -1, *rest)[:, row.part])
    if not row.turned:
        return part
    return part.reshape(shape[-2], -1, 2, *rest).swapaxes(1, 2).reshape(part.shape)


def _group_outputs(part: np.ndarray, row: Row, shape: Shape) -> np.ndarray:
    """Undo `_cut_part` for one part, up to fusing it: return [groups, outputs of a group, ...]."""
    groups = shape[-2] if row.by_head else 1
    rest = part.shape[1:]
    if row.turned:
        part = part.reshape(shape[-2], 2, -1, *rest).swapaxes(1, 2).reshape(part.shape)
    return part.reshape(groups, -1, *rest)


def _flatten(groups: np.ndarray) -> np.ndarray:
    """Return an array [groups, n, ...] as [groups x n, ...]."""
    return np.ascontiguousarray(groups).reshape(-1, *groups.shape[2:])


def _shape_theirs(name: str, row: Row, shape: Shape, vocab_size: int) -> Shape:
    """Return the shape there of one of our tensors, or of its part of a fused one."""
    if name in PADDED:
        return (vocab_size, *shape[1:])
    if row.transposed:
        contracted = 2 if name.endswith("attention/out/kernel") else 1
        return int(np.prod(shape[contracted:])), int(np.prod(shape[:contracted]))
    return (int(np.prod(shape)),) if name.endswith("bias") else shape
