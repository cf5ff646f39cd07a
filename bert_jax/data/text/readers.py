"""Read documents from local files, .txt, .jsonl and .parquet, also compressed, in bounded memory.

A .txt or .train file has one sentence or one paragraph a line and a blank line between documents; a
.jsonl or .json file has one object a line. Uncompressed files are read in ranges of bytes: a range
owns the documents whose preceding blank line, or the rows whose first byte, lies inside it.
"""

from __future__ import annotations

import contextlib
import functools
import gzip
import io
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO

import zstandard

from bert_jax.config import knobs
from bert_jax.data.text.sentences import (
    CHUNK,
    PIECE,
    Chunk,
    Item,
    Tally,
    check,
    chunks,
    cut,
    decode,
)
from bert_jax.errors import DataError
from bert_jax.system import jsons, opening

ROW = 256 << 20  # bytes of the longest JSON row
BATCH = 8 << 20  # bytes of parquet rows read at once, about
PACKED = 4 << 10  # bytes decompressed at once: even a bomb, 30,000 to one, stays bounded
BROKEN = (EOFError, gzip.BadGzipFile, zlib.error, zstandard.ZstdError)


def read(item: Item, settings: knobs.Corpus, tally: Tally) -> Iterator[Chunk]:
    """Yield the documents of one item."""
    path, kind, start, stop = item.spec
    try:
        if kind == "parquet":
            yield from _parquet(path, start, stop, settings, tally)
            return
        with opened(path) as stream:
            reader = _text if kind == "txt" else _json
            yield from reader(stream, path, start, stop, settings, tally)
    except BROKEN as error:
        raise DataError(
            f"{path} is damaged: {error}", "it may be cut short; fetch it again"
        ) from error


def opened(path: str) -> BinaryIO:
    """Open a file for reading its decompressed bytes."""
    opening.check(path, DataError)
    if path.endswith(".gz"):
        return io.BufferedReader(gzip.open(path), PIECE)
    if path.endswith(".zst"):
        file = opening.regular(path, DataError)
        return io.BufferedReader(Pieces(file, _unpacked(file)), PIECE)
    return opening.regular(path, DataError)


class Pieces(io.RawIOBase):
    """A stream of the bytes that an iterator makes of a file, which it closes."""

    def __init__(self, file: BinaryIO, pieces: Iterator[bytes]):
        self.file, self.pieces, self.data = file, pieces, b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self.data and (piece := next(self.pieces, None)) is not None:
            self.data = piece
        taken = min(len(buffer), len(self.data))
        buffer[:taken], self.data = self.data[:taken], self.data[taken:]
        return taken

    def close(self) -> None:
        self.file.close()
        super().close()


def _unpacked(file: BinaryIO) -> Iterator[bytes]:
    """Yield from consecutive frames; the library's own reader accepts a truncated file."""
    frame = zstandard.ZstdDecompressor().decompressobj()
    begun = False
    while packed := file.read(PACKED):
        while packed:
            if frame.eof:
                frame = zstandard.ZstdDecompressor().decompressobj()
            yield frame.decompress(packed)
            packed, begun = frame.unused_data if frame.eof else b"", not frame.eof
    if begun:
        raise EOFError("it ends inside a frame")


# --- lines of text --------------------------------------------------------------------------------


def _text(
    stream: BinaryIO, path: str, start: int, stop: int | None, settings: knobs.Corpus, tally: Tally
) -> Iterator[Chunk]:
    owned = start == 0  # the current document belongs to this range
    open_, bad, size = False, False, 0
    lines: list[str] = []
    for offset, data, fresh in _lines(stream, start):
        if fresh and not data.strip():
            if open_:
                yield Chunk(lines, True, bad=bad)
                open_, bad, lines, size = False, False, [], 0
            if stop is not None and offset >= stop:
                return
            owned = True
        elif owned:
            text, dropped = decode(data, settings.on_bad_text, path, offset, tally)
            open_, bad, size = True, bad or dropped, size + len(text)
            lines.append(text)
            if size >= CHUNK:
                yield Chunk(lines, False, bad=bad)
                lines, size = [], 0
        elif stop is not None and offset >= stop:
            return
    if open_:
        yield Chunk(lines, True, bad=bad)


def _lines(stream: BinaryIO, start: int) -> Iterator[tuple[int, bytes, bool]]:
    """Yield (offset, bytes, whether a line begins there), in pieces of at most PIECE bytes.

    Only a newline ends a line.
    """
    offset, rest, fresh = _seek_line(stream, start), b"", True
    while data := stream.readline(PIECE - len(rest)) or rest:
        data = data if data is rest else rest + data
        whole = data.endswith(b"\n") or len(data) < PIECE
        end = len(data) if whole else _boundary(data)
        skip = 3 if offset == 0 and data.startswith(b"\xef\xbb\xbf") else 0
        yield offset + skip, data[skip:end].removesuffix(b"\n").removesuffix(b"\r"), fresh
        offset, rest, fresh = offset + end, data[end:], whole


def _boundary(data: bytes) -> int:
    """Return where to cut a long line: between sentences or words, and never inside a character."""
    end = cut(data, (b". ", b"! ", b"? ", "。".encode()), b" ")
    if end < len(data):
        return end
    for back in range(1, 4):  # 11xxxxxx starts a character of several bytes
        if data[-back] & 0xC0 == 0xC0:
            return len(data) - back
    return len(data)


def _seek_line(stream: BinaryIO, start: int) -> int:
    """Move to the first line that begins at `start` or later, and return its offset."""
    if start == 0:
        return 0
    offset = stream.seek(start - 1)
    while data := stream.readline(PIECE):
        offset += len(data)
        if data.endswith(b"\n"):
            break
    return offset


# --- rows -----------------------------------------------------------------------------------------


def _json(
    stream: BinaryIO, path: str, start: int, stop: int | None, settings: knobs.Corpus, tally: Tally
) -> Iterator[Chunk]:
    offset = _seek_line(stream, start)
    while (stop is None or offset < stop) and (data := stream.readline(ROW)):
        begin, offset = offset, offset + len(data)
        if len(data) == ROW and not data.endswith(b"\n"):
            while not data.endswith(b"\n") and (data := stream.readline(PIECE)):
                offset += len(data)
            data, problem = b"", f"a row of more than {ROW >> 20} MiB"
        else:
            problem = ""
            data = data.removeprefix(b"\xef\xbb\xbf") if begin == 0 else data
        if not data.strip() and not problem:
            continue
        tally.counts["rows"] += 1

        def where(begin: int = begin) -> str:
            return f"{path}:{_line_number(path, begin)}"

        source, dropped = "", False
        if not problem:
            source, dropped = _utf8(data, settings.on_bad_text, path, begin, tally)
            text, problem = _field(source, settings.text_field)
        if problem:
            bad_row(where(), problem, settings, tally)
            continue
        if "\0" in text or not text.isascii():
            text, also = check(text, settings.on_bad_text, where, tally)
            dropped = dropped or also
        yield from chunks(text, dropped)


def _utf8(data: bytes, policy: str, path: str, offset: int, tally: Tally) -> tuple[str, bool]:
    """Decode a row; a NUL byte in valid UTF-8 is left for the JSON parser to refuse."""
    try:
        return data.decode(), False
    except UnicodeDecodeError:
        return decode(data, policy, path, offset, tally)


def _field(row: str, field: str) -> tuple[str, str]:
    """Return the text of a JSON row, and what is wrong with the row, or ""."""
    try:
        value = jsons.parse(row)
    except jsons.Malformed as error:
        return "", str(error)
    if not isinstance(value, dict):
        return "", f"a JSON {type(value).__name__}, not an object"
    text = value.get(field)
    if isinstance(text, list) and all(isinstance(line, str) for line in text):
        return "\n".join(text), ""
    if not isinstance(text, str):
        names = ", ".join(list(value)[:8])
        return "", f"field {field!r} is {type(text).__name__}, not text (fields: {names})"
    return text, ""


def bad_row(where: str, problem: str, settings: knobs.Corpus, tally: Tally) -> None:
    """Apply `on_bad_row`: raise, or count the row."""
    if settings.on_bad_row == "fail":
        raise DataError(
            f"{where}: {problem}",
            "set --config.corpus.on_bad_row=skip, or config.corpus.text_field",
        )
    tally.add("bad_rows", f"{where}: {problem}")


def _line_number(path: str, offset: int) -> int:
    """Count the lines up to an offset, from 1; only messages need this."""
    lines = 1
    with opened(path) as stream:
        while offset > 0 and (data := stream.read(min(PIECE, offset))):
            offset -= len(data)
            lines += data.count(b"\n")
    return lines


def _parquet(
    path: str, start: int, stop: int | None, settings: knobs.Corpus, tally: Tally
) -> Iterator[Chunk]:
    with _parquet_file(path) as file:
        names = file.schema_arrow.names
        if settings.text_field not in names:
            hint = f"set config.corpus.text_field; columns: {', '.join(names)}"
            raise DataError(f"{path} has no column {settings.text_field!r}", hint)
        row = sum(file.metadata.row_group(i).num_rows for i in range(start))
        groups = list(range(start, file.metadata.num_row_groups if stop is None else stop))
        held = [file.metadata.row_group(i) for i in groups]
        size = sum(group.total_byte_size for group in held)
        rows = sum(group.num_rows for group in held) * BATCH // max(1, size)  # books are few
        for batch in file.iter_batches(
            batch_size=min(max(1, rows), 256), row_groups=groups, columns=[settings.text_field]
        ):
            for value in batch.column(0):
                row += 1
                tally.counts["rows"] += 1
                text = value.as_py()
                where = f"{path}, row {row}"
                if (document := text_of(text, settings, where, tally)) is not None:
                    yield from chunks(*document)


def text_of(
    value: Any, settings: knobs.Corpus, where: str, tally: Tally
) -> tuple[str, bool] | None:
    """Return the text of a row and whether it is bad, or None; apply the policies for bad rows."""
    if isinstance(value, bytes):
        return decode(value, settings.on_bad_text, where, 0, tally)
    if isinstance(value, str):
        return check(value, settings.on_bad_text, functools.partial(str, where), tally)
    problem = f"{settings.text_field} is {type(value).__name__}, not text"
    bad_row(where, problem, settings, tally)
    return None


@contextlib.contextmanager
def _parquet_file(path: str) -> Iterator[Any]:
    import pyarrow  # 200 MB of address space, which other files do not need
    import pyarrow.parquet

    opening.check(path, DataError)
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            yield file
    except (pyarrow.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # the system's; for a damaged page Arrow raises an OSError without a number
        raise DataError(
            f"{path} is a damaged parquet file: {error}", "it may be cut short; fetch it again"
        ) from error


def row_groups(path: str, size: int) -> Iterator[tuple[int, int, int]]:
    """Yield runs of row groups of about `size` bytes: first group, end, bytes."""
    with _parquet_file(path) as file:
        sizes = [
            file.metadata.row_group(i).total_byte_size for i in range(file.metadata.num_row_groups)
        ]
    first = total = 0
    for i, bytes_ in enumerate(sizes):
        total += bytes_
        if total >= size or i + 1 == len(sizes):
            yield first, i + 1, total
            first, total = i + 1, 0
