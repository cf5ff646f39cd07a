"""The first pass of preparation: texts to sentences, and a record of each text.

Texts are written in parts of some megabytes, each of which one process encodes later. A part is
NAME.zst, one sentence a line, and NAME.npy, one RECORD a text. A sentence keeps the blank that it
begins with: see `split_sentences`.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import zstandard

from bert_jax.config import knobs
from bert_jax.data.corpus import HINT, SOURCES
from bert_jax.data.sentences import REPLACED, Item, Text, clean_text, split_sentences
from bert_jax.errors import DataError
from bert_jax.system import disk, jsons

TASK = 8 << 20  # bytes of small items that one call reads
PART = 4 << 20  # characters of a part: small, so that all processes have parts to encode
DOCUMENT = 16 << 20  # characters: a longer document is cut
RECORD = np.dtype(
    [
        ("digest", np.uint64),  # of the text, spaces normalised
        ("sentences", np.uint32),
        ("characters", np.uint64),
        ("starts", bool),  # begins a document
    ]
)


def group_items(items: list[Item]) -> list[list[Item]]:
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


def read_task(
    number: int, items: list[Item], settings: knobs.Corpus, language: str | None, folder: Path
) -> dict[str, Any]:
    """Read items into parts; return and write what was done, which marks the task as done.

    Args:
      number: of the task.
      items: what to read.
      settings: the corpus.
      language: of the sentence splitter; None if lines are sentences.
      folder: where parts are written.
    """
    read_texts = SOURCES[settings.source].read_texts
    texts = itertools.chain.from_iterable(read_texts(item, settings) for item in items)
    done: dict[str, Any] = {"parts": [], "lines": 0, "bad_lines": 0, "first_bad": ""}
    for group in _group_texts(texts):
        name = f"{number:05d}-{len(done['parts']):04d}"
        characters = _write_part(folder, name, group, language, done)
        done["parts"].append({"name": name, "characters": characters})
    disk.write(folder / f"{number:05d}.json", json.dumps(done))
    return done


def read_done(folder: Path, number: int) -> dict[str, Any] | None:
    """Read the facts that `read_task` left of a task; return None if the task is not done."""
    file = folder / f"{number:05d}.json"
    return jsons.read(file, DataError, hint=HINT) if file.exists() else None


def read_records(folder: Path, name: str) -> np.ndarray:
    """Return the RECORDs of a part."""
    return np.load(folder / f"{name}.npy", allow_pickle=False)


def read_sentences(folder: Path, name: str) -> list[str]:
    """Return the sentences of a part."""
    text = zstandard.decompress((folder / f"{name}.zst").read_bytes()).decode()
    return text.split("\n")[:-1]


def _group_texts(texts: Iterable[Text]) -> Iterator[list[Text]]:
    """Yield texts in parts of about PART characters, which end with a document if they can."""
    held: list[Text] = []
    size = 0
    for text in texts:
        if size >= (PART if text.starts else DOCUMENT):
            yield held
            held = []
            size = 0
        held.append(text)
        size += len(text.text)
    if held:
        yield held


def _write_part(
    folder: Path,
    name: str,
    texts: list[Text],
    language: str | None,
    done: dict[str, Any],
) -> int:
    """Write a part, count its lines in `done`, and return the number of its characters."""
    written: list[str] = []
    records: list[tuple] = []
    for text in texts:
        clean = clean_text(text.text)
        lines = clean.split("\n")
        sentences: list[str] = []
        for line in lines:
            if line and (found := split_sentences(line, language)):
                done["lines"] += 1
                sentences += found
        if REPLACED in clean:
            done["bad_lines"] += sum(REPLACED in line for line in lines)
            done["first_bad"] = done["first_bad"] or text.where
        written += sentences
        # The same text in other lines has the same digest. A blank follows each sentence.
        spaced = " ".join([*map(str.lstrip, sentences), ""])
        digest = hashlib.blake2b(spaced.encode(), digest_size=8).digest()
        number = int.from_bytes(digest, "little")
        characters = len(spaced) - len(sentences)
        records.append((number, len(sentences), characters, text.starts))
    table = np.array(records, RECORD)
    disk.write(folder / f"{name}.npy", _dump(table))
    content = "\n".join([*written, ""]).encode()
    disk.write(folder / f"{name}.zst", zstandard.compress(content, level=1))
    return int(table["characters"].sum())


def _dump(array: np.ndarray) -> bytes:
    """Return an array as the bytes of a .npy file."""
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()
