"""Log-probabilities of the tokens of texts, which are masked singly or together, or read causally.

    score = TokenScorer(run, options)
    score([[5, 6, 7], [8]])        -> an array of 3 log-probabilities, and one of 1
    score.score_masked([(ids, masked)], progress)    -> nats of tokens masked at the same time

Equal texts are scored once, so that their scores are equal to the bit. A text longer than the model
is read in windows, each of which overlaps the next by half. A masked token is scored in the window
that has most context around it. Any other token is scored in the window where most tokens precede
it.
"""

import functools
import itertools
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
from bert_jax.suites import Options
from bert_jax.suites.forward import Forward

Texts = Sequence[Sequence[int]]
Part = tuple[int, int]  # tokens of a text, from the first to before the second
LOGITS = 1 << 26  # of a batch in which many tokens are masked: a quarter of a gigabyte


def is_causal(run: runs.TrainedModel) -> bool:
    """Tell whether a model was trained to read from left to right."""
    return "causal_lm" in run.config.objectives


def check_within_word(run: runs.TrainedModel, within_word: bool) -> None:
    """Refuse --within-word for a causal model, or if the vocabulary has no words."""
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


class Scored(NamedTuple):
    """The tokens to score. A place is an index into the concatenated tokens of all texts."""

    tokens: np.ndarray  # int32 [T]
    places: np.ndarray  # int64 [S], of the tokens that are scored
    windows: np.ndarray  # int64 [S, 2], the places in which each is read, to before the second


class TokenScorer:
    """Scores tokens by the MLM head, or by the causal head of a left-to-right model.

    A masked model scores each token with only this token masked (Salazar et al., 2020). With
    `within_word` the later pieces of its word are masked too, because they would give it away (Kauf
    and Ivanova, 2023: PLL-word-l2r). A causal model scores each token given [CLS] and all tokens
    before it. The end of a text is not scored, because not all models learn where texts end.
    """

    def __init__(self, run: runs.TrainedModel, options: Options, within_word: bool = False):
        self.causal, self.within_word = is_causal(run), within_word
        self.head = "causal_lm" if self.causal else "mlm"
        self.run, self.tokenizer, self.batch_size = run, run.tokenizer, options.batch_size
        self.added = 1 if self.causal else 2  # [CLS], and [SEP]
        self.room = run.longest - self.added

    @functools.cached_property
    def forward(self) -> Forward:
        """The scores of tokens; it is made when they are first asked for."""
        read = _read_next if self.causal else _read_masks
        return Forward.of_head(self.run, self.head, read)

    def __call__(
        self,
        texts: Texts,
        progress: inference.Progress = inference.ignore_progress,
        parts: Sequence[Part] | None = None,
    ) -> list[np.ndarray]:
        """Return a float64 array for each text with the log-probabilities of its tokens.

        `parts` has (first, end) of each text. Then only its tokens from `first` to before `end` are
        scored, in the context of the whole text.
        """
        whole = [(0, len(ids)) for ids in texts]
        asked = list(zip(map(tuple, texts), parts or whole, strict=True))
        different = list(dict.fromkeys(asked))
        chosen = [np.arange(*part) for _, part in different]
        scored = self._find_windows([ids for ids, _ in different], chosen)
        found = np.zeros(len(scored.places))
        alone = None if self.causal else self._find_masked_ends(scored)
        batches = self._score(self.forward, scored, scored.tokens, alone, progress)
        for numbers, (values,) in batches:
            found[numbers] = values
        scores = dict(zip(different, _split(found, chosen), strict=True))
        return [scores[one] for one in asked]

    def score_masked(
        self, texts: Sequence[tuple[np.ndarray, np.ndarray]], progress: inference.Progress
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """Score the masked tokens of each text, which are masked at the same time.

        [MASK] itself is given no probability.

        Args:
          texts: for each text its ids, int32 [n], and which tokens are masked, bool [n].
          progress: called with the tokens done so far and in total.

        Returns:
          For each text the nats of its masked tokens, and whether each is the likeliest token.
        """
        special = self.tokenizer.special

        def read(logits: jax.Array, batch: Batch) -> tuple[jax.Array, jax.Array]:
            answers = jax.lax.broadcasted_iota(jnp.int32, logits.shape, 2)  # [B, K, V]
            logits = jnp.where(answers == special.mask, -1e9, logits)
            targets = batch["predict_targets"]
            return *_read_masks(logits, batch), jnp.argmax(logits, axis=-1) == targets

        chosen = [np.flatnonzero(masked) for _, masked in texts]
        scored = self._find_windows([ids for ids, _ in texts], chosen)
        shown = scored.tokens.copy()
        shown[scored.places] = special.mask
        nats = np.zeros(len(scored.places))
        right = np.zeros(len(scored.places), bool)
        forward = Forward.of_head(self.run, self.head, read)
        for numbers, (values, likeliest) in self._score(forward, scored, shown, None, progress):
            nats[numbers], right[numbers] = -values, likeliest
        return list(zip(_split(nats, chosen), _split(right, chosen), strict=True))

    def _find_windows(
        self, texts: Sequence[Sequence[int] | np.ndarray], chosen: Sequence[np.ndarray]
    ) -> Scored:
        """Concatenate texts, and find the window in which each of their chosen tokens is scored."""
        ends = np.cumsum([len(places) for places in chosen], dtype=np.int64).tolist()
        scored = np.zeros(sum(map(len, chosen)), np.int64)
        windows = np.zeros((len(scored), 2), np.int64)
        begin = 0
        for ids, places, end in zip(texts, chosen, ends, strict=True):
            spans = cut_windows(len(ids), self.room, max(1, self.room // 2), "step")
            if len(spans) == 1:
                best = np.zeros_like(places)
            elif self.causal:
                best = np.searchsorted(spans[:, 1], places, side="right")
            else:
                best = choose_windows(spans, len(ids))[places]
            scored[end - len(places) : end] = begin + places
            windows[end - len(places) : end] = begin + spans[best]
            begin += len(ids)
        tokens = np.fromiter(itertools.chain.from_iterable(texts), np.int32, begin)
        return Scored(tokens, scored, windows)

    def _find_masked_ends(self, scored: Scored) -> np.ndarray:
        """Return the place before which each scored token's mask ends [S].

        The mask covers the token, or also the later pieces of its word.
        """
        ends = scored.places + 1
        if self.within_word:
            starts = np.flatnonzero(~self.tokenizer.continuation[scored.tokens])  # of words
            bounds = np.append(starts, len(scored.tokens))
            ends = bounds[np.searchsorted(bounds, scored.places, side="right")]
        return np.minimum(ends, scored.windows[:, 1])

    def _score(
        self,
        forward: Forward,
        scored: Scored,
        shown: np.ndarray,
        alone: np.ndarray | None,
        progress: inference.Progress,
    ) -> Iterator[tuple[np.ndarray, list[np.ndarray]]]:
        """Yield, batch by batch, the indices of scored tokens and the outputs for these tokens.

        Args:
          forward: computes the outputs [B, K] for the tokens at `predict_positions` of a batch.
          scored: the tokens to score.
          shown: the tokens of all texts as the model reads them, int32 [T].
          alone: None if one row scores all scored tokens of its window, and reads `shown` as it is.
            Otherwise each scored token has a row of its own. The row is masked from this token to
            before the place that `alone` has for it, int64 [S].
          progress: called with the tokens done so far and in total.
        """
        special, total = self.tokenizer.special, len(scored.places)
        firsts = np.arange(total)  # of each row's scored tokens
        if alone is None:
            firsts = np.flatnonzero(np.diff(scored.windows[:, 0], prepend=-1))
        counts = np.diff(firsts, append=total)
        single = counts.max(initial=1) == 1

        def find_numbers(rows: np.ndarray, slots: int) -> tuple[np.ndarray, np.ndarray]:
            """Return the indices of the scored tokens of rows [n, K], and which slots hold one."""
            slot = np.arange(slots)
            held = slot < counts[rows, None]
            return np.where(held, firsts[rows, None] + slot, 0), held

        def make(chosen: np.ndarray, length: int, size: int) -> Batch:
            rows = np.resize(chosen, size)  # rows of padding repeat the others
            numbers, held = find_numbers(rows, 1 if single else length - self.added)
            start, stop = scored.windows[firsts[rows]].T[..., None]  # [n, 1]
            columns = np.arange(length)
            places = start - 1 + columns  # [n, L]
            tokens = np.where(places < stop, shown.take(places, mode="clip"), special.pad)
            if alone is not None:
                first = scored.places[rows, None]
                end = alone[rows, None]
                tokens[(places >= first) & (places < end)] = special.mask
            tokens[:, 0] = special.cls
            if not self.causal:
                tokens[places == stop] = special.sep
            real = places < stop - 1 + self.added
            predicted = scored.places[numbers]
            arrays = {
                "tokens": tokens,
                "type_ids": np.zeros_like(tokens),
                "positions": columns * real,
                "segment_ids": real,
                "cls_positions": np.zeros_like(start),
                "predict_positions": (predicted - start + 1) * held,  # behind [CLS]
                "predict_targets": scored.tokens[predicted] * held,
            }
            return {key: array.astype(np.int32) for key, array in arrays.items()}

        budget = inference.TOKENS
        if not (single or self.causal):
            budget = max(1, min(budget, LOGITS // self.tokenizer.size))
        lengths = np.diff(scored.windows[firsts])[:, 0] + self.added
        for rows, outputs in forward(lengths, make, self.batch_size, progress, budget):
            numbers, held = find_numbers(rows, outputs[0].shape[1])
            yield numbers[held], [values[held] for values in outputs]


def _split(values: np.ndarray, parts: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Split the values of all scored tokens into one array for each text."""
    ends = np.cumsum([len(part) for part in parts], dtype=np.int64).tolist()
    return [values[end - len(part) : end] for part, end in zip(parts, ends, strict=True)]


def _read_masks(logits: jax.Array, batch: Batch) -> tuple[jax.Array]:
    """Return the log-probability of the target in each prediction slot [B, K]."""
    return (take_log_probabilities(logits, batch["predict_targets"]),)


def _read_next(logits: jax.Array, batch: Batch) -> tuple[jax.Array]:
    """Return the log-probability of each scored token given the tokens before it [B, K]."""
    following = take_log_probabilities(logits[:, :-1], batch["tokens"][:, 1:])  # [B, L - 1]
    before = jnp.maximum(batch["predict_positions"] - 1, 0)
    return (jnp.take_along_axis(following, before, axis=1),)
