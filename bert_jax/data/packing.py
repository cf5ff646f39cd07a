"""Packing: which examples share a row.

Rows are planned from the numbers of examples of each length, longest first, and many equal rows at
a time. So a million examples cost hardly more than a thousand. Which example of a length goes into
which row follows from the random order of the epoch's examples.
"""

import math
from collections.abc import Sequence

import numpy as np

from bert_jax.batch import Batch

RowGroup = tuple[int, tuple[int, ...]]  # how many rows, and the lengths of the examples in each

# Excess over the fewest rows that could hold all tokens and examples: so few may not suffice.
SLACK = (0.0, 0.002, 0.005, 0.01, 0.02)


def plan_rows(counts: Sequence[int] | np.ndarray, length: int, most: int) -> list[RowGroup]:
    """Plan rows of `length` tokens and at most `most` examples, for counts[n] examples of n tokens.

    Several plans are made, and the plan with the fewest rows is returned. Best fit puts each
    example into the fullest row that has room. Best fit leaves the fewest tokens empty, unless the
    rows reach `most` examples first: then the rows of short examples stay half empty. The other
    plans open a number of rows at once, and put each example into the emptiest row.
    """
    left = {n: int(counts[n]) for n in range(min(length, len(counts) - 1), 0, -1) if counts[n]}
    tokens = sum(n * count for n, count in left.items())
    fewest = max(tokens / length, sum(left.values()) / most)
    plans = [_fill_rows(left, length, most, opened=0)]
    for slack in SLACK:
        plans.append(_fill_rows(left, length, most, opened=math.ceil(fewest * (1 + slack))))
    return min(plans, key=count_rows)


def count_rows(groups: Sequence[RowGroup]) -> int:
    """Count the rows in all groups of equal rows."""
    return sum(rows for rows, _ in groups)


def _fill_rows(left: dict[int, int], length: int, most: int, opened: int) -> list[RowGroup]:
    """Put left[n] examples of n tokens, longest first, into rows; add rows if no row has room.

    `opened` empty rows are there at the start. If `opened` is 0, an example goes into the fullest
    row that has room, otherwise into the emptiest row. Rows with equal contents are one group, and
    examples of one length are placed together. In rows of 128 tokens, 12 examples of 60 tokens make
    the group (6, (60, 60)): six rows of two examples each.
    """
    full: list[RowGroup] = []
    by_room: list[list[RowGroup]] = [[] for _ in range(length + 1)]  # by the tokens that are left

    def put_back(rows: int, held: tuple[int, ...], room: int) -> None:
        if rows and (len(held) == most or not room):
            full.append((rows, held))
        elif rows:
            by_room[room].append((rows, held))

    put_back(opened, (), length)
    for n, count in left.items():
        rooms = range(length, n - 1, -1) if opened else range(n, length + 1)
        while count:
            room = next((room for room in rooms if by_room[room]), None)
            if room is None:
                put_back(-(-count // min(length // n, most)), (), length)
                continue
            rows, held = by_room[room].pop()
            # Evenly, a row takes one example: another row is emptier then.
            each = 1 if opened else min(room // n, most - len(held))
            whole = min(rows, count // each)  # rows that take `each` examples
            put_back(whole, held + (n,) * each, room - n * each)
            rows -= whole
            count -= whole * each
            if rows and count:  # the last examples are fewer than one row takes
                put_back(1, held + (n,) * count, room - n * count)
                rows -= 1
                count = 0
            put_back(rows, held, room)
    return full + [group for groups in by_room for group in groups if group[1]]


def assign_examples(groups: Sequence[RowGroup], sizes: np.ndarray, most: int) -> np.ndarray:
    """Return the examples of each row [R, most], as indices into `sizes` [N]; -1 means no example.

    `sizes` has the length of each example. Examples of the same length are taken in their order.
    """
    by_length = np.argsort(sizes, kind="stable").astype(np.int32)
    # taken[n]: where in `by_length` the next example of n tokens stands.
    taken = np.concatenate([[0], np.cumsum(np.bincount(sizes))])
    table = np.full((count_rows(groups), most), -1, np.int32)
    first = 0
    for rows, held in groups:
        for slot, n in enumerate(held):
            table[first : first + rows, slot] = by_length[taken[n] : taken[n] + rows]
            taken[n] += rows
        first += rows
    return table


def measure_efficiency(groups: Sequence[RowGroup], length: int) -> tuple[float, float, float]:
    """Return the examples per row, the share of real tokens, and the same share without packing."""
    rows = count_rows(groups)
    examples = sum(count * len(held) for count, held in groups)
    tokens = sum(count * sum(held) for count, held in groups)
    return examples / rows, tokens / (rows * length), tokens / (examples * length)


def place_examples(examples: Batch, batch: Batch, rows: np.ndarray, slots: np.ndarray) -> None:
    """Copy N examples, each in a row of its own, into the rows of a packed batch.

    Args:
      examples: a batch with one example in each row.
      batch: the packed batch, which is changed.
      rows: the row of the packed batch for each example [N].
      slots: the number of each example in its row, from 0 [N]. The examples of a row must come in
        this order.
    """
    real = examples["segment_ids"] > 0  # [N, L]
    sizes = real.sum(axis=1)
    # An example starts in its row where the examples before it end: sizes 3, 4, 2 in slots 0, 1, 0
    # end at 3, 7, 9 in all, so that they start at columns 0, 3, 0.
    begins = np.cumsum(sizes) - sizes
    first = np.maximum.accumulate(np.where(slots == 0, np.arange(len(slots)), 0))
    start = begins - begins[first]  # [N]
    # Indices into flat arrays, which are several times as fast as pairs of indices.
    source = np.flatnonzero(real)
    length = real.shape[1]
    own = np.arange(len(sizes)) * length  # where the row of each example begins in `examples`
    target = source + np.repeat(rows * length + start - own, sizes)
    for key in ("tokens", "type_ids", "positions", *({"unit_scales"} & batch.keys())):
        np.put(batch[key], target, np.take(examples[key], source))
    np.put(batch["segment_ids"], target, np.repeat(slots + 1, sizes))
    units = np.take(examples["unit_ids"], source)
    np.put(batch["unit_ids"], target, np.where(units >= 0, units + np.repeat(start, sizes), units))
    for key in ("example_ids", "copies", "places", "labels"):
        batch[key][rows, slots] = examples[key][:, 0]
    batch["cls_positions"][rows, slots] = start
