"""Batches of labelled data as a pure function of the step: the same stream, epochs and shards as pre-training has.

A batch is padded to its longest row, rounded up so that few lengths are compiled; every process finds the same length,
for it knows the lengths of the whole batch. Rows of about the same length may share one: an epoch's random order is
cut into windows of at most WINDOW batches, each is sorted by length, and all its batches come in random order.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json

import numpy as np

from bert_jax.batch import Batch, Special
from bert_jax.config import knobs
from bert_jax.data.batches import order
from bert_jax.data.labelled import features
from bert_jax.data.labelled.features import Features
from bert_jax.errors import DataError

WINDOW = 32  # batches whose rows are sorted together: little more padding than an epoch's, and company by chance
_ORDER = 0x54415348  # keeps the order's hashes apart from those of a corpus
_BATCHES = 0x42415443  # and those of the order of batches from both


def rounded(longest: int) -> int:
    """The next of 16, 32, 48, 64, 96, 128, 160, ... tokens."""
    step = 16 if longest <= 64 else 32
    return max(16, -(-longest // step) * step)


class Source:
    """The stream of batches of a task's rows; an epoch visits each once, in an order of its own."""

    def __init__(self, found: Features, special: Special, config: knobs.Config):
        if not len(found.example):
            raise DataError(
                f"{config.task.source} holds no rows to train on",
                "check task.source and its splits",
            )
        self._features, self._special = found, special
        self._lengths = np.diff(found.offsets)
        self._full = (
            config.sequence_length * found.cls_positions.shape[1]
            if config.task.pad == "full"
            else 0
        )
        self.batch_size, self._seed, self._group = (
            config.batch_size,
            config.data_seed,
            config.task.group,
        )

    @property
    def fingerprint(self) -> str:
        """Names everything the batches follow from: two sources with the same one give the same stream."""
        arrays = {
            field.name: getattr(self._features, field.name)
            for field in dataclasses.fields(Features)
        }
        arrays |= {f"target/{name}": value for name, value in arrays.pop("targets").items()}
        stream = [self._seed, self.batch_size, self._full, list(self._special)]
        stream += [self._group] if self._group != "none" else []
        found = hashlib.sha256(json.dumps(stream).encode())
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
            chosen[mine] = self._rows(epoch, places[mine])
        length = self._full or rounded(int(self._lengths[chosen].max()))
        return features.batch(
            self._features, chosen[rows], length, len(chosen[rows]), self._special
        )

    def _rows(self, epoch: int, places: np.ndarray) -> np.ndarray:
        """The rows at the places of an epoch's order that lie in one batch."""
        begin = (
            -epoch * self.count(0) % self.batch_size
        )  # those before complete a batch begun in the last epoch
        batch, batches = ((n - begin) // self.batch_size for n in (int(places[0]), self.count(0)))
        if (
            self._group == "length" and 0 <= batch < batches
        ):  # else of two epochs, and of any length
            return self._alike(epoch, begin, batch, batches)
        return order.permute(places, self.count(0), order.key(self._seed, _ORDER, epoch))

    def _alike(self, epoch: int, begin: int, batch: int, batches: int) -> np.ndarray:
        """The rows of one of the whole batches of an epoch, which begin at a place of its order: of like length."""
        drawn = int(
            order.permute(np.array([batch]), batches, order.key(self._seed, _BATCHES, epoch))[0]
        )
        windows = -(-batches // WINDOW)
        window = ((drawn + 1) * windows - 1) // batches  # windows differ by a batch at most
        first, end = (n * batches // windows for n in (window, window + 1))
        places = begin + np.arange(first * self.batch_size, end * self.batch_size)
        rows = order.permute(places, self.count(0), order.key(self._seed, _ORDER, epoch))
        by_length = rows[np.argsort(self._lengths[rows], kind="stable")]
        return by_length[(drawn - first) * self.batch_size :][: self.batch_size]
