"""Batches of labelled data as a pure function of the step: the same stream, epochs and shards as pre-training has.

A batch is padded to its longest row, rounded up so that few lengths are compiled; every process finds the same length,
for it knows the lengths of the whole batch.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json

import numpy as np

from bert_jax import knobs
from bert_jax.data import features, order
from bert_jax.data.features import Features
from bert_jax.errors import DataError
from bert_jax.types import Batch, Special

_ORDER = 0x54415348  # keeps the order's hashes apart from those of a corpus


def rounded(longest: int) -> int:
    """The next of 16, 32, 48, 64, 96, 128, 160, ... tokens."""
    step = 16 if longest <= 64 else 32
    return max(16, -(-longest // step) * step)


class Source:
    """The stream of batches of a task's rows; an epoch visits each once, in an order of its own."""

    def __init__(self, found: Features, special: Special, config: knobs.Config):
        if not len(found.example):
            raise DataError(f"{config.task.source} holds no rows to train on", "check task.source and its splits")
        self._features, self._special = found, special
        self._lengths = np.diff(found.offsets)
        self._full = config.sequence_length * found.cls_positions.shape[1] if config.task.pad == "full" else 0
        self.batch_size, self._seed = config.batch_size, config.data_seed

    @property
    def fingerprint(self) -> str:
        """Names everything the batches follow from: two sources with the same one give the same stream."""
        arrays = {field.name: getattr(self._features, field.name) for field in dataclasses.fields(Features)}
        arrays |= {f"target/{name}": value for name, value in arrays.pop("targets").items()}
        found = hashlib.sha256(json.dumps([self._seed, self.batch_size, self._full, list(self._special)]).encode())
        for name in sorted(name for name, values in arrays.items() if values is not None):
            found.update(name.encode() + np.ascontiguousarray(arrays[name]).tobytes())
        return found.hexdigest()

    def count(self, epoch: int) -> int:
        """Rows in an epoch, which are all alike."""
        return len(self._features.example)

    def batch(self, step: int, rows: slice = slice(None)) -> Batch:
        """The given rows of the global batch of a step."""
        index = step * self.batch_size + np.arange(self.batch_size, dtype=np.int64)
        epochs, places = np.divmod(index, self.count(0))
        chosen = np.empty_like(index)
        for epoch in np.unique(epochs).tolist():
            mine = epochs == epoch
            chosen[mine] = order.permute(places[mine], self.count(0), order.key(self._seed, _ORDER, epoch))
        length = self._full or rounded(int(self._lengths[chosen].max()))
        return features.batch(self._features, chosen[rows], length, len(chosen[rows]), self._special)
