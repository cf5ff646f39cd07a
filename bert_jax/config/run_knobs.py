"""Knobs of a run besides its updates: checkpoints, evaluations and metrics."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Literal

from msgspec import Meta

from bert_jax.config.data_knobs import Unit
from bert_jax.config.declare import Count, Epochs, Natural, Positive, Seed, Share, knob

EVALUATED = 64  # examples a step of an evaluation
MOST_ROWS = 65_536  # of a step without updates
# Places for metrics besides metrics.jsonl, each with the package that it needs; the tracker itself
# is a class of bert_jax/training/trackers.py.
TRACKERS = {"tensorboard": "tensorboardX", "wandb": "wandb", "mlflow": "mlflow"}


@dataclasses.dataclass(frozen=True)
class Checkpoints:
    """The checkpoints that are saved and kept."""

    #: steps between saves
    every: Count = knob(1000, "checkpoints.epochs=None", free=True, resets=("epochs",))
    #: epochs of a task between saves, in place of every
    epochs: Epochs | None = knob(None, "labels", free=True, resets=("every",))
    keep: Count = knob(2, free=True)  #: latest steps kept
    at: tuple[Count, ...] = knob((), free=True)  #: steps that are saved and kept for good, as 8,16
    #: the same, by words read: between spaces, hyphens, apostrophes, each epoch anew; as
    #: 1000000,10000000
    at_words: tuple[Count, ...] = knob((), "text", free=True)
    #: evaluations in a row without a better `best` before training ends; 0 never
    patience: Natural = knob(0, "checkpoints.best", free=True)
    best: str = "mlm_loss"  #: metric of evals.validation whose best step is kept; empty is none


@dataclasses.dataclass(frozen=True)
class Eval:
    """One evaluation during training, an entry of `evals`."""

    #: steps between evaluations; 0 only at the end
    every: Natural = knob(1000, "evals.*.epochs=None", resets=("epochs",))
    #: epochs of a task between evaluations, in place of every
    epochs: Epochs | None = knob(None, "labels", resets=("every",))
    split: str = knob("validation", "labels")  #: the split that is scored
    rate: Positive = knob(0.15, "masks")  #: masking rate of the frozen evaluation masks
    #: shares of [MASK], random token, kept in these masks
    replace: tuple[Share, Share, Share] = knob((0.8, 0.1, 0.1), "masks")
    unit: Unit = knob("token", "masks")  #: masking unit; the knobs of `masking` define it
    seed: Seed = knob(0, "text")  #: seed of evaluation pairs and masks
    #: examples a step; None: as many as a microbatch has
    batch_size: Annotated[int, Meta(ge=1, le=MOST_ROWS)] | None = EVALUATED


@dataclasses.dataclass(frozen=True)
class Logging:
    """The metrics, events and samples written while training."""

    every: Count = 10  #: steps that a line of metrics.jsonl averages over
    #: where metrics go too, as tensorboard,wandb; accounts are set by their own variables, such as
    #: WANDB_MODE
    trackers: tuple[Literal["tensorboard", "wandb", "mlflow"], ...] = ("tensorboard",)
    #: validation sentences shown with predictions; of a task, its worst mistakes
    samples: Annotated[int, Meta(ge=0, le=1000)] = knob(12, "samples", idle=0)
