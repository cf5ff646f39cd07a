"""Log-probabilities of a text's tokens under a causal language model: one pass, nothing masked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.batch import Batch
from bert_jax.errors import ConfigError
from bert_jax.evaluation import inference
from bert_jax.interop import runs
from bert_jax.suites.base import SuiteOptions
from bert_jax.suites.rows import Scorer, TokenScorer, log_probabilities, run_rows


class _Window(NamedTuple):
    """A part of a text that fits into one row."""

    text: int
    start: int  # in the text
    first: int  # first token of the text that no earlier window scores
    ids: Sequence[int]


class LeftToRight(TokenScorer):
    """Log-probabilities of tokens, each given [CLS] and all tokens before it.

    Their sum over a sentence is the sentence's log-probability. The end of the text is not scored,
    since not all models learn where texts end. A text longer than the model is read in windows, and
    each token is scored in the window where most tokens precede it.
    """

    head = "causal_lm"

    def __init__(self, run: runs.TrainedModel, options: SuiteOptions, suite: str):
        super().__init__(run, options, suite)
        if options.within_word:
            raise ConfigError(
                "--within-word corrects what is masked, and a causal model masks nothing",
                "leave it out",
            )

    def step(self, params: Any, batch: Batch) -> jax.Array:
        """Return the log-probability of each token in its column [B, L]."""
        logits = self.outputs(params, batch)[:, :-1]  # [B, L - 1, V]
        return jnp.pad(log_probabilities(logits, batch["tokens"][:, 1:]), ((0, 0), (1, 0)))

    def score(
        self,
        texts: Sequence[Sequence[int]],
        parts: Sequence[tuple[int, int]],
        progress: inference.Progress,
    ) -> list[np.ndarray]:
        """Score texts by one row for each window."""
        scores = [np.zeros(len(ids)) for ids in texts]
        rows: list[_Window] = []
        for number, ids in enumerate(texts):
            known = 0
            for start, end in self.windows(len(ids), self.longest - 1).tolist():
                rows.append(_Window(number, start, known, ids[start:end]))
                known = end

        def make(chosen: np.ndarray, length: int, size: int) -> Batch:
            keys = ("type_ids", "positions", "segment_ids")
            batch = {key: np.zeros((size, length), np.int32) for key in keys}
            batch |= {"tokens": np.full((size, length), self.special.pad, np.int32)}
            for k, row in enumerate(chosen.tolist()):
                ids = rows[row].ids
                batch["tokens"][k, : len(ids) + 1] = [self.special.cls, *ids]
                batch["positions"][k, : len(ids) + 1] = np.arange(len(ids) + 1)
                batch["segment_ids"][k, : len(ids) + 1] = 1
            return batch | {"cls_positions": np.zeros((size, 1), np.int32)}

        lengths = np.array([len(row.ids) + 1 for row in rows], np.int64)
        for chosen, outputs in run_rows(
            self.compute, self.params, lengths, make, self.options.batch_size, progress
        ):
            for row, values in zip(chosen.tolist(), outputs, strict=True):
                text, start, first, ids = rows[row]
                scores[text][first : start + len(ids)] = values[1 + first - start : 1 + len(ids)]
        return [values[slice(*part)] for values, part in zip(scores, parts, strict=True)]


def scorer(run: runs.TrainedModel, options: SuiteOptions, suite: str) -> LeftToRight | Scorer:
    """Build the scorer of a model: left to right if it is causal, else each token masked alone."""
    return (LeftToRight if "causal_lm" in run.config.objectives else Scorer)(run, options, suite)
