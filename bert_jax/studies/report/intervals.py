"""Means over seeds, each with its own t interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bert_jax.studies.report.simultaneous import quantile


class Summary(NamedTuple):
    """Mean and spread of n runs."""

    n: int
    mean: float
    deviation: float  # standard deviation of one run, by n - 1
    low: float  # the t interval of the mean
    high: float


def summary(values: Sequence[float]) -> Summary:
    """Compute mean and spread; a single value has spread NaN and an infinite interval."""
    sample = _sample(values)
    mean, error = float(sample.mean()), _squared_error(sample) ** 0.5
    half = half_width(error, len(sample) - 1)
    return Summary(len(sample), mean, error * len(sample) ** 0.5, mean - half, mean + half)


def _sample(values: Sequence[float]) -> np.ndarray:
    sample = np.asarray(values, np.float64)
    if sample.ndim != 1 or not sample.size or not np.isfinite(sample).all():
        raise ValueError(f"no finite numbers to sum up: {values!r}")
    return sample


def _squared_error(sample: np.ndarray) -> float:
    """Return the squared standard error of the mean; NaN for a single value."""
    return float(sample.var(ddof=1) / len(sample)) if len(sample) > 1 else math.nan


def half_width(error: float, freedom: float) -> float:
    """Return half of a 95 % t interval for a standard error; infinite if the error is NaN."""
    return math.inf if math.isnan(error) else error * quantile(1, freedom)
