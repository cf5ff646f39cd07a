"""Log-probabilities of the tokens of a text under a causal language model: one pass a text, nothing masked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.batch import Batch
from bert_jax.data.windows import windows
from bert_jax.errors import ConfigError
from bert_jax.interop import runs
from bert_jax.objectives import network
from bert_jax.suites.base import SuiteOptions, need_head, on_devices
from bert_jax.suites.rows import Scorer, run_rows


class LeftToRight:
    """Each token given [CLS] and all that precedes it; its sum over a sentence is the sentence's log-probability.

    That the text ends there is no part of it: not all models learn where texts end. A text longer than the model is
    looked at in windows, each token in the one where most precedes it.
    """

    def __init__(self, run: runs.Run, ask: SuiteOptions, suite: str):
        need_head(run, "causal_lm", suite)
        if ask.within_word:
            raise ConfigError(
                "--within-word corrects what is masked, and a causal model masks nothing",
                "leave it out",
            )
        self.special, self.batch_size, self.room = (
            run.tokenizer.special,
            ask.batch_size,
            run.longest - 1,
        )
        of_one = network.Network(run.config.model, run.tokenizer.size, (("causal_lm", 0),))
        self.params, self.mesh = on_devices(
            {part: run.params[part] for part in ("encoder", "causal_lm")}
        )

        def step(params: Any, batch: Batch) -> jax.Array:
            logits = network.outputs(of_one, params, batch)["causal_lm"][
                :, :-1
            ]  # [B, L - 1, V padded]
            chosen = jnp.take_along_axis(logits, batch["tokens"][:, 1:, None], axis=-1)[..., 0]
            return jnp.pad(
                chosen - jax.nn.logsumexp(logits, axis=-1), ((0, 0), (1, 0))
            )  # [B, L], under its token

        self.step = step

    def __call__(
        self,
        texts: Sequence[Sequence[int]],
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> list[np.ndarray]:
        """One float64 array a text, of its tokens' log-probabilities; like texts are scored once, so exactly alike."""
        numbers: dict[tuple[int, ...], int] = {}
        which = [numbers.setdefault(tuple(ids), len(numbers)) for ids in texts]
        found = [np.zeros(len(ids)) for ids in numbers]
        views: list[
            tuple[int, int, int, Sequence[int]]
        ] = []  # text, where the window begins, its first new token, ids
        for number, ids in enumerate(numbers):
            known = 0
            for start, end in windows(len(ids), self.room, max(1, self.room // 2), "step").tolist():
                views.append((number, start, known, ids[start:end]))
                known = end

        def make(rows: np.ndarray, length: int, size: int) -> Batch:
            batch = {
                key: np.zeros((size, length), np.int32)
                for key in ("type_ids", "positions", "segment_ids")
            }
            batch |= {"tokens": np.full((size, length), self.special.pad, np.int32)}
            for row, view in enumerate(rows.tolist()):
                ids = views[view][3]
                batch["tokens"][row, : len(ids) + 1] = [self.special.cls, *ids]
                batch["positions"][row, : len(ids) + 1] = np.arange(len(ids) + 1)
                batch["segment_ids"][row, : len(ids) + 1] = 1
            return batch | {"cls_positions": np.zeros((size, 1), np.int32)}

        lengths = np.array([len(ids) + 1 for *_, ids in views], np.int64)
        for rows, values in run_rows(
            *(self.step, self.params, lengths, make, self.mesh),
            batch_size=self.batch_size,
            progress=progress,
        ):
            for view, row in zip(rows.tolist(), values, strict=True):
                number, start, known, ids = views[view]
                found[number][known : start + len(ids)] = row[1 + known - start : 1 + len(ids)]
        return [found[number] for number in which]


def scorer(run: runs.Run, ask: SuiteOptions, suite: str) -> LeftToRight | Scorer:
    """What scores the texts of a model: left to right where it was trained so, else each token masked alone."""
    return (LeftToRight if "causal_lm" in run.config.objectives else Scorer)(run, ask, suite)
