"""Means over seeds, each with a t interval from its own values."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bert_jax.studies.report.simultaneous import find_quantile


class Summary(NamedTuple):
    """The mean of n runs, their standard deviation, and the interval of the mean."""

    n: int
    mean: float
    deviation: float  # standard deviation of one run, by n - 1; NaN for one run
    low: float  # the 95 % t interval of the mean, infinite for one run
    high: float


def summarize_values(values: Sequence[float]) -> Summary:
    """Compute the mean, standard deviation and interval of one or more values."""
    sample = np.asarray(values, np.float64)
    count = len(sample)
    mean = float(sample.mean())
    if count == 1:
        return Summary(1, mean, math.nan, -math.inf, math.inf)
    deviation = float(sample.std(ddof=1))
    half = find_quantile(1, count - 1) * deviation / math.sqrt(count)
    return Summary(count, mean, deviation, mean - half, mean + half)
