"""Our parameters under Hugging Face's names and shapes, and through these under Google's of TF1.

    to_ours({"bert.pooler.dense.weight": ...}, rows, shapes, 30_522, "file") -> {"encoder/pooler/…"}
    to_theirs({"encoder/pooler/kernel": ...}, rows, 30_522)     -> the names and arrays back

`rows` are those of a family (`families/`). Their matrices are [out, in], separate for each layer
and sometimes fused, or with another order of a head's outputs; ours are [in, out] and split into
heads. A row has {} for the number of a layer, in our name and in theirs. Nothing is computed, so
both directions are exact.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from bert_jax.errors import CheckpointError

LEAVES = {
    "norm": {"scale": "weight", "bias": "bias"},
    "dense": {"kernel": "weight", "bias": "bias"},
}
BUFFERS = ("embeddings.position_ids", "embeddings.token_type_ids")  # constants some versions store
LONGEST = 80  # characters of a name in a message; no name of ours has as many
# Ours have rows of zeros beyond the vocabulary; theirs have none.
WORDS = ("mlm", "causal_lm")  # heads over the vocabulary
PADDED = (
    "encoder/embeddings/token",
    *(f"{head}/{leaf}" for head in WORDS for leaf in ("table", "bias")),
)


class Row(NamedTuple):
    """One of our tensors: its name there, with {} for the layer, and how it is stored there."""

    theirs: str
    transposed: bool = False
    part: int = 0  # of a fused matrix or bias, cut along its outputs into
    parts: int = 1
    by_head: bool = False  # each head has its outputs of all parts side by side
    turned: bool = (
        False  # rotary positions turn outputs 2i and 2i + 1 of a head, ours i and i + d/2
    )


Rows = Mapping[str, Row]  # by our name


def find_row(rows: Rows, ours: str) -> tuple[Row, str]:
    """Return the row of one of our tensors, and their name of the tensor."""
    layer = re.search(r"/layer_(\d+)/", ours)
    if layer is None:
        return rows[ours], rows[ours].theirs
    row = rows[ours.replace(layer[0], "/layer_{}/")]
    return row, row.theirs.format(layer[1])


def module(ours: str, theirs: str, kind: str, **stored: Any) -> dict[str, Row]:
    """Return the rows of a norm or a dense layer."""
    return {
        f"{ours}/{leaf}": Row(f"{theirs}.{other}", leaf == "kernel", **stored)
        for leaf, other in LEAVES[kind].items()
    }


def modules(table: Mapping[str, tuple[str, str]]) -> dict[str, Row]:
    """Return the rows of several modules: our name -> theirs, and what it is."""
    rows: dict[str, Row] = {}
    for ours, (theirs, kind) in table.items():
        rows |= module(ours, theirs, kind)
    return rows


def to_ours(
    tensors: dict[str, np.ndarray],
    rows: Rows,
    shapes: dict[str, tuple[int, ...]],
    vocab_size: int,
    where: str,
) -> dict[str, np.ndarray]:
    """Convert their tensors to our flat parameters; every name and every shape must be right.

    Args:
      tensors: float32, by their names, as `plain_names` leaves them, without second copies.
      rows: how our parameters are stored there.
      shapes: our name -> shape of every parameter to convert.
      vocab_size: rows of their table; ours is padded beyond.
      where: the file, for messages.
    """
    hint = "the file and its config.json must belong together"
    missing = sorted({find_row(rows, name)[1] for name in shapes} - tensors.keys())
    if missing:
        raise CheckpointError(f"{where} lacks {listing(missing)}", hint)
    params = {}
    for name, shape in shapes.items():
        row, theirs = find_row(rows, name)
        part = _their_shape(name, row, shape, vocab_size)
        their_shape = (part[0] * row.parts, *part[1:])
        value = tensors[theirs]
        if value.shape != their_shape:
            problem = f"{theirs} is {list(value.shape)} and config.json says {list(their_shape)}"
            raise CheckpointError(f"{where}: {problem}", hint)
        value = _cut(value, row, shape)
        value = value.T if row.transposed else value
        if name in PADDED:
            padding = np.zeros((shape[0] - vocab_size, *shape[1:]), np.float32)
            value = np.concatenate([value, padding])
        params[name] = np.ascontiguousarray(value).reshape(shape)
    return params


def to_theirs(params: dict[str, np.ndarray], rows: Rows, vocab_size: int) -> dict[str, np.ndarray]:
    """Convert our flat parameters to their tensors; the tied output matrix is left out."""
    tensors: dict[str, dict[int, np.ndarray]] = {}
    for name, array in params.items():
        row, theirs = find_row(rows, name)
        value = np.asarray(array)
        value = value[:vocab_size] if name in PADDED else value
        shape = _their_shape(name, row, value.shape, vocab_size)
        matrix = value.reshape(shape[::-1]).T if row.transposed else value
        own = _in_their_order(matrix.reshape(shape), row, value.shape)
        tensors.setdefault(theirs, {})[row.part] = own
    return {
        theirs: _flat(np.concatenate([parts[i] for i in sorted(parts)], axis=1))
        for theirs, parts in tensors.items()
    }


def _cut(value: np.ndarray, row: Row, shape: tuple[int, ...]) -> np.ndarray:
    """Return the part of a tensor that is one of ours, of this shape, its outputs in our order."""
    groups, rest = shape[-2] if row.by_head else 1, value.shape[1:]
    part = _flat(value.reshape(groups, row.parts, -1, *rest)[:, row.part])
    if not row.turned:
        return part
    return part.reshape(shape[-2], -1, 2, *rest).swapaxes(1, 2).reshape(part.shape)


def _in_their_order(part: np.ndarray, row: Row, shape: tuple[int, ...]) -> np.ndarray:
    """Undo `_cut` for one part; return it with an axis of groups in front, each cut into parts."""
    groups, rest = shape[-2] if row.by_head else 1, part.shape[1:]
    if row.turned:
        part = part.reshape(shape[-2], 2, -1, *rest).swapaxes(1, 2).reshape(part.shape)
    return part.reshape(groups, -1, *rest)


def _flat(groups: np.ndarray) -> np.ndarray:
    """Return an array [groups, n, ...] as [groups x n, ...]."""
    return np.ascontiguousarray(groups).reshape(-1, *groups.shape[2:])


def plain_names(tensors: Iterable[str], prefix: str, rows: Rows) -> dict[str, str]:
    """Map names in a file to those that a family gives them today.

    These have the family's prefix in front, and weight and bias for gamma and beta.
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


def without_copies(
    tensors: dict[str, np.ndarray], rows: Rows, tied: str, second_bias: str, where: str
) -> dict[str, np.ndarray]:
    """Drop second copies of the output matrix and its bias; refuse a copy that differs.

    An output matrix that is not the word embeddings would be another model's.
    """
    tensors = dict(tensors)
    table = tensors.get(rows["encoder/embeddings/token"].theirs)
    decoder = tensors.pop(tied, None)
    if decoder is not None and (table is None or not np.array_equal(decoder, table)):
        raise CheckpointError(
            f"{where}: {tied} is not the word embeddings",
            "config.json ties the output to that table",
        )
    bias, copy = rows["mlm/bias"].theirs, tensors.pop(second_bias, None)
    if copy is not None and not np.array_equal(copy, tensors.setdefault(bias, copy)):
        raise CheckpointError(f"{where}: {second_bias} and {bias} differ", "they are one tensor")
    return tensors


def from_tf1(name: str) -> str | None:
    """Return Hugging Face's name of a variable of Google's code; None if no model has it."""
    of_optimizer = re.search(r"(^|/)(adam_[mv]|Adam(_1)?)$", name)
    if of_optimizer or not re.match(r"(bert|cls)/|output_(weights|bias)$", name):
        return None
    name = re.sub(r"^cls/squad/output_", "qa_outputs/output_", name)
    name = re.sub(r"^output_", "classifier/output_", name)
    name = re.sub(r"layer_(\d+)", r"layer/\1", name)
    name = re.sub(r"output_weights$|kernel$|gamma$", "weight", name)
    name = re.sub(r"output_bias$|beta$", "bias", name)
    name = re.sub(r"(_embeddings)$", r"\1/weight", name)
    return name.replace("/", ".")


def listing(every: list[str], most: int = 6) -> str:
    """Return a few names, long ones cut, and how many more there are."""
    shown = ", ".join(
        name if len(name) <= LONGEST else f"{name[: LONGEST - 3]}..." for name in every[:most]
    )
    return f"{shown} and {len(every) - most} more" if len(every) > most else shown


def _their_shape(name: str, row: Row, shape: tuple[int, ...], vocab_size: int) -> tuple[int, ...]:
    """Return the shape of each of their tensors for one of ours, or of its part of a fused one."""
    if name in PADDED:
        return (vocab_size, *shape[1:])
    if row.transposed:
        contracted = 2 if name.endswith("attention/out/kernel") else 1
        return int(np.prod(shape[contracted:])), int(np.prod(shape[:contracted]))
    return (int(np.prod(shape)),) if name.endswith("bias") else shape
