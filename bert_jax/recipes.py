"""Make configs that start from a trained model and take its shape.

`finetuning` fine-tunes a model on a task; `adapting` continues its pre-training on other text.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_collections

from bert_jax.config import assign, default, knobs, put, set_values
from bert_jax.config.knobs import PRETRAINING
from bert_jax.data import tasks
from bert_jax.errors import ConfigError

FRESH = "^(classify|regress|tag|span|choice|encoder/pooler)/"  # initialised anew, unless they fit
FRESH_WORDS = f"^({'|'.join(PRETRAINING)}|encoder/pooler)/"  # the same, of training on text


def finetuning(
    task: str,
    init_from: str = "",
    changes: Mapping[str, Any] | None = None,
    start: knobs.Config | None = None,
) -> ml_collections.ConfigDict:
    """Build the config that fine-tunes a model on a task, by the recipe of the BERT paper.

    The config has batches of 32, and 3 epochs with a warm-up over a tenth of them. It has dropout
    0.1, and the knobs of the task in `data/tasks.py`.

    Args:
      task: a row of `data/tasks.py`, or a kind of objective over labels.
      init_from: the folder of a run, or a model that was trained elsewhere; its shape is used.
      changes: {path of a knob: value}, which overrides the recipe.
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
    set_values(config, tasks.list_knobs(task))
    for evaluation in config.evals:
        put(config, ["evals", evaluation, "epochs"], 1.0)
    if init_from:
        _start_from(config, init_from, start or read_base_model(init_from)[0])
        config.init_fresh = FRESH
    # Pre-training on much text may have used no dropout.
    config.model.dropout = config.model.attention_dropout = 0.1
    config.model.classifier_dropout = None
    assign(config, changes or {})
    return config


def adapting(text: str, init_from: str) -> ml_collections.ConfigDict:
    """Build the config that continues to train a model on other text, with the model's vocabulary.

    A causal model continues as causal_lm, any other model as mlm with the default masking.

    Args:
      text: a file, folder or glob of text.
      init_from: the folder of a run, or a model that was trained elsewhere.
    """
    start, tokenizer = read_base_model(init_from)
    config = default()
    config.corpus.source = "files"
    config.corpus.path = text
    config.corpus.validation_fraction = 0.05
    set_values(config, {"tokenizer.path": str(tokenizer)})
    config.pairs = "none"
    if start.model.causal:
        put(config, ["objectives", "causal_lm", "weight"], 1.0)
        config.checkpoints.best = "causal_lm_loss"
    config.epochs = 3.0
    config.batch_size = 32
    config.optim.learning_rate = 5e-5
    config.optim.warmup_fraction = 0.1
    config.checkpoints.every = config.evals.validation.every = 500
    _start_from(config, init_from, start)
    config.init_fresh = FRESH_WORDS
    config.model.features = 1  # a head over labels may have read several layers
    return config


def read_base_model(init_from: str) -> tuple[knobs.Config, Path]:
    """Read the config of the model that a recipe starts from; find its tokenizer's path."""
    # Imports jax, which a study that only checks its recipes does not need.
    from bert_jax.interop import runs

    return runs.read_description(init_from)


def _start_from(config: ml_collections.ConfigDict, init_from: str, start: knobs.Config) -> None:
    """Set the model that a config starts from, and the model's shape.

    Rows become no longer than the rows that the model was trained on.
    """
    config.init_from = init_from
    shape = dataclasses.asdict(start.model)
    set_values(config, {f"model.{name}": value for name, value in shape.items()})
    config.sequence_length = min(config.sequence_length, start.sequence_length)


def split_argument(arg: str, example: str) -> tuple[str, dict[str, str]]:
    """Split the argument WHAT,NAME=VALUE,... of a config into WHAT and {NAME: VALUE}."""
    name, *changes = arg.split(",")
    if wrong := [change for change in changes if "=" not in change]:
        raise ConfigError(f"{wrong[0]!r} sets no knob", f"NAME=VALUE, as in {example}")
    return name, dict(change.partition("=")[::2] for change in changes)
