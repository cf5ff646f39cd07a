"""Which records are kept, which document each belongs to, and on which side of the split that lies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from bert_jax.config import knobs
from bert_jax.data import corpus

DROP, TRAIN, VALIDATION, STARTS = (
    0,
    1,
    2,
    4,
)  # a mark is a side, plus STARTS where a document begins
PARTITION = 4_000_000  # digests sorted at once


def repeats(
    column: Callable[[str], np.ndarray], names: list[str], usable: np.ndarray
) -> np.ndarray:
    """True where an earlier usable record has the same value; [records of all volumes].

    Values are sorted one residue class at a time, so memory does not grow with the corpus but for one bit a record.
    """
    found = np.zeros(len(usable), bool)
    classes = np.uint64(1 + len(usable) // PARTITION)
    for residue in range(int(classes)):
        where, values, offset = [], [], 0
        for name in names:
            value = column(name)
            at = np.flatnonzero(usable[offset : offset + len(value)] & (value % classes == residue))
            where.append(at + offset)
            values.append(value[at])
            offset += len(value)
        index = np.concatenate(where)
        _, first = np.unique(np.concatenate(values), return_index=True)
        found[np.delete(index, first)] = True
    return found


def marks(
    spool: Path, names: list[str], settings: knobs.Corpus, near: bool
) -> tuple[list[np.ndarray], dict[str, int]]:
    """One uint8 a record for each volume, and what was counted."""
    usable = np.concatenate([_usable(corpus.records(spool, name)) for name in names])
    counts = {"records": len(usable)}
    dropped = {
        "empty": [(r["sentences"] == 0).sum() for r in (corpus.records(spool, n) for n in names)],
        "bad_documents": [
            (r["bad"] & (r["sentences"] > 0)).sum()
            for r in (corpus.records(spool, n) for n in names)
        ],
    }
    counts |= {kind: int(sum(values)) for kind, values in dropped.items()}
    counts["duplicates"] = counts["near_duplicates"] = 0
    if settings.deduplicate:
        same = repeats(lambda name: corpus.records(spool, name)["digest"], names, usable)
        usable &= ~same
        counts["duplicates"] = int(same.sum())
        if near:
            alike = np.zeros(len(usable), bool)
            for band in range(corpus.RECORD["bands"].shape[0]):
                alike |= repeats(
                    lambda name, b=band: corpus.records(spool, name)["bands"][:, b], names, usable
                )  # type: ignore[misc]  # b is bound
            usable &= ~alike
            counts["near_duplicates"] = int(alike.sum())
    limit = _limit(spool, names, usable, settings.validation_fraction)
    result, offset = [], 0
    for name in names:
        records = corpus.records(spool, name)
        result.append(_mark(records, usable[offset : offset + len(records)], limit))
        offset += len(records)
    return result, counts


def _usable(records: np.ndarray) -> np.ndarray:
    return (records["sentences"] > 0) & ~records["bad"]


def _documents(records: np.ndarray, usable: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Kept records' indices, and the digest that stands for the document of each: that of its first record."""
    first = np.maximum.accumulate(np.where(records["joins"], 0, np.arange(len(records))))
    kept = np.flatnonzero(usable)
    return kept, first[kept]


def _limit(spool: Path, names: list[str], usable: np.ndarray, fraction: float) -> int:
    """Documents whose digest is below this are for validation: a fixed share, but never none or all of several."""
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
    found = np.zeros(len(records), np.uint8)
    kept, first = _documents(records, usable)
    if len(kept):
        side = np.where(records["digest"][first] < np.uint64(limit), VALIDATION, TRAIN)
        starts = np.diff(first, prepend=-1) != 0
        found[kept] = side + STARTS * starts
    return found
