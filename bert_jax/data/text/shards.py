"""Prepared corpora: memory-mapped flat arrays with checksums, named by a fingerprint.

The fingerprint is a digest of everything that shapes the corpus.

<fingerprint>/
    manifest.json  audit.json  tokenizer.json  vocab.txt  unigrams.npy
    train-00000/       tokens.npy         uint16 or uint32 [T]
                       sentence_ends.npy  uint32 [N]  token offset where each sentence ends
                       document_ends.npy  uint32 [D]  sentence_ends index where each document ends
                       shard.json         counts and sha256
    validation-00000/  ...
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.data import tokenizer as tokenizers
from bert_jax.errors import DataError
from bert_jax.system import disk, jsons, opening

FORMAT = 1
SPLITS = ("train", "validation")
ARRAYS = ("tokens", "sentence_ends", "document_ends")
HINT = "delete the folder and prepare again"
VERIFIED = "verified.json"
BLOCK = 1 << 24  # tokens checked at once
FILE = {"bytes": range(2**63), "sha256": str}
ENTRY = {  # of one shard
    "name": str,
    **dict.fromkeys(("documents", "sentences", "tokens"), range(2**63)),
    "files": dict.fromkeys(ARRAYS, FILE),
}
MANIFEST = {
    "format": int,
    "fingerprint": str,
    "splits": {str: [ENTRY]},
    "tokenizer": {"hash": str},
    "files": {str: FILE},
}


@dataclasses.dataclass(frozen=True)
class Shard:
    """Documents of sentences of tokens, as three flat arrays."""

    tokens: np.ndarray  # [T]
    sentence_ends: np.ndarray  # [N]
    document_ends: np.ndarray  # [D]


class Mapped(Sequence[Shard]):
    """The shards of one split, each mapped on access: all may exceed a process's address space."""

    def __init__(self, folder: Path, entries: list[dict[str, Any]]):
        self.folder, self.entries = folder, entries

    def __len__(self) -> int:
        return len(self.entries)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [_shard(self.folder, entry) for entry in self.entries[index]]
        return _shard(self.folder, self.entries[index])


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A finished corpus."""

    folder: Path
    manifest: dict[str, Any]
    tokenizer: tokenizers.Tokenizer
    splits: Mapping[str, Sequence[Shard]]
    unigrams: np.ndarray  # int64 [V], how often each token occurs in train
    fingerprint: str


def write(
    folder: Path,
    name: str,
    tokens: np.ndarray,
    sentence_ends: np.ndarray,
    document_ends: np.ndarray,
) -> dict[str, Any]:
    """Write one shard, whose folder appears complete or not at all; return its manifest entry."""
    part = folder / f".{name}.{os.getpid()}"
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    files = {}
    for array, values in zip(ARRAYS, (tokens, sentence_ends, document_ends), strict=True):
        file = part / f"{array}.npy"
        with file.open("wb") as stream:
            np.save(stream, values, allow_pickle=False)
            stream.flush()
            os.fsync(stream.fileno())  # a rename may reach the disk before the data does
        files[array] = {"bytes": file.stat().st_size, "sha256": sha256(file)}
    counts = {
        "documents": len(document_ends),
        "sentences": len(sentence_ends),
        "tokens": len(tokens),
    }
    entry = {"name": name, **counts, "files": files}
    write_json(part / "shard.json", entry)
    part.replace(folder / name)
    return entry


def open(folder: Path) -> Prepared:
    """Open a prepared corpus; check the size of every file, and the contents of unseen files."""
    folder = Path(folder)
    manifest = read_manifest(folder)
    with _verified(folder, _files(folder, manifest)) as fresh:
        tokenizer = tokenizers.load(folder)
        if tokenizer.hash != manifest["tokenizer"]["hash"]:
            raise DataError(
                f"{folder}: tokenizer.json is not the one the shards were made with", HINT
            )
        for name in fresh:
            if name.endswith("/tokens.npy"):
                _check_tokens(folder / name, tokenizer.size)
            elif name.endswith("_ends.npy"):
                _check_ends(folder / name)
    splits = {name: Mapped(folder, manifest["splits"].get(name, [])) for name in SPLITS}
    unigrams = _array(folder / "unigrams.npy")
    if unigrams.shape != (tokenizer.size,):
        raise DataError(
            f"{folder / 'unigrams.npy'} has shape {unigrams.shape}, not ({tokenizer.size},)", HINT
        )
    return Prepared(folder, manifest, tokenizer, splits, unigrams, manifest["fingerprint"])


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read the manifest of a prepared folder, checked for what `open` relies on."""
    file = folder / "manifest.json"
    if not os.path.lexists(file):
        raise DataError(f"no prepared corpus in {folder}: no manifest.json", "run bert-jax prepare")
    manifest = jsons.read(file, DataError, MANIFEST, hint=HINT)
    if manifest["format"] != FORMAT:
        raise DataError(f"{file} has format {manifest['format']}, not {FORMAT}", HINT)
    return manifest


def sha256(file: Path) -> str:
    """Return the sha256 of a file."""
    with opening.regular(file, DataError) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def write_json(file: Path, value: Any) -> None:
    """Write JSON to a file in one move."""
    disk.write(file, json.dumps(value, indent=1, sort_keys=True) + "\n")


def _files(folder: Path, manifest: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the bytes and sha256 of every file in the manifest, by path inside the folder."""
    listed = dict(manifest["files"])
    for name in SPLITS:
        for entry in manifest["splits"].get(name, []):
            listed |= {f"{entry['name']}/{array}.npy": entry["files"][array] for array in ARRAYS}
    for name in listed:
        if not re.fullmatch(r"([\w-]+/)?[\w-]+\.\w+", name):
            raise DataError(
                f"{folder / 'manifest.json'} names a file outside its folder: {name!r}", HINT
            )
    return listed


@contextlib.contextmanager
def _verified(folder: Path, listed: dict[str, dict[str, Any]]) -> Iterator[list[str]]:
    """Compare sizes always, digests unless this very file (size, mtime, inode) has passed before.

    Yields the files that have not passed before; they are recorded as passed if the block, which
    may check them further, raises no error.
    """
    stamp = folder / VERIFIED
    try:
        passed = jsons.read(stamp, DataError, {str: list})
    except DataError:  # missing or damaged: all is verified again
        passed = {}
    seen: dict[str, list] = {}
    for name, expected in listed.items():
        file = folder / name
        if not os.path.lexists(file):
            raise DataError(f"{file} is missing", HINT)
        stat = opening.inside(folder, file, DataError).stat()
        if stat.st_size != expected["bytes"]:
            raise DataError(f"{file} has {stat.st_size} bytes, not {expected['bytes']}", HINT)
        seen[name] = [stat.st_size, stat.st_mtime_ns, stat.st_ino, expected["sha256"]]
        if passed.get(name) != seen[name] and sha256(file) != expected["sha256"]:
            raise DataError(f"{file} is corrupt: its sha256 is not the manifest's", HINT)
    yield [name for name in listed if passed.get(name) != seen[name]]
    if seen != passed:  # a read-only corpus is verified each time
        with contextlib.suppress(OSError, disk.DiskFull):
            write_json(stamp, seen)


def _check_tokens(file: Path, vocab_size: int) -> None:
    """Refuse a token outside the vocabulary: on a device it would read beyond the embeddings."""
    tokens = _array(file)
    if tokens.dtype not in (np.uint16, np.uint32):
        raise DataError(f"{file} holds {tokens.dtype}, not uint16 or uint32", HINT)
    for start in range(0, len(tokens), BLOCK):
        block = tokens[start : start + BLOCK]
        if block.max() >= vocab_size:
            i = int(np.argmax(block >= vocab_size))
            problem = f"{file} has token {block[i]} at position {start + i}"
            raise DataError(f"{problem}, and the vocabulary ends at {vocab_size - 1}", HINT)


def _check_ends(file: Path) -> None:
    """Refuse sentences or documents that end before they begin; `_shard` checks the last end."""
    ends = _array(file)
    if ends.dtype != np.uint32 or (ends[1:] < ends[:-1]).any():
        raise DataError(f"{file} does not ascend in uint32", HINT)


def _shard(folder: Path, entry: dict[str, Any]) -> Shard:
    shard = Shard(*(_array(folder / entry["name"] / f"{array}.npy") for array in ARRAYS))
    ends = (len(shard.tokens), len(shard.sentence_ends))
    for array, values, end in zip(
        ARRAYS[1:], (shard.sentence_ends, shard.document_ends), ends, strict=True
    ):
        if not len(values) or values[-1] != end:
            raise DataError(f"{folder / entry['name'] / array}.npy does not end at {end}", HINT)
    return shard


def _array(file: Path) -> np.ndarray:
    try:
        return np.load(file, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise DataError(f"{file} is not an array: {error}", HINT) from error
