"""Numbers of selected tokens, computed with numpy alone: planning many runs needs no jax."""

from __future__ import annotations

import functools

import numpy as np

from bert_jax.config import knobs, laws

SHORTEST = 3  # tokens of the shortest example: [CLS], one token of text, [SEP]


def table(rate: float, length: int) -> np.ndarray:
    """Return the quotas for 0 to `length` countable tokens.

    A quota is Python's rounding (half to even) of the float64 product, and at least 1.
    """
    counts = np.arange(length + 1)
    if rate <= 0:
        return np.zeros(length + 1, np.int32)  # [L + 1]
    quotas = np.maximum(np.round(counts * rate), 1) * (counts > 0)
    return quotas.astype(np.int32)  # [L + 1]


@functools.lru_cache(1024)  # planning a study asks for the same few thousands of times
def slots(settings: knobs.Masking, length: int, examples: int = 1) -> int:
    """Return the most prediction slots that a row of so many examples needs over the schedule.

    The number is derived from the highest rate, and never caps it.
    """
    top, views = settings.prediction_rate, laws.views(settings)
    if views > 1:
        top = settings.rate
    elif top is None:
        top = laws.extremes(settings)[1]
        if settings.draw != "fixed":  # float32 may round up what is almost between two numbers
            top = min(1.0, top * (1 + 1e-6))
    # With overflow = fair the last unit may exceed the quota by all but one of its tokens, and so
    # may that of the view before, which leaves them to this one.
    exact = settings.unit == "token" or settings.overflow == "skip"
    overhang = 0 if exact else (settings.max_unit - 1) * (2 if views > 1 else 1)
    example = np.minimum(table(top, length) + overhang, np.arange(length + 1))  # by its length
    row = example
    for _ in range(1, min(examples, length // SHORTEST)):  # the most over all divisions of a row
        added = row.copy()
        for n in range(SHORTEST, length + 1 - SHORTEST):
            np.maximum(added[n:], row[: length + 1 - n] + example[n], out=added[n:])
        if np.array_equal(added, row):
            break
        row = added
    return max(1, int(row[-1]))
