"""Features: token rows of examples with their targets, windows over long texts, and batches.

A row is [CLS] A [SEP] or [CLS] A [SEP] B [SEP], as `encoding` makes it. A row of multiple choice is
several such rows side by side, one for each option.

features = encode_examples(examples, "classify", tokenizer, task, length=128, train=True)
batch = gather_rows(features, np.arange(16), features.lengths.max(), 16, tokenizer.special)
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bert_jax.batch import Batch, Special
from bert_jax.config import knobs
from bert_jax.data import encoding
from bert_jax.data.examples import Example
from bert_jax.data.row_fields import Answer
from bert_jax.data.tokenizer import Tokenizer
from bert_jax.data.windows import choose_windows, cut_windows
from bert_jax.errors import ConfigError, DataError

IN_WINDOWS = ("tag", "span")  # objectives that can be answered for a part of a text
NOT_COUNTED = {"labels": -1, "values": np.nan, "tags": -1, "spans": -1}  # targets without a label
SHOWN = {"tag": ("words",), "span": ("characters", "best")}  # what decoding needs of each token


@dataclasses.dataclass(frozen=True)
class Features:
    """N rows with T tokens in all, one after the other, with special tokens."""

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
    """Return the rows of the examples, in their order.

    An example without a label has targets -1, or NaN. A row, or an option of a choice, has at most
    `length` tokens, special ones included. `train` leaves out words, characters and best, which
    only decoding needs.
    """
    work = _Encoding(examples, kind, tokenizer, task, length)
    ENCODERS[kind](work)
    rows = work.rows
    flat = encoding.join_rows(tokenizer.special, [row.parts for row in rows])
    name, dtype, width = TARGETS[kind]
    if kind == "tag":
        target = _scatter(rows, flat["offsets"], "tags")
    else:
        absent = NOT_COUNTED[name]
        values = [absent if row.target is None else row.target for row in rows]
        target = np.array(values, dtype).reshape(-1, width)
    shown = {}
    if not train:
        shown = {name: _scatter(rows, flat["offsets"], name) for name in SHOWN.get(kind, ())}
    return Features(
        **flat,
        targets={name: target},
        example=np.array([row.example for row in rows], np.int32),
        words=shown.get("words"),
        characters=shown.get("characters"),
        best=shown.get("best"),
        cut=len(work.cut),
    )


def gather_rows(
    features: Features, rows: np.ndarray, length: int, size: int, special: Special
) -> Batch:
    """Return the given rows padded to `length`, and rows of only padding up to `size`."""
    per_token = {
        "tokens": features.tokens,
        "type_ids": features.type_ids,
        "positions": features.positions,
        "segment_ids": features.segment_ids,
    }
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
    """A row to be, with its target and what its window of a text says of each token."""

    example: int
    parts: Sequence[encoding.Part]
    target: Any = None  # a number, or the columns of an answer
    column: int = 0  # at which the window begins
    # For the n tokens of the window: tags, words [n]; or characters [n, 2], best [n].
    window: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)


def _scatter(rows: list[_Row], offsets: np.ndarray, name: str) -> np.ndarray:
    """Spread the values of windows over all tokens, -1 or False outside windows: [T, ...]."""
    windows = [row.window[name] for row in rows]
    values = np.concatenate(windows)
    counts = np.array([len(window) for window in windows])
    starts = offsets[:-1] + np.array([row.column for row in rows])
    # Where the values belong in [T]: a window of 3 tokens that starts at 7 has 7, 8, 9.
    places = np.repeat(starts - encoding.find_starts(counts)[:-1], counts) + np.arange(len(values))
    padding = False if values.dtype == bool else -1
    scattered = np.full((offsets[-1], *values.shape[1:]), padding, values.dtype)
    scattered[places] = values
    return scattered


class _Encoding:
    """The examples to encode, and their rows as they are collected."""

    def __init__(
        self,
        examples: Sequence[Example],
        kind: str,
        tokenizer: Tokenizer,
        task: knobs.Task,
        length: int,
    ):
        self.examples = examples
        self.tokenizer = tokenizer
        self.task = task
        self.length = length
        self.long = task.long
        if task.long == "auto":
            self.long = "windows" if kind in IN_WINDOWS else "cut"
        if self.long == "windows" and kind not in IN_WINDOWS:
            raise ConfigError(
                f"task.long = 'windows' has no meaning for {kind}",
                "cut or refuse; windows are for tag, span",
            )
        self.rows: list[_Row] = []
        self.cut: set[int] = set()

    def count_cut(self, number: int, problem: str, knob: str) -> None:
        """Record that an example loses text, or refuse it."""
        if self.long == "refuse":
            hint = f"task.long = 'cut' takes the beginning; or raise {knob}"
            raise DataError(f"{self.examples[number].where}: {problem}", hint)
        self.cut.add(number)

    def fit(self, number: int, first: Sequence[int], second: Sequence[int] | None) -> encoding.Part:
        """Return a text or pair, cut if it is longer than a row."""
        added = self.tokenizer.special.added(1 if second is None else 2)
        room = self.length - added
        count = len(first) + len(second or ())
        if count <= room:
            return first, second
        self._count_long(number, count + added)
        a, b = encoding.truncate_pair(first, second or (), room)
        return a, None if second is None else b

    def windows(self, number: int, count: int, room: int) -> list[tuple[int, int, np.ndarray]]:
        """Return (start, end, best) of each window of `room` tokens over a text of an example.

        `best` marks the tokens that a window answers for.
        """
        if count <= room:
            return [(0, count, np.ones(count, bool))]
        if self.long != "windows":
            self._count_long(number, count + self.length - room)
            return [(0, room, np.ones(room, bool))]
        spans = cut_windows(count, room, self.task.stride, self.task.stride_as)
        best = choose_windows(spans, count)
        return [(start, end, best[start:end] == i) for i, (start, end) in enumerate(spans.tolist())]

    def _count_long(self, number: int, tokens: int) -> None:
        problem = f"{tokens} tokens, and sequence_length = {self.length}"
        self.count_cut(number, problem, "sequence_length")


# --- objectives: each adds the rows of its examples -----------------------------------------------


def _encode_texts(work: _Encoding) -> None:
    """Add one row for each text or pair, with the class or the number of its example."""
    first = work.tokenizer.encode_batch([example.text for example in work.examples])
    pairs = [example.pair for example in work.examples if example.pair is not None]
    seconds = iter(work.tokenizer.encode_batch(pairs))
    for number, (example, ids) in enumerate(zip(work.examples, first, strict=True)):
        second = None if example.pair is None else next(seconds)
        work.rows.append(_Row(number, [work.fit(number, ids, second)], example.label))


def _encode_options(work: _Encoding) -> None:
    """Add one row for each question, with its options side by side and the number of the answer."""
    premises = work.tokenizer.encode_batch([example.text for example in work.examples])
    texts = [option for example in work.examples for option in example.options]
    encoded = iter(work.tokenizer.encode_batch(texts))
    for number, (example, premise) in enumerate(zip(work.examples, premises, strict=True)):
        options = itertools.islice(encoded, len(example.options))
        parts = [work.fit(number, premise, option) for option in options]
        work.rows.append(_Row(number, parts, example.label))


def _encode_words(work: _Encoding) -> None:
    """Add the windows over each sentence, with the number and the class of each word."""
    unknown = work.tokenizer.special.unk
    texts: list[str] = []
    for example in work.examples:
        spelt = [f"{work.tokenizer.blank}{word}" for word in example.words]
        if example.text[:1].strip():  # the words are those of a text that begins with no blank
            spelt[:1] = example.words[:1]
        texts += spelt
    pieces = iter(work.tokenizer.encode_batch(texts))
    for number, example in enumerate(work.examples):
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
        for start, end, best in work.windows(number, len(ids), work.length - 2):
            seen = np.where(best, word_of[start:end], -1)
            tags = np.where(seen >= 0, classes[seen], -1)
            window = {"words": seen, "tags": tags}
            work.rows.append(_Row(number, [(ids[start:end], None)], column=1, window=window))


def _encode_questions(work: _Encoding) -> None:
    """Add the windows over each context, with the columns of the answer and where tokens lie."""
    questions = work.tokenizer.encode_batch([example.text for example in work.examples])
    # Questions share contexts, each of which is encoded once.
    contexts = list(dict.fromkeys(example.pair or "" for example in work.examples))
    encoded = dict(zip(contexts, work.tokenizer.encode_with_offsets(contexts), strict=True))
    places = {text: np.array(at, np.int32).reshape(-1, 2) for text, (_, at) in encoded.items()}
    for number, (example, tokens) in enumerate(zip(work.examples, questions, strict=True)):
        question = _fit_question(work, number, tokens)
        ids = encoded[example.pair or ""][0]
        characters = places[example.pair or ""]  # [tokens, 2]
        answer = _find_placed(example.label or ())
        first, last = _find_tokens(characters, answer)
        column = len(question) + 1 + work.tokenizer.special.separators
        for start, end, best in work.windows(number, len(ids), work.length - column - 1):
            target = (0, 0)  # no answer in this window
            if start <= first and last < end:
                target = (column + first - start, column + last - start)
            if example.label is None or (example.label and answer is None):
                target = (-1, -1)  # no loss
            window = {"characters": characters[start:end], "best": best}
            parts = [(question, ids[start:end])]
            work.rows.append(_Row(number, parts, target, column, window))


def _fit_question(work: _Encoding, number: int, question: Sequence[int]) -> Sequence[int]:
    """Return a question, cut if it is too long. Refuse a question that leaves a context no room."""
    limit = work.task.question_tokens
    kept = question[:limit]
    if work.length - work.tokenizer.special.added(2) - len(kept) < 1:
        raise DataError(
            f"{work.examples[number].where}: sequence_length = {work.length} cannot hold "
            f"{len(kept)} tokens of a question",
            "shorten the question; to train, lower task.question_tokens or raise sequence_length",
        )
    if len(question) > limit:
        problem = f"a question of {len(question)} tokens, and task.question_tokens = {limit}"
        work.count_cut(number, problem, "task.question_tokens")
    return kept


def _find_placed(answers: Sequence[Answer]) -> Answer | None:
    """Return the first answer that is where its file says, if there is one."""
    return next((answer for answer in answers if not answer.problem), None)


def _find_tokens(characters: np.ndarray, answer: Answer | None) -> tuple[int, int]:
    """Return the first and the last token of an answer, or (-1, -1) if no token shows it."""
    if answer is None:
        return -1, -1
    first = int(np.searchsorted(characters[:, 1], answer.start, side="right"))
    end = answer.start + len(answer.text)
    last = int(np.searchsorted(characters[:, 0], end, side="left")) - 1
    return (first, last) if first <= last else (-1, -1)


ENCODERS: dict[str, Callable[[_Encoding], None]] = {
    "classify": _encode_texts,
    "regress": _encode_texts,
    "tag": _encode_words,
    "span": _encode_questions,
    "choice": _encode_options,
}
# Name, type and width of an objective's target, of each row or (tag) of each token.
TARGETS: dict[str, tuple[str, type, int]] = {
    "classify": ("labels", np.int32, 1),
    "regress": ("values", np.float32, 1),
    "tag": ("tags", np.int32, 1),
    "span": ("spans", np.int32, 2),
    "choice": ("labels", np.int32, 1),
}
