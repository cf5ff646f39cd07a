"""Asks a trained model: one text a line in, one JSON object a line out, in the same order.

Lines are read some batches ahead, so that rows of about the same length share a batch. When the input pauses, what is
there is answered: a line typed by hand waits for no other.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import select
import stat
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
import tqdm

from bert_jax.config.knobs import LINE
from bert_jax.data.labelled.batches import rounded
from bert_jax.errors import DataError
from bert_jax.predictors import TABLE
from bert_jax.predictors.base import Model, Predictor, Row, Work

AHEAD = 8  # batches of lines that are read before the first is answered, to be sorted by length
PAUSE = 0.02  # seconds without a new line after which those that are there are answered
CHUNK = 1 << 16  # bytes read at once
HELD = (
    1 << 21
)  # bytes of lines held at most, once there is a whole one: tokenised, they take 200 times as many


# --- reading --------------------------------------------------------------------------------------------------------


def read(descriptor: int, count: int) -> Iterator[list[bytes]]:
    """Yield up to `count` lines at once, and fewer when the input pauses or they are long.

    Of a line of more than LINE bytes no more is kept than shows that it is.
    """
    regular = stat.S_ISREG(os.fstat(descriptor).st_mode)  # never pauses
    held: list[bytes] = []
    begun: list[bytes] = []  # of a line whose end has not come yet
    size = 0
    while True:
        if not regular and not select.select([descriptor], [], [], PAUSE if held else None)[0]:
            yield held
            held, size = [], 0
            continue
        data = os.read(descriptor, CHUNK)
        if not data:
            break
        first, *more = data.split(b"\n")
        if sum(map(len, begun)) <= LINE:
            begun.append(first)
        if more:
            held += [b"".join(begun), *more[:-1]]
            begun = [more[-1]]
        size += len(data)
        while len(held) >= count or (held and size > HELD):
            yield held[:count]
            held, size = held[count:], 0
    held += [b"".join(begun)] if any(begun) else []
    if held:
        yield held


def decode(number: int, line: bytes) -> str:
    """Decode a line as UTF-8, whatever the locale; a byte order mark is no text."""
    if len(line) > LINE:
        raise DataError(f"line {number}: more than {LINE:,} bytes", "divide it, or leave it out")
    try:
        return line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        hint = "convert the file, for example with iconv"
        raise DataError(f"line {number}: not UTF-8: {error.reason}", hint) from error


# --- asking ---------------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Tally:
    """What was asked so far."""

    lines: int = 0  # read
    bad: int = 0  # left out
    cut: int = 0
    tokens: int = 0


class Asking:
    """Lines in, results out."""

    def __init__(self, model: Model, task: str):
        self.predictor: Predictor = TABLE[task](model)
        self.options = model.options
        self.tally = Tally()

    def answers(self, lines: Sequence[str | bytes]) -> Iterator[dict[str, Any]]:
        """The results of some lines, in order; DataError behind those of the lines before a bad one."""
        first = self.tally.lines + 1
        self.tally.lines += len(lines)
        rows: list[Row] = []
        failed: DataError | None = None
        for number, line in enumerate(lines, first):
            try:
                text = line if isinstance(line, str) else decode(number, line)
                rows.append(self.predictor.read(number, text.rstrip("\r\n")))
            except DataError as error:
                if failed := self._bad(error):
                    break
        try:
            work = self.predictor.encode(rows) if rows else None
        except DataError:  # of some row: which?
            rows, late = self._sound(rows)
            failed = late or failed
            work = self.predictor.encode(rows) if rows else None
        if work is not None:
            self.tally.cut += work.cut
            self.tally.tokens += int(work.lengths.sum())
            yield from work.results(compute(work, self.options.batch_size))
        if failed:
            raise failed

    def _sound(self, rows: list[Row]) -> tuple[list[Row], DataError | None]:
        """The rows that can be asked, up to one that ends it."""
        sound: list[Row] = []
        for row in rows:
            try:
                self.predictor.encode([row])
                sound.append(row)
            except DataError as error:
                if failed := self._bad(error):
                    return sound, failed
        return sound, None

    def _bad(self, error: DataError) -> DataError | None:
        """What ends it, or a warning."""
        if self.options.on_bad_row == "fail":
            return error
        self.tally.bad += 1
        tqdm.tqdm.write(f"warning: {error}; left out", file=sys.stderr)  # above the bar
        return None


def compute(work: Work, size: int) -> list[Any]:
    """What is computed of each row, in batches of rows of about the same length."""
    outputs: list[Any] = [None] * len(work.lengths)
    order = np.argsort(
        -work.lengths, kind="stable"
    )  # the longest first: if memory is short, it is said at once
    started = []
    for first in range(0, len(order), size):
        chosen = order[first : first + size]
        length = rounded(int(work.lengths[chosen[0]]))
        count = min(size, 1 << (len(chosen) - 1).bit_length())
        started.append((chosen, work.compute(chosen, length, count)))
    for chosen, computed in started:
        arrays = jax.device_get(computed)
        for k, row in enumerate(chosen):
            outputs[row] = jax.tree.map(lambda array, k=k: array[k], arrays)
    return outputs


def predict(model: Model, task: str, lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """One result a line, in order."""
    asking, rest = Asking(model, task), iter(lines)
    while window := list(itertools.islice(rest, model.options.batch_size * AHEAD)):
        yield from asking.answers(window)
