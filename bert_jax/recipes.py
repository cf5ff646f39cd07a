"""The fine-tuning recipe of the BERT paper, as a config."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from bert_jax.config import assign, default, put, set_values
from bert_jax.data import tasks

if TYPE_CHECKING:
    import ml_collections

    from bert_jax.config import knobs

FRESH = "^(classify|regress|tag|span|choice|encoder/pooler)/"  # initialised anew, unless they fit


def finetuning(
    task: str,
    init_from: str = "",
    changes: Mapping[str, Any] | None = None,
    start: knobs.Config | None = None,
) -> ml_collections.ConfigDict:
    """Build the config that fine-tunes a model on a task.

    Batches of 32, 3 epochs with a warm-up over a tenth of them, dropout 0.1, and the settings of
    the task's row.

    Args:
      task: a row of `data/tasks.py`, or a kind of objective over labels.
      init_from: a run or a model of others, whose shape is used.
      changes: values by path; they override the recipe.
      start: the config of `init_from`, if it is known before `init_from` exists.
    """
    config = default()
    config.pairs = "none"
    config.epochs = 3.0
    config.batch_size = 32
    config.optim.learning_rate = 3e-5
    config.optim.warmup_fraction = 0.1
    config.logging.every = 10
    config.checkpoints.epochs = 1.0
    set_values(config, tasks.settings(task))
    for evaluation in config.evals:
        put(config, ["evals", evaluation, "epochs"], 1.0)
    if init_from:
        if start is None:
            # Imports jax, which a study that only checks its recipes does not need.
            from bert_jax.interop import runs

            start = runs.described(init_from)[0]
        config.init_from = init_from
        shape = dataclasses.asdict(start.model)
        set_values(config, {f"model.{name}": value for name, value in shape.items()})
        config.sequence_length = min(config.sequence_length, start.sequence_length)
        config.init_fresh = FRESH
    # Pre-training on much text may have used no dropout.
    config.model.dropout = config.model.attention_dropout = 0.1
    config.model.classifier_dropout = None
    assign(config, changes or {})
    return config
