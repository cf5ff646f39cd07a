"""Score an arbitrary set of tokens that are masked at the same time.

A text longer than the model is read in windows, each half over the next. Each masked token is
predicted in the window with most context around it.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.batch import Batch
from bert_jax.data import encoding
from bert_jax.data.windows import choose_windows, cut_windows
from bert_jax.evaluation import inference
from bert_jax.interop import runs
from bert_jax.suites.forward import Forward
from bert_jax.suites.token_scores import take_log_probabilities

LOGITS = 1 << 26  # of a batch: a quarter of a gigabyte


class Row(NamedTuple):
    """A text, and which of its tokens are [MASK]."""

    ids: np.ndarray  # int32 [n], without [CLS] and [SEP]
    hidden: np.ndarray  # bool [n]


class View(NamedTuple):
    """A part of a row that fits into the model, and the hidden tokens that it predicts."""

    row: int
    start: int  # in the text
    end: int
    asked: np.ndarray  # int64 [m], places in the text


def score_hidden(
    run: runs.TrainedModel, rows: Sequence[Row], batch_size: int, progress: inference.Progress
) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Yield the number of each row, and for each hidden token its nats and if it is guessed first.

    [MASK] itself is no answer: it has no probability.
    """
    special, room = run.tokenizer.special, run.longest - 2
    views = [view for number, row in enumerate(rows) for view in _views(number, row, room)]

    def score_guesses(logits: Any, batch: Batch) -> tuple[jax.Array, jax.Array]:
        answers = jax.lax.broadcasted_iota(jnp.int32, logits.shape, 2)  # [B, K, V]
        logits = jnp.where(answers == special.mask, -1e9, logits)
        targets = batch["predict_targets"]  # [B, K]
        return -take_log_probabilities(logits, targets), jnp.argmax(logits, axis=-1) == targets

    def make(chosen: np.ndarray, length: int, size: int) -> Batch:
        texts = []
        places, targets = (np.zeros((size, length - 2), np.int32) for _ in range(2))
        for number, view in enumerate(views[index] for index in chosen):
            ids, is_hidden = rows[view.row]
            shown = np.where(is_hidden, special.mask, ids)[view.start : view.end]
            texts.append([shown.tolist()])
            places[number, : len(view.asked)] = view.asked - view.start + 1  # after [CLS]
            targets[number, : len(view.asked)] = ids[view.asked]
        batch = encoding.pad_rows(special, texts, length, size=size)
        return batch | {"predict_positions": places, "predict_targets": targets}

    forward = Forward.of_head(run, "mlm", score_guesses)
    lengths = np.array([view.end - view.start + 2 for view in views], np.int64)
    most = max(1, min(inference.TOKENS, LOGITS // run.tokenizer.size))
    left = collections.Counter(view.row for view in views)
    found: dict[int, tuple[np.ndarray, np.ndarray]] = {}  # of rows of which some views are done
    for chosen, outputs in forward(lengths, make, batch_size, progress, most):
        for view, *values in zip((views[index] for index in chosen), *outputs, strict=True):
            is_hidden = rows[view.row].hidden
            if view.row not in found:
                found[view.row] = np.zeros(len(is_hidden)), np.zeros(len(is_hidden), bool)
            for whole, part in zip(found[view.row], values, strict=True):
                whole[view.asked] = part[: len(view.asked)]
            left[view.row] -= 1
            if not left[view.row]:
                nats, right = found.pop(view.row)
                yield view.row, nats[is_hidden], right[is_hidden]


def _views(number: int, row: Row, room: int) -> Iterator[View]:
    """Yield the row, or if it has more than `room` tokens its windows that predict any."""
    count = len(row.ids)
    if count <= room:
        yield View(number, 0, count, np.flatnonzero(row.hidden))
        return
    spans = cut_windows(count, room, max(1, room // 2), "step")
    best = choose_windows(spans, count)
    for window, (start, end) in enumerate(spans.tolist()):
        asked = np.flatnonzero(row.hidden & (best == window))
        if len(asked):
            yield View(number, start, end, asked)
