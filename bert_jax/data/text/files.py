"""Corpus source `files`: find the files of a path, identify them, and divide them into items."""

from __future__ import annotations

import contextlib
import glob
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bert_jax.config import knobs
from bert_jax.data.text import shards
from bert_jax.data.text.readers import read as read
from bert_jax.data.text.readers import row_groups
from bert_jax.data.text.sentences import Item
from bert_jax.errors import DataError, suggest_path
from bert_jax.system import jsons, opening

# .train is text as BabyLM's corpus has it.
KINDS = {".txt": "txt", ".train": "txt", ".jsonl": "json", ".json": "json", ".parquet": "parquet"}
PACKED = (".gz", ".zst")
RANGE = 32 << 20  # bytes of an uncompressed file read as one item


def find(settings: knobs.Corpus) -> tuple[list[tuple[str, Path]], list[str]]:
    """Return the files of `corpus.path` by name, and notes of what was left out.

    A file is (name below the root, path).
    """
    if not settings.path:
        raise DataError(
            "config.corpus.path is empty", "set --config.corpus.path=FILE, FOLDER or GLOB"
        )
    path = Path(settings.path).expanduser()
    if os.path.lexists(path) and not path.is_dir():
        opening.check(path, DataError)
        if _kind(path) is None:
            raise DataError(
                f"{path} is not a kind of file this reads",
                f"{', '.join(KINDS)}, each also .gz or .zst",
            )
        return [(path.name, path)], []
    root = path if path.is_dir() else _fixed_part(path)
    matches = _below(path) if path.is_dir() else map(Path, glob.glob(str(path), recursive=True))
    candidates = [file for file in matches if not file.is_dir()]
    if not candidates:
        problem = "holds no files" if path.is_dir() else "does not exist"
        near = "" if path.is_dir() else suggest_path(path)
        raise DataError(
            f"config.corpus.path = {settings.path!r} {problem}",
            near or "give a file, a folder or a quoted glob",
        )
    inside = os.path.realpath(root)
    kept: dict[str, Path] = {}
    foreign: list[Path] = []
    escaping: list[Path] = []
    for file in candidates:
        leaves = not Path(os.path.realpath(file)).is_relative_to(inside)
        if leaves:
            escaping.append(file)
        if _kind(file) is None:
            foreign.append(file)
        elif not leaves:
            kept[str(file.relative_to(root))] = file
    notes = []
    if escaping:
        notes.append(f"{len(escaping)} links that leave {root} were skipped, such as {escaping[0]}")
    if foreign:
        notes.append(f"{len(foreign)} files of other kinds were skipped, such as {foreign[0]}")
    if not kept:
        raise DataError(
            f"config.corpus.path = {settings.path!r} holds no {', '.join(KINDS)}",
            "; ".join(notes) or "check it",
        )
    for file in kept.values():
        opening.check(file, DataError, "remove it from the corpus, or give the path of a file")
    return sorted(kept.items()), notes


def identity(settings: knobs.Corpus, cache: Path) -> Any:
    """Return names and sha256 digests; read no file whose size, time and inode are as last seen."""
    files, _ = find(settings)
    memory = cache / "file-hashes.json"
    known: dict[str, list] = {}
    with contextlib.suppress(DataError):  # missing or damaged: all files are read again
        known = jsons.read(memory, DataError, {str: (int, int, int, str)})
    states = [(os.path.realpath(path), path.stat()) for _, path in files]
    stamps = {name: [stat.st_size, stat.st_mtime_ns, stat.st_ino] for name, stat in states}
    stale = [name for name, stamp in stamps.items() if known.get(name, [])[:3] != stamp]
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        for name, digest in zip(stale, threads.map(shards.sha256, map(Path, stale)), strict=True):
            known[name] = [*stamps[name], digest]
    if stale:
        cache.mkdir(parents=True, exist_ok=True)
        shards.write_json(memory, known)
    return [[name, known[os.path.realpath(path)][3]] for name, path in files]


def items(settings: knobs.Corpus) -> tuple[list[Item], list[str]]:
    """Divide files: plain ones by bytes, parquet ones by row groups, compressed ones not at all."""
    files, notes = find(settings)
    result: list[Item] = []
    for name, path in files:
        size, kind = path.stat().st_size, _kind(path)
        if kind == "parquet":
            result += [
                Item(name, weight, (str(path), kind, *rows))
                for *rows, weight in row_groups(str(path), RANGE)
            ]
        elif path.suffix in PACKED:
            result.append(Item(name, 3 * size, (str(path), kind, 0, None)))
        else:
            result += [
                Item(name, min(RANGE, size - s), (str(path), kind, s, min(s + RANGE, size)))
                for s in range(0, size, RANGE)
            ]
    return result, notes


# --- paths ----------------------------------------------------------------------------------------


def _below(folder: Path) -> Iterator[Path]:
    """Yield the files below a folder; hidden ones and those in hidden folders are left out."""
    for top, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (Path(top) / name for name in names if not name.startswith("."))


def _kind(path: Path) -> str | None:
    suffixes = [s.lower() for s in path.suffixes]
    if suffixes and suffixes[-1] in PACKED:
        kind = KINDS.get(suffixes[-2]) if len(suffixes) > 1 else None
        return None if kind == "parquet" else kind
    return KINDS.get(suffixes[-1]) if suffixes else None


def _fixed_part(pattern: Path) -> Path:
    """Return the folder where a glob starts."""
    parts: list[str] = []
    for part in pattern.parts[:-1]:
        if glob.has_magic(part):
            break
        parts.append(part)
    return Path(*parts)
