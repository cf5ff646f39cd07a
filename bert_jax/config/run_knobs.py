"""Knobs of a run beside its updates: prefetching, checkpoints, evaluations and metrics."""

from __future__ import annotations

import dataclasses

from bert_jax.config.data_knobs import UNITS, knob

EVALUATED = 64  # examples a step of an evaluation
MOST_ROWS = 65_536  # of a step without updates
# Places for metrics beside metrics.jsonl, each with the package that it needs; the tracker itself
# is a class of bert_jax/training/trackers.py.
TRACKERS = {"tensorboard": "tensorboardX", "wandb": "wandb", "mlflow": "mlflow"}


@dataclasses.dataclass(frozen=True)
class Loader:
    """Prefetching; the batches themselves are a pure function of the step."""

    prefetch: int = knob(
        4, "batches that a thread makes ahead of the step; 0: no thread", low=0, high=1_000
    )


@dataclasses.dataclass(frozen=True)
class Checkpoints:
    """The checkpoints that are saved and kept."""

    every: int = knob(1_000, "steps between saves", low=1)
    epochs: float | None = knob(None, "epochs of a task between saves, in place of every", low=0.01)
    keep: int = knob(2, "latest steps kept", low=1)
    at: tuple[int, ...] = knob((), "steps that are saved and kept for good, as 8,16", low=1)
    at_words: tuple[int, ...] = knob(
        (),
        "the same, by the words of training text that are read by then, each epoch anew: words as "
        "between spaces, where hyphens and apostrophes divide them too; as 1000000,10000000",
        low=1,
    )
    patience: int = knob(
        0, "evaluations in a row without a better `best` before training ends; 0 never", low=0
    )
    best: str = knob(
        "mlm_loss",
        "metric of evals.validation; the saved step with its best value is kept too; empty is none",
    )


@dataclasses.dataclass(frozen=True)
class Eval:
    """One evaluation during training, an entry of `evals`."""

    every: int = knob(1_000, "steps between evaluations; 0 only at the end", low=0)
    epochs: float | None = knob(
        None, "epochs of a task between evaluations, in place of every", low=0.01
    )
    split: str = knob(
        "validation", "the part of a task's data that is scored; a corpus has this one"
    )
    rate: float = knob(0.15, "masking rate of the frozen evaluation masks", low=0.0, high=1.0)
    replace: tuple[float, float, float] = knob(
        (0.8, 0.1, 0.1), "shares of [MASK], random token, kept in these masks", low=0, high=1
    )
    unit: str = knob(
        "token",
        "masking unit, independent of that of training; the knobs of `masking` define it",
        choices=tuple(UNITS),
    )
    seed: int = knob(0, "seed of evaluation pairs and masks", low=0, high=2**31 - 1)
    batch_size: int | None = knob(
        EVALUATED,
        "examples a step; never changes the result; None is, while training, as many a device as "
        "it trains on at once (batch_size / optim.accumulation in all), and in `evaluate` 64",
        low=1,
        high=MOST_ROWS,
    )


@dataclasses.dataclass(frozen=True)
class Logging:
    """The metrics, events and samples written while training."""

    every: int = knob(10, "steps that a line of metrics.jsonl averages over", low=1)
    trackers: tuple[str, ...] = knob(
        ("tensorboard",),
        "where metrics go beside metrics.jsonl, as tensorboard,wandb; empty is nowhere. Account, "
        "server and project are those of the tracker's own environment variables, such as "
        "WANDB_MODE and MLFLOW_TRACKING_URI",
        choices=tuple(TRACKERS),
    )
    tensorboard: bool | None = knob(
        None, "the older name: true adds tensorboard to `trackers`, false takes it out"
    )
    samples: int = knob(
        12,
        "validation sentences for which each evaluation named validation shows predictions; of a "
        "task its worst mistakes, beside counts of right and wrong; the report has the first 12",
        low=0,
        high=1000,
    )
