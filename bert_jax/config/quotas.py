"""How many tokens are selected, in numbers of the host alone: jax is not needed to plan a run or many of them."""

from __future__ import annotations

import functools

import numpy as np

from bert_jax.config import knobs

SHORTEST = 3  # tokens of an example: [CLS], one of text, [SEP]


def table(rate: float, length: int) -> np.ndarray:
    """Selected tokens for 0 to `length` countable ones: Python's rounding of the float64 product, at least one."""
    counts = np.arange(length + 1)
    quotas = (
        np.maximum(np.round(counts * rate), 1) * (counts > 0) if rate > 0 else np.zeros(length + 1)
    )
    return quotas.astype(np.int32)  # [L + 1]


def rate_at(settings: knobs.Masking, step: int, steps: int) -> float:
    """The corruption rate of an update, from `rate` at the first to `final_rate` at the last."""
    if settings.schedule == "constant" or settings.final_rate is None:
        return settings.rate
    share = min(step / max(steps - 1, 1), 1.0)
    return settings.rate + share * (settings.final_rate - settings.rate)


@functools.lru_cache(1024)  # planning a study asks for the same few thousands of times
def slots(settings: knobs.Masking, length: int, examples: int = 1) -> int:
    """Prediction slots a row of so many examples needs at most, over the whole schedule; derived, never a cap."""
    rates = [settings.rate, settings.rate if settings.final_rate is None else settings.final_rate]
    top = max(rates) if settings.prediction_rate is None else settings.prediction_rate
    # Under the fair rule the last unit may reach past the quota by all but one of its tokens.
    overhang = (
        0 if settings.unit == "token" or settings.overflow == "skip" else settings.max_unit - 1
    )
    one = np.minimum(
        table(top, length) + overhang, np.arange(length + 1)
    )  # of an example by its length
    most = one
    for _ in range(
        1, min(examples, length // SHORTEST)
    ):  # the row of which its examples take most, however divided
        added = most.copy()
        for n in range(SHORTEST, length + 1 - SHORTEST):
            np.maximum(added[n:], most[: length + 1 - n] + one[n], out=added[n:])
        if np.array_equal(added, most):
            break
        most = added
    return max(1, int(most[-1]))
