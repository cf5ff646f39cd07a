"""What suites share: progress lines, standard errors, and scoring a hybrid model in both ways."""

import contextlib
import math
import sys
import time
from collections.abc import Callable

import numpy as np

from bert_jax.evaluation.metrics import EXAMPLES
from bert_jax.interop import runs
from bert_jax.suites import Detailed
from bert_jax.system.durations import format_duration

PAUSE = 30.0  # seconds between two lines about progress, where nobody watches a terminal


def compute_standard_error(sums: np.ndarray, counts: np.ndarray, documents: np.ndarray) -> float:
    """Return the standard error of sum(sums) / sum(counts) over examples, clustered by document."""
    _, cluster = np.unique(documents, return_inverse=True)
    residuals = np.bincount(cluster, sums - counts * sums.sum() / counts.sum())
    clusters = len(residuals)
    if clusters < 2:
        return math.nan
    return float(math.sqrt(clusters / (clusters - 1) * (residuals**2).sum()) / counts.sum())


def compute_perplexity(nats: float) -> float:
    """Return the perplexity of a mean in nats per token; NaN if a float cannot hold it."""
    try:
        return math.exp(nats)
    except OverflowError:
        return math.nan


def score_both_ways(
    run: runs.TrainedModel, score: Callable[[runs.TrainedModel], Detailed]
) -> Detailed:
    """Score a model by `score`; score a hybrid model also from left to right.

    The second metrics of a hybrid model have the key `left_to_right`.
    """
    result, of_examples = score(run)
    if run.from_left is None:
        return result, of_examples
    causal, of_causal = score(run.from_left)
    more = {f"left_to_right/{n}": array for n, array in of_causal.items() if n != EXAMPLES}
    return result | {"left_to_right": causal}, of_examples | more


class Progress:
    """A progress line on standard error: how much is done, and about how long the rest takes."""

    def __init__(self, label: str):
        self.label = label
        self.began = time.monotonic()
        self.printed = self.began

    def __call__(self, done: int, total: int) -> None:
        """Rewrite the line on a terminal; elsewhere print a new line every PAUSE seconds."""
        now, watched = time.monotonic(), sys.stderr.isatty()
        if done < total and not watched and now < self.printed + PAUSE:
            return
        self.printed = now
        text = f"{self.label} {done}/{total}"
        if done < total:
            seconds = (now - self.began) * (total - done) / done
            text += f", about {format_duration(seconds, rough=True)} left"
        start = "\r" if watched else ""
        end = "\x1b[K" if watched and done < total else "\n"
        with contextlib.suppress(OSError):  # its reader may end earlier
            print(f"{start}{text}", end=end, file=sys.stderr, flush=True)
