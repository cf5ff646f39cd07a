"""Packing: which examples share a row.

Rows are planned on the histogram of lengths, longest first, whole groups of equal examples at a
time, so that a million examples cost hardly more than a thousand. Which example of a length goes
where is random: an epoch's examples are taken in its random order, and its rows come in a random
order of their own.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.batch import Batch
from bert_jax.data.batches import order
from bert_jax.data.batches.plans import Plans
from bert_jax.errors import DataError
from bert_jax.system import disk, jsons

Shape = tuple[int, tuple[int, ...]]  # a number of rows, and the lengths of the examples in each

_ROWS = 0x524F5753  # keeps the hashes of the order of rows apart
# Numbers of rows to try, as excess over the lower bound: so few rows may not have room for all.
SLACK = (0.0, 0.002, 0.005, 0.01, 0.02)
_KEPT = 2  # epochs kept in memory: a batch may hold the end of one and the beginning of the next


def lengths(records: np.ndarray, separators: int = 1) -> np.ndarray:
    """Return the number of tokens of each example of a plan, special tokens included.

    So many `separators` stand between two texts.
    """
    a_length = records["a_length"].astype(np.int64)
    if "breaks" in (records.dtype.names or ()):
        return a_length + records["breaks"] + 2
    return a_length + records["b_length"] + 2 + separators * (records["b_length"] > 0)


def shapes(counts: Sequence[int] | np.ndarray, length: int, most: int) -> list[Shape]:
    """Plan rows of `length` tokens and at most `most` examples, for counts[n] examples of n tokens.

    The best of several plans is returned: best fit leaves the fewest tokens empty where a row may
    hold any number of examples; filling rows evenly does where that number is the limit.
    """
    left = {n: int(counts[n]) for n in range(min(length, len(counts) - 1), 0, -1) if counts[n]}
    least = max(sum(n * count for n, count in left.items()) / length, sum(left.values()) / most)
    even = [_evenly(left, length, most, math.ceil(least * (1 + slack))) for slack in SLACK]
    return min((_best_fit(left, length, most), *even), key=_rows_of)


def _rows_of(plan: Sequence[Shape]) -> int:
    return sum(rows for rows, _ in plan)


def _best_fit(left: dict[int, int], length: int, most: int) -> list[Shape]:
    """Put examples, longest first, into the fullest row that has room."""
    full: list[Shape] = []
    free: list[list[Shape]] = [[] for _ in range(length + 1)]  # by the tokens that are left

    def put_back(rows: int, held: tuple[int, ...], room: int) -> None:
        if rows:
            (full if len(held) == most or not room else free[room]).append((rows, held))

    for n, count in left.items():
        for room in range(n, length + 1):
            while count and free[room]:
                rows, held = free[room].pop()
                per_row = min(room // n, most - len(held))
                whole = min(rows, count // per_row)
                put_back(whole, held + (n,) * per_row, room - per_row * n)
                rows, count = rows - whole, count - whole * per_row
                if rows and count:  # fewer examples are left than one more row has room for
                    put_back(1, held + (n,) * count, room - count * n)
                    rows, count = rows - 1, 0
                put_back(rows, held, room)
        per_row = min(length // n, most)
        rest = count % per_row
        put_back(count // per_row, (n,) * per_row, length - per_row * n)
        put_back(int(rest > 0), (n,) * rest, length - rest * n)
    return [*full, *itertools.chain.from_iterable(free)]


def _evenly(left: dict[int, int], length: int, most: int, rows: int) -> list[Shape]:
    """Put examples, longest first, into the emptiest of `rows` rows; add rows where needed."""
    # A heap of (minus the room, rows, lengths held).
    open_: list[tuple[int, int, tuple[int, ...]]] = [(-length, rows, ())] if rows else []
    full: list[Shape] = []
    for n, count in left.items():
        while count:
            if not open_ or -open_[0][0] < n:
                heapq.heappush(open_, (-length, -(-count // min(length // n, most)), ()))
            room, rows, held = heapq.heappop(open_)
            filled = min(rows, count)
            if rows > filled:
                heapq.heappush(open_, (room, rows - filled, held))
            count -= filled
            if len(held) + 1 == most:
                full.append((filled, (*held, n)))
            else:
                heapq.heappush(open_, (room + n, filled, (*held, n)))
    return [*full, *((rows, held) for _, rows, held in open_ if held)]


def assign(plan: Sequence[Shape], sizes: np.ndarray, most: int) -> np.ndarray:
    """Return the examples [rows, most] of each row, as indices into `sizes`; -1 is none.

    Examples of the same length are taken in their order.
    """
    by_length = np.argsort(sizes, kind="stable").astype(np.int32)
    taken = np.concatenate([[0], np.cumsum(np.bincount(sizes))])  # of the examples of each length
    table = np.full((_rows_of(plan), most), -1, np.int32)
    first = 0
    for rows, held in plan:
        for slot, n in enumerate(held):
            table[first : first + rows, slot] = by_length[taken[n] : taken[n] + rows]
            taken[n] += rows
        first += rows
    return table


class Packer:
    """Packed rows of every epoch of a split."""

    def __init__(
        self,
        plans: Plans,
        folder: Path,
        length: int,
        most: int,
        seed: int,
        separators: int = 1,
    ):
        self._plans, self._length, self._most, self._seed = plans, length, most, seed
        self._separators = separators
        self._path = Path(folder) / "plans" / f"{plans.family}-{length}x{most}.rows"
        self._counts: dict[int, list[int]] = {}  # by copy: rows, and real tokens in them
        self._shapes: dict[int, list[Shape]] = {}
        self._epochs: dict[int, np.ndarray] = {}

    def count(self, copy: int) -> int:
        """Return the number of rows of a copy, which depends on its lengths alone."""
        return self._counted(copy)[0]

    def _counted(self, copy: int) -> list[int]:
        copy = self._plans.distinct(copy)
        if copy not in self._counts:
            self._counts = _read(self._path) | self._counts
        if copy not in self._counts:
            plan = self._shapes_of(copy)
            self._counts[copy] = [_rows_of(plan), sum(rows * sum(held) for rows, held in plan)]
            _write(self._path, self._counts)
        return self._counts[copy]

    def rows(self, epoch: int, copy: int, index: np.ndarray) -> np.ndarray:
        """Return the examples [n, most] of rows of an epoch that reads a copy; -1 is none."""
        table = self._epochs.get(epoch)
        if table is None:
            table = self._of_epoch(epoch, copy)
            self._epochs = _last(self._epochs) | {epoch: table}
        return table[order.permute(index, len(table), order.key(self._seed, _ROWS, epoch))]

    def __getstate__(self) -> dict[str, Any]:
        # Both are quick to make again in another process.
        return self.__dict__ | {"_epochs": {}, "_shapes": {}}

    def _of_epoch(self, epoch: int, copy: int) -> np.ndarray:
        sizes = lengths(self._plans.records(copy), self._separators)
        examples = order.permute(
            np.arange(len(sizes)), len(sizes), order.key(self._seed, order.EXAMPLES, epoch)
        )
        table = assign(self._shapes_of(self._plans.distinct(copy)), sizes[examples], self._most)
        return np.where(table >= 0, examples[table], -1).astype(np.int32)

    def _shapes_of(self, copy: int) -> list[Shape]:
        plan = self._shapes.get(copy)
        if plan is None:
            sizes = lengths(self._plans.records(copy), self._separators)
            plan = shapes(np.bincount(sizes, minlength=self._length + 1), self._length, self._most)
            self._shapes = _last(self._shapes) | {copy: plan}
        return plan

    def efficiency(self, copy: int = 0) -> tuple[float, float, float]:
        """Return examples a row, the share of real tokens, and that share without packing."""
        examples, (rows, real) = int(self._plans.counts(copy).sum()), self._counted(copy)
        return examples / rows, real / (rows * self._length), real / (examples * self._length)


def _last(kept: dict[int, Any]) -> dict[int, Any]:
    return dict(list(kept.items())[1 - _KEPT :])


def place(examples: Batch, batch: Batch, rows: np.ndarray, slots: np.ndarray) -> None:
    """Copy examples [n, L], each in a row of its own, into slots of the rows of a batch.

    Examples of a row must come in the order of their slots.
    """
    real = examples["segment_ids"] > 0  # [n, L]
    sizes = real.sum(axis=1)
    begins = np.cumsum(sizes) - sizes
    # Where the row of each example begins.
    first = begins[np.maximum.accumulate(np.where(slots == 0, np.arange(len(slots)), 0))]
    start = begins - first  # [n], the column of each example
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


def _read(path: Path) -> dict[int, list[int]]:
    try:
        counts = jsons.read(path, DataError, {str: [int]})
        return {int(copy): rows_and_tokens for copy, rows_and_tokens in counts.items()}
    except (DataError, ValueError):  # missing or damaged: counted again
        return {}


def _write(path: Path, counts: dict[int, list[int]]) -> None:
    # The folder of a corpus that another user prepared is read-only: each process counts for
    # itself.
    with contextlib.suppress(OSError, disk.DiskFull):
        disk.write(path, json.dumps(counts))
