"""Knobs of a run beside its updates: prefetching, checkpoints, evaluations and metrics."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Literal

from msgspec import Meta

from bert_jax.config.data_knobs import Unit
from bert_jax.config.declare import Count, Epochs, Natural, Seed, Share, knob

EVALUATED = 64  # examples a step of an evaluation
MOST_ROWS = 65_536  # of a step without updates
# Places for metrics beside metrics.jsonl, each with the package that it needs; the tracker itself
# is a class of bert_jax/training/trackers.py.
TRACKERS = {"tensorboard": "tensorboardX", "wandb": "wandb", "mlflow": "mlflow"}


@dataclasses.dataclass(frozen=True)
class Loader:
    """Prefetching; the batches themselves are a pure function of the step."""

    #: batches that a thread makes ahead of the step; 0: no thread
    prefetch: Annotated[int, Meta(ge=0, le=1000)] = 4


@dataclasses.dataclass(frozen=True)
class Checkpoints:
    """The checkpoints that are saved and kept."""

    #: steps between saves
    every: Count = knob(1000, when="checkpoints.epochs=None", free=True, resets=("epochs",))
    #: epochs of a task between saves, in place of every
    epochs: Epochs | None = knob(None, when="labels", free=True, resets=("every",))
    #: latest steps kept
    keep: Count = knob(2, free=True)
    #: steps that are saved and kept for good, as 8,16
    at: tuple[Count, ...] = knob((), free=True)
    #: the same, by the words of training text that are read by then, each epoch anew: words
    #: as between spaces, where hyphens and apostrophes divide them too; as 1000000,10000000
    at_words: tuple[Count, ...] = knob((), when="text", free=True)
    #: evaluations in a row without a better `best` before training ends; 0 never
    patience: Natural = knob(0, when="checkpoints.best", free=True)
    #: metric of evals.validation; the saved step with its best value is kept too; empty is
    #: none
    best: str = "mlm_loss"


@dataclasses.dataclass(frozen=True)
class Eval:
    """One evaluation during training, an entry of `evals`."""

    #: steps between evaluations; 0 only at the end
    every: Natural = knob(1000, when="evals.*.epochs=None", resets=("epochs",))
    #: epochs of a task between evaluations, in place of every
    epochs: Epochs | None = knob(None, when="labels", resets=("every",))
    #: the part of a task's data that is scored; a corpus has this one
    split: str = knob("validation", when="labels")
    #: masking rate of the frozen evaluation masks
    rate: Share = knob(0.15, when="masks")
    #: shares of [MASK], random token, kept in these masks
    replace: tuple[Share, Share, Share] = knob((0.8, 0.1, 0.1), when="masks")
    #: masking unit, independent of that of training; the knobs of `masking` define it
    unit: Unit = knob("token", when="masks")
    #: seed of evaluation pairs and masks
    seed: Seed = knob(0, when="text")
    #: examples a step; never changes the result; None is, while training, as many a device as
    #: it trains on at once (batch_size / optim.accumulation in all), and in `evaluate` 64
    batch_size: Annotated[int, Meta(ge=1, le=MOST_ROWS)] | None = EVALUATED


@dataclasses.dataclass(frozen=True)
class Logging:
    """The metrics, events and samples written while training."""

    #: steps that a line of metrics.jsonl averages over
    every: Count = 10
    #: where metrics go beside metrics.jsonl, as tensorboard,wandb; empty is nowhere. Account,
    #: server and project are those of the tracker's own environment variables, such as
    #: WANDB_MODE and MLFLOW_TRACKING_URI
    trackers: tuple[Literal["tensorboard", "wandb", "mlflow"], ...] = knob(("tensorboard",))
    #: validation sentences for which each evaluation named validation shows predictions; of a
    #: task its worst mistakes, beside counts of right and wrong; the report has the first 12
    samples: Annotated[int, Meta(ge=0, le=1000)] = knob(12, when="samples", idle=0)
