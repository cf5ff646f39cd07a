"""The rows of a suite through a model, and the scores of tokens that are masked one at a time."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax import sharding
from bert_jax.batch import Batch
from bert_jax.data.windows import choose_windows, cut_windows
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
    batch_size: int,
    progress: inference.Progress,
    tokens: int = inference.TOKENS,
) -> Iterator[tuple[np.ndarray, Any]]:
    """Compute every row once; yield the numbers of a batch's rows, and the step's outputs for them.

    Args:
      step: compiled here; takes parameters and a batch, and returns arrays [B, ...].
      params: placed on all devices, which share the rows of a batch.
      lengths: tokens of each row.
      make: assembles a batch; rows beyond those it is given are padding.
      batch_size: rows of a batch; 0 is as many as hold `tokens`.
      progress: called with the tokens that are done, padding included, and with all of them.
      tokens: of a batch, where batch_size is 0.
    """
    placed, mesh = on_devices(params)
    compiled = jax.jit(step, out_shardings=sharding.replicated(mesh))

    def compute(planned: inference.Planned) -> Any:
        return compiled(placed, inference.place(make(*planned), mesh))

    plan = inference.by_shape(lengths, mesh, batch_size, tokens)
    return inference.run(compute, plan, progress, cost=lambda batch: batch.length * len(batch.rows))


class TokenScorer:
    """The log-probability of every token of a text under one head of a model."""

    head: ClassVar[str]

    def __init__(self, run: runs.TrainedModel, options: SuiteOptions, suite: str):
        need_head(run, self.head, suite)
        self.tokenizer, self.special, self.options = run.tokenizer, run.tokenizer.special, options
        self.longest = run.longest
        self.network = network.build(run.config, run.tokenizer.size, only=self.head)
        parts = network.parts(run.config, self.head)
        self.params = {part: run.params[part] for part in parts}
        self.compute = self.step  # one object, which jax compiles once for all calls

    def step(self, params: Any, batch: Batch) -> jax.Array:
        """Return the log-probabilities of a batch."""
        raise NotImplementedError

    def __call__(
        self,
        texts: Sequence[Sequence[int]],
        progress: inference.Progress = inference.silent,
        parts: Sequence[tuple[int, int]] | None = None,
    ) -> list[np.ndarray]:
        """Score the tokens of each text: a float64 array of log-probabilities for each.

        With `parts`, only those from the first to before the second number of a text's part, in the
        context of all. Equal texts are scored once, so their scores are exactly equal.
        """
        whole = [(0, len(ids)) for ids in texts]
        asked = list(zip(map(tuple, texts), parts or whole, strict=True))
        different = list(dict.fromkeys(asked))
        if not any(start < stop for _, (start, stop) in different):
            return [np.zeros(0) for _ in texts]
        some, of_them = zip(*different, strict=True)
        scores = dict(zip(different, self.score(some, of_them, progress), strict=True))
        return [scores[one] for one in asked]

    def score(
        self,
        texts: Sequence[Sequence[int]],
        parts: Sequence[tuple[int, int]],
        progress: inference.Progress,
    ) -> list[np.ndarray]:
        """Score parts of texts, no two of them equal and not all of them empty."""
        raise NotImplementedError

    def outputs(self, params: Any, batch: Batch) -> jax.Array:
        """Return the logits of the head."""
        return network.outputs(self.network, params, batch)[self.head]

    def windows(self, length: int, room: int) -> np.ndarray:
        """Return the windows, each half over the next, of a text of some length."""
        return cut_windows(length, room, max(1, room // 2), "step")


def log_probabilities(logits: jax.Array, tokens: jax.Array) -> jax.Array:
    """Return the log-probability of each token [B, K] under its logits [B, K, V]."""
    chosen = jnp.take_along_axis(logits, tokens[..., None], axis=-1)[..., 0]
    return chosen - jax.nn.logsumexp(logits, axis=-1)


class Scorer(TokenScorer):
    """Log-probabilities of tokens, each masked alone in its context (Salazar et al., 2020).

    With `within_word` the later pieces of the word are masked too, since they give a piece away
    (Kauf and Ivanova, 2023: PLL-word-l2r). A text longer than the model is read in windows, and
    each token is scored in the window with most context around it.
    """

    head = "mlm"

    def __init__(self, run: runs.TrainedModel, options: SuiteOptions, suite: str):
        super().__init__(run, options, suite)
        if options.within_word and not run.tokenizer.has_words:
            raise ConfigError(
                f"the vocabulary of {run.folder} has no words", "leave --within-word out"
            )

    def step(self, params: Any, batch: Batch) -> jax.Array:
        """Return the log-probability of the masked token of each row [B]."""
        return log_probabilities(self.outputs(params, batch), batch["predict_targets"])[:, 0]

    def score(
        self,
        texts: Sequence[Sequence[int]],
        parts: Sequence[tuple[int, int]],
        progress: inference.Progress,
    ) -> list[np.ndarray]:
        """Score texts by a copy of its context for each token, with [MASK] in its place."""
        ends = np.cumsum([len(ids) for ids in texts])
        tokens = np.fromiter(itertools.chain.from_iterable(texts), np.int32, ends[-1])  # [T]
        # Where the context of each token begins and ends in `tokens`.
        starts, stops = (np.zeros(len(tokens), np.int64) for _ in range(2))
        for first, end in itertools.pairwise([0, *ends.tolist()]):
            spans = self.windows(end - first, self.longest - 2)
            best = choose_windows(spans, end - first)
            starts[first:end], stops[first:end] = first + spans[best].T
        hidden = np.arange(len(tokens)) + 1  # behind the last token that is masked with each
        if self.options.within_word:
            word_starts = np.flatnonzero(~self.tokenizer.continuation[tokens])
            bounds = np.sort(np.concatenate([word_starts, ends]))  # of words and texts
            hidden = bounds[np.searchsorted(bounds, hidden - 1, side="right")]
        hidden = np.minimum(hidden, stops)
        begins = [0, *ends[:-1].tolist()]
        wanted = [range(at + a, at + b) for at, (a, b) in zip(begins, parts, strict=True)]
        scored = np.fromiter(itertools.chain.from_iterable(wanted), np.int64)  # [R] in `tokens`

        def make(chosen: np.ndarray, length: int, size: int) -> Batch:
            rows = scored[chosen]
            start, stop = starts[rows, None], stops[rows, None]  # [n, 1]
            columns = np.arange(length)[None, :]  # [1, L]
            end = stop - start + 1  # the column of [SEP]
            inside = tokens[np.clip(columns + start - 1, 0, len(tokens) - 1)]  # [n, L]
            context = np.where(columns < end, inside, self.special.pad)
            context = np.where(columns == end, self.special.sep, context)
            context[:, 0] = self.special.cls
            first, behind = rows[:, None] - start + 1, hidden[rows, None] - start + 1
            context[(columns >= first) & (columns < behind)] = self.special.mask
            real = (columns <= end).astype(np.int32)
            arrays = {
                "tokens": context,
                "type_ids": np.zeros_like(real),
                "positions": columns * real,
                "segment_ids": real,
                "cls_positions": np.zeros_like(first),
                "predict_positions": first,
                "predict_targets": tokens[rows, None],
            }
            spare = ((0, size - len(rows)), (0, 0))  # rows of padding
            return {key: np.pad(x, spare).astype(np.int32) for key, x in arrays.items()}

        scores, lengths = np.zeros(len(scored)), (stops - starts + 2)[scored]
        for chosen, values in run_rows(
            self.compute, self.params, lengths, make, self.options.batch_size, progress
        ):
            scores[chosen] = values
        return np.split(scores, np.cumsum([len(part) for part in wanted])[:-1])
