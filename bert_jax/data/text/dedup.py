"""Deduplicate records, assign them to documents, and divide documents into train and validation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from bert_jax.config import knobs
from bert_jax.data import corpus

# A record's mark is its side of the split, plus STARTS if it begins a document.
DROP, TRAIN, VALIDATION, STARTS = 0, 1, 2, 4
PARTITION = 4_000_000  # digests sorted at once


def repeats(
    column: Callable[[str], np.ndarray], names: list[str], usable: np.ndarray
) -> np.ndarray:
    """Tell for each record of all volumes whether an earlier usable record has the same value.

    `column` reads the values of a volume. They are sorted one residue class at a time, so that
    memory grows with the corpus only by the result, one byte a record.
    """
    repeated = np.zeros(len(usable), bool)
    classes = np.uint64(1 + len(usable) // PARTITION)
    for residue in range(int(classes)):
        indices, values, offset = [], [], 0
        for name in names:
            value = column(name)
            inside = usable[offset : offset + len(value)] & (value % classes == residue)
            rows = np.flatnonzero(inside)
            indices.append(rows + offset)
            values.append(value[rows])
            offset += len(value)
        _, first = np.unique(np.concatenate(values), return_index=True)
        repeated[np.delete(np.concatenate(indices), first)] = True
    return repeated


def marks(
    spool: Path, names: list[str], settings: knobs.Corpus
) -> tuple[list[np.ndarray], dict[str, int]]:
    """Return the marks of the records of each volume, uint8, and counts of what was dropped."""
    counts = dict.fromkeys(
        ("records", "empty", "bad_documents", "duplicates", "near_duplicates"), 0
    )
    usable_of: list[np.ndarray] = []
    for name in names:
        records = corpus.records(spool, name)
        filled = records["sentences"] > 0
        counts["records"] += len(records)
        counts["empty"] += int((~filled).sum())
        counts["bad_documents"] += int((records["bad"] & filled).sum())
        usable_of.append(filled & ~records["bad"])
    usable = np.concatenate(usable_of)
    if settings.deduplicate:
        same = repeats(lambda name: corpus.records(spool, name)["digest"], names, usable)
        usable &= ~same
        counts["duplicates"] = int(same.sum())
        if hasattr(corpus.SOURCES[settings.source], "bands"):
            alike = np.zeros(len(usable), bool)
            for band in range(corpus.RECORD["bands"].shape[0]):

                def digests(name: str, band: int = band) -> np.ndarray:
                    return corpus.records(spool, name)["bands"][:, band]

                alike |= repeats(digests, names, usable)
            usable &= ~alike
            counts["near_duplicates"] = int(alike.sum())
    limit = _limit(spool, names, usable, settings.validation_fraction)
    result, offset = [], 0
    for name in names:
        records = corpus.records(spool, name)
        result.append(_mark(records, usable[offset : offset + len(records)], limit))
        offset += len(records)
    return result, counts


def _documents(records: np.ndarray, usable: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the indices of usable records, and of the first record of the document of each."""
    first = np.maximum.accumulate(np.where(records["joins"], 0, np.arange(len(records))))
    kept = np.flatnonzero(usable)
    return kept, first[kept]


def _limit(spool: Path, names: list[str], usable: np.ndarray, fraction: float) -> int:
    """Return the digest below which documents are for validation.

    That is a fixed share of the documents, but never none or all of several.
    """
    limit = int(fraction * 2**64)
    if limit == 0:
        return 0
    below = above = offset = 0
    lowest, highest = 2**64, -1
    for name in names:
        records = corpus.records(spool, name)
        _, first = _documents(records, usable[offset : offset + len(records)])
        offset += len(records)
        digests = records["digest"][np.unique(first)]
        if len(digests):
            inside = int((digests < np.uint64(limit)).sum())
            below, above = below + inside, above + len(digests) - inside
            lowest, highest = min(lowest, int(digests.min())), max(highest, int(digests.max()))
    if lowest >= highest:
        return 0  # nothing, or copies of one document
    if below == 0:
        return lowest + 1
    return highest if above == 0 else limit


def _mark(records: np.ndarray, usable: np.ndarray, limit: int) -> np.ndarray:
    result = np.zeros(len(records), np.uint8)
    kept, first = _documents(records, usable)
    if len(kept):
        side = np.where(records["digest"][first] < np.uint64(limit), VALIDATION, TRAIN)
        starts = np.diff(first, prepend=-1) != 0
        result[kept] = side + STARTS * starts
    return result
