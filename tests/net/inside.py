"""Resolve configs, give batches and corrupt them, with functions from inside the package.

A rebuild adapts the three functions below, and nothing else of the net:

- `resolve(tree)` takes a ConfigDict as a config file returns it, and gives the resolved config as
  nested dicts, as a dry run prints it.
- `open_stream(tree)` takes such a ConfigDict, and prepares its data where that is still to do.
  `Stream.batch(step)` gives the arrays of the batch of a step by name, step 0 first, as numpy. The
  names are those of the batch contract (`bert_jax/batch.py`).
- `Stream.corrupt(batch, step)` masks such a batch with the config's seed, as the update of that
  step does, and gives `inputs` [B, L], what the model reads; `predicted` [B, L], 1 where a token is
  predicted; and what the objective adds for each token. How predictions lie in slots is left out.

Hashes are made of values only: whole numbers count as int64 and others as float64, so a rebuild may
choose other dtypes.
"""

import functools
import hashlib
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from bert_jax import config as configs
from bert_jax import objectives
from bert_jax.config import knobs
from bert_jax.masking import rates
from bert_jax.training import data
from bert_jax.training.step import compute_inputs

Arrays = dict[str, np.ndarray]
ADDED = ("causal", "judged")  # arrays [B, L] that an objective adds to a masked batch


class Stream:
    """The batches of a config in the order in which a run reads them."""

    def __init__(self, config: Any):
        self.data = data.load_training_data(config)
        self.config = self.data.config

    def batch(self, step: int) -> Arrays:
        """Return the batch of a step."""
        return {name: np.asarray(array) for name, array in self.data.source.batch(step).items()}

    def corrupt(self, batch: Arrays, step: int) -> Arrays:
        """Return what the model reads of a batch at a step, and which tokens it predicts."""
        config, tokenizer = self.config, self.data.tokenizer
        function = _choose_corruption(tuple(config.objectives.items()))
        step_inputs = compute_inputs(config, step)._replace(weights={})
        vocabulary = tokenizer.special, tokenizer.size
        masked, _ = _corrupt(function, batch, step_inputs, self._rules, *vocabulary)
        masked = {name: np.asarray(array) for name, array in masked.items()}
        predicted = np.zeros(masked["inputs"].shape)
        rows, slots = np.nonzero(masked["predict_weights"])
        predicted[rows, masked["predict_positions"][rows, slots]] = 1
        added = {name: masked[name] for name in ADDED if name in masked}
        return {"inputs": masked["inputs"], "predicted": predicted, **added}

    @functools.cached_property
    def _rules(self) -> Any:
        """The settings of masking that no step input holds; the others are the defaults."""
        names = ["count", "overflow", "random_from", "rounding"]
        if rates.count_views(self.config.masking) > 1:
            names += ["rate", "prediction_rate"]
        return knobs.Masking(**{name: getattr(self.config.masking, name) for name in names})


@functools.cache
def _choose_corruption(settings: tuple[Any, ...]) -> Callable[..., tuple[Any, Any]]:
    """Return the function that corrupts, the same object for equal settings: jit knows it by it."""
    return objectives.choose_corruption(objectives.configure(dict(settings)))


@functools.partial(jax.jit, static_argnums=(0, 3, 4, 5))
def _corrupt(
    function: Callable[..., tuple[Any, Any]],
    batch: Arrays,
    step_inputs: Any,
    settings: Any,
    special: Any,
    vocab_size: int,
) -> tuple[Any, Any]:
    """Corrupt a batch, compiled once for all configs of like rules: every token has its slot."""
    return function(
        batch,
        step_inputs,
        settings=settings,
        special=special,
        vocab_size=vocab_size,
        slots=batch["tokens"].shape[1],
    )


def resolve(tree: Any) -> dict[str, Any]:
    """Resolve a config, a ConfigDict; of labelled data with what follows from these."""
    config = configs.resolve(tree)
    if config.task.source:
        return configs.to_dict(data.load_training_data(config).config)
    resolved = configs.to_dict(config)
    if config.epochs is not None:  # of text, which need not be prepared yet
        del resolved["steps"]
        if config.optim.warmup_fraction is not None:
            del resolved["optim"]["warmup_steps"]
    return resolved


def open_stream(tree: Any) -> Stream:
    """Open the data of a config, a ConfigDict."""
    return Stream(configs.resolve(tree))


def digest(array: np.ndarray) -> str:
    """Return the first 8 digits of the sha256 of an array's shape and values."""
    whole = array.dtype == bool or np.issubdtype(array.dtype, np.integer)
    values = np.ascontiguousarray(array, np.int64 if whole else np.float64)
    return hashlib.sha256(repr(array.shape).encode() + values.tobytes()).hexdigest()[:8]
