"""Log-probabilities of tokens of texts: masked in their turn or together, or read from the left.

    score = TokenScorer(run, options)
    score([[5, 6, 7], [8]])        -> an array of 3 log-probabilities, and one of 1
    score.score_masked([(ids, masked)], progress)    -> nats of tokens masked at the same time

Equal texts are scored once, so that their scores are equal to the bit. A text longer than the model
is read in windows, each half over the next. A masked token is scored in the window with most
context around it, any other token in the window where most tokens precede it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

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
LOGITS = 1 << 26  # of a batch in which many tokens are masked: a quarter of a gigabyte


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


class View(NamedTuple):
    """A window of a text: which of its tokens are [MASK], and which are scored."""

    ids: np.ndarray  # int32 [n]
    masked: np.ndarray | slice  # columns of ids
    scored: Sequence[int] | np.ndarray  # [m], columns of ids


class TokenScorer:
    """Scores tokens by the MLM head, or by the causal head of a model that reads from the left.

    Each token of a text is masked alone (Salazar et al., 2020). With `within_word` the later pieces
    of its word are masked too, since they give a piece away (Kauf and Ivanova, 2023: PLL-word-l2r).
    A causal model gives each token its probability after [CLS] and all tokens before it. The end of
    a text is not scored, since not all models learn where texts end.
    """

    def __init__(self, run: runs.TrainedModel, options: Options, within_word: bool = False):
        self.causal, self.within_word = is_causal(run), within_word
        self.head = "causal_lm" if self.causal else "mlm"
        need_head(run, self.head, options.suite)
        self.run, self.tokenizer, self.batch_size = run, run.tokenizer, options.batch_size
        self.added = 1 if self.causal else 2  # [CLS], and [SEP]
        self.room = run.longest - self.added
        read = _read_next if self.causal else _read_masks
        self.forward = Forward.of_head(run, self.head, read)

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
        scores = {(ids, part): np.zeros(part[1] - part[0]) for ids, part in asked}
        views: list[View] = []
        owners: list[tuple[np.ndarray, int]] = []  # of each view: its scores, and the first of them
        make_views = self._read_from_left if self.causal else self._mask_each
        for (ids, (start, stop)), values in scores.items():
            for place, view in make_views(np.array(ids, np.int32), start, stop):
                views.append(view)
                owners.append((values, place - start))
        for number, (values,) in self._score_views(self.forward, views, progress):
            found, first = owners[number]
            found[first : first + len(values)] = values
        return [scores[one] for one in asked]

    def score_masked(
        self, texts: Sequence[tuple[np.ndarray, np.ndarray]], progress: inference.Progress
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """Score tokens that are masked at the same time; [MASK] itself has no probability.

        Args:
          texts: for each text its ids, int32 [n], and which tokens are masked, bool [n].
          progress: called with the tokens that are done.

        Returns:
          For each text the nats of its masked tokens, and whether each is the likeliest.
        """
        special = self.tokenizer.special

        def read(logits: jax.Array, batch: Batch) -> tuple[jax.Array, jax.Array]:
            answers = jax.lax.broadcasted_iota(jnp.int32, logits.shape, 2)  # [B, K, V]
            logits = jnp.where(answers == special.mask, -1e9, logits)
            targets = batch["predict_targets"]
            return *_read_masks(logits, batch), jnp.argmax(logits, axis=-1) == targets

        views: list[View] = []
        owners: list[tuple[int, np.ndarray]] = []  # of each view: its text, places in the text
        for number, (ids, masked) in enumerate(texts):
            spans, best = self._cut_windows(len(ids))
            for window, (start, end) in enumerate(spans.tolist()):
                places = np.flatnonzero(masked & (best == window))
                if len(places):
                    inside = np.flatnonzero(masked[start:end])
                    views.append(View(ids[start:end], inside, places - start))
                    owners.append((number, places))
        found = [(np.zeros(len(ids)), np.zeros(len(ids), bool)) for ids, _ in texts]
        forward = Forward.of_head(self.run, self.head, read)
        for number, (scores, right) in self._score_views(forward, views, progress):
            text, places = owners[number]
            found[text][0][places] = -scores
            found[text][1][places] = right
        return [
            (nats[masked], right[masked])
            for (nats, right), (_, masked) in zip(found, texts, strict=True)
        ]

    def _cut_windows(self, length: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the windows of a text [W, 2], and the best of them for each token."""
        spans = cut_windows(length, self.room, max(1, self.room // 2), "step")
        return spans, choose_windows(spans, length)

    def _mask_each(self, ids: np.ndarray, start: int, stop: int) -> Iterator[tuple[int, View]]:
        """Yield the place of each token from start to stop, and the view in which it is masked."""
        spans, best = self._cut_windows(len(ids))
        ends = np.arange(len(ids)) + 1  # where the tokens end that are masked with a token
        if self.within_word and len(ids):
            starts = np.flatnonzero(~self.tokenizer.continuation[ids])  # of words
            bounds = np.append(starts, len(ids))
            ends = bounds[np.searchsorted(bounds, ends - 1, side="right")]
        windows = spans[best].tolist()  # of each token
        for place, behind in enumerate(ends[start:stop].tolist(), start):
            first, end = windows[place]
            masked = slice(place - first, min(behind, end) - first)
            yield place, View(ids[first:end], masked, (place - first,))

    def _read_from_left(self, ids: np.ndarray, start: int, stop: int) -> Iterator[tuple[int, View]]:
        """Yield windows, each with the place of its first token that no earlier window scores."""
        known = start
        for first, end in self._cut_windows(len(ids))[0].tolist():
            if known < min(end, stop):
                scored = np.arange(known, min(end, stop)) - first
                yield known, View(ids[first:end], slice(0), scored)
                known = end

    def _score_views(
        self, forward: Forward, views: Sequence[View], progress: inference.Progress
    ) -> Iterator[tuple[int, list[np.ndarray]]]:
        """Yield the number of each view, and the outputs for its scored tokens."""
        special = self.tokenizer.special
        alone = all(len(view.scored) == 1 for view in views)

        def make(chosen: np.ndarray, length: int, size: int) -> Batch:
            slots = 1 if alone else length - self.added
            tokens = np.full((size, length), special.pad, np.int32)
            places, targets = (np.zeros((size, slots), np.int32) for _ in range(2))
            counts = np.zeros((size, 1), np.int32)
            for k, view in enumerate(views[number] for number in chosen):
                ids, count = view.ids, len(view.ids)
                row = tokens[k, 1 : count + 1]
                row[:] = ids
                row[view.masked] = special.mask
                counts[k, 0] = count + self.added
                for slot, column in enumerate(view.scored):
                    places[k, slot] = column + 1  # after [CLS]
                    targets[k, slot] = ids[column]
            rows = np.arange(len(chosen))
            tokens[rows, 0] = special.cls
            if not self.causal:
                tokens[rows, counts[rows, 0] - 1] = special.sep
            columns = np.arange(length, dtype=np.int32)[None]
            real = (columns < counts).astype(np.int32)
            return {
                "tokens": tokens,
                "type_ids": np.zeros_like(tokens),
                "positions": columns * real,
                "segment_ids": real,
                "cls_positions": np.zeros((size, 1), np.int32),
                "predict_positions": places,
                "predict_targets": targets,
            }

        tokens = inference.TOKENS
        if not (alone or self.causal):
            tokens = max(1, min(tokens, LOGITS // self.tokenizer.size))
        lengths = np.array([len(view.ids) + self.added for view in views], np.int64)
        for chosen, outputs in forward(lengths, make, self.batch_size, progress, tokens):
            for k, number in enumerate(chosen.tolist()):
                count = len(views[number].scored)
                yield number, [values[k, :count] for values in outputs]


def _read_masks(logits: jax.Array, batch: Batch) -> tuple[jax.Array]:
    """Return the log-probability of each token that is scored [B, K]."""
    return (take_log_probabilities(logits, batch["predict_targets"]),)


def _read_next(logits: jax.Array, batch: Batch) -> tuple[jax.Array]:
    """Return the log-probability of each scored token [B, K] given the tokens before it."""
    following = take_log_probabilities(logits[:, :-1], batch["tokens"][:, 1:])  # [B, L - 1]
    before = jnp.maximum(batch["predict_positions"] - 1, 0)
    return (jnp.take_along_axis(following, before, axis=1),)
