"""Quotas: the number of tokens to select in an example, and the slots for their predictions.

A quota is the product of the rate and the number of tokens, rounded, and at least 1. The tables are
made in float64 on the host, which needs only numpy: planning many runs needs no jax.
"""

import functools
from typing import Any, NamedTuple

import numpy as np

from bert_jax.config import knobs
from bert_jax.masking import rates

SHORTEST = 3  # tokens of the shortest example: [CLS], one token of text, [SEP]


class Quotas(NamedTuple):
    """Quotas by the length of an example: a whole part, and the chance of one more token.

    A random number r from 0 to 2**32 - 1 gives the quota whole + (r < chance), without rounding in
    floats. At a rate of 15 %, 29 tokens have the quota 4.35: the whole part 4, and the chance 0.35
    * 2**32.
    """

    whole: Any  # int32 [..., L + 1]
    chance: Any  # uint32 [..., L + 1], times 2**32; 0 if a quota is a whole number


def mean_quotas(rate: float, length: int, rounding: str) -> np.ndarray:
    """Return the mean quotas for 0 to `length` tokens, float64 [length + 1].

    The rounding "nearest" rounds half to even, as Python does. The rounding "unbiased" leaves the
    product as it is, and random bits round it later: see `split_means`.
    """
    counts = np.arange(length + 1)
    if rate <= 0:
        return np.zeros(length + 1)
    means = counts * rate
    if rounding == "nearest":
        means = np.round(means)
    return np.maximum(means, 1) * (counts > 0)


def split_means(means: np.ndarray) -> Quotas:
    """Split mean quotas into their whole parts and the chances of one more token."""
    # One rounding, to 32 bits, takes what float64 leaves of a whole number back to it.
    parts = np.rint(means * 2.0**32).astype(np.uint64)
    return Quotas((parts >> 32).astype(np.int32), (parts & 0xFFFFFFFF).astype(np.uint32))


@functools.lru_cache(64)  # every update asks, mostly for the same ones
def selection_quotas(settings: knobs.Masking, rate: float, length: int) -> Quotas:
    """Return the quotas of selected tokens at a rate, by the length of an example.

    If an example has V views, the tables have a first axis of V + 1. View j selects the tokens
    between quota j and quota j + 1. Quota j is j times the quota of the rate, and at most the quota
    of the prediction rate. At rates of 15 % and 40 %, 100 tokens have the quotas 0, 15, 30 and 40.
    With the rounding "nearest" all views together may select less than the prediction rate: 9
    tokens have the quotas 0, 1, 2 and 3, although 40 % of 9 is nearer to 4.
    """
    means = mean_quotas(rate, length, settings.rounding)  # [L + 1]
    views = rates.count_views(settings)
    if views > 1:
        assert settings.prediction_rate is not None
        most = mean_quotas(settings.prediction_rate, length, settings.rounding)
        means = np.minimum(np.arange(views + 1)[:, None] * means, most)  # [V + 1, L + 1]
    return split_means(means)


@functools.lru_cache(64)
def prediction_quotas(settings: knobs.Masking, rate: float, length: int) -> Quotas:
    """Return the quotas of predicted tokens, by the length of an example.

    Without a prediction rate, all tokens that are selected at `rate` are predicted.
    """
    wanted = rate if settings.prediction_rate is None else settings.prediction_rate
    return split_means(mean_quotas(wanted, length, settings.rounding))


@functools.lru_cache(1024)  # planning a study asks for the same few thousands of times
def count_slots(settings: knobs.Masking, length: int, examples: int = 1) -> int:
    """Return the most prediction slots that a row of `examples` examples needs during training.

    The number follows from the highest rate, and never limits the quotas.
    """
    top = settings.prediction_rate
    views = rates.count_views(settings)
    if views > 1:
        top = settings.rate
    elif top is None:
        top = rates.rate_range(settings)[1]
        if settings.draw != "fixed":  # float32 may round up what is almost between two numbers
            top = min(1.0, top * (1 + 1e-6))
    # With overflow=fair the last unit may exceed the quota by all but one of its tokens. So may the
    # last unit of the view before, which leaves these tokens to this view.
    overhang = 0
    if settings.unit != "token" and settings.overflow == "fair":
        overhang = settings.max_unit - 1
    if views > 1:
        overhang *= 2
    whole, chance = split_means(mean_quotas(top, length, settings.rounding))
    most = whole + (chance > 0) + overhang
    example = np.minimum(most, np.arange(length + 1))  # [L + 1], of one example by its length
    row = example  # [L + 1], the most of the examples so far, by the tokens that they share
    for _ in range(1, min(examples, length // SHORTEST)):
        # One example more, of n tokens: for every n, row[:-n] + example[n] stands n places later.
        added = row.copy()
        for n in range(SHORTEST, length + 1 - SHORTEST):
            np.maximum(added[n:], row[: length + 1 - n] + example[n], out=added[n:])
        if np.array_equal(added, row):
            break
        row = added
    return max(1, int(row[-1]))
