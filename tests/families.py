"""Small random models of other families, made by a recipe: the tests write them as folders, and
`golden/families` has what transformers makes of them (experiments/parity/make_families.py).
"""

import functools
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.interop.families import TABLE
from tests import variants
from tests.variants import Tensors, save

GOLDEN = Path(__file__).parent / "golden" / "families"
SHARED = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2}
HEADS = {  # name -> our head
    "model": "",
    "masked_lm": "mlm",
    "causal_lm": "causal_lm",
    "sequence_classification": "classify",
    "regression": "regress",
    "token_classification": "tag",
    "question_answering": "span",
    "multiple_choice": "choice",
    "pretraining": "replaced",
}
FAMILIES = [file.stem for file in sorted(GOLDEN.glob("*.json"))]
CASES = [(f, head) for f in FAMILIES for head in json.loads((GOLDEN / f"{f}.json").read_text())]
UNTIED = ("modernbert", "distilbert", "electra", "roberta")
LENGTHS = (12, 9, 4)  # of the examples of a batch, padded to the first
CLS, SEP = 0, 2
PADDING = {"modernbert": 19}  # and 1 for the others


def tensor(case: str, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return a weight: no bias is 0 and no norm is 1, or a swap of two would go unseen."""
    random = np.random.default_rng(zlib.crc32(f"{case} {name}".encode()))
    offset = 1.0 if name.endswith("weight") and len(shape) == 1 else 0.0
    return (offset + 0.4 * random.standard_normal(shape)).astype(np.float32)


def batch(family: str, head: str) -> dict[str, np.ndarray]:
    """Return input_ids and attention_mask [B, L], or with choices [B, C, L], and types if any."""
    random, padding = np.random.default_rng(len(head)), PADDING.get(family, 1)
    choices = 2 if head == "multiple_choice" else 0
    ids = np.full((len(LENGTHS) * max(1, choices), LENGTHS[0]), padding)
    for row, length in zip(ids, LENGTHS * max(1, choices), strict=True):
        row[:length] = random.integers(3, 19, length)
        row[[0, length // 2, length - 1]] = CLS, SEP, SEP
    if choices:
        ids = ids.reshape(-1, choices, LENGTHS[0])
    found = {"input_ids": ids, "attention_mask": (ids != padding).astype(np.int64)}
    if family == "electra":
        found["token_type_ids"] = found["attention_mask"] * (np.arange(LENGTHS[0]) > 5)
    return found


def cotangent(name: str, shape: tuple[int, ...], mask: np.ndarray) -> np.ndarray:
    """Return the factors of an output in the sum whose gradients are compared; 0 at padding."""
    random = np.random.default_rng(zlib.crc32(name.encode()))
    factors = random.standard_normal(shape)
    if shape[: mask.ndim] == mask.shape:
        factors *= mask.reshape(*mask.shape, *[1] * (len(shape) - mask.ndim))
    return factors.astype(np.float32)


@functools.cache
def golden(family: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return config.json by head, and all arrays by HEAD/NAME."""
    configs = json.loads((GOLDEN / f"{family}.json").read_text())
    return configs, dict(np.load(GOLDEN / f"{family}.npz"))


def outputs(family: str, head: str) -> dict[str, np.ndarray]:
    """Return the arrays of one model: outputs by transformers' names, gradients/NAME."""
    found = golden(family)[1]
    return {k.removeprefix(f"{head}/"): v for k, v in found.items() if k.startswith(f"{head}/")}


def tensors(family: str, head: str) -> Tensors:
    """Return the weights of one model, each of which has a gradient."""
    names = {k: v.shape for k, v in outputs(family, head).items() if k.startswith("gradient/")}
    case = f"{family} {head}"
    return {
        k.removeprefix("gradient/"): tensor(case, k.removeprefix("gradient/"), shape)
        for k, shape in names.items()
    }


def folder(path: Path, family: str, head: str, **changes: Any) -> Path:
    """Write one model as save_pretrained does, with other lines in its config.json."""
    save(path, tensors(family, head))
    stated = golden(family)[0][head] | changes
    (path / "config.json").write_text(json.dumps(stated))
    return path


def untied_folder(path: Path, family: str) -> tuple[Path, np.ndarray]:
    """Write a masked language model whose output is no table of tokens; return that matrix too.

    transformers 5 stores a bias besides that is not read.
    """
    names, second = TABLE[family].names, TABLE[family].second_bias
    given = variants.golden("masked_lm") if family == "bert" else tensors(family, "masked_lm")
    table = given[f"{names['encoder/embeddings/token']}.weight"]
    matrix = tensor("untied", "output", table.shape)
    given = given | {TABLE[family].tied: matrix}
    if second:
        bias = f"{names['mlm']}.bias"
        given |= {second: given[bias], bias: np.zeros(len(table), np.float32)}
    if family == "bert":
        return variants.folder(path, "masked_lm", given, tie_word_embeddings=False), matrix
    folder(path, family, "masked_lm", tie_word_embeddings=False)
    save(path, given)
    return vocabulary(path, family), matrix


def vocabulary(path: Path, family: str) -> Path:
    """Write a vocab.txt of 20 pieces beside a model, with the special tokens at their ids."""
    special = {CLS: "[CLS]", SEP: "[SEP]", PADDING.get(family, 1): "[PAD]", 3: "[UNK]", 4: "[MASK]"}
    pieces = [special.get(i, f"w{i}") for i in range(20)]
    (path / "vocab.txt").write_text("".join(f"{piece}\n" for piece in pieces))
    return path


# --- knobs that make a model one of a family ------------------------------------------------------

MLM = {"pairs": "none", "checkpoints__best": ""}
MODERN = {
    "model__position": "rotary",
    "model__norm": "pre",
    "model__first_norm": "false",
    "model__biases": "false",
    "model__gated": "true",
    "model__type_vocab": 0,
    "model__window": 3,
    "model__global_every": 2,
    "model__rotary_base_near": 50,
}
NEO = {
    "model__position": "rotary",
    "model__norm": "pre",
    "model__norm_kind": "rms",
    "model__embedding_norm": "false",
    "model__biases": "false",
    "model__gated": "true",
    "model__activation": "silu",
    "model__type_vocab": 0,
    "model__word_head": "matrix",
    "model__pooler_bias": "true",
}
EXPRESSED = {
    "bert": MLM,
    "roberta": MLM | {"model__first_position": 1, "model__type_vocab": 1},
    "roberta-prelayernorm": MLM | {"model__first_position": 1, "model__norm": "pre"},
    "distilbert": MLM | {"model__type_vocab": 0},
    "modernbert": MLM | MODERN,
    "electra": MLM | {"model__embedding": 24},
    "neobert": MLM | NEO,
}
