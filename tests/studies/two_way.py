"""Simultaneous intervals of a two-way layout of points and seeds, computed in another way."""

import functools
import math

import numpy as np
from scipy import stats


@functools.cache
def drawn_quantile(points: int, freedom: int, level: float) -> float:
    """Return the quantile of the largest of correlated t values, of a million draws."""
    rng = np.random.default_rng(1)
    baseline, spread = rng.standard_normal(1_000_000), rng.chisquare(freedom, 1_000_000) / freedom
    largest = np.zeros(1_000_000)
    for _ in range(points):
        largest = np.maximum(largest, abs(rng.standard_normal(1_000_000) - baseline))
    return float(np.quantile(largest / np.sqrt(2 * spread), 1 - level))


def halves_by_hand(values: np.ndarray, level: float) -> np.ndarray:
    """Return half of the intervals of each point but the first: values [points, seeds], no hole."""

    def squares(noise: np.ndarray) -> np.ndarray:
        noise = noise - noise.mean(-1, keepdims=True)
        return ((noise - noise.mean(-2, keepdims=True)) ** 2).sum(-1)

    def unevenness(own: np.ndarray) -> np.ndarray:  # statistics of Bartlett and Cochran
        mean = own.mean(-1)
        return np.stack([np.log(mean) - np.log(own).mean(-1), own.max(-1) / mean])

    (points, seeds), own = values.shape, squares(values)
    alone = (values[1:] - values[0]).std(axis=1, ddof=1) / math.sqrt(seeds)
    noise = squares(np.random.default_rng(2).standard_normal((20_000, points, seeds)))
    critical = np.quantile(unevenness(noise), 0.975, axis=1)
    if points > 2 and (unevenness(own) > critical).any():
        return stats.t.isf(level / (points - 1) / 2, seeds - 1) * alone
    freedom = (points - 1) * (seeds - 1)
    pooled = math.sqrt(2 / seeds * own.sum() / freedom)
    return drawn_quantile(points - 1, freedom, level) * np.maximum(alone, pooled)
