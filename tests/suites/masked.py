"""Small masked models, and the probabilities of their tokens by copies made by hand."""

import functools
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bert_jax.data import engines, windows
from bert_jax.data.tokenizer import Tokenizer
from bert_jax.interop import runs
from bert_jax.objectives import network
from tests import reference, tiny

LETTERS = (*"abcdefghij", *(f"##{c}" for c in "abcdefghij"))
PIECES = (*LETTERS, "the", "cat", "cats", "sees", "see", ".")
LONGEST = 16
TEXTS = ["the cat sees", "cat", "abc de . the fghij", "the cats see .", "the cat sees"]


@functools.cache
def make_model(
    pieces: tuple[str, ...] = PIECES, longest: int = LONGEST, **changes: object
) -> runs.TrainedModel:
    """A model of random weights, as somebody else's."""
    tokenizer = Tokenizer(engines.build_wordpiece([*engines.SPECIALS, *pieces]))
    shape = {"model__init_stddev": 0.3, "model__layers": 1, "model__max_positions": longest}
    config = tiny.config(**(shape | {"sequence_length": longest} | changes))
    params = tiny.init(config, vocab=tokenizer.size)
    if "mlm" in params:
        bias = np.random.default_rng(1).normal(size=params["mlm"]["bias"].shape)
        params = params | {"mlm": params["mlm"] | {"bias": bias.astype(np.float32)}}
    meta = {"foreign": "model"}
    return runs.TrainedModel(Path("model"), config, tokenizer, Path("vocab.txt"), params, 0, meta)


def read_logits(
    run: runs.TrainedModel, rows: Sequence[Sequence[int]], longest: int, head: str = "mlm"
) -> np.ndarray:
    """The logits at every place of rows with [CLS] and [SEP], float64 [N, longest, V]."""
    blank = np.zeros((len(rows), longest), np.int32)
    batch = {name: blank.copy() for name in ("tokens", "type_ids", "positions", "segment_ids")}
    batch["cls_positions"] = blank[:, :1]
    batch["predict_positions"] = np.tile(np.arange(longest, dtype=np.int32), (len(rows), 1))
    for number, row in enumerate(rows):
        batch["tokens"][number, : len(row)] = row
        batch["positions"][number, : len(row)] = range(len(row))
        batch["segment_ids"][number, : len(row)] = 1
    net = network.build_network(run.config, run.tokenizer.size, only=head)
    params = {name: run.params[name] for name in ("encoder", head)}
    logits = tiny.run_network(net, params, batch)[head]
    return np.asarray(logits, np.float64)[..., : run.tokenizer.size]


def plainly(run: runs.TrainedModel, ids: list[int], within_word: bool = False) -> list[float]:
    """The log-probability of each token, a copy made by hand for each."""
    special, rows, places = run.tokenizer.special, [], []
    spans = windows.cut_windows(len(ids), LONGEST - 2, LONGEST // 2 - 1, "step")
    for at, window in enumerate(windows.choose_windows(spans, len(ids)).tolist()):
        start, end = spans[window].tolist()
        row = [special.cls, *ids[start:end], special.sep]
        place = after = at - start + 1
        row[place] = special.mask
        after += 1
        while within_word and run.tokenizer.vocab[row[after]].startswith("##"):
            row[after] = special.mask
            after += 1
        rows.append(row)
        places.append(place)
    padding = [[special.cls, special.sep]] * (32 - len(rows))  # so that one shape is compiled
    logits = read_logits(run, rows + padding, LONGEST)[np.arange(len(ids)), places]
    return reference.log_softmax(logits)[np.arange(len(ids)), ids].tolist()
