"""Sums and counts, added over batches and divided once; baselines and confidence intervals."""

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from bert_jax.batch import Metrics
from bert_jax.reporting.metric_names import need_direction

EXAMPLES = "examples"  # key, among the arrays of an evaluation, of the digest of its examples


def digest(parts: Iterable[bytes]) -> np.ndarray:
    """Return the SHA-256 of a sequence of byte strings, as uint8 [32]."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return np.frombuffer(digest.digest(), np.uint8)


def as_lower(name: str, value: float) -> float:
    """Return the value of a metric, negated if higher is better, so that lower is always better.

    NaN becomes infinity.
    """
    if math.isnan(value):  # as a correlation with a constant is
        return math.inf
    return -need_direction(name) * value


class Totals:
    """Sums of (sum, count) pairs over batches, in float64."""

    def __init__(self, sums: Mapping[str, Sequence[float]] | None = None) -> None:
        self.sums = {
            name: (float(total), float(count)) for name, (total, count) in (sums or {}).items()
        }

    def add(self, metrics: Mapping[str, tuple[float, float]] | Metrics) -> None:
        """Add the sums and counts of one batch."""
        for name, (total, count) in metrics.items():
            old = self.sums.get(name, (0.0, 0.0))
            self.sums[name] = (old[0] + float(total), old[1] + float(count))

    def values(self) -> dict[str, float]:
        """Divide each metric's sum by its count, and return {metric: value}.

        If nothing was counted, the value is NaN, which is never the best and is written as null.
        """
        return {
            name: total / count if count else math.nan for name, (total, count) in self.sums.items()
        }


def unigram_log_probabilities(counts: np.ndarray) -> np.ndarray:
    """Return the log-probability of each token by its count plus one [V]: the unigram baseline."""
    return (np.log(counts + 1.0) - math.log(counts.sum() + len(counts))).astype(np.float32)


def find_wilson_interval(hits: float, total: float, z: float = 1.959964) -> tuple[float, float]:
    """Return the 95 % confidence interval of a proportion (Wilson, 1927)."""
    if total == 0:
        return 0.0, 1.0
    p, shrink = hits / total, 1 + z * z / total
    centre = (p + z * z / (2 * total)) / shrink
    half = z / shrink * math.sqrt(p * (1 - p) / total + z * z / (4 * total * total))
    return max(0.0, centre - half), min(1.0, centre + half)
