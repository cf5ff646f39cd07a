"""The text that a vocabulary is trained on: in pieces that cost little, and its characters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

COVERAGE = 0.99999  # share of the characters of the training text that the alphabet covers
LINE = 10_000  # characters that the trainer gets at once


def batches(texts: Iterable[str]) -> Iterator[str]:
    """Join short texts and cut long ones, so that neither costs much time or memory."""
    held: list[str] = []
    size = 0
    for text in texts:
        if size + len(text) > LINE and held:
            yield " ".join(held)
            held, size = [], 0
        for start in range(0, len(text), LINE):
            part = text[start : start + LINE]
            held.append(part)
            size += len(part)
            if size >= LINE:
                yield " ".join(held)
                held, size = [], 0
    if held:
        yield " ".join(held)


def alphabet(counts: np.ndarray, limit: int) -> list[str]:
    """Return the commonest characters that cover the text, at most `limit`, by code point."""
    counts[[0x20, 0x0A]] = 0
    order = np.argsort(-counts, kind="stable")
    needed = int(np.searchsorted(np.cumsum(counts[order]), COVERAGE * counts.sum())) + 1
    kept = order[: min(needed, limit)]
    return sorted(chr(c) for c in kept if counts[c])
