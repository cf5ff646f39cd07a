"""Encode texts as rows, [CLS] A [SEP] or [CLS] A [SEP] B [SEP]: truncated, and padded or packed.

Two separators part the texts of a pair where the vocabulary says so, as RoBERTa's does; then all
type ids are 0.

first, second = truncate([5, 6, 7], [8, 9], room=4)  -> [5, 6], [8, 9]
batch = rows(special, [[first, second]], length=8)
                                -> tokens [[CLS, 5, 6, SEP, 8, 9, SEP, PAD]], type_ids, …
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from bert_jax.batch import Batch, Special
from bert_jax.errors import DataError

Part = tuple[Sequence[int], Sequence[int] | None]  # a text, and the second text of a pair


def truncate(
    first: Sequence[int], second: Sequence[int], room: int
) -> tuple[Sequence[int], Sequence[int]]:
    """Cut two texts at their ends to `room` tokens together; `second` of a single text is empty.

    The longer text is cut. If both must be cut, they end up equally long, and of an odd room the
    second text gets one more unless it was the shorter one: `longest_first` of tokenizers.
    """
    if room < 0:
        raise ValueError(f"room = {room}: at least 0")
    a, b = len(first), len(second)
    if a + b > room and a <= b:
        a = min(a, max(room // 2, room - b))
    elif a + b > room:
        a = room - min(b, max(room // 2, room - a))
    return first[:a], second[: room - a]


def rows(
    special: Special,
    texts: Sequence[Sequence[Sequence[int]]],
    length: int,
    size: int | None = None,
) -> Batch:
    """Build one padded row for each text or pair; raise DataError for a text that does not fit.

    Args:
      special: ids of the special tokens.
      texts: of each row, the token ids of one text or of two.
      length: of the rows.
      size: rows of the batch, the last ones being padding alone; by default one for each text.
    """
    between = [special.sep] * special.separators
    encoded = [
        [special.cls, *parts[0], *(i for part in parts[1:] for i in (*between, *part)), special.sep]
        for parts in texts
    ]
    counts = np.array([len(ids) for ids in encoded], np.int32)
    longest = int(np.max(counts, initial=0))
    if longest > length:
        raise DataError(
            f"row {int(np.argmax(counts))} has {longest} tokens, and {length} fit", "truncate it"
        )
    shape = (len(encoded) if size is None else size, length)
    tokens = np.full(shape, special.pad, np.int32)  # [B, L]
    segments, types = np.zeros(shape, np.int32), np.zeros(shape, np.int32)  # [B, L]
    for row, (ids, parts) in enumerate(zip(encoded, texts, strict=True)):
        tokens[row, : len(ids)] = ids
        segments[row, : len(ids)] = 1
        types[row, len(parts[0]) + 2 : len(ids)] = special.separators == 1
    return {
        "tokens": tokens,
        "type_ids": types,
        "segment_ids": segments,
        "positions": np.arange(length, dtype=np.int32)[None, :] * segments,
        "cls_positions": np.zeros((shape[0], 1), np.int32),  # [B, 1]
    }


def concatenate(special: Special, rows: Sequence[Sequence[Part]]) -> dict[str, np.ndarray]:
    """Concatenate rows without padding; parts of one row do not attend to one another.

    Returns:
      offsets, int64 [N + 1]: where each row begins, and where the last one ends;
      tokens, type_ids, positions and segment_ids, int32 [T]: segments count from 1 in each row, and
      positions from 0 in each segment;
      cls_positions, int32 [N, S]: of the [CLS] of each part in its row, 0 where there is no part.
    """
    parts = [part for row in rows for part in row]
    a = np.array([2 + len(first) for first, _ in parts], np.int64)  # [P], with [CLS] and [SEP]
    extra = special.separators  # of a second text: those before it but one, and the one behind it
    b = np.array([0 if text is None else len(text) + extra for _, text in parts], np.int64)  # [P]
    counts = np.array([len(row) for row in rows], np.int64)  # [N]
    starts, begins = cumulative(a + b), cumulative(counts)  # [P + 1], [N + 1]
    row = np.repeat(np.arange(len(rows)), counts)  # [P]
    part = np.arange(len(parts)) - begins[row]  # [P]
    offsets, total = starts[begins], int(starts[-1])
    cls_positions = np.zeros((len(rows), int(np.max(counts, initial=1))), np.int32)  # [N, S]
    cls_positions[row, part] = starts[:-1] - offsets[row]
    cls, sep = (special.cls,), (special.sep,)
    pieces = (
        (cls, first, sep) if second is None else (cls, first, sep * extra, second, sep)
        for first, second in parts
    )
    tokens = itertools.chain.from_iterable(itertools.chain.from_iterable(pieces))
    types = np.tile(np.array([0, extra == 1], np.int32), len(parts))  # [2 P]
    return {
        "offsets": offsets,
        "tokens": np.fromiter(tokens, np.int32, total),
        "type_ids": np.repeat(types, np.stack([a, b], axis=1).reshape(-1)),
        "positions": (np.arange(total) - np.repeat(starts[:-1], a + b)).astype(np.int32),
        "segment_ids": np.repeat((part + 1).astype(np.int32), a + b),
        "cls_positions": cls_positions,
    }


def cumulative(counts: np.ndarray) -> np.ndarray:
    """Return where each of consecutive stretches begins and the last one ends: int64 [N + 1]."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
