"""Features: token rows of examples with their targets, windows over long texts, and batches.

A row is [CLS] A [SEP] or [CLS] A [SEP] B [SEP], as `encoding` has them; for multiple choice it is
several of them side by side, one for each option.

features = encode(examples, "classify", tokenizer, task, length=128, train=True)
batch = batch(features, np.arange(16), length=features.longest, size=16, special=tokenizer.special)
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence

import numpy as np

from bert_jax.batch import Batch, Special
from bert_jax.config import knobs
from bert_jax.data import encoding
from bert_jax.data.labelled.examples import Answer, Example
from bert_jax.data.tokenizer import Tokenizer
from bert_jax.data.windows import best_windows, windows
from bert_jax.errors import ConfigError, DataError

IN_WINDOWS = ("tag", "span")  # objectives that can be answered for a part of a text
FLAT = ("tokens", "type_ids", "positions", "segment_ids")


@dataclasses.dataclass(frozen=True)
class Features:
    """N rows with T tokens in all, one after the other; special tokens are included."""

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

    @property
    def longest(self) -> int:
        """Return the number of tokens of the longest row."""
        return int(self.lengths.max(initial=0))


def encode(
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
    long = ("windows" if kind in IN_WINDOWS else "cut") if task.long == "auto" else task.long
    if long == "windows" and kind not in IN_WINDOWS:
        raise ConfigError(
            f"task.long = 'windows' has no meaning for {kind}",
            "cut or refuse; windows are for tag, span",
        )
    rows = _Rows(examples, tokenizer, task, length, long)
    finish = _ENCODERS[kind](rows)
    features = Features(
        **encoding.concatenate(tokenizer.special, rows.parts),
        targets={},
        example=np.array(rows.example, np.int32),
        words=None,
        characters=None,
        best=None,
        cut=len(rows.cut),
    )
    return finish(features, train)


def gather(features: Features, rows: np.ndarray, length: int, size: int, special: Special) -> Batch:
    """Return the given rows padded to `length`, and rows of padding alone up to `size`."""
    counts = np.zeros(size, np.int64)  # [B]
    counts[: len(rows)] = features.lengths[rows]
    if np.max(counts, initial=0) > length:
        raise ValueError(f"a row of {np.max(counts)} tokens in a batch of length {length}")
    columns = np.arange(length)
    real = columns[None] < counts[:, None]  # [B, L]
    # [tokens of the batch], their indices in the features
    source = (features.offsets[rows][:, None] + columns[None])[real[: len(rows)]]

    def spread(values: np.ndarray, padding: int) -> np.ndarray:
        out = np.full((size, length), padding, np.int32)  # [B, L]
        out[real] = values[source]
        return out

    def fill(values: np.ndarray, padding: float) -> np.ndarray:
        out = np.full((size, *values.shape[1:]), padding, values.dtype)  # [B, ...]
        out[: len(rows)] = values[rows]
        return out

    padding = dict.fromkeys(FLAT, 0) | {"tokens": special.pad}
    batch = {name: spread(getattr(features, name), padding[name]) for name in FLAT}
    batch["cls_positions"] = fill(features.cls_positions, 0)
    batch["example_ids"] = fill(np.arange(len(features.example), dtype=np.int32)[:, None], -1)
    for name, values in features.targets.items():
        if name == "tags":
            batch[name] = spread(values, -1)
        else:
            batch[name] = fill(values, np.nan if name == "values" else -1)
    return batch


class _Rows:
    """The examples to encode; their rows as they are collected, and the example of each."""

    def __init__(
        self,
        examples: Sequence[Example],
        tokenizer: Tokenizer,
        task: knobs.Task,
        length: int,
        long: str,
    ):
        self.examples, self.tokenizer, self.task = examples, tokenizer, task
        self.length, self.long = length, long
        self.parts: list[Sequence[encoding.Part]] = []
        self.example: list[int] = []
        self.cut: set[int] = set()

    def add(self, number: int, *parts: encoding.Part) -> None:
        """Add a row; all its parts fit."""
        self.parts.append(parts)
        self.example.append(number)

    def shorten(self, number: int, tokens: int) -> None:
        """Record that an example of so many tokens loses text, or refuse it."""
        if self.long == "refuse":
            raise DataError(
                f"{self.examples[number].where}: {tokens} tokens, "
                f"and sequence_length = {self.length}",
                "task.long = 'cut' takes the beginning; or raise sequence_length",
            )
        self.cut.add(number)


# --- objectives: each adds its rows, and returns a function that completes their features ---------

Finish = Callable[[Features, bool], Features]


def _texts(rows: _Rows) -> None:
    """Add one row for each text or pair."""
    first = rows.tokenizer.encode_batch([example.text for example in rows.examples])
    pairs = [example.pair for example in rows.examples if example.pair is not None]
    second = iter(rows.tokenizer.encode_batch(pairs))
    for number, (example, a) in enumerate(zip(rows.examples, first, strict=True)):
        rows.add(number, _fitted(rows, number, a, None if example.pair is None else next(second)))


def _fitted(
    rows: _Rows, number: int, first: Sequence[int], second: Sequence[int] | None
) -> encoding.Part:
    """Return a text or pair, cut where it is longer than a row."""
    added = rows.tokenizer.special.added(1 if second is None else 2)
    size = len(first) + len(second or ()) + added
    if size <= rows.length:
        return first, second
    rows.shorten(number, size)
    room = rows.length - added
    a, b = encoding.truncate(first, second or (), room)
    return a, None if second is None else b


def _classify(rows: _Rows) -> Finish:
    _texts(rows)
    return _labelled(rows, "labels", -1, np.int32)


def _regress(rows: _Rows) -> Finish:
    _texts(rows)
    return _labelled(rows, "values", np.nan, np.float32)


def _choice(rows: _Rows) -> Finish:
    premises = rows.tokenizer.encode_batch([example.text for example in rows.examples])
    texts = [option for example in rows.examples for option in example.options]
    encoded = iter(rows.tokenizer.encode_batch(texts))
    for number, (example, premise) in enumerate(zip(rows.examples, premises, strict=True)):
        options = itertools.islice(encoded, len(example.options))
        rows.add(number, *(_fitted(rows, number, premise, option) for option in options))
    return _labelled(rows, "labels", -1, np.int32)


def _labelled(rows: _Rows, name: str, none: float, dtype: type) -> Finish:
    """Complete features with the class, option or value of each example, `none` without one."""
    values = [none if example.label is None else example.label for example in rows.examples]
    column: np.ndarray = np.array(values, dtype)[:, None]  # [N, 1]
    return lambda features, train: dataclasses.replace(features, targets={name: column})


def _tag(rows: _Rows) -> Finish:
    blank = rows.tokenizer.blank
    texts: list[str] = []
    for example in rows.examples:
        spelt = [f"{blank}{word}" for word in example.words]
        if example.text[:1].strip():  # the words are those of a text that begins with no blank
            spelt[:1] = example.words[:1]
        texts += spelt
    pieces = iter(rows.tokenizer.encode_batch(texts))
    answered: list[np.ndarray] = []  # of each row: the word of each token, without special tokens
    for number, example in enumerate(rows.examples):
        # A word without any piece is [UNK], so that no word is lost.
        words = [next(pieces) or [rows.tokenizer.special.unk] for _ in example.words]
        ids = list(itertools.chain.from_iterable(words))
        firsts = encoding.cumulative(np.array([len(word) for word in words], np.int64))[:-1]
        word_of = np.full(len(ids), -1, np.int32)
        word_of[firsts] = np.arange(len(words))
        for start, end, best in _windows(rows, number, len(ids), rows.length - 2):
            rows.add(number, (ids[start:end], None))
            answered.append(np.where(best, word_of[start:end], -1))

    def finish(features: Features, train: bool) -> Features:
        words = np.full(len(features.tokens), -1, np.int32)  # [T]
        for start, of_row in zip(features.offsets.tolist(), answered, strict=False):
            words[start + 1 : start + 1 + len(of_row)] = of_row
        labels = [[-1] * len(e.words) if e.label is None else e.label for e in rows.examples]
        begins = encoding.cumulative(np.array([len(classes) for classes in labels], np.int64))
        flat = np.fromiter(itertools.chain.from_iterable(labels), np.int32, int(begins[-1]))
        firsts = words >= 0  # [T]
        example = np.repeat(features.example, features.lengths)  # [T]
        tags = np.full(len(words), -1, np.int32)
        tags[firsts] = flat[begins[example[firsts]] + words[firsts]]
        words_kept = None if train else words
        return dataclasses.replace(features, targets={"tags": tags}, words=words_kept)

    return finish


def _windows(rows: _Rows, number: int, length: int, room: int) -> list[tuple[int, int, np.ndarray]]:
    """Return (start, end, best) of each window of `room` tokens over a text of an example.

    `best` marks the tokens that a window answers for.
    """
    if length <= room:
        return [(0, length, np.ones(length, bool))]
    if rows.long != "windows":
        rows.shorten(number, length + rows.length - room)
        return [(0, room, np.ones(room, bool))]
    spans = windows(length, room, rows.task.stride, rows.task.stride_as)
    best = best_windows(spans, length)
    return [(start, end, best[start:end] == i) for i, (start, end) in enumerate(spans.tolist())]


def _span(rows: _Rows) -> Finish:
    questions = rows.tokenizer.encode_batch([example.text for example in rows.examples])
    # Questions share contexts, each of which is encoded once.
    contexts = list(dict.fromkeys(example.pair or "" for example in rows.examples))
    encoded = {
        context: (ids, np.array(offsets, np.int32).reshape(-1, 2))
        for context, (ids, offsets) in zip(
            contexts, rows.tokenizer.encode_with_offsets(contexts), strict=True
        )
    }
    # Of each row: the column at which the context begins, characters, best.
    shown: list[tuple[int, np.ndarray, np.ndarray]] = []
    spans: list[tuple[int, int]] = []
    for number, (example, tokens) in enumerate(zip(rows.examples, questions, strict=True)):
        question = _fitted_question(rows, number, tokens)
        ids, characters = encoded[example.pair or ""]
        first, last = _answer_tokens(characters, example.label)
        column = len(question) + 1 + rows.tokenizer.special.separators
        room = rows.length - column - 1
        for start, end, best in _windows(rows, number, len(ids), room):
            rows.add(number, (question, ids[start:end]))
            shown.append((column, characters[start:end], best))
            inside = start <= first and last < end
            spans.append((column + first - start, column + last - start) if inside else (0, 0))
            if example.label is None or (example.label and _placed(example.label) is None):
                spans[-1] = (-1, -1)

    def finish(features: Features, train: bool) -> Features:
        features.targets["spans"] = np.array(spans, np.int32).reshape(-1, 2)  # [N, 2]
        if train:
            return features
        characters = np.full((len(features.tokens), 2), -1, np.int32)  # [T, 2]
        best = np.zeros(len(features.tokens), bool)  # [T]
        for offset, (column, of_row, best_of_row) in zip(
            features.offsets.tolist(), shown, strict=False
        ):
            context = slice(offset + column, offset + column + len(of_row))
            characters[context], best[context] = of_row, best_of_row
        return dataclasses.replace(features, characters=characters, best=best)

    return finish


def _fitted_question(rows: _Rows, number: int, question: Sequence[int]) -> Sequence[int]:
    """Return a question, cut where it is too long; refuse one that leaves a context no room."""
    where, limit = rows.examples[number].where, rows.task.question_tokens
    kept = question[:limit]
    if rows.length - rows.tokenizer.special.added(2) - len(kept) < 1:
        raise DataError(
            f"{where}: sequence_length = {rows.length} cannot hold {len(kept)} tokens "
            "of a question",
            "shorten the question; to train, lower task.question_tokens or raise sequence_length",
        )
    if len(question) > limit:
        if rows.long == "refuse":
            raise DataError(
                f"{where}: a question of {len(question)} tokens, and "
                f"task.question_tokens = {limit}",
                "task.long = 'cut' takes the beginning; or raise task.question_tokens",
            )
        rows.cut.add(number)
    return kept


def _placed(answers: Sequence[Answer]) -> Answer | None:
    """Return the first answer that is where its file says, if there is one."""
    return next((answer for answer in answers if not answer.problem), None)


def _answer_tokens(characters: np.ndarray, answers: Sequence[Answer] | None) -> tuple[int, int]:
    """Return the first and the last token of the first placed answer; (-1, -1) if there is none."""
    answer = _placed(answers or ())
    if answer is None:
        return -1, -1
    start, end = answer.start, answer.start + len(answer.text)
    first = int(np.searchsorted(characters[:, 1], start, side="right"))
    last = int(np.searchsorted(characters[:, 0], end, side="left")) - 1
    return (first, last) if first <= last else (-1, -1)


_ENCODERS = {
    "classify": _classify,
    "regress": _regress,
    "tag": _tag,
    "span": _span,
    "choice": _choice,
}
