"""Log-probabilities of a text's tokens under a causal language model: one pass, nothing masked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.batch import Batch
from bert_jax.data.windows import windows
from bert_jax.errors import ConfigError
from bert_jax.evaluation import inference
from bert_jax.interop import runs
from bert_jax.objectives import network
from bert_jax.suites.base import SuiteOptions, need_head, on_devices
from bert_jax.suites.rows import Scorer, run_rows


class _Window(NamedTuple):
    """A part of a text that fits into one row."""

    text: int
    start: int  # in the text
    first: int  # first token of the text that no earlier window scores
    ids: Sequence[int]


class LeftToRight:
    """Log-probabilities of tokens, each given [CLS] and all tokens before it.

    Their sum over a sentence is the sentence's log-probability. The end of the text is not scored,
    since not all models learn where texts end. A text longer than the model is read in windows, and
    each token is scored in the window where most tokens precede it.
    """

    def __init__(self, run: runs.TrainedModel, ask: SuiteOptions, suite: str):
        need_head(run, "causal_lm", suite)
        if ask.within_word:
            raise ConfigError(
                "--within-word corrects what is masked, and a causal model masks nothing",
                "leave it out",
            )
        self.special, self.batch_size = run.tokenizer.special, ask.batch_size
        self.room = run.longest - 1
        one_head = network.Network(run.config.model, run.tokenizer.size, (("causal_lm", 0),))
        parts = {part: run.params[part] for part in ("encoder", "causal_lm")}
        self.params, self.mesh = on_devices(parts)

        def step(params: Any, batch: Batch) -> jax.Array:
            logits = network.outputs(one_head, params, batch)["causal_lm"][:, :-1]  # [B, L - 1, V]
            chosen = jnp.take_along_axis(logits, batch["tokens"][:, 1:, None], axis=-1)[..., 0]
            scores = chosen - jax.nn.logsumexp(logits, axis=-1)
            return jnp.pad(scores, ((0, 0), (1, 0)))  # [B, L], in the column of the scored token

        self.step = step

    def __call__(
        self, texts: Sequence[Sequence[int]], progress: inference.Progress = inference.silent
    ) -> list[np.ndarray]:
        """Score the tokens of each text: a float64 array of log-probabilities for each.

        Equal texts are scored once, so their scores are exactly equal.
        """
        numbers: dict[tuple[int, ...], int] = {}
        number_of = [numbers.setdefault(tuple(ids), len(numbers)) for ids in texts]
        scores = [np.zeros(len(ids)) for ids in numbers]
        rows: list[_Window] = []
        for number, ids in enumerate(numbers):
            known = 0
            for start, end in windows(len(ids), self.room, max(1, self.room // 2), "step").tolist():
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
            *(self.step, self.params, lengths, make, self.mesh),
            batch_size=self.batch_size,
            progress=progress,
        ):
            for row, values in zip(chosen.tolist(), outputs, strict=True):
                text, start, first, ids = rows[row]
                end = start + len(ids)
                scores[text][first:end] = values[1 + first - start : 1 + len(ids)]
        return [scores[number] for number in number_of]


def scorer(run: runs.TrainedModel, ask: SuiteOptions, suite: str) -> LeftToRight | Scorer:
    """Build the scorer of a model: left to right if it is causal, else each token masked alone."""
    return (LeftToRight if "causal_lm" in run.config.objectives else Scorer)(run, ask, suite)
