"""The rows of a suite through a model, and the scores of tokens that are masked one at a time."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from bert_jax import sharding
from bert_jax.batch import Batch
from bert_jax.data.windows import best_windows, windows
from bert_jax.errors import ConfigError
from bert_jax.evaluation import inference
from bert_jax.interop import runs
from bert_jax.objectives import network
from bert_jax.suites.base import SuiteOptions, need_head, on_devices

Make = Callable[[np.ndarray, int, int], Batch]  # numbers of rows, padded length, padded count


def run_rows(
    step: Callable[[Any, Batch], Any],
    params: Any,
    lengths: np.ndarray,
    make: Make,
    mesh: Mesh,
    *,
    batch_size: int = 0,
    progress: inference.Progress = inference.silent,
) -> Iterator[tuple[np.ndarray, Any]]:
    """Compute every row once; yield the numbers of a batch's rows, and the step's outputs for them.

    Args:
      step: compiled here; takes parameters and a batch, and returns arrays [B, ...].
      params: on the devices of `mesh`.
      lengths: tokens of each row.
      make: assembles a batch; rows beyond those it is given are padding.
      mesh: its devices share the rows of a batch.
      batch_size: rows of a batch; 0 is as many as hold `inference.TOKENS`.
      progress: called with the tokens that are done, padding included, and with all of them.
    """
    compiled = jax.jit(step, out_shardings=sharding.replicated(mesh))

    def compute(planned: inference.Planned) -> Any:
        return compiled(params, inference.place(make(*planned), mesh))

    plan = inference.by_shape(lengths, mesh, batch_size)
    return inference.run(compute, plan, progress, cost=lambda batch: batch.length * len(batch.rows))


class Scorer:
    """Log-probabilities of tokens, each masked alone in its context (Salazar et al., 2020).

    With `within_word` the later pieces of the word are masked too, since they give a piece away
    (Kauf and Ivanova, 2023: PLL-word-l2r). A text longer than the model is read in windows, and
    each token is scored in the window with most context around it.
    """

    def __init__(self, run: runs.TrainedModel, ask: SuiteOptions, suite: str):
        need_head(run, "mlm", suite)
        if ask.within_word and not run.tokenizer.has_words:
            raise ConfigError(
                f"the vocabulary of {run.folder} has no words", "leave --within-word out"
            )
        self.special, self.continuation = run.tokenizer.special, run.tokenizer.continuation
        self.room, self.ask = run.longest - 2, ask
        one_head = network.Network(run.config.model, run.tokenizer.size, (("mlm", 0),))
        self.params, self.mesh = on_devices({part: run.params[part] for part in ("encoder", "mlm")})

        def step(params: Any, batch: Batch) -> jax.Array:
            logits = network.outputs(one_head, params, batch)["mlm"][:, 0]  # [B, V padded]
            chosen = jnp.take_along_axis(logits, batch["predict_targets"], axis=-1)[:, 0]
            return chosen - jax.nn.logsumexp(logits, axis=-1)  # [B]

        self.step = step

    def __call__(
        self, texts: Sequence[Sequence[int]], progress: inference.Progress = inference.silent
    ) -> list[np.ndarray]:
        """Score the tokens of each text: a float64 array of log-probabilities for each.

        Equal texts are scored once, so their scores are exactly equal.
        """
        numbers: dict[tuple[int, ...], int] = {}
        number_of = [numbers.setdefault(tuple(ids), len(numbers)) for ids in texts]
        ends = np.cumsum([len(ids) for ids in numbers])
        if not len(ends) or not ends[-1]:
            return [np.zeros(0) for _ in texts]
        self.tokens = np.concatenate([np.array(ids, np.int32) for ids in numbers])  # [T]
        self.starts, self.stops = self._spans(ends)
        at = np.arange(len(self.tokens))
        self.hidden = at[:, None] + 1  # [T, 1], behind the last token that is masked with each
        if self.ask.within_word:
            word_starts = np.flatnonzero(~self.continuation[self.tokens])
            bounds = np.sort(np.concatenate([word_starts, ends]))  # of words and texts
            self.hidden = bounds[np.searchsorted(bounds, at, side="right")][:, None]
        scores = np.zeros(len(self.tokens))
        for rows, values in run_rows(
            *(self.step, self.params, self.stops - self.starts + 2, self._batch, self.mesh),
            batch_size=self.ask.batch_size,
            progress=progress,
        ):
            scores[rows] = values
        parts = np.split(scores, ends[:-1])
        return [parts[number] for number in number_of]

    def _spans(self, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return where the context of each token begins and ends: int64 [T] each."""
        starts, stops = (np.zeros(ends[-1], np.int64) for _ in range(2))
        for first, end in itertools.pairwise([0, *ends.tolist()]):
            count = end - first
            spans = windows(count, self.room, max(1, self.room // 2), "step")
            several = len(spans) > 1
            best = best_windows(spans, count) if several else np.zeros(count, np.int64)
            starts[first:end], stops[first:end] = first + spans[best].T
        return starts, stops

    def _batch(self, rows: np.ndarray, length: int, size: int) -> Batch:
        """Assemble a copy of its context for each of these tokens, with [MASK] in its place."""
        start, stop = (np.zeros((size, 1), np.int64) for _ in range(2))
        start[: len(rows), 0], stop[: len(rows), 0] = self.starts[rows], self.stops[rows]
        columns = np.arange(length)[None, :]
        at = columns + start - 1  # [B, L], of the token in a column
        end = stop - start + 1  # [B, 1], the column of [SEP]
        text = self.tokens[np.clip(at, 0, len(self.tokens) - 1)]
        tokens = np.where(columns < end, text, self.special.pad)
        tokens[:, 0] = self.special.cls
        tokens = np.where(columns == end, self.special.sep, tokens)
        segments = (columns <= end).astype(np.int32)
        segments[len(rows) :] = 0
        blank = np.zeros((size, 1), np.int32)
        batch = {
            "tokens": tokens.astype(np.int32),
            "type_ids": np.zeros_like(segments),
            "positions": (columns * segments).astype(np.int32),
            "segment_ids": segments,
            "cls_positions": blank,
            "predict_positions": blank.copy(),
            "predict_targets": blank.copy(),
        }
        n = len(rows)
        target = rows[:, None]  # [n, 1], places in self.tokens
        masked = (at[:n] >= target) & (at[:n] < np.minimum(self.hidden[rows], stop[:n]))
        batch["tokens"][:n][masked] = self.special.mask
        batch["predict_positions"][:n] = target - start[:n] + 1
        batch["predict_targets"][:n] = self.tokens[target]
        return batch
