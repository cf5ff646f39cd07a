"""Corpus source `files`: local .txt, .jsonl and .parquet files, the first two also compressed.

A .txt or .train file has a sentence or a paragraph a line, and a blank line between documents. A
.jsonl or .json file has an object a line. Bytes that are no UTF-8 become U+FFFD. A row that cannot
be read is an error, with its file and line.
"""

import contextlib
import glob
import gzip
import hashlib
import io
import itertools
import json
import os
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from bert_jax.config import knobs
from bert_jax.data.sentences import Item, Text
from bert_jax.errors import DataError, first_line, suggest_path
from bert_jax.system import disk, jsons, opening

# .train is text as BabyLM's corpus has it.
KINDS = {".txt": "txt", ".train": "txt", ".jsonl": "json", ".json": "json", ".parquet": "parquet"}
PACKED = (".gz", ".zst")
READABLE = f"{', '.join([*KINDS][:-1])}, each also {' or '.join(PACKED)}; or .parquet"
BLANK = " \t\r\n\v\f"  # a line of these separates documents
PART = 4 << 20  # characters of a document of a .txt file that are held at once
ROWS = 64  # rows of a parquet file that are held at once
DAMAGED = "it may be cut short; fetch it again"


# --- the source -----------------------------------------------------------------------------------


def find_files(settings: knobs.Corpus) -> tuple[list[tuple[str, Path]], list[str]]:
    """Find the files that `corpus.path` names: a file, a folder or a pattern.

    Returns:
      A pair (name relative to the folder, path) for each file; notes of files that are left out.
    """
    path = opening.expand_home(settings.path)
    knob = f"config.corpus.path = {settings.path!r}"
    if settings.path and os.path.lexists(path) and not path.is_dir():
        if _kind_of(path) is None:
            raise DataError(f"{path} is not a kind of file this reads", READABLE)
        return [(path.name, path)], []
    root = path
    pattern = "**"  # without hidden files and folders
    if not path.is_dir():
        plain = itertools.takewhile(lambda part: not glob.has_magic(part), path.parts[:-1])
        root = Path(*plain)
        pattern = str(path.relative_to(root))
    # A pattern with several ** names a file several times.
    names = sorted({*glob.iglob(pattern, root_dir=root, recursive=True)} if settings.path else ())
    found = [(name, root / name) for name in names if not (root / name).is_dir()]
    kept = [(name, file) for name, file in found if _kind_of(file)]
    foreign = [file for _, file in found if _kind_of(file) is None]
    if not kept:
        is_there = path.is_dir() or bool(found)
        problem = f"holds no {', '.join(KINDS)}" if is_there else "does not exist"
        near = "" if is_there else suggest_path(path)
        raise DataError(f"{knob} {problem}", near or "give a file, a folder or a quoted glob")
    notes = [
        f"{len(foreign)} files of other kinds were skipped, such as {one}" for one in foreign[:1]
    ]
    return kept, notes


def _kind_of(path: Path) -> str | None:
    """Return the kind of a file, such as "txt", by the ending of its name.

    The result is None for a kind that is not read.
    """
    name = path.name.lower()
    for packed in PACKED:
        name = name.removesuffix(packed)
    kind = KINDS.get(Path(name).suffix)
    return None if kind == "parquet" and name != path.name.lower() else kind


def identify(settings: knobs.Corpus, cache: Path) -> Any:
    """Return [name, sha256 digest] of each file.

    A file is read again only if its size, time or inode differ from when it was last read.
    """
    memory = cache / "file-hashes.json"
    known: dict[str, tuple[int, int, int, str]] = {}
    with contextlib.suppress(DataError):  # missing or damaged: all files are read again
        known = jsons.read(memory, DataError, dict[str, tuple[int, int, int, str]])
    before = dict(known)
    identity = []
    for name, path in find_files(settings)[0]:
        place = os.path.realpath(path)
        with opening.open_regular(path, DataError, "remove it from the corpus") as file:
            stat = os.fstat(file.fileno())
            stamp = (stat.st_size, stat.st_mtime_ns, stat.st_ino)
            if place not in known or known[place][:3] != stamp:
                known[place] = (*stamp, hashlib.file_digest(file, "sha256").hexdigest())
        identity.append([name, known[place][3]])
    if known != before:
        with contextlib.suppress(OSError):  # a cache of another user: they are read again next time
            cache.mkdir(parents=True, exist_ok=True)
            disk.write(memory, json.dumps(known, indent=1, sort_keys=True) + "\n")
    return identity


def list_items(settings: knobs.Corpus, cache: Path) -> tuple[list[Item], list[str]]:
    """Return an item for each file, and notes of files that are left out."""
    files, notes = find_files(settings)
    items = []
    for name, path in files:
        size = path.stat().st_size
        weight = 3 * size if path.suffix.lower() in PACKED else size
        items.append(Item(name, weight, str(path)))
    return items, notes


def read_texts(item: Item, settings: knobs.Corpus) -> Iterator[Text]:
    """Yield the documents of a file."""
    return read_file(item.spec, settings.text_field)


# --- the formats ----------------------------------------------------------------------------------


def read_file(path: str, field: str) -> Iterator[Text]:
    """Yield the documents of a file; in a file of rows, the text is in the column `field`."""
    kind = _kind_of(Path(path))
    if kind == "parquet":
        for number, row in enumerate(read_parquet(path, field), 1):
            where = f"{path}, row {number}"
            yield Text(convert_text(row[field], field, where), where)
        return
    with open_packed(path) as file:
        lines = io.TextIOWrapper(file, "utf-8-sig", errors="replace", newline="\n")
        if kind == "txt":
            yield from _read_paragraphs(lines, path)
            return
        for where, row in parse_rows(enumerate(lines, 1), path):
            names = f" (fields: {', '.join(list(row)[:8])})"
            yield Text(convert_text(row.get(field), field, where, names), where)


@contextlib.contextmanager
def open_packed(path: str) -> Iterator[BinaryIO]:
    """Open a file and decompress it while it is read; an error names the damaged file."""
    opening.check_file(path, DataError)
    file: Any
    name = path.lower()
    if name.endswith(".gz"):
        file = gzip.GzipFile(path)
    elif name.endswith(".zst"):
        import pyarrow  # notices a file that is cut short, unlike zstandard; 200 MB of addresses

        file = pyarrow.input_stream(path, compression="zstd")
    else:
        file = open(path, "rb")  # noqa: SIM115  # closed below, like the others
    try:
        with file:
            yield io.BufferedReader(file, 1 << 20) if name.endswith(PACKED) else file
    except (EOFError, zlib.error, OSError) as error:
        if getattr(error, "errno", None) is not None:
            raise  # the system's; gzip and Arrow raise an OSError without a number
        raise DataError(f"{path} is damaged: {error}", DAMAGED) from error


def parse_rows(
    lines: Iterable[tuple[int, str]], path: Path | str
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the place FILE:LINE and the JSON object of each line; skip blank lines."""
    for number, line in lines:
        if not line.strip(BLANK):
            continue
        where = f"{path}:{number}"
        try:
            row = jsons.parse(line.rstrip(), dict)
        except jsons.Malformed as error:
            raise DataError(f"{where}: {error}", "repair or remove the row") from error
        yield where, row


def read_parquet(path: str, column: str = "") -> Iterator[dict[str, Any]]:
    """Yield the rows of a parquet file, with all columns or with `column` only.

    The texts of `column` are bytes, which may be no UTF-8.
    """
    import pyarrow.parquet  # 200 MB of address space, which other files do not need

    try:
        with open_packed(path) as stream, pyarrow.parquet.ParquetFile(stream) as file:
            names = file.schema_arrow.names
            if column and column not in names:
                hint = f"set config.corpus.text_field; columns: {', '.join(names)}"
                raise DataError(f"{path} has no column {column!r}", hint)
            first = 1
            for batch in file.iter_batches(ROWS, columns=[column] if column else None):
                if column and batch.column(0).type in (pyarrow.string(), pyarrow.large_string()):
                    batch = batch.cast(pyarrow.schema([(column, pyarrow.large_binary())]))
                where = f"{path}, rows {first} to {first + batch.num_rows - 1}"
                yield from _list_rows(batch, where)
                first += batch.num_rows
    except pyarrow.ArrowException as error:
        raise DataError(f"{path} is a damaged parquet file: {error}", DAMAGED) from error


def _list_rows(batch: Any, where: str) -> list[dict[str, Any]]:
    """Convert a batch of a parquet file to rows."""
    try:
        return batch.to_pylist()
    except UnicodeDecodeError as error:
        raise DataError(f"{where}: a text is no UTF-8", "repair or remove the row") from error
    except (ValueError, OverflowError) as error:  # such as a time in nanoseconds
        raise DataError(f"{where}: {first_line(error)}", "convert or drop the column") from error


def convert_text(value: Any, field: str, where: str, names: str = "") -> str:
    """Return the text in a row's field; refuse a value that is no text."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, list) and all(isinstance(line, str) for line in value):
        return "\n".join(value)
    if not isinstance(value, str):
        raise DataError(
            f"{where}: field {field!r} is {type(value).__name__}, not text{names}",
            "repair or remove the row, or name another field: --config.corpus.text_field",
        )
    return value


def _read_paragraphs(lines: TextIO, path: str) -> Iterator[Text]:
    """Yield the documents of a text file, which blank lines separate.

    A document of more than PART characters is yielded in parts.
    """
    held: list[str] = []
    size = 0
    starts = True
    first = 1  # number of the first line that is held
    for number, line in enumerate(itertools.chain(lines, [""]), 1):
        blank = not line.strip(BLANK)
        if not blank:
            first = first if held else number
            held.append(line)
            size += len(line)
        if held and (blank or size >= PART):
            yield Text("".join(held), f"{path}:{first}", starts)
            held = []
            size = 0
            starts = False
        starts |= blank
