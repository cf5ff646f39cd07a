"""Training objectives: a file here and a row of `knobs.OBJECTIVES` each, both under its name.

The file ends with OBJECTIVE, an instance of a frozen dataclass with
  `pooled`: whether its head reads the pooled vector,
  `head(cfg, vocab_size, labels, train, name)`: the head, called with (Encoded, Batch),
  `count(batch) -> scalar`: what its loss is divided by; it never depends on parameters,
  `loss(outputs, batch) -> {metric: (sum, count)}` of the head's outputs; `<name>_loss` is trained.
Of a loss in parts, `count` returns {part: scalar}, and each `<part>_loss` is trained. An objective
that masks its batches in a way of its own has `corrupt`, with the arguments of `corrupt_batch`.
`base.OverLabels` has the head of most, `base.CrossEntropy` the count and loss of nearly all.
Fields of the dataclass that `knobs.Objective` has too are its options, which a config sets.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Mapping
from typing import Any

from bert_jax.batch import Batch, Metrics
from bert_jax.config import knobs
from bert_jax.masking import corrupt
from bert_jax.objectives.base import Objective

TABLE: dict[str, Objective] = {
    name: importlib.import_module(f"{__name__}.{name}").OBJECTIVE for name in knobs.OBJECTIVES
}


def of(settings: Mapping[str, knobs.Objective]) -> dict[str, Objective]:
    """Return the objectives of a config, with the config's options."""
    table: dict[str, Any] = TABLE
    options = {field.name for field in dataclasses.fields(knobs.Objective)}
    return {
        name: dataclasses.replace(
            table[name],
            **{
                field.name: getattr(setting, field.name)
                for field in dataclasses.fields(table[name])
                if field.name in options
            },
        )
        for name, setting in settings.items()
    }


def corruption(table: Mapping[str, Objective]) -> Callable[..., tuple[Batch, Metrics]]:
    """Return the function that masks the batches of these objectives: see `corrupt_batch`."""
    own = (getattr(objective, "corrupt", None) for objective in table.values())
    return next(filter(None, own), corrupt.corrupt_batch)


def counts(table: Mapping[str, Objective], batch: Batch) -> dict[str, Any]:
    """Return what each loss is divided by, or each part of one."""
    found: dict[str, Any] = {}
    for name, objective in table.items():
        count = objective.count(batch)
        found |= count if isinstance(count, dict) else {name: count}
    return found
