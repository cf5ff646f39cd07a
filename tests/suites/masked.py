"""A small masked model, and its log-probabilities by a copy made by hand for each token."""

from __future__ import annotations

import functools
from pathlib import Path

import jax
import numpy as np

from bert_jax.data import tokenizer as tokenizers
from bert_jax.data.windows import choose_windows, cut_windows
from bert_jax.interop import runs
from bert_jax.objectives import network
from tests import toy

PIECES = [
    *"abcdefghij",
    *(f"##{c}" for c in "abcdefghij"),
    "the",
    "cat",
    "cats",
    "sees",
    "see",
    ".",
]
LONGEST = 16
TEXTS = ["the cat sees", "cat", "abc de . the fghij", "the cats see .", "the cat sees"]


def write_vocabulary(folder: Path) -> Path:
    file = folder / "vocab.txt"
    file.write_text(
        "".join(f"{piece}\n" for piece in ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *PIECES])
    )
    return file


def make_model(vocabulary: Path) -> runs.TrainedModel:
    """A model of random weights, as somebody else's."""
    tokenizer = tokenizers.load(vocabulary)
    config = toy.config(
        model__init_stddev=0.3,
        model__layers=1,
        model__max_positions=LONGEST,
        sequence_length=LONGEST,
    )
    params = toy.init(config, vocab=tokenizer.size)
    bias = np.random.default_rng(1).normal(size=params["mlm"]["bias"].shape).astype(np.float32)
    params = params | {"mlm": params["mlm"] | {"bias": bias}}
    return runs.TrainedModel(
        Path("model"), config, tokenizer, vocabulary, params, 0, {"foreign": "model"}
    )


def plainly(run: runs.TrainedModel, ids: list[int], within_word: bool = False) -> list[float]:
    """The log-probability of each token, a copy made by hand for each."""
    special, copies = run.tokenizer.special, []
    spans = cut_windows(len(ids), LONGEST - 2, LONGEST // 2 - 1, "step")
    for at, window in enumerate(choose_windows(spans, len(ids)).tolist()):
        start, end = spans[window].tolist()
        row = [special.cls, *ids[start:end], special.sep]
        place = at - start + 1
        row[place] = special.mask
        after = place + 1
        while (
            within_word
            and after < len(row) - 1
            and run.tokenizer.vocab[row[after]].startswith("##")
        ):
            row[after] = special.mask
            after += 1
        copies.append((row, place))
    blank = np.zeros((32, LONGEST), np.int32)  # copies beyond are padding
    batch = {name: blank.copy() for name in ("tokens", "type_ids", "positions", "segment_ids")}
    batch |= {"cls_positions": blank[:, :1], "predict_positions": blank[:, :1].copy()}
    for number, (row, place) in enumerate(copies):
        batch["tokens"][number, : len(row)] = row
        batch["positions"][number, : len(row)] = range(len(row))
        batch["segment_ids"][number, : len(row)] = 1
        batch["predict_positions"][number] = place
    logits = np.asarray(
        _logits(network.build(run.config, run.tokenizer.size), run.params, batch), np.float64
    )[:, 0]
    chosen = logits[np.arange(len(ids)), ids]
    return (chosen - np.log(np.exp(logits[: len(ids)]).sum(-1))).tolist()


@functools.partial(jax.jit, static_argnums=0)
def _logits(net: network.Network, params: dict, batch: dict) -> jax.Array:
    return network.outputs(net, params, batch)["mlm"]
