"""Our parameters under the names and shapes of others: Hugging Face's, and through them those of google's TF1 files.

    to_ours({"bert.embeddings.word_embeddings.weight": ...}, cfg, 30_522, ("mlm",))   -> {"encoder": ..., "mlm": ...}
    to_theirs({"encoder": ..., "mlm": ...}, 30_522)                                   -> the same names and arrays back

Their matrices are [out, in] and apart for each layer; ours are [in, out], split into heads, and stacked over layers.
Nothing is computed, so both directions are exact.
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
TENSORS = {  # ours -> theirs, of what is no module
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
SECOND_NAMES = {TIED, BIASES[0]}  # of tensors that have their own row
LONGEST = 80  # characters of a name in a message; no name of ours has as many
PADDED = (
    "encoder/embeddings/token",
    "mlm/bias",
    "causal_lm/bias",
)  # rows beyond the vocabulary are zero here and absent there


class Row(NamedTuple):
    """One of our tensors: its name there, and whether it is a matrix that lies the other way round."""

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
    """Their tensors as our flat parameters; every name must be there and every shape the one expected.

    Args:
      tensors: float32, by their names, as `plain_names` leaves them.
      shapes: our name -> shape of every parameter wanted.
      vocab_size: rows of their table; ours is padded beyond.
      where: the file, for messages.
    """
    tensors = dict(tensors)
    _check_tied(tensors, where)
    wanted = {name: names(name, shape) for name, shape in shapes.items()}
    missing = sorted(one for several in wanted.values() for one in several if one not in tensors)
    if missing:
        raise CheckpointError(
            f"{where} lacks {listing(missing)}", "the file and its config.json must belong together"
        )
    found = {}
    for name, shape in shapes.items():
        there = _shape_there(name, shape, vocab_size)
        parts = []
        for one in wanted[name]:
            value = tensors[one]
            if value.shape != there:
                said = f"{one} is {list(value.shape)} and config.json says {list(there)}"
                raise CheckpointError(
                    f"{where}: {said}", "the file and its config.json must belong together"
                )
            parts.append(value.T if ROWS[name].transposed else value)
        whole = np.stack(parts) if "/layers/" in name else parts[0]
        if name in PADDED:
            whole = np.concatenate(
                [whole, np.zeros((shape[0] - vocab_size, *shape[1:]), np.float32)]
            )
        found[name] = np.ascontiguousarray(whole).reshape(shape)
    return found


def to_theirs(params: dict[str, np.ndarray], vocab_size: int) -> dict[str, np.ndarray]:
    """Our flat parameters under their names, for the heads there are; the tied output matrix is left out."""
    found = {}
    for name, value in params.items():
        value = np.asarray(value)
        value = value[:vocab_size] if name in PADDED else value
        row = ROWS[name]
        for one, part in zip(
            names(name, value.shape), value if "/layers/" in name else [value], strict=True
        ):
            matrix = (
                part.reshape(_shape_there(name, value.shape, vocab_size)[::-1]).T
                if row.transposed
                else part
            )
            found[one] = np.ascontiguousarray(
                matrix.reshape(_shape_there(name, value.shape, vocab_size))
            )
    return found


def names(ours: str, shape: tuple[int, ...]) -> list[str]:
    """Their names of one of our tensors, which may be stacked over layers."""
    theirs = ROWS[ours].theirs
    return [theirs.format(layer) for layer in range(shape[0])] if "{}" in theirs else [theirs]


def plain_names(tensors: Iterable[str]) -> dict[str, str]:
    """Name in a file -> Hugging Face's name of today: `bert.` in front, weight and bias for gamma and beta."""
    there = list(tensors)
    ending = "embeddings.word_embeddings.weight"
    prefix = next((n.removesuffix(ending) for n in there if n.endswith(ending)), "bert.")
    found = {}
    for name in there:
        plain = re.sub(r"gamma$", "weight", re.sub(r"beta$", "bias", name))
        heads = ("cls.", "classifier.", "qa_outputs.")
        plain = plain if plain.startswith(heads) else "bert." + plain.removeprefix(prefix)
        if not plain.endswith(BUFFERS):
            found[name] = plain
    return found


def from_tf1(name: str) -> str | None:
    """Hugging Face's name of a variable of google's code; None for the optimizer's and counters."""
    if re.search(r"(^|/)(adam_[mv]|Adam(_1)?)$", name) or not re.match(
        r"(bert|cls)/|output_(weights|bias)$", name
    ):
        return None
    name = re.sub(r"^cls/squad/output_", "qa_outputs/output_", name)
    name = re.sub(r"^output_", "classifier/output_", name)
    name = re.sub(r"layer_(\d+)", r"layer/\1", name)
    name = re.sub(r"output_weights$|kernel$|gamma$", "weight", name)
    name = re.sub(r"output_bias$|beta$", "bias", name)
    name = re.sub(r"(_embeddings)$", r"\1/weight", name)
    return name.replace("/", ".")


def tf1_layout(name: str, value: np.ndarray) -> np.ndarray:
    """A variable of google's code as Hugging Face stores it: dense kernels are [in, out] there."""
    return value.T if name.endswith("kernel") else value


def heads_in(tensors: Iterable[str]) -> set[str]:
    """Which of our heads a file's tensors may be: `classifier` is one of several, as is `cls.predictions`."""
    there = set(tensors)
    return {ours.partition("/")[0] for ours, row in ROWS.items() if row.theirs in there} - {
        "encoder"
    }


def listing(found: list[str], most: int = 6) -> str:
    """Return a few names, long ones cut, and how many more there are."""
    shown = ", ".join(
        name if len(name) <= LONGEST else f"{name[: LONGEST - 3]}..." for name in found[:most]
    )
    return f"{shown} and {len(found) - most} more" if len(found) > most else shown


def _check_tied(tensors: dict[str, np.ndarray], where: str) -> None:
    """The output matrix and its bias may be stored a second time; another matrix would not be BERT's."""
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


def _shape_there(name: str, shape: tuple[int, ...], vocab_size: int) -> tuple[int, ...]:
    """The shape of one of their tensors, of ours with this name and shape."""
    if name in PADDED:
        return (vocab_size, *shape[1:])
    one = shape[1:] if "/layers/" in name else shape
    if ROWS[name].transposed:
        contracted = 2 if name.endswith("attention/out/kernel") else 1
        return int(np.prod(one[contracted:])), int(np.prod(one[:contracted]))
    return (int(np.prod(one)),) if name.endswith("bias") else one
