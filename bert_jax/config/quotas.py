"""Numbers of selected tokens, computed with numpy alone: planning many runs needs no jax."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from bert_jax.config import knobs, laws

SHORTEST = 3  # tokens of the shortest example: [CLS], one token of text, [SEP]


class Quotas(NamedTuple):
    """Quotas by the length of an example: a whole part, and the chance of one more token.

    A draw u from 0 to 2**32 - 1 gives the quota whole + (u < chance), which no float rounds.
    """

    whole: Any  # int32 [..., L + 1]
    chance: Any  # uint32 [..., L + 1], times 2**32; 0 where a quota is a whole number


def table(rate: float, length: int, rounding: str) -> np.ndarray:
    """Return the mean quotas for 0 to `length` countable tokens, float64 [L + 1].

    A mean is the product of tokens and rate, and at least 1. Nearest rounds it as Python does, half
    to even. Unbiased leaves it as it is, and a draw rounds it: see `split`.
    """
    counts = np.arange(length + 1)
    if rate <= 0:
        return np.zeros(length + 1)
    means = counts * rate
    if rounding == "nearest":
        means = np.round(means)
    return np.maximum(means, 1) * (counts > 0)


def split(means: np.ndarray) -> Quotas:
    """Return mean quotas as `Quotas`: 4.35 is 4, and 5 by a chance of 0.35."""
    # One rounding, to 32 bits, takes what float64 leaves of a whole number back to it.
    parts = np.rint(means * 2.0**32).astype(np.uint64)
    return Quotas((parts >> 32).astype(np.int32), (parts & 0xFFFFFFFF).astype(np.uint32))


def selected(settings: knobs.Masking, rate: float, length: int) -> Quotas:
    """Return the quotas of selection at a rate.

    Where an example has V views, they have a first axis of V + 1: view j selects what lies between
    quotas j and j + 1. These are j times the quota of the rate, up to that of the prediction rate.
    """
    means = table(rate, length, settings.rounding)  # [L + 1]
    views = laws.views(settings)
    if views > 1:
        assert settings.prediction_rate is not None
        most = table(settings.prediction_rate, length, settings.rounding)
        means = np.minimum(np.arange(views + 1)[:, None] * means, most)  # [V + 1, L + 1]
    return split(means)


def predicted(settings: knobs.Masking, rate: float, length: int) -> Quotas:
    """Return the quotas of prediction among the tokens that are selected at a rate."""
    wanted = rate if settings.prediction_rate is None else settings.prediction_rate
    return split(table(wanted, length, settings.rounding))


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
    whole, chance = split(table(top, length, settings.rounding))
    most = whole + (chance > 0) + overhang
    example = np.minimum(most, np.arange(length + 1))  # by its length
    row = example
    for _ in range(1, min(examples, length // SHORTEST)):  # the most over all divisions of a row
        added = row.copy()
        for n in range(SHORTEST, length + 1 - SHORTEST):
            np.maximum(added[n:], row[: length + 1 - n] + example[n], out=added[n:])
        if np.array_equal(added, row):
            break
        row = added
    return max(1, int(row[-1]))
