"""Several examples a row: which of them share one.

Rows are planned on the histogram of lengths, longest first, whole groups of equal examples at a time, so that a million
examples cost hardly more than a thousand. Which example of a length goes where is chance: an epoch's examples
are taken in its random order, and its rows come in a random order of their own.
"""

from __future__ import annotations

import contextlib
import heapq
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

Shape = tuple[int, tuple[int, ...]]  # so many rows, with examples of these lengths

_ROWS = 0x524F5753  # keeps the hashes of the order of rows apart
SLACK = (
    0.0,
    0.002,
    0.005,
    0.01,
    0.02,
)  # rows tried, over the least there can be: so few may not have room for all
_KEPT = 2  # epochs whose rows are remembered: a batch may hold the end of one and the beginning of the next


def lengths(records: np.ndarray) -> np.ndarray:
    """Tokens of each example of a plan, special ones included."""
    if "breaks" in (records.dtype.names or ()):
        return records["a_length"].astype(np.int64) + records["breaks"] + 2
    return (
        records["a_length"].astype(np.int64) + records["b_length"] + 2 + (records["b_length"] > 0)
    )


def shapes(counts: Sequence[int] | np.ndarray, length: int, most: int) -> list[Shape]:
    """Rows of `length` tokens with at most `most` examples each, for counts[n] examples of n tokens.

    The best of several tries: best fit leaves the least empty where a row may hold as many as it likes, even rows where
    the number of examples is what is short.
    """
    left = {n: int(counts[n]) for n in range(min(length, len(counts) - 1), 0, -1) if counts[n]}
    least = max(sum(n * count for n, count in left.items()) / length, sum(left.values()) / most)
    even = [_evenly(left, length, most, math.ceil(least * (1 + more))) for more in SLACK]
    return min((_best_fit(left, length, most), *even), key=lambda one: sum(rows for rows, _ in one))


def _best_fit(left: dict[int, int], length: int, most: int) -> list[Shape]:
    """The longest first, into the fullest row that has room."""
    full: list[Shape] = []
    free: list[list[Shape]] = [[] for _ in range(length + 1)]  # by the tokens that are left

    def put(rows: int, held: tuple[int, ...], room: int) -> None:
        if rows:
            (full if len(held) == most or not room else free[room]).append((rows, held))

    for n, count in left.items():
        for room in range(n, length + 1):
            while count and free[room]:
                rows, held = free[room].pop()
                each = min(room // n, most - len(held))
                whole = min(rows, count // each)
                put(whole, held + (n,) * each, room - each * n)
                rows, count = rows - whole, count - whole * each
                if rows and count:  # fewer than one more row takes
                    put(1, held + (n,) * count, room - count * n)
                    rows, count = rows - 1, 0
                put(rows, held, room)
        each = min(length // n, most)
        put(count // each, (n,) * each, length - each * n)
        put(int(count % each > 0), (n,) * (count % each), length - count % each * n)
    return [*full, *(one for several in free for one in several)]


def _evenly(left: dict[int, int], length: int, most: int, rows: int) -> list[Shape]:
    """The longest first, into the emptiest of so many rows; others are begun where none has room."""
    open_: list[tuple[int, int, tuple[int, ...]]] = [(-length, rows, ())] if rows else []  # a heap
    full: list[Shape] = []
    for n, count in left.items():
        while count:
            if not open_ or -open_[0][0] < n:
                heapq.heappush(open_, (-length, -(-count // min(length // n, most)), ()))
            room, rows, held = heapq.heappop(open_)
            some = min(rows, count)
            if rows > some:
                heapq.heappush(open_, (room, rows - some, held))
            count -= some
            if len(held) + 1 == most:
                full.append((some, (*held, n)))
            else:
                heapq.heappush(open_, (room + n, some, (*held, n)))
    return [*full, *((rows, held) for _, rows, held in open_ if held)]


def assign(found: Sequence[Shape], sizes: np.ndarray, most: int) -> np.ndarray:
    """The examples of each row, by their index in `sizes`, those of a length in their order; -1 where there is none."""
    by_length = np.argsort(sizes, kind="stable").astype(np.int32)
    taken = np.concatenate([[0], np.cumsum(np.bincount(sizes))])  # of the examples of each length
    table = np.full((sum(rows for rows, _ in found), most), -1, np.int32)
    at = 0
    for rows, held in found:
        for slot, n in enumerate(held):
            table[at : at + rows, slot] = by_length[taken[n] : taken[n] + rows]
            taken[n] += rows
        at += rows
    return table


class Packer:
    """The rows of every epoch of a split."""

    def __init__(self, plans: Plans, folder: Path, length: int, most: int, seed: int):
        self._plans, self._length, self._most, self._seed = plans, length, most, seed
        self._path = Path(folder) / "plans" / f"{plans.family}-{length}x{most}.rows"
        self._counts: dict[int, list[int]] = {}  # by copy: rows, and real tokens in them
        self._shapes: dict[int, list[Shape]] = {}
        self._epochs: dict[int, np.ndarray] = {}

    def count(self, copy: int) -> int:
        """Rows in a copy: its lengths say it, whatever the order."""
        return self._counted(copy)[0]

    def _counted(self, copy: int) -> list[int]:
        copy = self._plans.distinct(copy)
        if copy not in self._counts:
            self._counts = _read(self._path) | self._counts
        if copy not in self._counts:
            found = self._shapes_of(copy)
            self._counts[copy] = [
                sum(rows for rows, _ in found),
                sum(rows * sum(held) for rows, held in found),
            ]
            _write(self._path, self._counts)
        return self._counts[copy]

    def rows(self, epoch: int, copy: int, index: np.ndarray) -> np.ndarray:
        """The examples [n, most] of rows of an epoch, which makes so many rows of a copy; -1 where there is none."""
        table = self._epochs.get(epoch)
        if table is None:
            table = self._of_epoch(epoch, copy)
            self._epochs = _last(self._epochs) | {epoch: table}
        return table[order.permute(index, len(table), order.key(self._seed, _ROWS, epoch))]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {
            "_epochs": {},
            "_shapes": {},
        }  # quick to make again in another process

    def _of_epoch(self, epoch: int, copy: int) -> np.ndarray:
        sizes = lengths(self._plans.records(copy))
        examples = order.permute(
            np.arange(len(sizes)), len(sizes), order.key(self._seed, order.EXAMPLES, epoch)
        )
        table = assign(self._shapes_of(self._plans.distinct(copy)), sizes[examples], self._most)
        return np.where(table >= 0, examples[table], -1).astype(np.int32)

    def _shapes_of(self, copy: int) -> list[Shape]:
        found = self._shapes.get(copy)
        if found is None:
            sizes = lengths(self._plans.records(copy))
            found = shapes(np.bincount(sizes, minlength=self._length + 1), self._length, self._most)
            self._shapes = _last(self._shapes) | {copy: found}
        return found

    def efficiency(self, copy: int = 0) -> tuple[float, float, float]:
        """Examples a row, the share of its tokens that are real, and that share with a row for each example."""
        examples, (rows, real) = int(self._plans.counts(copy).sum()), self._counted(copy)
        return examples / rows, real / (rows * self._length), real / (examples * self._length)


def _last(kept: dict[int, Any]) -> dict[int, Any]:
    return dict(list(kept.items())[1 - _KEPT :])


def place(examples: Batch, batch: Batch, rows: np.ndarray, slots: np.ndarray) -> None:
    """Writes examples [n, L], each a row of its own so far, into slots of the rows of a batch, one behind the other.

    Examples of a row must come in the order of their slots.
    """
    real = examples["segment_ids"] > 0  # [n, L]
    sizes = real.sum(axis=1)
    begins = np.cumsum(sizes) - sizes
    first = begins[
        np.maximum.accumulate(np.where(slots == 0, np.arange(len(slots)), 0))
    ]  # where the row begins
    start = begins - first  # [n], the column of each example
    which, column = np.nonzero(real)
    target = rows[which], column + start[which]
    for key in ("tokens", "type_ids", "positions"):
        batch[key][target] = examples[key][which, column]
    batch["segment_ids"][target] = slots[which] + 1
    units = examples["unit_ids"][which, column]
    batch["unit_ids"][target] = np.where(units >= 0, units + start[which], units)
    for key in ("example_ids", "copies", "labels"):
        batch[key][rows, slots] = examples[key][:, 0]
    batch["cls_positions"][rows, slots] = start


def _read(path: Path) -> dict[int, list[int]]:
    try:
        return {
            int(copy): counted
            for copy, counted in jsons.read(path, DataError, {str: [int]}).items()
        }
    except (DataError, ValueError):  # not there yet, or damaged: counted again
        return {}


def _write(path: Path, counts: dict[int, list[int]]) -> None:
    # The folder of a corpus that another user prepared is read-only: each process counts for itself.
    with contextlib.suppress(OSError, disk.DiskFull):
        disk.write(path, json.dumps(counts))
