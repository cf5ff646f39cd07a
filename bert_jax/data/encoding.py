"""Encode texts as rows, [CLS] A [SEP] or [CLS] A [SEP] B [SEP]: truncated, joined and padded.

If the vocabulary says so, as RoBERTa's does, two separators stand between the texts of a pair, and
all type ids are 0.

    first, second = truncate_pair([5, 6, 7], [8, 9], room=4)    -> [5, 6], [8, 9]
    batch = pad_rows(special, [[first, second]], length=8)
                                -> tokens [[CLS, 5, 6, SEP, 8, 9, SEP, PAD]], type_ids, …
"""

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from bert_jax.batch import Batch, Special

Part = tuple[Sequence[int], Sequence[int] | None]  # a text, and the second text of a pair


def truncate_pair(
    first: Sequence[int], second: Sequence[int], room: int
) -> tuple[Sequence[int], Sequence[int]]:
    """Cut two texts at their ends, so that together they have at most `room` tokens.

    The longer text is cut. If both must be cut, they end up equally long. If `room` is odd in this
    case, the second text gets the last token, unless it was the shorter text, as in `longest_first`
    of tokenizers. For a single text the second text is empty.
    """
    a = len(first)
    b = len(second)
    if a + b > room and a <= b:
        a = min(a, max(room // 2, room - b))
    elif a + b > room:
        a = room - min(b, max(room // 2, room - a))
    return first[:a], second[: room - a]


def pad_rows(
    special: Special, texts: Sequence[Sequence[Sequence[int]]], length: int, size: int | None = None
) -> Batch:
    """Build one padded row for each text or pair.

    Args:
      special: ids of the special tokens.
      texts: for each row, the token ids of one text or of two; they must fit into the row.
      length: tokens of a row.
      size: rows of the batch, by default one for each text; further rows are only padding.
    """
    rows = [[(first, second[0] if second else None)] for first, *second in texts]
    flat = join_rows(special, rows)
    offsets = flat.pop("offsets")
    flat.pop("cls_positions")
    size = len(texts) if size is None else size
    batch = pad_tokens(flat, offsets, np.arange(len(texts)), length, size, special.pad)
    batch["cls_positions"] = np.zeros((size, 1), np.int32)  # [B, 1]
    return batch


def join_rows(special: Special, rows: Sequence[Sequence[Part]]) -> dict[str, np.ndarray]:
    """Encode rows of one or more parts, and join the rows without padding.

    A part is a text or a pair. Parts of one row do not attend to one another.

    Returns:
      offsets, int64 [N + 1]: where each row begins, and where the last one ends;
      tokens, type_ids, positions and segment_ids, int32 [T]: segments count from 1 in each row, and
      positions from 0 in each segment;
      cls_positions, int32 [N, S]: the column of each part's [CLS]; 0 if a row has fewer parts.
    """
    parts = [part for row in rows for part in row]
    a = np.array([2 + len(first) for first, _ in parts], np.int64)  # [P], with [CLS] and [SEP]
    extra = special.separators  # separators that a second text adds
    b = np.array([0 if text is None else len(text) + extra for _, text in parts], np.int64)  # [P]
    counts = np.array([len(row) for row in rows], np.int64)  # [N]
    starts = find_starts(a + b)  # [P + 1], of each part
    begins = find_starts(counts)  # [N + 1], number of the first part of each row
    row = np.repeat(np.arange(len(rows)), counts)  # [P]
    part = np.arange(len(parts)) - begins[row]  # [P], number of the part in its row
    offsets = starts[begins]
    total = int(starts[-1])
    cls_positions = np.zeros((len(rows), int(np.max(counts, initial=1))), np.int32)  # [N, S]
    cls_positions[row, part] = starts[:-1] - offsets[row]
    cls = (special.cls,)
    sep = (special.sep,)
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


def pad_tokens(
    arrays: Mapping[str, np.ndarray],
    offsets: np.ndarray,
    rows: np.ndarray,
    length: int,
    size: int,
    pad: int,
) -> Batch:
    """Build a padded array [size, length] of the chosen `rows` from each array of joined rows [T].

    Rows after the chosen ones are only padding. Tokens are padded with `pad`, tags with -1, and all
    else with 0.
    """
    counts = np.zeros(size, np.int64)  # [B]
    counts[: len(rows)] = offsets[rows + 1] - offsets[rows]
    if np.max(counts, initial=0) > length:
        raise ValueError(f"a row of {np.max(counts)} tokens in a batch of length {length}")
    columns = np.arange(length)
    real = columns[None] < counts[:, None]  # [B, L]
    # Index in [T] of every real token, row by row: a row of 3 tokens that begins at 7 has 7, 8, 9.
    source = (offsets[rows][:, None] + columns[None])[real[: len(rows)]]
    paddings = {"tokens": pad, "tags": -1}
    padded: Batch = {}
    for name, values in arrays.items():
        padded[name] = np.full((size, length), paddings.get(name, 0), np.int32)  # [B, L]
        padded[name][real] = values[source]
    return padded


def find_starts(counts: np.ndarray) -> np.ndarray:
    """Return the starts of consecutive stretches, and the end of the last one: int64 [N + 1].

    Stretches of 2, 3 and 1 elements give 0, 2, 5, 6.
    """
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
