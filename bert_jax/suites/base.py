"""The interface of a suite: its options, its row of the table, its progress and its checks."""

from __future__ import annotations

import dataclasses
import math
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from bert_jax import sharding
from bert_jax.config import knobs
from bert_jax.errors import HeadError
from bert_jax.evaluation.metrics import EXAMPLES
from bert_jax.interop import runs
from bert_jax.system.durations import duration

Result = dict[str, Any]  # numbers by metric, or by part of the suite and then by metric
Detailed = tuple[Result, dict[str, np.ndarray]]  # and metrics of each example: see Suite
PAUSE = 30.0  # seconds between two lines about progress, where nobody watches a terminal


@dataclasses.dataclass(frozen=True)
class SuiteOptions:
    """The options of `bert-jax evaluate`; a suite reads the fields its row of TABLE names."""

    config: knobs.Config | None = None  # of --config
    changes: tuple[tuple[str, str], ...] = ()  # --config.KNOB=VALUE, to it or the checkpoint's own
    task: str = ""  # row of data/tasks.py
    source: str = ""  # of texts, where they are not the checkpoint's own
    split: str = ""
    limit: int = 0  # texts, pairs or examples used, the first ones; 0 is all
    submission: str = ""  # folder for the files that a benchmark's server takes
    within_word: bool = False  # a masked piece does not see the rest of its word to its right
    draws: int = 0  # numbers of masked tokens an example is read under; 0 is up to the suite
    words: int = 0  # most words of a passage of the source; 0 is up to the suite
    batch_size: int = 0  # rows a step, which never changes the result; 0 is up to the suite


@dataclasses.dataclass(frozen=True)
class Suite:
    """One row of TABLE: a suite's function, and the fields of SuiteOptions that it reads.

    Where a suite of a corpus may read a source instead, `of_source` are the fields read then.
    `detailed` returns the same result and the metrics of every example, in the data's order:
    float64 [N] METRIC.sum and METRIC.count, and as metrics.EXAMPLES the digest of the examples.
    With them two checkpoints are compared example by example.
    """

    run: Callable[[runs.TrainedModel, SuiteOptions], Result]
    reads: tuple[str, ...] = ()  # besides batch_size, which all may read
    head: str = ""  # needed, where that does not depend on the checkpoint
    detailed: Callable[[runs.TrainedModel, SuiteOptions], Detailed] | None = None
    of_source: tuple[str, ...] = ()

    def fields(self, source: bool) -> tuple[str, ...]:
        """Return the fields that are read with a source, or without one."""
        return ("source", *self.of_source) if source and self.of_source else self.reads


def standard_error(sums: np.ndarray, counts: np.ndarray, documents: np.ndarray) -> float:
    """Return that of the ratio of two sums over examples, those of a document not independent."""
    _, cluster = np.unique(documents, return_inverse=True)
    residuals = np.bincount(cluster, sums - counts * sums.sum() / counts.sum())
    clusters = len(residuals)
    if clusters < 2:
        return math.nan
    return float(math.sqrt(clusters / (clusters - 1) * (residuals**2).sum()) / counts.sum())


def both_ways(
    each: Callable[[runs.TrainedModel, SuiteOptions], Detailed],
    run: runs.TrainedModel,
    options: SuiteOptions,
) -> Detailed:
    """Score a masked or causal model; a hybrid one as both, as a causal one in `left_to_right`."""
    result, arrays = each(run, options)
    if run.from_left is None:
        return result, arrays
    options = dataclasses.replace(options, within_word=False)  # of masks alone
    likelihood, of_examples = each(run.from_left, options)
    more = {f"left_to_right/{n}": array for n, array in of_examples.items() if n != EXAMPLES}
    return result | {"left_to_right": likelihood}, arrays | more


class Progress:
    """A progress line on standard error: how much is done, and about how long the rest takes."""

    def __init__(self, label: str):
        self.label = label
        self.began = self.printed = time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        """Rewrite the line on a terminal; elsewhere print one every PAUSE seconds."""
        now = time.monotonic()
        if done < total and not sys.stderr.isatty() and now < self.printed + PAUSE:
            return
        self.printed = now
        left = (
            duration((now - self.began) * (total - done) / done, rough=True) if done < total else ""
        )
        start, end = ("\r", "\x1b[K") if sys.stderr.isatty() else ("", "\n")
        text = f"{start}{self.label} {done}/{total}{f', about {left} left' if left else ''}"
        print(text, end="\n" if done == total else end, file=sys.stderr, flush=True)


def need_head(run: runs.TrainedModel, name: str, suite: str) -> None:
    """Refuse a model without the head a suite needs."""
    if name not in run.config.objectives:
        have = ", ".join(run.config.objectives) or "no head at all"
        raise HeadError(
            f"suite {suite} needs the {name} head; {run.folder} has {have}",
            "evaluate another checkpoint",
        )


def on_devices(params: Any) -> tuple[Any, Mesh]:
    """Put parameters on all devices; return them and the mesh."""
    mesh = sharding.make_mesh(knobs.Parallel())
    return jax.device_put(params, sharding.state_shardings(params, mesh)), mesh
