"""Means over seeds, each with its own t interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bert_jax.studies.report.simultaneous import find_quantile


class Summary(NamedTuple):
    """Mean and spread of n runs."""

    n: int
    mean: float
    deviation: float  # standard deviation of one run, by n - 1; NaN for one run
    low: float  # the 95 % t interval of the mean, infinite for one run
    high: float


def summarize_values(values: Sequence[float]) -> Summary:
    """Compute the mean of at least one value, with its spread and interval."""
    sample = np.asarray(values, np.float64)
    count = len(sample)
    mean = float(sample.mean())
    if count == 1:
        return Summary(1, mean, math.nan, -math.inf, math.inf)
    deviation = float(sample.std(ddof=1))
    half = find_quantile(1, count - 1) * deviation / math.sqrt(count)
    return Summary(count, mean, deviation, mean - half, mean + half)
