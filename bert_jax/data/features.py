"""Features: token rows of examples with their targets, windows over long texts, and batches.

A row is [CLS] A [SEP] or [CLS] A [SEP] B [SEP], as `encoding` makes it. For multiple choice a row
is several of these, side by side, one for each option.

    features = encode_examples(examples, "classify", tokenizer, task, length=128, train=True)
    batch = gather_rows(features, np.arange(16), features.lengths.max(), 16, tokenizer.special)
"""

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bert_jax.batch import Batch, Special
from bert_jax.config import knobs
from bert_jax.data import encoding
from bert_jax.data.examples import Answer, Example
from bert_jax.data.tokenizer import Tokenizer
from bert_jax.data.windows import choose_windows, cut_windows
from bert_jax.errors import ConfigError, DataError

QUESTION = 64  # tokens of a question: a longer one is cut, or refused if task.long says so
NOT_COUNTED = {"labels": -1, "values": np.nan, "tags": -1, "spans": -1}  # targets without a label


@dataclasses.dataclass(frozen=True)
class Features:
    """N rows of T tokens in all, special ones included, one row after the other without padding."""

    offsets: np.ndarray  # int64 [N + 1], where the tokens of each row begin
    tokens: np.ndarray  # int32 [T]
    type_ids: np.ndarray  # int32 [T]
    positions: np.ndarray  # int32 [T], counted anew in each option
    segment_ids: np.ndarray  # int32 [T], 1; choice: the option, counted from 1
    cls_positions: np.ndarray  # int32 [N, S], of each option; 0 where a question has fewer
    # labels int32 [N, 1], values float32 [N, 1], spans int32 [N, 2], tags int32 [T]
    targets: dict[str, np.ndarray]
    example: np.ndarray  # int32 [N], index of the example
    # tag: int32 [T], the word whose first piece the token is and for which its row answers, or -1
    words: np.ndarray | None
    # span: int32 [T, 2], the token's first and end character in the context, or -1
    characters: np.ndarray | None
    # span: bool [T], whether this row shows more of the token's surroundings than any other
    best: np.ndarray | None
    cut: int  # number of examples that lost text

    @property
    def lengths(self) -> np.ndarray:
        """Return the number of tokens of each row: int64 [N]."""
        return np.diff(self.offsets)


def encode_examples(
    examples: Sequence[Example],
    kind: str,
    tokenizer: Tokenizer,
    task: knobs.Task,
    length: int,
    *,
    train: bool,
) -> Features:
    """Encode all examples as rows, in the order of the examples.

    An example without a label has targets -1, or NaN. A row, or an option of a choice, has at most
    `length` tokens, special ones included. With `train` the fields words, characters and best are
    None, because only decoding needs them.
    """
    work = _Encoder(examples, kind, tokenizer, task, length)
    ENCODERS[kind](work)
    flat = encoding.join_rows(tokenizer.special, [row.parts for row in work.rows])

    def scatter(name: str, needed: bool) -> np.ndarray | None:
        return _scatter(work.rows, flat["offsets"], name) if needed else None

    name, dtype, width = TARGETS[kind]
    target = scatter("tags", kind == "tag")
    if target is None:
        absent = NOT_COUNTED[name]
        values = [absent if row.target is None else row.target for row in work.rows]
        target = np.array(values, dtype).reshape(-1, width)
    return Features(
        **flat,
        targets={name: target},
        example=np.array([row.example for row in work.rows], np.int32),
        words=scatter("words", kind == "tag" and not train),
        characters=scatter("characters", kind == "span" and not train),
        best=scatter("best", kind == "span" and not train),
        cut=len(work.cut),
    )


def gather_rows(
    features: Features, rows: np.ndarray, length: int, size: int, special: Special
) -> Batch:
    """Build a batch of the chosen rows, padded to `length`, and of padding rows up to `size`."""
    names = ("tokens", "type_ids", "positions", "segment_ids")
    per_token = {name: getattr(features, name) for name in names}
    per_row = {
        "cls_positions": features.cls_positions,
        "example_ids": np.arange(len(features.example), dtype=np.int32)[:, None],
    }
    for name, values in features.targets.items():
        (per_token if name == "tags" else per_row)[name] = values
    batch = encoding.pad_tokens(per_token, features.offsets, rows, length, size, special.pad)
    paddings = {"cls_positions": 0, "example_ids": -1} | NOT_COUNTED
    for name, values in per_row.items():
        batch[name] = np.full((size, *values.shape[1:]), paddings[name], values.dtype)  # [B, ...]
        batch[name][: len(rows)] = values[rows]
    return batch


# --- rows before they are joined ------------------------------------------------------------------


@dataclasses.dataclass
class _Row:
    """A row before it is joined with others: its texts, its target, and arrays of its window."""

    example: int
    parts: Sequence[encoding.Part]
    target: Any = None  # a number, or the columns of an answer
    column: int = 0  # at which the window begins
    # For the n tokens of the window: tags, words [n]; or characters [n, 2], best [n].
    window: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)


def _scatter(rows: list[_Row], offsets: np.ndarray, name: str) -> np.ndarray:
    """Put the values of all windows in an array over the tokens of all rows [T, ...].

    `name` says which values, such as "words". Each row has a window of text. Tokens of a row that
    are outside of its window, such as [CLS], get -1 or False.
    """
    values = np.concatenate([row.window[name] for row in rows])
    padding = False if values.dtype == bool else -1
    scattered = np.full((offsets[-1], *values.shape[1:]), padding, values.dtype)
    for row, offset in zip(rows, offsets.tolist(), strict=False):
        window = row.window[name]
        scattered[offset + row.column :][: len(window)] = window
    return scattered


@dataclasses.dataclass
class _Encoder:
    """Encodes examples to rows, and notes which examples lose text."""

    examples: Sequence[Example]
    kind: str
    tokenizer: Tokenizer
    task: knobs.Task
    length: int
    rows: list[_Row] = dataclasses.field(default_factory=list)
    cut: set[int] = dataclasses.field(default_factory=set)

    def __post_init__(self) -> None:
        in_windows = self.kind in ("tag", "span")  # which can be answered for a part of a text
        self.long = self.task.long
        if self.long == "auto":
            self.long = "windows" if in_windows else "cut"
        if self.long == "windows" and not in_windows:
            message = f"task.long = 'windows' has no meaning for {self.kind}"
            raise ConfigError(message, "cut or refuse; windows are for tag, span")

    def encode_texts(self) -> None:
        """Add one row for each text or pair, or for each question: its options side by side.

        The target of a row is its class or its number, or the number of the right option.
        """
        firsts = self.tokenizer.encode_batch([example.text for example in self.examples])
        # Texts and pairs have one second text, or None; questions have one for each option.
        seconds_of_all = [example.options or (example.pair,) for example in self.examples]
        texts = [text for seconds in seconds_of_all for text in seconds if text is not None]
        encoded = iter(self.tokenizer.encode_batch(texts))
        for number, (first, second_texts) in enumerate(zip(firsts, seconds_of_all, strict=True)):
            seconds = [None if text is None else next(encoded) for text in second_texts]
            parts = [self._fit(number, first, second) for second in seconds]
            self.rows.append(_Row(number, parts, self.examples[number].label))

    def encode_words(self) -> None:
        """Add a row for each window over a sentence, with the number and the class of each word."""
        blank = self.tokenizer.blank
        unknown = self.tokenizer.special.unk
        texts: list[str] = []
        for example in self.examples:
            spelt = [f"{blank}{word}" for word in example.words]
            if example.text[:1].strip():  # the words are those of a text that begins with no blank
                spelt[:1] = example.words[:1]
            texts += spelt
        pieces = iter(self.tokenizer.encode_batch(texts))
        for number, example in enumerate(self.examples):
            # A word without any piece is [UNK], so that no word is lost.
            words = [next(pieces) or [unknown] for _ in example.words]
            ids = list(itertools.chain.from_iterable(words))
            classes = np.full(len(words), -1, np.int32)
            if example.label is not None:
                classes[:] = example.label
            # Only the first piece of a word has its number: pieces 2, 1, 3 -> 0 -1 1 2 -1 -1.
            firsts = encoding.find_starts(np.array([len(word) for word in words], np.int64))[:-1]
            word_of = np.full(len(ids), -1, np.int32)
            word_of[firsts] = np.arange(len(words))
            for start, end, best in self._windows(number, len(ids), self.length - 2):
                seen = np.where(best, word_of[start:end], -1)
                tags = np.where(seen >= 0, classes[seen], -1)
                window = {"words": seen, "tags": tags}
                self.rows.append(_Row(number, [(ids[start:end], None)], column=1, window=window))

    def encode_questions(self) -> None:
        """Add a row for each window over a question's context.

        A row has the columns of the answer, and the place of each token in the context.
        """
        questions = self.tokenizer.encode_batch([example.text for example in self.examples])
        # Questions share contexts, each of which is encoded once.
        contexts = list(dict.fromkeys(example.pair or "" for example in self.examples))
        found = self.tokenizer.encode_with_offsets(contexts)
        encoded = {
            text: (ids, np.array(places, np.int32).reshape(-1, 2))
            for text, (ids, places) in zip(contexts, found, strict=True)
        }
        for number, (example, tokens) in enumerate(zip(self.examples, questions, strict=True)):
            question = self._fit_question(number, tokens)
            ids, characters = encoded[example.pair or ""]  # characters [tokens, 2]
            placed = [answer for answer in example.label or () if not answer.problem]
            first, last = _find_tokens(characters, placed[0]) if placed else (-1, -1)
            column = len(question) + 1 + self.tokenizer.special.separators
            for start, end, best in self._windows(number, len(ids), self.length - column - 1):
                target = (0, 0)  # no answer in this window
                if start <= first and last < end:
                    target = (column + first - start, column + last - start)
                if example.label is None or (example.label and not placed):
                    target = (-1, -1)  # no loss
                window = {"characters": characters[start:end], "best": best}
                parts = [(question, ids[start:end])]
                self.rows.append(_Row(number, parts, target, column, window))

    # --- texts that are too long ------------------------------------------------------------------

    def _count_cut(self, number: int, problem: str, instead: str = "") -> None:
        """Record that an example loses text; raise a DataError if `task.long` is "refuse"."""
        if self.long == "refuse":
            hint = f"task.long = 'cut' takes the beginning{instead}"
            raise DataError(f"{self.examples[number].where}: {problem}", hint)
        self.cut.add(number)

    def _count_long(self, number: int, tokens: int) -> None:
        problem = f"{tokens} tokens, and sequence_length = {self.length}"
        self._count_cut(number, problem, "; or raise sequence_length")

    def _fit(
        self, number: int, first: Sequence[int], second: Sequence[int] | None
    ) -> encoding.Part:
        """Return a text or pair of texts, truncated if it is longer than a row."""
        added = self.tokenizer.special.added(1 if second is None else 2)
        count = len(first) + len(second or ()) + added
        if count <= self.length:
            return first, second
        self._count_long(number, count)
        a, b = encoding.truncate_pair(first, second or (), self.length - added)
        return a, None if second is None else b

    def _fit_question(self, number: int, question: Sequence[int]) -> Sequence[int]:
        """Return a question, cut to QUESTION tokens; refuse it if no context would fit."""
        kept = question[:QUESTION]
        if self.length - self.tokenizer.special.added(2) - len(kept) < 1:
            message = (
                f"sequence_length = {self.length} cannot hold {len(kept)} tokens of a question"
            )
            hint = "to train, raise sequence_length"
            raise DataError(f"{self.examples[number].where}: {message}", hint)
        if len(question) > QUESTION:
            self._count_cut(number, f"a question of {len(question)} tokens, more than {QUESTION}")
        return kept

    def _windows(self, number: int, count: int, room: int) -> list[tuple[int, int, np.ndarray]]:
        """Return (start, end, best) of each window of at most `room` tokens over a text.

        `best` [end - start] marks the tokens that the window answers for.
        """
        if count <= room:
            return [(0, count, np.ones(count, bool))]
        if self.long != "windows":
            self._count_long(number, count + self.length - room)
            return [(0, room, np.ones(room, bool))]
        spans = cut_windows(count, room, self.task.stride, self.task.stride_as)
        best = choose_windows(spans, count)
        return [(start, end, best[start:end] == i) for i, (start, end) in enumerate(spans.tolist())]


def _find_tokens(characters: np.ndarray, answer: Answer) -> tuple[int, int]:
    """Return the first and the last token of an answer, or (-1, -1) if no token covers it."""
    first = int(np.searchsorted(characters[:, 1], answer.start, side="right"))
    end = answer.start + len(answer.text)
    last = int(np.searchsorted(characters[:, 0], end, side="left")) - 1
    return (first, last) if first <= last else (-1, -1)


ENCODERS: dict[str, Callable[[_Encoder], None]] = {
    "classify": _Encoder.encode_texts,
    "regress": _Encoder.encode_texts,
    "tag": _Encoder.encode_words,
    "span": _Encoder.encode_questions,
    "choice": _Encoder.encode_texts,
}
# Name, type and width of an objective's target, of each row or (tag) of each token.
TARGETS: dict[str, tuple[str, type, int]] = {
    "classify": ("labels", np.int32, 1),
    "regress": ("values", np.float32, 1),
    "tag": ("tags", np.int32, 1),
    "span": ("spans", np.int32, 2),
    "choice": ("labels", np.int32, 1),
}
