"""Many rows through a model, those of like length together, and tokens scored one masked copy each."""

from __future__ import annotations

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
from bert_jax.interop import runs
from bert_jax.objectives import network
from bert_jax.suites.base import SuiteOptions, need_head, on_devices

TOKENS = 8192  # of a step, where nobody names a batch size
LEAST = 8  # tokens of the shortest rows
Make = Callable[[np.ndarray, int, int], Batch]  # numbers of rows, padded length, padded count


def padded(length: int) -> int:
    """The next of 8, 12, 16, 24, 32, 48, ...: few lengths to compile, and at most a third of a row is padding."""
    power = 1 << max(length - 1, LEAST - 1).bit_length()
    return power * 3 // 4 if length <= power * 3 // 4 and power > LEAST else power


def run_rows(
    step: Callable[[Any, Batch], Any],
    params: Any,
    lengths: np.ndarray,
    make: Make,
    mesh: Mesh,
    *,
    batch_size: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Iterator[tuple[np.ndarray, Any]]:
    """Numbers of rows, and what a step finds for them: every row once.

    Args:
      step: compiled here; takes parameters and a batch, and returns arrays [B, ...].
      params: on the devices of `mesh`.
      lengths: tokens of each row.
      make: assembles a batch; rows beyond those asked for are padding.
      mesh: its devices share the rows of a batch.
      batch_size: rows a step; 0 is as many as hold TOKENS.
      progress: told after each step how many tokens are done, and how many there are with padding.
    """
    compiled = jax.jit(step, out_shardings=sharding.replicated(mesh))
    ways = mesh.shape["data"] * mesh.shape["fsdp"]
    shapes = np.array([padded(n) for n in range(int(lengths.max(initial=0)) + 1)])[lengths]
    done, total = 0, int(shapes.sum())
    late: tuple[np.ndarray, Any] | None = (
        None  # fetched one step late, so that the device never waits for the host
    )
    for length in sorted(
        set(shapes.tolist()), reverse=True
    ):  # what does not fit in memory shows at once
        group = np.flatnonzero(shapes == length)
        size = batch_size or min(max(1, TOKENS // length), 1 << (len(group) - 1).bit_length())
        size = -(-size // ways) * ways
        mine = sharding.local_rows(size, mesh)
        for start in range(0, len(group), size):
            some = group[start : start + size]
            local = {key: value[mine] for key, value in make(some, length, size).items()}
            found = compiled(params, sharding.place(local, size, mesh))
            if late is not None:
                yield late[0], _real(late)
            late = some, found
            done += length * len(some)
            progress(done, total)
    if late is not None:
        yield late[0], _real(late)


def _real(late: tuple[np.ndarray, Any]) -> Any:
    return jax.tree.map(lambda x: x[: len(late[0])], sharding.to_host(late[1]))


class Scorer:
    """Log-probabilities of tokens, each masked alone and seen in all that is around it (Salazar et al., 2020).

    With `within_word` the later pieces of its word are masked too, since they give a piece away (Kauf and Ivanova,
    2023: PLL-word-l2r). A text longer than the model is looked at in windows, each token where most is around it.
    """

    def __init__(self, run: runs.Run, ask: SuiteOptions, suite: str):
        need_head(run, "mlm", suite)
        if ask.within_word and not run.tokenizer.has_words:
            raise ConfigError(
                f"the vocabulary of {run.folder} has no words", "leave --within-word out"
            )
        self.special, self.continuation = run.tokenizer.special, run.tokenizer.continuation
        self.room, self.ask = run.longest - 2, ask
        of_one = network.Network(run.config.model, run.tokenizer.size, (("mlm", 0),))
        self.params, self.mesh = on_devices({part: run.params[part] for part in ("encoder", "mlm")})

        def step(params: Any, batch: Batch) -> jax.Array:
            logits = network.outputs(of_one, params, batch)["mlm"][:, 0]  # [B, V padded]
            chosen = jnp.take_along_axis(logits, batch["predict_targets"], axis=-1)[:, 0]
            return chosen - jax.nn.logsumexp(logits, axis=-1)  # [B]

        self.step = step

    def __call__(
        self,
        texts: Sequence[Sequence[int]],
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> list[np.ndarray]:
        """One float64 array a text, of its tokens' log-probabilities; like texts are scored once, so exactly alike."""
        numbers: dict[tuple[int, ...], int] = {}
        which = [numbers.setdefault(tuple(ids), len(numbers)) for ids in texts]
        ends = np.cumsum([len(ids) for ids in numbers])
        if not len(ends) or not ends[-1]:
            return [np.zeros(0) for _ in texts]
        self.tokens = np.fromiter(
            (i for ids in numbers for i in ids), np.int32, int(ends[-1])
        )  # [T]
        self.starts, self.stops = self._views(ends)
        at = np.arange(len(self.tokens))
        self.hidden = at[:, None] + 1  # [T, 1], where what is masked with each token ends
        if self.ask.within_word:
            begins = np.concatenate(
                [np.flatnonzero(~self.continuation[self.tokens]), ends]
            )  # of words and texts
            self.hidden = np.sort(begins)[np.searchsorted(np.sort(begins), at, side="right")][
                :, None
            ]
        found = np.zeros(len(self.tokens))
        for rows, values in run_rows(
            *(self.step, self.params, self.stops - self.starts + 2, self._batch, self.mesh),
            batch_size=self.ask.batch_size,
            progress=progress,
        ):
            found[rows] = values
        parts = np.split(found, ends[:-1])
        return [parts[number] for number in which]

    def _views(self, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where what is seen around each token begins and ends: int64 [T] each."""
        starts, stops = (np.zeros(ends[-1], np.int64) for _ in range(2))
        for first, end in zip(np.concatenate([[0], ends]).tolist(), ends.tolist(), strict=False):
            spans = windows(end - first, self.room, max(1, self.room // 2), "step")
            best = (
                best_windows(spans, end - first)
                if len(spans) > 1
                else np.zeros(end - first, np.int64)
            )
            starts[first:end], stops[first:end] = first + spans[best].T
        return starts, stops

    def _batch(self, rows: np.ndarray, length: int, size: int) -> Batch:
        """A copy for each of these tokens, with [MASK] in its place."""
        start, stop = (np.zeros((size, 1), np.int64) for _ in range(2))
        start[: len(rows), 0], stop[: len(rows), 0] = self.starts[rows], self.stops[rows]
        columns = np.arange(length)[None, :]
        at = columns + start - 1  # [B, L], of the token in a column
        end = stop - start + 1  # [B, 1], the column of [SEP]
        tokens = np.where(
            columns < end, self.tokens[np.clip(at, 0, len(self.tokens) - 1)], self.special.pad
        )
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
        here = rows[:, None]
        masked = (at[:n] >= here) & (at[:n] < np.minimum(self.hidden[rows], stop[:n]))
        batch["tokens"][:n][masked] = self.special.mask
        batch["predict_positions"][:n] = here - start[:n] + 1
        batch["predict_targets"][:n] = self.tokens[here]
        return batch
