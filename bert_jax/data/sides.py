"""Which texts are kept, and on which side of the split their documents are."""

from __future__ import annotations

import numpy as np

from bert_jax.config import knobs

DROPPED, TRAIN, VALIDATION = -1, 0, 1  # the latter two are indices of corpus.SPLITS


def choose_sides(
    records: np.ndarray, settings: knobs.Corpus
) -> tuple[np.ndarray, np.ndarray, dict[str, int]]:
    """Drop copies, and divide documents into train and validation by the digest of their text.

    Args:
      records: of all texts [R], see `spool.RECORD`.
      settings: whether to drop copies, and the share of documents for validation.

    Returns:
      The side of each text [R], whether a document begins with it among those that are kept [R],
      and counts of what is dropped.
    """
    kept = np.flatnonzero(records["sentences"] > 0)
    counts = {"documents": len(records), "empty": len(records) - len(kept)}
    counts["duplicates"] = 0
    if settings.deduplicate:
        first = find_first(records["digest"][kept])
        counts["duplicates"] = int((~first).sum())
        kept = kept[first]
    # [R], the text with which the document of each text begins. It decides the side, even if it is
    # dropped itself.
    opening = np.maximum.accumulate(np.where(records["starts"], np.arange(len(records)), 0))
    digests = records["digest"][opening[kept]]
    limit = _choose_limit(digests, settings.validation_fraction)
    sides = np.full(len(records), DROPPED, np.int8)
    sides[kept] = np.where(digests < np.uint64(limit), VALIDATION, TRAIN)
    starts = np.zeros(len(records), bool)
    starts[kept] = np.diff(opening[kept], prepend=-1) != 0
    return sides, starts, counts


def find_first(values: np.ndarray) -> np.ndarray:
    """Tell of each value whether no earlier value equals it."""
    result = np.zeros(len(values), bool)
    result[np.unique(values, return_index=True)[1]] = True
    return result


def _choose_limit(digests: np.ndarray, fraction: float) -> int:
    """Return the digest below which documents are for validation.

    That is a fixed share of the documents, but never none or all of several.
    """
    limit = int(fraction * 2**64)
    if limit == 0 or not len(digests) or digests.min() == digests.max():
        return 0
    below = digests < np.uint64(limit)
    if not below.any():
        return int(digests.min()) + 1
    return int(digests.max()) if below.all() else limit
