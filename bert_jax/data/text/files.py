"""Corpus source `files`: which files a path means, what identifies them, and how they are divided for reading."""

from __future__ import annotations

import contextlib
import glob
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bert_jax.config import knobs
from bert_jax.data.text import shards
from bert_jax.data.text.readers import row_groups
from bert_jax.data.text.sentences import Item
from bert_jax.errors import DataError
from bert_jax.system import jsons, opening

KINDS = {".txt": "txt", ".jsonl": "json", ".json": "json", ".parquet": "parquet"}
PACKED = (".gz", ".zst")
RANGE = 32 << 20  # bytes of a plain file read as one item


def find(settings: knobs.Corpus) -> tuple[list[tuple[str, Path]], list[str]]:
    """Files of `corpus.path` as (name below the root, path) in name order, and what was left out."""
    given = settings.path
    if not given:
        raise DataError(
            "config.corpus.path is empty", "set --config.corpus.path=FILE, FOLDER or GLOB"
        )
    path = Path(given).expanduser()
    if os.path.lexists(path) and not path.is_dir():
        opening.check(path, DataError)
        if _kind(path) is None:
            raise DataError(
                f"{path} is not a kind of file this reads",
                f"{', '.join(KINDS)}, each also .gz or .zst",
            )
        return [(path.name, path)], []
    if path.is_dir():
        root, found = path, [Path(top) / name for top, _, names in os.walk(path) for name in names]
        found = [
            file
            for file in found
            if not any(p.startswith(".") for p in file.relative_to(root).parts)
        ]
    else:
        root = _fixed_part(path)
        found = [
            Path(name) for name in glob.glob(str(path), recursive=True) if not Path(name).is_dir()
        ]
    if not found:
        kind = "holds no files" if path.is_dir() else "does not exist"
        raise DataError(
            f"config.corpus.path = {given!r} {kind}", "give a file, a folder or a quoted glob"
        )
    inside = os.path.realpath(root)
    foreign = [file for file in found if _kind(file) is None]
    escaping = [file for file in found if not Path(os.path.realpath(file)).is_relative_to(inside)]
    notes = (
        [f"{len(escaping)} links that leave {root} were skipped, such as {escaping[0]}"]
        if escaping
        else []
    )
    notes += (
        [f"{len(foreign)} files of other kinds were skipped, such as {foreign[0]}"]
        if foreign
        else []
    )
    kept = {str(f.relative_to(root)): f for f in found if f not in set(escaping) | set(foreign)}
    if not kept:
        raise DataError(
            f"config.corpus.path = {given!r} holds no {', '.join(KINDS)}",
            "; ".join(notes) or "check it",
        )
    for file in kept.values():
        opening.check(file, DataError, "remove it from the corpus, or give the path of a file")
    return sorted(kept.items()), notes


def identity(settings: knobs.Corpus, cache: Path) -> Any:
    """Names and content hashes; a file whose size and time are as last seen is not read again."""
    files, _ = find(settings)
    memory = cache / "file-hashes.json"
    known: dict[str, list] = {}
    with contextlib.suppress(DataError):  # not there, or damaged: all files are read again
        known = jsons.read(memory, DataError, {str: (int, int, int, str)})
    states = [(os.path.realpath(path), path.stat()) for _, path in files]
    marks = {name: [stat.st_size, stat.st_mtime_ns, stat.st_ino] for name, stat in states}
    stale = [name for name, mark in marks.items() if known.get(name, [])[:3] != mark]
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        for name, digest in zip(stale, threads.map(shards.sha256, map(Path, stale)), strict=True):
            known[name] = [*marks[name], digest]
    if stale:
        cache.mkdir(parents=True, exist_ok=True)
        shards.write_json(memory, known)
    return [[name, known[os.path.realpath(path)][3]] for name, path in files]


def items(settings: knobs.Corpus) -> tuple[list[Item], list[str]]:
    """Ranges of plain files, groups of rows of parquet files, whole compressed ones."""
    files, notes = find(settings)
    found: list[Item] = []
    for name, path in files:
        size, kind = path.stat().st_size, _kind(path)
        if kind == "parquet":
            found += [
                Item(name, weight, (str(path), kind, *rows))
                for *rows, weight in row_groups(str(path), RANGE)
            ]
        elif path.suffix in PACKED:
            found.append(Item(name, 3 * size, (str(path), kind, 0, None)))
        else:
            starts = range(0, size, RANGE)
            found += [
                Item(name, min(RANGE, size - s), (str(path), kind, s, min(s + RANGE, size)))
                for s in starts
            ]
    return found, notes


# --- paths ----------------------------------------------------------------------------------------------------------


def _kind(path: Path) -> str | None:
    suffixes = [s.lower() for s in path.suffixes]
    if suffixes and suffixes[-1] in PACKED:
        kind = KINDS.get(suffixes[-2]) if len(suffixes) > 1 else None
        return None if kind == "parquet" else kind
    return KINDS.get(suffixes[-1]) if suffixes else None


def _fixed_part(pattern: Path) -> Path:
    """The folder a glob starts from."""
    parts: list[str] = []
    for part in pattern.parts[:-1]:
        if glob.has_magic(part):
            break
        parts.append(part)
    return Path(*parts)
