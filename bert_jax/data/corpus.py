"""Raw text to documents of sentences: the table of sources, and the spool of text to be tokenised.

A source lists items of work and reads the records of one item lazily, so that work spreads over
processes and no text stays in memory. It is a module of `data/text`, and a row of SOURCES in
`config/data_knobs.py`, with

    identity(settings, cache)    -> JSON that names the text
    items(settings)              -> items, warnings
    read(item, settings, tally)  -> an iterator of chunks
    bands(text)                  -> digests that near-identical records share; not every source

`Item`, `Chunk` and `Tally` are those of `data/text/sentences.py`; `cache` is the folder of prepared
corpora, where a source may keep what is slow to find out.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import io
import os
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import zstandard

from bert_jax.config import data_knobs, knobs
from bert_jax.data.text import docstrings, shards
from bert_jax.data.text.sentences import GLUED, REPLACED, Chunk, Item, Tally, sentences
from bert_jax.errors import DataError
from bert_jax.system import disk, jsons

TASK = 8 << 20  # bytes of small items that one call reads
VOLUME = 4 << 20  # characters of a spool volume, which one call tokenises: small, to use all cores
SAMPLE = 40  # chunks of each sampled item that decide whether lines are sentences
SAMPLED = 16  # items sampled
ONE_SENTENCE = 0.2  # lines are sentences if at most this share of them splits into several


SOURCES: dict[str, Any] = {
    name: importlib.import_module(f"bert_jax.data.text.{row.module}")
    for name, row in data_knobs.SOURCES.items()
}

RECORD = np.dtype(
    [
        ("digest", np.uint64),  # of the text, spaces normalised
        ("sentences", np.uint32),
        ("characters", np.uint64),
        ("joins", bool),  # continues the document of the previous record
        ("bad", bool),
        ("bands", np.uint64, docstrings.BANDS),  # zeros where the source has no `bands`
    ]
)


def tasks(items: list[Item]) -> list[list[Item]]:
    """Group consecutive items into tasks of about TASK bytes."""
    groups: list[list[Item]] = []
    size = TASK
    for item in items:
        if size >= TASK:
            groups.append([])
            size = 0
        groups[-1].append(item)
        size += item.weight
    return groups


def one_sentence_lines(items: list[Item], settings: knobs.Corpus) -> tuple[bool, float]:
    """Tell whether lines are sentences already, and the share of lines that split into several.

    The share is measured on evenly spaced items. It is small for lm1b and Google's sample text, and
    large for prose in paragraphs.
    """
    if settings.sentences != "auto":
        return settings.sentences == "lines", float("nan")
    several = lines = 0
    step = max(1, len(items) // SAMPLED)
    for item in items[::step][:SAMPLED]:
        tally = Tally()
        for chunk in islice(SOURCES[settings.source].read(item, settings, tally), SAMPLE):
            for line in chunk.lines[:1000]:
                count = len(sentences(line, settings.language, tally))
                lines, several = lines + (count > 0), several + (count > 1)
    share = several / max(lines, 1)
    return share <= ONE_SENTENCE, share


DONE = {  # schema of the JSON of a finished task
    "volumes": [{"name": str, "records": range(2**63), "characters": range(2**63)}],
    "counts": {str: int},
    "first": {str: str},
}


# --- the spool: a volume is <name>.zst, one sentence a line, and <name>.npy, one RECORD each ------


def extract(
    index: int, items: list[Item], settings: knobs.Corpus, lines: bool, folder: Path
) -> dict[str, Any]:
    """Read the items of one task into volumes; its JSON, written last, marks the task as done."""
    source = SOURCES[settings.source]
    bands = getattr(source, "bands", None)
    tally = Tally()
    volumes: list[dict[str, Any]] = []
    volume = _Volume(folder, f"{index:05d}-{len(volumes):04d}", bands)
    try:
        for item in items:
            for chunk in source.read(item, settings, tally):
                if volume.characters >= VOLUME and not volume.begun and not chunk.joins:
                    volumes.append(volume.close())
                    volume = _Volume(folder, f"{index:05d}-{len(volumes):04d}", bands)
                lines_of_text = [line for line in chunk.lines if line.strip()]
                tally.counts["lines"] += len(lines_of_text)
                tally.counts["bad_lines"] += sum(REPLACED in line for line in lines_of_text)
                cut = None if lines else settings.language
                volume.add([s for line in chunk.lines for s in sentences(line, cut, tally)], chunk)
        volumes.append(volume.close())
    finally:
        volume.drop()
    done = {"volumes": volumes, "counts": dict(tally.counts), "first": tally.first}
    shards.write_json(folder / f"{index:05d}.json", done)
    return done


class _Volume:
    """Writer of one volume."""

    def __init__(self, folder: Path, name: str, bands: Callable[[str], np.ndarray] | None):
        self.folder, self.name, self.bands = folder, name, bands
        self.characters = 0
        self.records: list[tuple] = []
        self.part = folder / f".{name}.{os.getpid()}"
        self.file = self.part.open("wb")
        self.stream = zstandard.ZstdCompressor(level=1).stream_writer(self.file)
        self._begin()

    def _begin(self) -> None:
        self.digest = hashlib.blake2b(digest_size=8)
        self.count = self.size = 0
        self.bad = self.begun = False
        self.text: list[str] = []

    def add(self, sentences: list[str], chunk: Chunk) -> None:
        """Append the sentences of a chunk to the current record; end it with its last chunk."""
        self.begun = True
        data = "".join(f"{sentence}\n" for sentence in sentences).encode()
        self.stream.write(data)
        if (mark := GLUED.encode()) in data:
            data = data.replace(mark, b"")
            sentences = [sentence.removeprefix(GLUED) for sentence in sentences]
        self.digest.update(data.replace(b"\n", b" "))  # the same text in other lines is a copy too
        self.count += len(sentences)
        self.size += sum(map(len, sentences))
        self.bad = self.bad or chunk.bad
        if self.bands:
            self.text += sentences
        if chunk.last:
            number = int.from_bytes(self.digest.digest(), "little")
            bands = self.bands(" ".join(self.text)) if self.bands else 0
            self.records.append((number, self.count, self.size, chunk.joins, self.bad, bands))
            self.characters += self.size
            self._begin()

    def drop(self) -> None:
        """Close the file of an unfinished volume, which nothing reads."""
        with contextlib.suppress(OSError):  # a full disk has no room for the buffered rest
            self.file.close()

    def close(self) -> dict[str, Any]:
        """Finish the volume and return its manifest entry."""
        self.stream.close()
        records = np.array(self.records, RECORD)
        table = io.BytesIO()
        np.save(table, records)
        disk.write(self.folder / f"{self.name}.npy", table.getvalue())
        self.part.replace(self.folder / f"{self.name}.zst")
        return {
            "name": self.name,
            "records": len(records),
            "characters": int(records["characters"].sum()),
        }


def records(folder: Path, name: str) -> np.ndarray:
    """Return the RECORDs of a volume."""
    return np.load(folder / f"{name}.npy", allow_pickle=False)


def read_sentences(folder: Path, name: str) -> Iterator[str]:
    """Yield the sentences of a volume, each with its newline."""
    with _text(folder, name) as stream:
        yield from stream


def read_blocks(folder: Path, name: str, size: int) -> Iterator[str]:
    """Yield the text of a volume in blocks of `size` characters, and up to the end of a line."""
    with _text(folder, name) as stream:
        while block := stream.read(size):
            yield block + stream.readline()


@contextlib.contextmanager
def _text(folder: Path, name: str) -> Iterator[io.TextIOWrapper]:
    with (folder / f"{name}.zst").open("rb") as packed:
        raw = zstandard.ZstdDecompressor().stream_reader(packed)
        yield io.TextIOWrapper(io.BufferedReader(raw, 1 << 20), "utf-8", newline="\n")


def finished(folder: Path, index: int) -> dict[str, Any] | None:
    """Return what `extract` returned for a task, or None where the task is not done."""
    file = folder / f"{index:05d}.json"
    return jsons.read(file, DataError, DONE, hint=shards.HINT) if file.exists() else None
