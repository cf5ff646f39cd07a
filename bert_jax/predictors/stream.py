"""Read lines of text and yield one result for each line, in the same order.

All lines of one read of the input are answered before the next read. So a line that is typed, or
that another program writes, is answered at once. Of a file, one read gives many lines, so that
lines of similar length share a batch.
"""

import dataclasses
import logging
import os
from collections.abc import Iterator, Sequence
from typing import Any

from bert_jax.config.knobs import LINE
from bert_jax.errors import DataError
from bert_jax.predictors import TASKS
from bert_jax.predictors.base import AskedModel, Predictor

logger = logging.getLogger(__name__)

AHEAD = 8  # batches of lines that are encoded together, to be sorted by length
CHUNK = 1 << 20  # bytes read at once: tokenised, they take 200 times as many


def read_lines(descriptor: int, count: int) -> Iterator[list[bytes]]:
    """Yield the lines that each read of the input completes, in lists of at most `count`.

    A line of more than LINE bytes is cut, but stays long enough to be recognised as too long.
    """
    begun = b""  # a line whose end has not come yet
    while data := os.read(descriptor, CHUNK):
        first, *more = data.split(b"\n")
        if len(begun) <= LINE:
            begun += first
        if more:
            lines = [begun, *more[:-1]]
            begun = more[-1]
            for start in range(0, len(lines), count):
                yield lines[start : start + count]
    if begun:
        yield [begun]


def decode_line(number: int, line: bytes) -> str:
    """Decode a line as UTF-8, whatever the locale; drop a byte order mark before the first line.

    Bytes that are not UTF-8 become U+FFFD.
    """
    if len(line) > LINE:
        raise DataError(f"line {number}: more than {LINE:,} bytes", "divide it, or leave it out")
    return line.decode("utf-8-sig" if number == 1 else "utf-8", errors="replace")


def warn_of_replaced(count: int) -> None:
    """Warn that `count` lines had bytes that are not UTF-8, which were read as U+FFFD."""
    if count:
        lines = "1 line has" if count == 1 else f"{count:,} lines have"
        logger.warning(
            f"{lines} bytes that are no UTF-8, read as U+FFFD: convert the input, "
            "for example with iconv"
        )


@dataclasses.dataclass
class Tally:
    """Counts of the lines and tokens read so far."""

    lines: int = 0  # read
    replaced: int = 0  # that have U+FFFD
    cut: int = 0
    tokens: int = 0


class Stream:
    """The lines of one input, answered by a predictor.

    A bad line ends the stream. If the lines are typed by a person, a bad line is left out with a
    warning.
    """

    def __init__(self, model: AskedModel, task: str, typed: bool = False):
        self.predictor: Predictor = TASKS[task].make(model)
        self.options = model.options
        self.typed = typed
        self.tally = Tally()

    def answer(self, lines: Sequence[bytes]) -> Iterator[dict[str, Any]]:
        """Yield the results of some lines, in order.

        Raises:
          DataError: a line is bad; the results of the lines before it were yielded.
        """
        first = self.tally.lines + 1
        try:
            texts = [decode_line(number, line) for number, line in enumerate(lines, first)]
            rows = [
                self.predictor.read(number, text.rstrip("\r\n"))
                for number, text in enumerate(texts, first)
            ]
            work = self.predictor.encode(rows)
        except DataError as error:
            if len(lines) > 1:  # each half by itself, down to the bad line
                middle = len(lines) // 2
                yield from self.answer(lines[:middle])
                yield from self.answer(lines[middle:])
                return
            self.tally.lines += 1
            if not self.typed:
                raise
            logger.warning(f"{error}; left out")  # above the bar
            return
        self.tally.lines += len(lines)
        self.tally.replaced += sum("\ufffd" in text for text in texts)
        self.tally.cut += work.cut
        self.tally.tokens += int(work.lengths.sum())
        yield from work.answer(self.options.batch_size)
