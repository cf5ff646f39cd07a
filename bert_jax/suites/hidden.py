"""Predictions of tokens that are masked together, whichever they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.batch import Batch
from bert_jax.data import encoding
from bert_jax.evaluation import inference
from bert_jax.interop import runs
from bert_jax.objectives import network
from bert_jax.suites.rows import log_probabilities, run_rows

LOGITS = 1 << 26  # of a batch: a quarter of a gigabyte


class Row(NamedTuple):
    """A text, and which of its tokens are [MASK]."""

    ids: np.ndarray  # int32 [n], without [CLS] and [SEP]
    hidden: np.ndarray  # bool [n]


def predict(
    run: runs.TrainedModel, rows: Sequence[Row], batch_size: int, progress: inference.Progress
) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Yield the number of each row, and for each hidden token its nats and if it is guessed first.

    [MASK] itself is no answer: it has no probability.
    """
    special, vocab_size = run.tokenizer.special, run.tokenizer.size
    model = network.build(run.config, vocab_size, only="mlm")

    def step(params: Any, batch: Batch) -> tuple[jax.Array, jax.Array]:
        logits = network.outputs(model, params, batch)["mlm"]  # [B, K, V]
        answers = jax.lax.broadcasted_iota(jnp.int32, logits.shape, 2)
        logits = jnp.where(answers == special.mask, -1e9, logits)
        targets = batch["predict_targets"]  # [B, K]
        return -log_probabilities(logits, targets), jnp.argmax(logits, axis=-1) == targets

    def make(chosen: np.ndarray, length: int, size: int) -> Batch:
        found = [rows[number] for number in chosen.tolist()]
        texts = [[np.where(row.hidden, special.mask, row.ids).tolist()] for row in found]
        batch = encoding.rows(special, texts, length, size=size)
        places, targets = (np.zeros((size, length - 2), np.int32) for _ in range(2))
        for number, row in enumerate(found):
            at = np.flatnonzero(row.hidden)
            places[number, : len(at)], targets[number, : len(at)] = at + 1, row.ids[at]
        return batch | {"predict_positions": places, "predict_targets": targets}

    params = {part: run.params[part] for part in network.parts(run.config, "mlm")}
    lengths = np.array([len(row.ids) + 2 for row in rows], np.int64)
    most = max(1, min(inference.TOKENS, LOGITS // vocab_size))
    for chosen, outputs in run_rows(step, params, lengths, make, batch_size, progress, most):
        for number, nats, right in zip(chosen.tolist(), *outputs, strict=True):
            count = int(rows[number].hidden.sum())
            yield number, nats[:count].astype(np.float64), right[:count]
