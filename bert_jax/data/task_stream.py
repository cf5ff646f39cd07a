"""Batches of labelled data as a pure function of their index, like those of `pipeline.TextStream`.

A batch is padded to its longest row, rounded up so that few lengths are compiled. Every process
computes the same length, because it knows the lengths of the whole batch.

With `task.group = length`, a batch has rows of about the same length. An epoch's random order is
cut into windows of at most WINDOW batches. The rows of each window are sorted by length. Then the
batches of the epoch come in random order.
"""

import dataclasses
import hashlib
import json

import numpy as np

from bert_jax.batch import Batch, Special
from bert_jax.config import knobs
from bert_jax.data import hashing
from bert_jax.data.features import Features, gather_rows

# Batches whose rows are sorted together: little more padding than if a whole epoch were sorted, and
# the rows of a batch still differ from epoch to epoch.
WINDOW = 32
_ORDER = 0x54415348  # keeps the hashes of the order of rows apart from those of a corpus
_BATCHES = 0x42415443  # keeps the hashes of the order of batches apart from both


def round_length(longest: int, finest: int = 16) -> int:
    """Round a number of tokens up to one of 16, 32, 48, 64, 96, 128, 160, and so on.

    A smaller `finest`, a power of two, adds shorter lengths: 4 adds 4, 8, 12 and 24. Then at most a
    third of a row of more than 8 tokens is padding.
    """
    step = min(32, max(finest, (1 << (longest - 1).bit_length()) // 4))
    return max(finest, -(-longest // step) * step)


class TaskStream:
    """A stream of batches of a task's rows; each epoch visits every row once, in a new order."""

    def __init__(self, rows: Features, special: Special, config: knobs.Config):
        self._features = rows
        self._special = special
        self._lengths = rows.lengths  # int64 [N]
        options = rows.cls_positions.shape[1]
        # The fixed length of all batches; 0 pads each to its own.
        self._full = config.sequence_length * options if config.task.pad == "full" else 0
        self.batch_size = config.batch_size
        self._seed = config.data_seed
        self._group = config.task.group

    @property
    def fingerprint(self) -> str:
        """Return a digest of everything that the batches depend on.

        Streams with equal fingerprints yield equal batches.
        """
        arrays = {f.name: getattr(self._features, f.name) for f in dataclasses.fields(Features)}
        arrays |= {f"target/{name}": value for name, value in arrays.pop("targets").items()}
        stream = [self._seed, self.batch_size, self._full, list(self._special)]
        stream += [self._group] if self._group != "none" else []
        digest = hashlib.sha256(json.dumps(stream).encode())
        for name in sorted(name for name, values in arrays.items() if values is not None):
            digest.update(name.encode() + np.ascontiguousarray(arrays[name]).tobytes())
        return digest.hexdigest()

    @property
    def examples_per_epoch(self) -> int:
        """Count the rows that an epoch reads."""
        return len(self._features.example)

    def batch(self, index: int, rows: slice = slice(None)) -> Batch:
        """Return the batch of the update with this 0-based index, or only `rows` of the batch."""
        numbers = index * self.batch_size + np.arange(self.batch_size, dtype=np.int64)  # [B]
        # [B]: a batch may lie in two epochs.
        epochs, places = np.divmod(numbers, self.examples_per_epoch)
        chosen = np.empty_like(numbers)
        for epoch in np.unique(epochs).tolist():
            of_epoch = epochs == epoch
            chosen[of_epoch] = self._choose_rows(epoch, places[of_epoch])
        length = self._full or round_length(int(self._lengths[chosen].max()))
        chosen = chosen[rows]
        return gather_rows(self._features, chosen, length, len(chosen), self._special)

    def _choose_rows(self, epoch: int, places: np.ndarray) -> np.ndarray:
        """Return the rows at the given places of an epoch's order; the places lie in one batch."""
        # Places before `begin` complete a batch that began in the last epoch.
        begin = -epoch * self.examples_per_epoch % self.batch_size
        batch = (int(places[0]) - begin) // self.batch_size
        batches = (self.examples_per_epoch - begin) // self.batch_size
        # A batch across two epochs has rows of any length.
        if self._group == "length" and 0 <= batch < batches:
            return self._choose_alike(epoch, begin, batch, batches)
        key = hashing.make_key(self._seed, _ORDER, epoch)
        return hashing.permute_index(places, self.examples_per_epoch, key)

    def _choose_alike(self, epoch: int, begin: int, batch: int, batches: int) -> np.ndarray:
        """Return the rows of a batch in which all rows have about the same length.

        Args:
          epoch: the epoch, from 0.
          begin: the place in the epoch's order where its first full batch begins.
          batch: the number of the full batch, from 0.
          batches: the number of full batches of the epoch.
        """
        key = hashing.make_key(self._seed, _BATCHES, epoch)
        drawn = int(hashing.permute_index(np.array([batch]), batches, key)[0])
        windows = -(-batches // WINDOW)
        window = ((drawn + 1) * windows - 1) // batches  # windows differ by a batch at most
        first = window * batches // windows
        end = (window + 1) * batches // windows
        places = begin + np.arange(first * self.batch_size, end * self.batch_size)
        key = hashing.make_key(self._seed, _ORDER, epoch)
        rows = hashing.permute_index(places, self.examples_per_epoch, key)
        by_length = rows[np.argsort(self._lengths[rows], kind="stable")]
        return by_length[(drawn - first) * self.batch_size :][: self.batch_size]
