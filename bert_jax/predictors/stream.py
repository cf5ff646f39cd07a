"""Lines of text in, one result for each out, in the same order.

What one read of the input gives is answered before the next read. So a line that is typed, or that
another program writes, is answered at once, and a file is read far enough ahead that rows of about
the same length share a batch.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from bert_jax.config.knobs import LINE
from bert_jax.errors import DataError
from bert_jax.predictors import TASKS
from bert_jax.predictors.base import Model, Predictor, Row, Work

logger = logging.getLogger(__name__)

AHEAD = 8  # batches of lines that are encoded together, to be sorted by length
CHUNK = 1 << 20  # bytes read at once: tokenised, they take 200 times as many


def read_lines(descriptor: int, count: int) -> Iterator[list[bytes]]:
    """Yield up to `count` lines at once, and fewer if a read gives fewer.

    A line of more than LINE bytes is cut, but stays long enough to be recognised as too long.
    """
    begun: list[bytes] = []  # chunks of a line whose end has not come yet
    while data := os.read(descriptor, CHUNK):
        first, *more = data.split(b"\n")
        if sum(map(len, begun)) <= LINE:
            begun.append(first)
        if more:
            lines = [b"".join(begun), *more[:-1]]
            begun = [more[-1]]
            for start in range(0, len(lines), count):
                yield lines[start : start + count]
    if any(begun):
        yield [b"".join(begun)]


def decode_line(number: int, line: bytes) -> str:
    """Decode a line as UTF-8, whatever the locale; a byte order mark is no text."""
    if len(line) > LINE:
        raise DataError(f"line {number}: more than {LINE:,} bytes", "divide it, or leave it out")
    try:
        return line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        hint = "convert the file, for example with iconv"
        raise DataError(f"line {number}: not UTF-8: {error.reason}", hint) from error


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
        self.predictor: Predictor = TASKS[task].make(model)
        self.options = model.options
        self.tally = Tally()

    def answer(self, lines: Sequence[str | bytes]) -> Iterator[dict[str, Any]]:
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
                text = line if isinstance(line, str) else decode_line(number, line)
                rows.append(self.predictor.read(number, text.rstrip("\r\n")))
            except DataError as error:
                if failed := self._leave_out(error):
                    break
        work: Work | None = None
        while rows and work is None:
            try:
                work = self.predictor.encode(rows)
            except DataError as error:
                at = _find_row(rows, error)
                before = failed
                failed = self._leave_out(error)
                rows = rows[:at] if failed else rows[:at] + rows[at + 1 :]
                failed = failed or before
        if work is not None:
            self.tally.cut += work.cut
            self.tally.tokens += int(work.lengths.sum())
            yield from work.answer(self.options.batch_size)
        if failed:
            raise failed

    def _leave_out(self, error: DataError) -> DataError | None:
        """Count a bad line and warn, or return the error if it ends the stream."""
        if self.options.on_bad_row == "fail":
            return error
        self.tally.bad += 1
        logger.warning(f"{error}; left out")  # above the bar
        return None


def _find_row(rows: Sequence[Row], error: DataError) -> int:
    """Find the row that an error is about: each begins with "line N: "."""
    number = re.match(r"line (\d+): ", str(error))
    if number is None:
        raise error
    return [row.number for row in rows].index(int(number[1]))


def predict(model: Model, task: str, lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yield one result for each line, in order."""
    stream, rest = Stream(model, task), iter(lines)
    while window := list(itertools.islice(rest, model.options.batch_size * AHEAD)):
        yield from stream.answer(window)
