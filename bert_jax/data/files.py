"""Corpus source `files`: local .txt, .jsonl and .parquet files, the first two also compressed.

A .txt or .train file has a sentence or a paragraph a line, and a blank line between documents. A
.jsonl or .json file has an object a line. Bytes that are no UTF-8 become U+FFFD. A row that cannot
be read is an error, with its file and line.
"""

from __future__ import annotations

import contextlib
import glob
import gzip
import hashlib
import io
import json
import os
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from bert_jax.config import knobs
from bert_jax.data.sentences import Item, Text
from bert_jax.errors import DataError, suggest_path
from bert_jax.system import disk, jsons, opening

# .train is text as BabyLM's corpus has it.
KINDS = {".txt": "txt", ".train": "txt", ".jsonl": "json", ".json": "json", ".parquet": "parquet"}
PACKED = (".gz", ".zst")
BLANK = " \t\r\n\v\f"  # a line of these separates documents
PART = 4 << 20  # characters of a document of a .txt file that are held at once
BUFFER = 1 << 20  # bytes decompressed at once
ROWS = 64  # rows of a parquet file that are held at once
DAMAGED = "it may be cut short; fetch it again"


# --- finding files --------------------------------------------------------------------------------


def find_files(settings: knobs.Corpus) -> tuple[list[tuple[str, Path]], list[str]]:
    """Return the files of `corpus.path`, and notes of what was left out.

    A file is its name below the folder, and its path.
    """
    if not settings.path:
        raise DataError(
            "config.corpus.path is empty", "set --config.corpus.path=FILE, FOLDER or GLOB"
        )
    path = Path(settings.path).expanduser()
    if os.path.lexists(path) and not path.is_dir():
        if _kind_of(path) is None:
            raise DataError(
                f"{path} is not a kind of file this reads",
                f"{', '.join(KINDS)}, each also .gz or .zst",
            )
        return [(path.name, path)], []
    root = path
    listed = _walk(path)
    if not path.is_dir():
        root = _fixed_part(path)
        listed = map(Path, glob.iglob(str(path), recursive=True))
    found = [file for file in listed if not file.is_dir()]
    if not found:
        problem = "holds no files" if path.is_dir() else "does not exist"
        near = "" if path.is_dir() else suggest_path(path)
        raise DataError(
            f"config.corpus.path = {settings.path!r} {problem}",
            near or "give a file, a folder or a quoted glob",
        )
    foreign = [file for file in found if _kind_of(file) is None]
    notes = []
    if foreign:
        notes.append(f"{len(foreign)} files of other kinds were skipped, such as {foreign[0]}")
    kept = {str(file.relative_to(root)): file for file in found if _kind_of(file) is not None}
    if not kept:
        raise DataError(
            f"config.corpus.path = {settings.path!r} holds no {', '.join(KINDS)}",
            "; ".join(notes) or "check it",
        )
    return sorted(kept.items()), notes


def _walk(folder: Path) -> Iterator[Path]:
    """Yield the files below a folder, without hidden ones and those in hidden folders."""
    for top, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (Path(top) / name for name in names if not name.startswith("."))


def _fixed_part(pattern: Path) -> Path:
    """Return the folder where a glob starts."""
    folders = list(pattern.parts[:-1])
    while any(map(glob.has_magic, folders)):
        folders.pop()
    return Path(*folders)


def _kind_of(path: Path) -> str | None:
    """Return how a file is read, by its name; None if it is not."""
    name = path.name.lower()
    if name.endswith(PACKED):
        name = name.rpartition(".")[0]
        if name.endswith(".parquet"):
            return None
    return KINDS.get(Path(name).suffix)


# --- the source -----------------------------------------------------------------------------------


def identify(settings: knobs.Corpus, cache: Path) -> Any:
    """Return the names and sha256 digests of the files.

    A file is read again only if its size, time or inode differ from when it was last read.
    """
    files, _ = find_files(settings)
    memory = cache / "file-hashes.json"
    known: dict[str, list] = {}
    with contextlib.suppress(DataError):  # missing or damaged: all files are read again
        known = jsons.read(memory, DataError, {str: (int, int, int, str)})
    stamps = {}
    for _, path in files:
        opening.check(path, DataError, "remove it from the corpus, or give the path of a file")
        stat = path.stat()
        stamps[os.path.realpath(path)] = [stat.st_size, stat.st_mtime_ns, stat.st_ino]
    stale = [name for name, stamp in stamps.items() if known.get(name, [])[:3] != stamp]
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        for name, digest in zip(stale, threads.map(_digest_file, stale), strict=True):
            known[name] = [*stamps[name], digest]
    if stale:
        cache.mkdir(parents=True, exist_ok=True)
        disk.write(memory, json.dumps(known, indent=1, sort_keys=True) + "\n")
    return [[name, known[os.path.realpath(path)][3]] for name, path in files]


def list_items(settings: knobs.Corpus, cache: Path) -> tuple[list[Item], list[str]]:
    """Return an item for each file, and notes of files that are left out."""
    files, notes = find_files(settings)
    items = []
    for name, path in files:
        size = path.stat().st_size
        items.append(Item(name, 3 * size if path.suffix in PACKED else size, str(path)))
    return items, notes


def read_texts(item: Item, settings: knobs.Corpus) -> Iterator[Text]:
    """Yield the documents of a file."""
    return read_file(item.spec, settings.text_field)


def read_file(path: str, field: str) -> Iterator[Text]:
    """Yield the documents of a file; in rows, `field` holds the text."""
    if (kind := _kind_of(Path(path))) == "parquet":
        yield from _read_parquet(path, field)
        return
    with open_packed(path) as file:
        lines = io.TextIOWrapper(file, "utf-8-sig", errors="replace", newline="\n")
        if kind == "txt":
            yield from _read_paragraphs(lines, path)
        else:
            yield from _read_json(lines, path, field)


@contextlib.contextmanager
def open_packed(path: str) -> Iterator[BinaryIO]:
    """Open a file for its decompressed bytes; name the file if it turns out to be damaged."""
    opening.check(path, DataError)
    file: Any
    if path.endswith(".gz"):
        file = gzip.GzipFile(path)
    elif path.endswith(".zst"):
        import pyarrow  # notices a file that is cut short, unlike zstandard; 200 MB of addresses

        file = pyarrow.input_stream(path, compression="zstd")
    else:
        file = open(path, "rb")  # noqa: SIM115  # closed below, like the others
    try:
        with file:
            yield io.BufferedReader(file, BUFFER) if path.endswith(PACKED) else file
    except (EOFError, zlib.error, OSError) as error:
        if getattr(error, "errno", None) is not None:
            raise  # the system's; gzip and Arrow raise an OSError without a number
        raise DataError(f"{path} is damaged: {error}", DAMAGED) from error


def convert_text(value: Any, field: str, where: str, names: str = "") -> str:
    """Return the text of a row's field; refuse what is no text, and name the fields there are."""
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


def _digest_file(path: str) -> str:
    with opening.regular(path, DataError) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _read_paragraphs(lines: TextIO, path: str) -> Iterator[Text]:
    """Yield what blank lines separate; a document of more than PART characters in parts."""
    held: list[str] = []
    size = 0
    first = 1  # number of the first line that is held
    starts = True
    for number, line in enumerate(lines, 1):
        blank = not line.strip(BLANK)
        if not blank:
            held.append(line)
            size += len(line)
        if held and (blank or size >= PART):
            yield Text("".join(held), f"{path}:{first}", starts)
            held = []
            size = 0
            starts = blank
        elif blank:
            starts = True
        if not held:
            first = number + 1
    if held:
        yield Text("".join(held), f"{path}:{first}", starts)


def _read_json(lines: TextIO, path: str, field: str) -> Iterator[Text]:
    """Yield the text of each row."""
    for number, line in enumerate(lines, 1):
        if not line.strip(BLANK):
            continue
        where = f"{path}:{number}"
        try:
            row = jsons.parse(line)
        except jsons.Malformed as error:
            raise DataError(f"{where}: {error}", "repair or remove the row") from error
        if not isinstance(row, dict):
            kind = type(row).__name__
            raise DataError(f"{where}: a JSON {kind}, not an object", "repair or remove the row")
        names = f" (fields: {', '.join(list(row)[:8])})"
        yield Text(convert_text(row.get(field), field, where, names), where)


def _read_parquet(path: str, field: str) -> Iterator[Text]:
    """Yield the text of each row."""
    import pyarrow.parquet  # 200 MB of address space, which other files do not need

    opening.check(path, DataError)
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            names = file.schema_arrow.names
            if field not in names:
                hint = f"set config.corpus.text_field; columns: {', '.join(names)}"
                raise DataError(f"{path} has no column {field!r}", hint)
            row = 0
            for batch in file.iter_batches(ROWS, columns=[field]):
                for value in batch.column(0):
                    row += 1
                    where = f"{path}, row {row}"
                    yield Text(convert_text(value.as_py(), field, where), where)
    except (pyarrow.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # the system's; for a damaged page Arrow raises an OSError without a number
        raise DataError(f"{path} is a damaged parquet file: {error}", DAMAGED) from error
