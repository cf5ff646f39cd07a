"""Lines of text in, one result for each out, in the same order.

Lines are read some batches ahead, so that rows of about the same length share a batch. When the
input pauses, the lines read so far are answered: a line typed by hand waits for no other.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
import os
import select
import stat
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import jax

from bert_jax.config.knobs import LINE
from bert_jax.errors import DataError
from bert_jax.evaluation import inference
from bert_jax.predictors import TABLE
from bert_jax.predictors.base import Model, Predictor, Row, Work

logger = logging.getLogger(__name__)

AHEAD = 8  # batches of lines that are read before the first is answered, to be sorted by length
PAUSE = 0.02  # seconds without a new line after which the lines read so far are answered
CHUNK = 1 << 16  # bytes read at once
# Bytes of lines held at most, once there is a whole line: tokenised, they take 200 times as many.
HELD = 1 << 21


# --- reading -------------------------------------------------------------------------------------


def read(descriptor: int, count: int) -> Iterator[list[bytes]]:
    """Yield up to `count` lines at once, and fewer when the input pauses or they are long.

    A line of more than LINE bytes is cut, but stays long enough to be recognised as too long.
    """
    regular = stat.S_ISREG(os.fstat(descriptor).st_mode)  # never pauses
    held: list[bytes] = []
    begun: list[bytes] = []  # chunks of a line whose end has not come yet
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


# --- computing -----------------------------------------------------------------------------------


@dataclasses.dataclass
class Tally:
    """Counts of the input so far."""

    lines: int = 0  # read
    bad: int = 0  # left out
    cut: int = 0
    tokens: int = 0


class Stream:
    """A stream of lines through a predictor."""

    def __init__(self, model: Model, task: str):
        self.predictor: Predictor = TABLE[task](model)
        self.options = model.options
        self.tally = Tally()

    def answers(self, lines: Sequence[str | bytes]) -> Iterator[dict[str, Any]]:
        """Yield the results of some lines, in order.

        Raises:
          DataError: a line is bad; the results of the lines before it were yielded.
        """
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
        except DataError:  # which does not say of which row
            rows, row_failed = self._sound(rows)
            failed = row_failed or failed
            work = self.predictor.encode(rows) if rows else None
        if work is not None:
            self.tally.cut += work.cut
            self.tally.tokens += int(work.lengths.sum())
            yield from work.results(compute(work, self.options.batch_size))
        if failed:
            raise failed

    def _sound(self, rows: list[Row]) -> tuple[list[Row], DataError | None]:
        """Return the rows that can be encoded, up to the first that ends the stream."""
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
        """Return the error if it ends the stream; else count the line and warn."""
        if self.options.on_bad_row == "fail":
            return error
        self.tally.bad += 1
        logger.warning(f"{error}; left out")  # above the bar
        return None


def compute(work: Work, size: int) -> list[Any]:
    """Compute the outputs of each row, in batches of rows of about the same length."""
    outputs: list[Any] = [None] * len(work.lengths)
    plan = inference.by_length(work.lengths, size, shrink_last=True)
    for rows, arrays in inference.run(lambda planned: work.compute(*planned), plan):
        for k, row in enumerate(rows):
            outputs[row] = jax.tree.map(lambda array, k=k: array[k], arrays)
    return outputs


def predict(model: Model, task: str, lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yield one result for each line, in order."""
    stream, rest = Stream(model, task), iter(lines)
    while window := list(itertools.islice(rest, model.options.batch_size * AHEAD)):
        yield from stream.answers(window)
