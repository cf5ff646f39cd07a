"""A small random model of preset gpt_bert, made by a recipe: `experiments/parity/gpt_bert.py` gives
it to the authors' code, and `golden/gpt_bert.npz` has what that makes of it.
"""

import itertools
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax import config as configs
from bert_jax.config import knobs
from tests import families
from tests.config.settings import set_and_resolve
from tests.variants import Tensors

GOLDEN = Path(__file__).parent / "golden" / "gpt_bert.npz"
LAYERS, WIDTH, HEADS, MLP, VOCAB, LENGTH, BUCKETS = 3, 8, 2, 12, 20, 14, 8
MASKED = 2  # rows of the batch; the others are causal
SHARE = 0.25  # of the loss, that is causal


def config(**changes: object) -> knobs.Config:
    """Return the preset at the size of the golden model; keys use __ for the dots of a path."""
    sizes = {"layers": LAYERS, "hidden": WIDTH, "heads": HEADS, "mlp": MLP, "dropout": 0.0}
    sizes |= {"max_positions": LENGTH, "position_buckets": BUCKETS, "attention_dropout": 0.0}
    wanted = {f"model__{name}": value for name, value in sizes.items()}
    wanted |= {"sequence_length": LENGTH, "tokenizer__vocab_size": VOCAB, "batch_size": 4}
    return set_and_resolve(configs.default("gpt_bert"), wanted | changes)


def batch() -> dict[str, np.ndarray]:
    """Return rows of one long example, of two and padding; and causal ones of two and of one."""
    random = np.random.default_rng(8)
    rows = ((14,), (7, 5), (4, 8), (6,))  # tokens of their examples
    shape = len(rows), LENGTH
    b = {name: np.zeros(shape, np.int32) for name in ("positions", "segment_ids", "type_ids")}
    b["tokens"] = random.integers(3, VOCAB, shape).astype(np.int32)
    b["causal"] = np.zeros(shape, bool)
    for row, lengths in enumerate(rows):
        ends = np.cumsum((0, *lengths))
        for example, (start, end) in enumerate(itertools.pairwise(ends)):
            b["positions"][row, start:end] = np.arange(end - start)
            b["segment_ids"][row, start:end] = example + 1
            b["causal"][row, start:end] = row >= MASKED
    b["tokens"][b["segment_ids"] == 0] = 0
    b["predict_positions"] = np.zeros((len(rows), 4), np.int32)
    b["predict_weights"] = np.zeros((len(rows), 4), np.float32)
    b["predict_positions"][:MASKED] = (2, 3, 8, 11), (1, 5, 9, 10)
    b["predict_weights"][:MASKED] = 1
    b["inputs"] = b["tokens"].copy()
    for row in range(MASKED):
        b["inputs"][row, b["predict_positions"][row]] = 2  # [MASK]
    return b


def tensor(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return a weight by its name in their code."""
    return families.tensor("gpt_bert", name, shape)


def to_ours(theirs: Tensors) -> dict[str, Any]:
    """Return tensors of their names, weights or gradients, under ours and in our layout.

    They have queries and keys in one matrix, values and gates in another; of the two halves of the
    first one of the feed-forward the second is activated.
    """

    heads = HEADS, WIDTH // HEADS

    def dense(name: str, *ours: str, biases: bool = True) -> dict[str, dict[str, np.ndarray]]:
        """Return the dense layers that lie beside one another in one of theirs."""
        weight = theirs[f"transformer.{name}.weight"]
        found = {n: {"kernel": w.T} for n, w in zip(ours, np.split(weight, len(ours)), strict=True)}
        if biases:
            parts = np.split(theirs[f"transformer.{name}.bias"], len(ours))
            for one, bias in zip(ours, parts, strict=True):
                found[one]["bias"] = bias
        return found

    def layer(i: int) -> dict[str, Any]:
        attention = dense(f"attention_layers.{i}.in_proj_qk", "query", "key")
        attention |= dense(f"attention_layers.{i}.in_proj_vg", "value", "gate")
        for one in attention.values():
            one["kernel"] = one["kernel"].reshape(WIDTH, *heads)
            one["bias"] = one["bias"].reshape(heads)
        attention |= dense(f"attention_layers.{i}.out_proj", "out")
        attention["out"]["kernel"] = attention["out"]["kernel"].reshape(*heads, WIDTH)
        mlp = dense(f"mlp_layers.{i}.mlp.1", "gate", "up", biases=False)
        return {
            "attention": attention,
            "mlp": mlp | dense(f"mlp_layers.{i}.mlp.4", "down", biases=False),
        }

    sums = [theirs[f"transformer.dwa_modules.alphas.{i}"] for i in range(2 * LAYERS)]
    norm = {"scale": "weight", "bias": "bias"}
    relative = {k: theirs[f"embedding.relative_layer_norm.{v}"] for k, v in norm.items()}
    head = "classifier.nonlinearity"
    return {
        "encoder": {
            "embeddings": {"token": theirs["embedding.word_embedding.weight"]},
            "relative_positions": {
                "table": theirs["embedding.relative_embedding"],
                "norm": relative,
            },
            "layer_weights": {"weights": np.concatenate(sums)},
            **{f"layer_{i}": layer(i) for i in range(LAYERS)},
        },
        "mlm": {
            "dense": {"kernel": theirs[f"{head}.1.weight"].T, "bias": theirs[f"{head}.1.bias"]},
            "bias": theirs[f"{head}.5.bias"],
        },
    }
