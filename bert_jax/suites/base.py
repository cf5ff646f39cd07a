"""The interface of a suite: what it is asked, how it says what is missing and how far it is."""

from __future__ import annotations

import dataclasses
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
from bert_jax.interop import runs

Result = dict[str, Any]  # numbers by metric, or by part of the suite and then by metric
Detailed = tuple[
    Result, dict[str, np.ndarray]
]  # and of each example, in an order that is the data's: see Suite
PAUSE = 30.0  # seconds between two lines about progress, where nobody watches a terminal


@dataclasses.dataclass(frozen=True)
class SuiteOptions:
    """What `bert-jax evaluate` was asked besides the checkpoint; a suite reads the part its row of TABLE names."""

    config: knobs.Config | None = None  # of --config
    changes: tuple[
        tuple[str, str], ...
    ] = ()  # knobs that differ from it, or from the checkpoint's own
    task: str = ""  # row of data/tasks.py
    source: str = ""  # where texts come from, where they are not the checkpoint's own
    split: str = ""
    limit: int = 0  # texts, pairs or examples used, the first ones; 0 is all
    submission: str = ""  # folder for what a benchmark's server takes
    within_word: bool = False  # a masked piece does not see the rest of its word to its right
    batch_size: int = 0  # rows a step, which never changes the result; 0 is up to the suite


@dataclasses.dataclass(frozen=True)
class Suite:
    """One row of TABLE: its function, and which fields of SuiteOptions that are not for all it reads.

    `each` finds the same, and with it float64 [N] METRIC.sum and METRIC.count of every example, and by the name
    metrics.EXAMPLES which examples these are: what two checkpoints are compared by in pairs.
    """

    run: Callable[[runs.Run, SuiteOptions], Result]
    reads: tuple[str, ...] = ()
    head: str = ""  # that it asks, where that does not depend on the checkpoint
    each: Callable[[runs.Run, SuiteOptions], Detailed] | None = None

    def check(self, run: runs.Run, name: str) -> None:
        """Refuses a model that lacks the head."""
        if self.head:
            need_head(run, self.head, name)


class Progress:
    """How much is done and about how long the rest takes, on standard error."""

    def __init__(self, what: str):
        self.what = what
        self.began = self.said = time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        """Says so: over and over on a terminal, else now and then."""
        now = time.monotonic()
        if done < total and not sys.stderr.isatty() and now < self.said + PAUSE:
            return
        self.said = now
        rest = (
            ""
            if done == total
            else f", about {_duration((now - self.began) * (total - done) / done)} left"
        )
        start, end = ("\r", "\x1b[K") if sys.stderr.isatty() else ("", "\n")
        text = f"{start}{self.what} {done}/{total}{rest}"
        print(text, end="\n" if done == total else end, file=sys.stderr, flush=True)


def _duration(seconds: float) -> str:
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def need_head(run: runs.Run, name: str, suite: str) -> None:
    """Refuses a model without the head a suite asks."""
    if name not in run.config.objectives:
        have = ", ".join(run.config.objectives) or "no head at all"
        raise HeadError(
            f"suite {suite} needs the {name} head; {run.folder} has {have}",
            "evaluate another checkpoint",
        )


def on_devices(params: Any) -> tuple[Any, Mesh]:
    """Parameters on all devices, and the mesh over them."""
    mesh = sharding.make_mesh(knobs.Parallel())
    return jax.device_put(params, sharding.state_shardings(params, mesh)), mesh
