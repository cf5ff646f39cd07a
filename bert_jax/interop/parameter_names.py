"""Our parameters under Hugging Face's names and shapes, and through these under Google's of TF1.

    to_ours({"bert.pooler.dense.weight": ...}, shapes, 30_522, "file")  -> {"encoder/pooler/kernel"}
    to_theirs({"encoder/pooler/kernel": ...}, 30_522)                   -> the names and arrays back

Their matrices are [out, in] and separate for each layer; ours are [in, out], split into heads, and
stacked over layers. Nothing is computed, so both directions are exact.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from bert_jax.errors import CheckpointError

MODULES = (  # ours, Hugging Face's with {} for the layer, kind
    ("encoder/embeddings/norm", "bert.embeddings.LayerNorm", "norm"),
    ("encoder/layers/attention/query", "bert.encoder.layer.{}.attention.self.query", "dense"),
    ("encoder/layers/attention/key", "bert.encoder.layer.{}.attention.self.key", "dense"),
    ("encoder/layers/attention/value", "bert.encoder.layer.{}.attention.self.value", "dense"),
    ("encoder/layers/attention/out", "bert.encoder.layer.{}.attention.output.dense", "dense"),
    ("encoder/layers/attention_norm", "bert.encoder.layer.{}.attention.output.LayerNorm", "norm"),
    ("encoder/layers/mlp/up", "bert.encoder.layer.{}.intermediate.dense", "dense"),
    ("encoder/layers/mlp/down", "bert.encoder.layer.{}.output.dense", "dense"),
    ("encoder/layers/mlp_norm", "bert.encoder.layer.{}.output.LayerNorm", "norm"),
    ("encoder/pooler", "bert.pooler.dense", "dense"),
    ("mlm/dense", "cls.predictions.transform.dense", "dense"),
    ("mlm/norm", "cls.predictions.transform.LayerNorm", "norm"),
    ("causal_lm/dense", "cls.predictions.transform.dense", "dense"),
    ("causal_lm/norm", "cls.predictions.transform.LayerNorm", "norm"),
    ("nsp/logits", "cls.seq_relationship", "dense"),
    ("classify/logits", "classifier", "dense"),
    ("regress/logits", "classifier", "dense"),
    ("tag/logits", "classifier", "dense"),
    ("choice/logits", "classifier", "dense"),
    ("span/logits", "qa_outputs", "dense"),
)
TENSORS = {  # ours -> theirs, of tensors that belong to no module above
    "encoder/embeddings/token": "bert.embeddings.word_embeddings.weight",
    "encoder/embeddings/type": "bert.embeddings.token_type_embeddings.weight",
    "encoder/embeddings/position": "bert.embeddings.position_embeddings.weight",
    "mlm/bias": "cls.predictions.bias",
    "causal_lm/bias": "cls.predictions.bias",
}
LEAVES = {
    "norm": {"scale": "weight", "bias": "bias"},
    "dense": {"kernel": "weight", "bias": "bias"},
}
BUFFERS = ("embeddings.position_ids", "embeddings.token_type_ids")  # constants some versions store
TIED = "cls.predictions.decoder.weight"
BIASES = ("cls.predictions.decoder.bias", "cls.predictions.bias")  # one tensor under two names
SECOND_NAMES = {TIED, BIASES[0]}  # of tensors that have a row under another name
LONGEST = 80  # characters of a name in a message; no name of ours has as many
# Ours have rows of zeros beyond the vocabulary; theirs have none.
PADDED = ("encoder/embeddings/token", "mlm/bias", "causal_lm/bias")


class Row(NamedTuple):
    """One of our tensors: its name there, and whether its matrix is transposed there."""

    theirs: str
    transposed: bool


ROWS = {ours: Row(theirs, False) for ours, theirs in TENSORS.items()} | {
    f"{ours}/{leaf}": Row(f"{theirs}.{other}", leaf == "kernel")
    for ours, theirs, kind in MODULES
    for leaf, other in LEAVES[kind].items()
}


def to_ours(
    tensors: dict[str, np.ndarray], shapes: dict[str, tuple[int, ...]], vocab_size: int, where: str
) -> dict[str, np.ndarray]:
    """Convert their tensors to our flat parameters; every name and every shape must be right.

    Args:
      tensors: float32, by their names, as `plain_names` leaves them.
      shapes: our name -> shape of every parameter to convert.
      vocab_size: rows of their table; ours is padded beyond.
      where: the file, for messages.
    """
    tensors = dict(tensors)
    _check_tied(tensors, where)
    hint = "the file and its config.json must belong together"
    their_names = {name: names(name, shape) for name, shape in shapes.items()}
    missing = sorted(set().union(*their_names.values()) - tensors.keys())
    if missing:
        raise CheckpointError(f"{where} lacks {listing(missing)}", hint)
    params = {}
    for name, shape in shapes.items():
        their_shape = _their_shape(name, shape, vocab_size)
        parts = []
        for theirs in their_names[name]:
            value = tensors[theirs]
            if value.shape != their_shape:
                problem = (
                    f"{theirs} is {list(value.shape)} and config.json says {list(their_shape)}"
                )
                raise CheckpointError(f"{where}: {problem}", hint)
            parts.append(value.T if ROWS[name].transposed else value)
        whole = np.stack(parts) if "/layers/" in name else parts[0]
        if name in PADDED:
            padding = np.zeros((shape[0] - vocab_size, *shape[1:]), np.float32)
            whole = np.concatenate([whole, padding])
        params[name] = np.ascontiguousarray(whole).reshape(shape)
    return params


def to_theirs(params: dict[str, np.ndarray], vocab_size: int) -> dict[str, np.ndarray]:
    """Convert our flat parameters to their tensors; the tied output matrix is left out."""
    tensors = {}
    for name, array in params.items():
        value = np.asarray(array)
        value = value[:vocab_size] if name in PADDED else value
        shape = _their_shape(name, value.shape, vocab_size)
        parts = value if "/layers/" in name else [value]
        for theirs, part in zip(names(name, value.shape), parts, strict=True):
            matrix = part.reshape(shape[::-1]).T if ROWS[name].transposed else part
            tensors[theirs] = np.ascontiguousarray(matrix.reshape(shape))
    return tensors


def names(ours: str, shape: tuple[int, ...]) -> list[str]:
    """Return their names of one of our tensors, which may be stacked over layers."""
    theirs = ROWS[ours].theirs
    return [theirs.format(layer) for layer in range(shape[0])] if "{}" in theirs else [theirs]


def plain_names(tensors: Iterable[str]) -> dict[str, str]:
    """Map names in a file to Hugging Face's names of today.

    These have `bert.` in front, and weight and bias for gamma and beta.
    """
    stored = list(tensors)
    ending = "embeddings.word_embeddings.weight"
    prefix = next((n.removesuffix(ending) for n in stored if n.endswith(ending)), "bert.")
    heads = ("cls.", "classifier.", "qa_outputs.")
    plain_of = {}
    for name in stored:
        plain = re.sub(r"gamma$", "weight", re.sub(r"beta$", "bias", name))
        plain = plain if plain.startswith(heads) else "bert." + plain.removeprefix(prefix)
        if not plain.endswith(BUFFERS):
            plain_of[name] = plain
    return plain_of


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


def _check_tied(tensors: dict[str, np.ndarray], where: str) -> None:
    """Drop second copies of the output matrix and its bias; refuse a copy that differs.

    An output matrix that is not the word embeddings would not be BERT's.
    """
    table = tensors.get(TENSORS["encoder/embeddings/token"])
    decoder = tensors.pop(TIED, None)
    if decoder is not None and (table is None or not np.array_equal(decoder, table)):
        raise CheckpointError(
            f"{where}: {TIED} is not the word embeddings",
            "BERT's output is tied to its table; nothing here unties it",
        )
    biases = [tensors.pop(name) for name in BIASES if name in tensors]
    if len(biases) == 2 and not np.array_equal(biases[0], biases[1]):
        raise CheckpointError(
            f"{where}: {' and '.join(BIASES)} differ", "they are one tensor in BERT"
        )
    if biases:
        tensors[BIASES[1]] = biases[0]


def _their_shape(name: str, shape: tuple[int, ...], vocab_size: int) -> tuple[int, ...]:
    """Return the shape of each of their tensors for one of ours."""
    if name in PADDED:
        return (vocab_size, *shape[1:])
    layer = shape[1:] if "/layers/" in name else shape
    if ROWS[name].transposed:
        contracted = 2 if name.endswith("attention/out/kernel") else 1
        return int(np.prod(layer[contracted:])), int(np.prod(layer[:contracted]))
    return (int(np.prod(layer)),) if name.endswith("bias") else layer
