"""Examples as token rows with their targets, windows over texts that are too long, and batches of such rows.

A row is [CLS] A [SEP] or [CLS] A [SEP] B [SEP]; of multiple choice it is several of them side by side, one an option.

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

IN_WINDOWS = ("tag", "span")  # what can be answered for a part of a text
FLAT = ("tokens", "type_ids", "positions", "segment_ids")


@dataclasses.dataclass(frozen=True)
class Features:
    """N rows with T tokens together, which lie one after the other; special tokens are included."""

    offsets: np.ndarray  # int64 [N + 1], where the tokens of each row begin
    tokens: np.ndarray  # int32 [T]
    type_ids: np.ndarray  # int32 [T]
    positions: np.ndarray  # int32 [T], inside an option
    segment_ids: np.ndarray  # int32 [T], 1; choice: the option, counted from 1
    cls_positions: np.ndarray  # int32 [N, S], of each option; 0 where a question has fewer
    targets: dict[
        str, np.ndarray
    ]  # labels int32 [N, 1], values float32 [N, 1], spans int32 [N, 2], tags int32 [T]
    example: np.ndarray  # int32 [N], index of the example
    words: (
        np.ndarray | None
    )  # tag: int32 [T], word whose first piece this is and for which this row answers, or -1
    characters: np.ndarray | None  # span: int32 [T, 2], where the token lies in the context, or -1
    best: (
        np.ndarray | None
    )  # span: bool [T], this row shows more of what is around the token than any other
    cut: int  # examples that lost text

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each row: int64 [N]."""
        return np.diff(self.offsets)

    @property
    def longest(self) -> int:
        """Tokens of the longest row."""
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
    """All rows of the examples, in their order.

    Args:
      examples: labelled or not; what has no label has targets -1, or NaN.
      kind: the objective, one of `knobs.LABELLED`.
      tokenizer: its ids carry no special tokens.
      task: what happens to texts that are too long.
      length: tokens of a row, special ones included; choice: of each option.
      train: leaves out what only answers need: words, characters, best.
    """
    long = ("windows" if kind in IN_WINDOWS else "cut") if task.long == "auto" else task.long
    if long == "windows" and kind not in IN_WINDOWS:
        raise ConfigError(
            f"task.long = 'windows' has no meaning for {kind}",
            "cut or refuse; windows are for tag, span",
        )
    rows = _Rows(length, long)
    finish = _ENCODERS[kind](rows, examples, tokenizer, task)
    return finish(rows.features(tokenizer.special), train)


def batch(features: Features, rows: np.ndarray, length: int, size: int, special: Special) -> Batch:
    """The rows with these numbers, padded to `length`; rows of padding alone fill up to `size`."""
    counts = np.zeros(size, np.int64)  # [B]
    counts[: len(rows)] = features.lengths[rows]
    if np.max(counts, initial=0) > length:
        raise ValueError(f"a row of {np.max(counts)} tokens in a batch of length {length}")
    columns = np.arange(length)
    there = columns[None] < counts[:, None]  # [B, L]
    source = (features.offsets[rows][:, None] + columns[None])[
        there[: len(rows)]
    ]  # [tokens of the batch]

    def spread(values: np.ndarray, padding: int) -> np.ndarray:
        out = np.full((size, length), padding, np.int32)  # [B, L]
        out[there] = values[source]
        return out

    def fill(values: np.ndarray, padding: float) -> np.ndarray:
        out = np.full((size, *values.shape[1:]), padding, values.dtype)  # [B, ...]
        out[: len(rows)] = values[rows]
        return out

    made = {
        name: spread(getattr(features, name), special.pad if name == "tokens" else 0)
        for name in FLAT
    }
    made["cls_positions"] = fill(features.cls_positions, 0)
    made["example_ids"] = fill(np.arange(len(features.example), dtype=np.int32)[:, None], -1)
    for name, values in features.targets.items():
        made[name] = (
            spread(values, -1)
            if name == "tags"
            else fill(values, np.nan if name == "values" else -1)
        )
    return made


class _Rows:
    """Rows as they are found, and for which example each is."""

    def __init__(self, length: int, long: str):
        self.length, self.long = length, long
        self.parts: list[Sequence[encoding.Part]] = []
        self.example: list[int] = []
        self.cut: set[int] = set()

    def add(self, number: int, *parts: encoding.Part) -> None:
        """One row; every part fits."""
        self.parts.append(parts)
        self.example.append(number)

    def shorten(self, number: int, example: Example, tokens: int) -> None:
        """Notes that an example of so many tokens does not fit, or refuses it."""
        if self.long == "refuse":
            raise DataError(
                f"{example.where}: {tokens} tokens, and sequence_length = {self.length}",
                "task.long = 'cut' takes the beginning; or raise sequence_length",
            )
        self.cut.add(number)

    def features(self, special: Special) -> Features:
        """The rows without targets."""
        return Features(
            **encoding.flat(special, self.parts),
            targets={},
            example=np.array(self.example, np.int32),
            words=None,
            characters=None,
            best=None,
            cut=len(self.cut),
        )


# --- each kind: adds its rows, and gives back what completes their features -----------------------

Finish = Callable[[Features, bool], Features]


def _texts(rows: _Rows, examples: Sequence[Example], tokenizer: Tokenizer) -> None:
    """One row a text or pair."""
    first = tokenizer.encode_batch([one.text for one in examples])
    second = iter(tokenizer.encode_batch([one.pair for one in examples if one.pair is not None]))
    for number, (example, a) in enumerate(zip(examples, first, strict=True)):
        rows.add(
            number,
            _fitted(rows, number, example, a, None if example.pair is None else next(second)),
        )


def _fitted(
    rows: _Rows, number: int, example: Example, first: Sequence[int], second: Sequence[int] | None
) -> encoding.Part:
    """A text or pair, cut to the length if it must be."""
    size = len(first) + 2 + (0 if second is None else len(second) + 1)
    if size <= rows.length:
        return first, second
    rows.shorten(number, example, size)
    room = rows.length - (2 if second is None else 3)
    a, b = encoding.truncate(first, second or (), room)
    return a, None if second is None else b


def _classify(
    rows: _Rows, examples: Sequence[Example], tokenizer: Tokenizer, task: knobs.Task
) -> Finish:
    _texts(rows, examples, tokenizer)
    return _labelled(examples)


def _choice(
    rows: _Rows, examples: Sequence[Example], tokenizer: Tokenizer, task: knobs.Task
) -> Finish:
    premises = tokenizer.encode_batch([one.text for one in examples])
    options = iter(tokenizer.encode_batch([option for one in examples for option in one.options]))
    for number, (example, premise) in enumerate(zip(examples, premises, strict=True)):
        rows.add(
            number,
            *(_fitted(rows, number, example, premise, next(options)) for _ in example.options),
        )
    return _labelled(examples)


def _labelled(examples: Sequence[Example]) -> Finish:
    """The class or option of each example."""
    labels = np.array([-1 if one.label is None else one.label for one in examples], np.int32)[
        :, None
    ]  # [N, 1]
    return lambda made, train: dataclasses.replace(made, targets={"labels": labels})


def _regress(
    rows: _Rows, examples: Sequence[Example], tokenizer: Tokenizer, task: knobs.Task
) -> Finish:
    _texts(rows, examples, tokenizer)
    values = np.array([np.nan if one.label is None else one.label for one in examples], np.float32)[
        :, None
    ]  # [N, 1]
    return lambda made, train: dataclasses.replace(made, targets={"values": values})


def _tag(
    rows: _Rows, examples: Sequence[Example], tokenizer: Tokenizer, task: knobs.Task
) -> Finish:
    pieces = iter(tokenizer.encode_batch([word for one in examples for word in one.words]))
    answered: list[np.ndarray] = []  # of each row, without its special tokens
    for number, example in enumerate(examples):
        words = [next(pieces) or [tokenizer.special.unk] for _ in example.words]  # no word is lost
        ids = list(itertools.chain.from_iterable(words))
        firsts = encoding.places(np.array([len(word) for word in words], np.int64))[:-1]
        word_of = np.full(len(ids), -1, np.int32)
        word_of[firsts] = np.arange(len(words))
        for start, end, best in _looks(rows, number, example, len(ids), rows.length - 2, task):
            rows.add(number, (ids[start:end], None))
            answered.append(np.where(best, word_of[start:end], -1))

    def finish(made: Features, train: bool) -> Features:
        words = np.full(len(made.tokens), -1, np.int32)  # [T]
        for start, found in zip(made.offsets.tolist(), answered, strict=False):
            words[start + 1 : start + 1 + len(found)] = found
        labels = [[-1] * len(one.words) if one.label is None else one.label for one in examples]
        begins = encoding.places(np.array([len(one) for one in labels], np.int64))
        flat = np.fromiter(itertools.chain.from_iterable(labels), np.int32, int(begins[-1]))
        there = words >= 0  # [T]
        tags = np.full(len(words), -1, np.int32)
        tags[there] = flat[begins[np.repeat(made.example, made.lengths)[there]] + words[there]]
        return dataclasses.replace(made, targets={"tags": tags}, words=None if train else words)

    return finish


def _looks(
    rows: _Rows, number: int, example: Example, length: int, room: int, task: knobs.Task
) -> list[tuple[int, int, np.ndarray]]:
    """The windows over a text of so many tokens, each with the tokens it shows best."""
    if length <= room:
        return [(0, length, np.ones(length, bool))]
    if rows.long != "windows":
        rows.shorten(number, example, length + rows.length - room)
        return [(0, room, np.ones(room, bool))]
    spans = windows(length, room, task.stride, task.stride_as)
    best = best_windows(spans, length)
    return [(start, end, best[start:end] == i) for i, (start, end) in enumerate(spans.tolist())]


def _span(
    rows: _Rows, examples: Sequence[Example], tokenizer: Tokenizer, task: knobs.Task
) -> Finish:
    questions = tokenizer.encode_batch([one.text for one in examples])
    contexts = list(dict.fromkeys(one.pair or "" for one in examples))  # each is read once
    encoded = dict(zip(contexts, tokenizer.encode_with_offsets(contexts), strict=True))
    places = {
        text: np.array(found, np.int32).reshape(-1, 2) for text, (_, found) in encoded.items()
    }
    shown: list[
        tuple[int, np.ndarray, np.ndarray]
    ] = []  # of each row: column of the context, characters, best
    spans: list[tuple[int, int]] = []
    for number, (example, question) in enumerate(zip(examples, questions, strict=True)):
        ids, characters = encoded[example.pair or ""][0], places[example.pair or ""]
        if len(question) > task.question_tokens:
            if rows.long == "refuse":
                raise DataError(
                    f"{example.where}: a question of {len(question)} tokens, and task.question_tokens = "
                    f"{task.question_tokens}",
                    "task.long = 'cut' takes the beginning; or raise task.question_tokens",
                )
            rows.cut.add(number)
            question = question[: task.question_tokens]
        first, last = _answer_tokens(characters, example.label)
        column = len(question) + 2
        room = rows.length - 3 - len(question)
        if room < 1:
            raise DataError(
                f"{example.where}: sequence_length = {rows.length} cannot hold {len(question)} tokens of a question",
                "lower task.question_tokens, or raise sequence_length",
            )
        for start, end, best in _looks(rows, number, example, len(ids), room, task):
            rows.add(number, (question, ids[start:end]))
            shown.append((column, characters[start:end], best))
            inside = start <= first and last < end
            spans.append((column + first - start, column + last - start) if inside else (0, 0))
            if example.label is None or (example.label and _placed(example.label) is None):
                spans[-1] = (-1, -1)

    def finish(made: Features, train: bool) -> Features:
        made.targets["spans"] = np.array(spans, np.int32).reshape(-1, 2)  # [N, 2]
        if train:
            return made
        characters = np.full((len(made.tokens), 2), -1, np.int32)  # [T, 2]
        best = np.zeros(len(made.tokens), bool)  # [T]
        for start, (column, where, which) in zip(made.offsets.tolist(), shown, strict=False):
            characters[start + column : start + column + len(where)] = where
            best[start + column : start + column + len(which)] = which
        return dataclasses.replace(made, characters=characters, best=best)

    return finish


def _placed(answers: Sequence[Answer]) -> Answer | None:
    """Return the first answer that is where its file says."""
    return next((answer for answer in answers if not answer.problem), None)


def _answer_tokens(characters: np.ndarray, answers: Sequence[Answer] | None) -> tuple[int, int]:
    """First and last token that touch the first answer that is in the text; (-1, -1) where there is none."""
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
