"""Log-probabilities of the tokens of texts: each masked in its turn, or read from left to right.

    score = make_scorer(run, options)
    score([[5, 6, 7], [8]])        -> an array of 3 log-probabilities, and one of 1

Equal texts are scored once, so that their scores are equal to the bit.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.batch import Batch
from bert_jax.data.windows import choose_windows, cut_windows
from bert_jax.errors import ConfigError
from bert_jax.evaluation import inference
from bert_jax.interop import runs
from bert_jax.suites import Options, need_head
from bert_jax.suites.forward import Forward

Texts = Sequence[Sequence[int]]
Part = tuple[int, int]  # tokens of a text, from the first to before the second


def make_scorer(
    run: runs.TrainedModel, options: Options, within_word: bool = False
) -> MaskedScorer | CausalScorer:
    """Make the scorer of a model: left to right if it is causal, else each token masked alone."""
    if is_causal(run):
        return CausalScorer(run, options)
    return MaskedScorer(run, options, within_word)


def is_causal(run: runs.TrainedModel) -> bool:
    """Tell whether a model reads from left to right."""
    return "causal_lm" in run.config.objectives


def check_within_word(run: runs.TrainedModel, within_word: bool) -> None:
    """Refuse the correction within words of a model without masks or without words."""
    if within_word and is_causal(run):
        raise ConfigError(
            "--within-word corrects what is masked, and a causal model masks nothing",
            "leave it out",
        )
    if within_word and not run.tokenizer.has_words:
        raise ConfigError(f"the vocabulary of {run.folder} has no words", "leave --within-word out")


def take_log_probabilities(logits: jax.Array, tokens: jax.Array) -> jax.Array:
    """Return the log-probability of each token [B, K] under its logits [B, K, V]."""
    chosen = jnp.take_along_axis(logits, tokens[..., None], axis=-1)[..., 0]
    return chosen - jax.nn.logsumexp(logits, axis=-1)


class TokenScorer:
    """The log-probability of every token of a text under one head of a model."""

    head: ClassVar[str]

    def __init__(self, run: runs.TrainedModel, options: Options):
        need_head(run, self.head, options.suite)
        self.tokenizer, self.special = run.tokenizer, run.tokenizer.special
        self.batch_size, self.longest = options.batch_size, run.longest
        self.forward = Forward.of_head(run, self.head, self.read_logits)

    def __call__(
        self,
        texts: Texts,
        progress: inference.Progress = inference.silent,
        parts: Sequence[Part] | None = None,
    ) -> list[np.ndarray]:
        """Score the tokens of each text: a float64 array of log-probabilities for each.

        With `parts` only a part of each text is scored, in the context of the whole.
        """
        whole = [(0, len(ids)) for ids in texts]
        asked = list(zip(map(tuple, texts), parts or whole, strict=True))
        different = list(dict.fromkeys(asked))
        if not any(start < stop for _, (start, stop) in different):
            return [np.zeros(0) for _ in texts]
        some, parts_of_some = zip(*different, strict=True)
        scores = dict(zip(different, self.score(some, parts_of_some, progress), strict=True))
        return [scores[one] for one in asked]

    def read_logits(self, logits: jax.Array, batch: Batch) -> jax.Array:
        """Turn the logits of a batch into log-probabilities."""
        raise NotImplementedError

    def score(
        self, texts: Texts, parts: Sequence[Part], progress: inference.Progress
    ) -> list[np.ndarray]:
        """Score parts of texts, no two of them equal and not all of them empty."""
        raise NotImplementedError


def _cut_windows(length: int, room: int) -> np.ndarray:
    """Return the windows, each half over the next, of a text of some length."""
    return cut_windows(length, room, max(1, room // 2), "step")


class MaskedScorer(TokenScorer):
    """Log-probabilities of tokens, each masked alone in its context (Salazar et al., 2020).

    With `within_word` the later pieces of the word are masked too, since they give a piece away
    (Kauf and Ivanova, 2023: PLL-word-l2r). A text longer than the model is read in windows, and
    each token is scored in the window with most context around it.
    """

    head = "mlm"

    def __init__(self, run: runs.TrainedModel, options: Options, within_word: bool = False):
        super().__init__(run, options)
        self.within_word = within_word

    def read_logits(self, logits: jax.Array, batch: Batch) -> jax.Array:
        """Return the log-probability of the masked token of each row [B]."""
        return take_log_probabilities(logits, batch["predict_targets"])[:, 0]

    def score(
        self, texts: Texts, parts: Sequence[Part], progress: inference.Progress
    ) -> list[np.ndarray]:
        """Score texts by a copy of its context for each token, with [MASK] in its place."""
        ends = np.cumsum([len(ids) for ids in texts])
        tokens = np.fromiter(itertools.chain.from_iterable(texts), np.int32, ends[-1])  # [T]
        # Where the context of each token begins and ends in `tokens`.
        starts = np.zeros(len(tokens), np.int64)
        stops = np.zeros(len(tokens), np.int64)
        for first, end in itertools.pairwise([0, *ends.tolist()]):
            spans = _cut_windows(end - first, self.longest - 2)
            best = choose_windows(spans, end - first)
            starts[first:end], stops[first:end] = first + spans[best].T
        hidden = self._find_masked_ends(tokens, ends, stops)
        begins = [0, *ends[:-1].tolist()]
        wanted = [range(at + a, at + b) for at, (a, b) in zip(begins, parts, strict=True)]
        scored = np.fromiter(itertools.chain.from_iterable(wanted), np.int64)  # [R] in `tokens`

        def make(chosen: np.ndarray, length: int, size: int) -> Batch:
            rows = scored[chosen]
            return self._copy_contexts(tokens, rows, starts, stops, hidden, length, size)

        scores = np.zeros(len(scored))
        lengths = (stops - starts + 2)[scored]
        for chosen, values in self.forward(lengths, make, self.batch_size, progress):
            scores[chosen] = values
        return np.split(scores, np.cumsum([len(part) for part in wanted])[:-1])

    def _find_masked_ends(
        self, tokens: np.ndarray, ends: np.ndarray, stops: np.ndarray
    ) -> np.ndarray:
        """Find for each token where the tokens end that are masked with it [T]."""
        after = np.arange(len(tokens)) + 1
        if self.within_word:
            word_starts = np.flatnonzero(~self.tokenizer.continuation[tokens])
            bounds = np.sort(np.concatenate([word_starts, ends]))  # of words and texts
            after = bounds[np.searchsorted(bounds, after - 1, side="right")]
        return np.minimum(after, stops)

    def _copy_contexts(
        self,
        tokens: np.ndarray,
        rows: np.ndarray,
        starts: np.ndarray,
        stops: np.ndarray,
        hidden: np.ndarray,
        length: int,
        size: int,
    ) -> Batch:
        """Build a batch with the context of each row's token, in which that token is [MASK]."""
        start, stop = starts[rows, None], stops[rows, None]  # [n, 1]
        columns = np.arange(length)[None, :]  # [1, L]
        end = stop - start + 1  # the column of [SEP]
        inside = tokens[np.clip(columns + start - 1, 0, len(tokens) - 1)]  # [n, L]
        context = np.where(columns < end, inside, self.special.pad)
        context = np.where(columns == end, self.special.sep, context)
        context[:, 0] = self.special.cls
        first = rows[:, None] - start + 1
        behind = hidden[rows, None] - start + 1
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


class _Window(NamedTuple):
    """A part of a text that fits into one row."""

    text: int
    start: int  # in the text
    first: int  # first token of the text that no earlier window scores
    ids: Sequence[int]


class CausalScorer(TokenScorer):
    """Log-probabilities of tokens, each given [CLS] and all tokens before it.

    Their sum over a sentence is the sentence's log-probability. The end of the text is not scored,
    since not all models learn where texts end. A text longer than the model is read in windows, and
    each token is scored in the window where most tokens precede it.
    """

    head = "causal_lm"

    def read_logits(self, logits: Any, batch: Batch) -> jax.Array:
        """Return the log-probability of each token in its column [B, L]."""
        following = take_log_probabilities(logits[:, :-1], batch["tokens"][:, 1:])  # [B, L - 1]
        return jnp.pad(following, ((0, 0), (1, 0)))

    def score(
        self, texts: Texts, parts: Sequence[Part], progress: inference.Progress
    ) -> list[np.ndarray]:
        """Score texts by one row for each window."""
        scores = [np.zeros(len(ids)) for ids in texts]
        rows: list[_Window] = []
        for number, ids in enumerate(texts):
            known = 0
            for start, end in _cut_windows(len(ids), self.longest - 1).tolist():
                rows.append(_Window(number, start, known, ids[start:end]))
                known = end

        def make(chosen: np.ndarray, length: int, size: int) -> Batch:
            keys = ("type_ids", "positions", "segment_ids")
            batch = {key: np.zeros((size, length), np.int32) for key in keys}
            batch["tokens"] = np.full((size, length), self.special.pad, np.int32)
            for k, row in enumerate(chosen.tolist()):
                ids = [self.special.cls, *rows[row].ids]
                batch["tokens"][k, : len(ids)] = ids
                batch["positions"][k, : len(ids)] = np.arange(len(ids))
                batch["segment_ids"][k, : len(ids)] = 1
            return batch | {"cls_positions": np.zeros((size, 1), np.int32)}

        lengths = np.array([len(row.ids) + 1 for row in rows], np.int64)
        for chosen, outputs in self.forward(lengths, make, self.batch_size, progress):
            for row, values in zip(chosen.tolist(), outputs, strict=True):
                text, start, first, ids = rows[row]
                scores[text][first : start + len(ids)] = values[1 + first - start : 1 + len(ids)]
        return [values[slice(*part)] for values, part in zip(scores, parts, strict=True)]
