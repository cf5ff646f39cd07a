"""The paper's recipe of fine-tuning, for a task and the model it starts from, as a config to change."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from bert_jax.config import assign, default, put, take
from bert_jax.data import tasks

if TYPE_CHECKING:
    import ml_collections

    from bert_jax.config import knobs

FRESH = "^(classify|regress|tag|span|choice|encoder/pooler)/"  # a head is new, unless it fits


def finetuning(
    task: str,
    init_from: str = "",
    changes: Mapping[str, Any] | None = None,
    start: knobs.Config | None = None,
) -> ml_collections.ConfigDict:
    """Batches of 32, 3 epochs, a warm-up over a tenth of them, dropout 0.1, and what the task's row says.

    Args:
      task: a row of `data/tasks.py`, or a kind of objective over labels.
      init_from: a run, or a model of others, whose shape is taken over.
      changes: values by path, which have the last word.
      start: the config of `init_from`, where it is known before it is there.
    """
    config = default()
    config.pairs = "none"
    config.epochs = 3.0
    config.batch_size = 32
    config.optim.learning_rate = 3e-5
    config.optim.warmup_fraction = 0.1
    config.logging.every = 10
    config.checkpoints.epochs = 1.0
    take(config, tasks.settings(task))
    for evaluation in config.evals:
        put(config, ["evals", evaluation, "epochs"], 1.0)
    if init_from:
        if start is None:
            from bert_jax.interop import (
                runs,
            )  # with jax, which a study that checks its recipes has no need of

            start = runs.described(init_from)[0]
        config.init_from = init_from
        take(
            config,
            {f"model.{name}": value for name, value in dataclasses.asdict(start.model).items()},
        )
        config.sequence_length = min(config.sequence_length, start.sequence_length)
        config.init_fresh = FRESH
    config.model.dropout = config.model.attention_dropout = (
        0.1  # in pre-training on much text it may have been 0
    )
    config.model.classifier_dropout = None
    assign(config, changes or {})
    return config
