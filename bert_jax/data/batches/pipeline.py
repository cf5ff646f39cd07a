"""Batches as a pure function of the step: order, gathering and prefetching.

An epoch visits every example of its plan once, in an order of its own. Epochs follow each other without a gap, so a
batch may hold the end of one and the beginning of the next; nothing is dropped.
"""

from __future__ import annotations

import dataclasses
import functools
import gc
import hashlib
import json
import multiprocessing
import os
import signal
import threading
from collections.abc import Generator
from typing import Any, Protocol

import numpy as np

from bert_jax.batch import Batch
from bert_jax.config import knobs
from bert_jax.data import units
from bert_jax.data.batches import order, packing
from bert_jax.data.batches.plans import Plans
from bert_jax.data.text import pmi
from bert_jax.data.text.shards import Prepared, Shard
from bert_jax.errors import DataError, Stopped


class Source:
    """The stream of batches of one split; costs nothing to make, and can be sent to another process."""

    def __init__(
        self, prepared: Prepared, split: str, config: knobs.Config, seed: int | None = None
    ):
        """With `seed`, the source is for evaluation: pairs and units come from that seed and never change."""
        self._shards = _Shards(prepared.splits.get(split, ()))
        if not sum(len(shard.tokens) for shard in self._shards):
            hint = (
                "raise corpus.validation_fraction"
                if split == "validation"
                else "check corpus.source and path"
            )
            raise DataError(f"{prepared.folder} holds no documents for {split}", hint)
        self.batch_size, self.length = config.batch_size, config.sequence_length
        self._mode, self._masking = config.pairs, config.masking
        self._special, self._continuation = (
            prepared.tokenizer.special,
            prepared.tokenizer.continuation,
        )
        self._seed = config.data_seed if seed is None else seed
        self._more = (
            (pmi.collocations(prepared, config.masking),) if config.masking.unit == "pmi" else ()
        )
        self._copies = config.masking.dupe_factor if seed is None else 1  # 0: a new one each epoch
        self._period = (
            1 if self._mode == "none" else self._copies
        )  # epochs after which their lengths repeat; 0: never
        self._ends = np.zeros(0, np.int64)  # where each copy known so far ends in the stream
        plan = (
            self._shards,
            self._mode,
            config.examples,
            self.length,
            self._seed,
            self._copies > 0,
        )
        self._plans = Plans(prepared.folder, prepared.fingerprint, split, *plan)
        self._most = config.packing if seed is None else 1  # examples a row
        rows = (prepared.folder, self.length, self._most, self._seed)
        self.packer = packing.Packer(self._plans, *rows) if self._most > 1 else None

    @property
    def fingerprint(self) -> str:
        """Names everything the batches follow from: two sources with the same one give the same stream."""
        masking = dataclasses.asdict(self._masking)
        shape = [
            self._plans.family,
            self._seed,
            self._copies,
            self.batch_size,
            self.length,
            self._mode,
        ]
        shape += [masking[name] for name in ("unit", "max_unit", "span_mean", "span_max")]
        shape += [hashlib.sha256(more.sorted.tobytes()).hexdigest() for more in self._more]
        shape += [self._most] if self._most > 1 else []
        shape += [list(self._special), hashlib.sha256(self._continuation.tobytes()).hexdigest()]
        return hashlib.sha256(json.dumps(shape).encode()).hexdigest()

    def count(self, epoch: int) -> int:
        """Examples in an epoch."""
        return int(self._plans.counts(self._copy(epoch)).sum())

    def batch(self, step: int, rows: slice = slice(None)) -> Batch:
        """The given rows of the global batch of a step."""
        index = step * self.batch_size + np.arange(self.batch_size, dtype=np.int64)[rows]
        epochs, offsets = self._locate(index)
        batch = self._padding(len(index), self._most)
        for epoch in np.unique(epochs).tolist():
            mine = np.flatnonzero(epochs == epoch)
            if self.packer:
                self._fill_packed(
                    batch, mine, epoch, self.packer.rows(epoch, self._copy(epoch), offsets[mine])
                )
                continue
            examples = order.permute(
                offsets[mine], self.count(epoch), order.key(self._seed, order.EXAMPLES, epoch)
            )
            self._fill(batch, mine, self._copy(epoch), examples)
        return batch

    def evaluation_batch(self, index: int, size: int) -> Batch:
        """The examples index * size and on of the first epoch as they stand in the plan; padding after the last."""
        batch = self._padding(size)
        examples = np.arange(index * size, min((index + 1) * size, self.count(0)), dtype=np.int64)
        if len(examples):
            self._fill(batch, np.arange(len(examples)), self._copy(0), examples)
        return batch

    def evaluation_batches(self, size: int) -> int:
        """How many evaluation batches cover every example once."""
        return -(-self.count(0) // size)

    def _copy(self, epoch: int) -> int:
        return epoch % self._copies if self._copies else epoch

    def _locate(self, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The epoch of each example of the stream, and its place in that epoch."""
        last, ends = index.max(initial=0), self._ends
        while not len(ends) or (last >= ends[-1] and len(ends) != self._period):
            ends = self._ends = np.cumsum(self._sizes(len(ends) + 1)[: self._period or None])
        turn = index // ends[-1] if len(ends) == self._period else np.zeros_like(index)
        rest = index - turn * ends[-1]
        copy = np.searchsorted(ends, rest, side="right")
        return turn * len(ends) + copy, rest - np.concatenate([[0], ends])[copy]

    def _sizes(self, copies: int) -> np.ndarray:
        """Rows of every copy known, and of at least so many."""
        if self.packer:
            return np.array([self.packer.count(copy) for copy in range(copies)])
        return self._plans.table(copies).sum(axis=1)

    # --- gathering --------------------------------------------------------------------------------

    def _padding(self, size: int, examples: int = 1) -> Batch:
        """Rows that nothing counts."""
        blank = np.zeros((size, self.length), np.int32)
        one = np.zeros((size, examples), np.int32)
        return {
            "tokens": np.full_like(blank, self._special.pad),
            "type_ids": blank.copy(),
            "positions": blank.copy(),
            "segment_ids": blank.copy(),
            "unit_ids": np.full_like(blank, -1),
            "example_ids": one.copy(),
            "copies": one.copy(),
            "cls_positions": one.copy(),
            "labels": np.full_like(one, -1),
        }

    def _fill_packed(
        self, batch: Batch, rows: np.ndarray, epoch: int, examples: np.ndarray
    ) -> None:
        """Writes the examples [rows, S] of an epoch into rows of a batch."""
        row, slot = np.nonzero(examples >= 0)
        alone = self._padding(len(row))
        self._fill(
            alone, np.arange(len(row)), self._copy(epoch), examples[row, slot].astype(np.int64)
        )
        packing.place(alone, batch, rows[row], slot)

    def _fill(self, batch: Batch, rows: np.ndarray, copy: int, examples: np.ndarray) -> None:
        """Writes examples of a copy into rows of a batch."""
        records = self._plans.records(copy)[examples]
        bounds = np.cumsum(self._plans.counts(copy))
        shards = np.searchsorted(bounds, examples, side="right")
        groups = [
            (self._shards[s], np.flatnonzero(shards == s)) for s in np.unique(shards).tolist()
        ]
        columns = np.arange(self.length, dtype=np.int64)
        if self._mode == "none":
            text, index, length = _lay_out_rows(records, columns, groups)
            type_ids = np.zeros_like(index, np.int32)
        else:
            text, index, length, type_ids = _lay_out_pairs(records, columns)
        tokens = np.full(text.shape, self._special.sep, np.int32)
        for shard, group in groups:
            here = text[group]
            tokens[group] = np.where(here, np.asarray(shard.tokens)[index[group]], tokens[group])
        real = columns < length  # [B, L]
        tokens[:, 0] = self._special.cls
        tokens[~real] = self._special.pad
        ids = examples.astype(np.int32)[:, None]  # [B, 1]
        copies = np.full_like(ids, copy)
        unit = functools.partial(
            units.TABLE[self._masking.unit], tokens, text, self._continuation, self._masking
        )
        batch["tokens"][rows] = tokens
        batch["type_ids"][rows] = type_ids
        batch["positions"][rows] = np.where(real, columns, 0)
        batch["segment_ids"][rows] = real
        batch["unit_ids"][rows] = unit(ids, copies, self._seed, *self._more)
        batch["example_ids"][rows] = ids
        batch["copies"][rows] = copies
        batch["labels"][rows] = records["label"][:, None]


class _Shards(list):
    """Shards that go to another process by the names of their files."""

    def __reduce__(self) -> tuple:
        return _reopen, (
            [[_locator(getattr(s, f.name)) for f in dataclasses.fields(s)] for s in self],
        )


def _locator(array: np.ndarray) -> Any:
    if isinstance(array, np.memmap):
        return str(array.filename), array.dtype, array.offset, array.shape
    return array


def _reopen(shards: list[list[Any]]) -> _Shards:
    def array(found: Any) -> np.ndarray:
        if isinstance(found, np.ndarray):
            return found
        name, dtype, offset, shape = found
        return np.memmap(name, dtype, "r", offset, shape)

    return _Shards(Shard(*map(array, arrays)) for arrays in shards)


_Groups = list[tuple[Shard, np.ndarray]]  # each shard with the rows that come from it


def _lay_out_pairs(records: np.ndarray, columns: np.ndarray) -> tuple[np.ndarray, ...]:
    """[CLS] A [SEP] B [SEP]: what is text [B, L], its token offsets [B, L], lengths [B, 1], type_ids [B, L]."""
    a_start, a_length, b_start, b_length = (
        records[name].astype(np.int64)[:, None]
        for name in ("a_start", "a_length", "b_start", "b_length")
    )
    b_column = a_length + 2  # [B, 1], where B begins
    length = b_column + b_length + (b_length > 0)
    after = columns >= b_column  # [B, L]
    in_a = (columns > 0) & (columns <= a_length)
    in_b = after & (columns < b_column + b_length)
    text = in_a | in_b
    index = np.where(text, columns + np.where(after, b_start - b_column, a_start - 1), 0)
    return text, index, length, after & (columns < length)


def _lay_out_rows(
    records: np.ndarray, columns: np.ndarray, groups: _Groups
) -> tuple[np.ndarray, ...]:
    """[CLS] text [SEP], with a [SEP] between documents: what is text, its token offsets, lengths."""
    start, tokens, document, breaks = (
        records[name].astype(np.int64)[:, None]
        for name in ("a_start", "a_length", "document", "breaks")
    )
    length = tokens + breaks + 2  # [B, 1]
    separator = np.zeros((len(records), len(columns)), bool)
    for shard, group in groups:
        count = breaks[group, 0]
        row = np.repeat(group, count)
        number = np.arange(len(row)) - np.repeat(
            np.cumsum(count) - count, count
        )  # of the break in its row
        last = np.asarray(shard.document_ends)[document[row, 0] + number].astype(np.int64) - 1
        end = np.asarray(shard.sentence_ends)[last].astype(np.int64)
        separator[row, 1 + end - start[row, 0] + number] = True
    text = (columns > 0) & (columns < length - 1) & ~separator
    index = np.where(text, start + columns - 1 - np.cumsum(separator, axis=1), 0)
    return text, index, length


# --- prefetching ----------------------------------------------------------------------------------


class Batches(Protocol):
    """A stream of batches that can be sent to another process."""

    def batch(self, step: int, rows: slice = slice(None)) -> Batch:
        """The given rows of the global batch of a step."""


def prefetch(
    source: Batches, start: int, stop: int, settings: knobs.Loader, rows: slice = slice(None)
) -> Generator[Batch, None, None]:
    """The batches of steps start to stop - 1, in order, made ahead of time by threads or processes."""
    if stop <= start:
        return
    import grain  # takes a second, which nothing else on the data side should pay
    from absl import flags

    if (
        not flags.FLAGS.is_parsed()
    ):  # in a notebook or a test; the processes of Grain read its flags
        flags.FLAGS.mark_as_parsed()
    ahead, threads, workers = settings.prefetch, settings.threads, settings.workers
    options = grain.ReadOptions(num_threads=min(threads, ahead), prefetch_buffer_size=ahead)
    dataset = (
        grain.MapDataset.range(start, stop)
        .map(functools.partial(_batch, source, rows))
        .to_iter_dataset(options)
    )
    if workers:
        source.batch(start, slice(1))  # plans come from here, not from all workers at once
        each = grain.MultiprocessingOptions(
            num_workers=workers, per_worker_buffer_size=max(1, ahead // workers)
        )
        dataset = dataset.mp_prefetch(each, worker_init_fn=_begin_worker)
    iterator = iter(dataset)
    try:
        for step in range(start, stop):
            try:
                batch = next(iterator)
            except RuntimeError as error:
                if not workers or "terminated unexpectedly" not in str(error):
                    raise
                raise Stopped(
                    f"a loader process ended before step {step} was ready: {error}",
                    "the same command continues; if it happens again, lower loader.workers or find more memory",
                ) from error
            # What comes from a process lies in shared memory, which is gone as soon as it is forgotten here.
            yield {name: np.array(array) for name, array in batch.items()} if workers else batch
    finally:
        iterator.close()
        if workers:  # a cycle in Grain's iterator holds the last batch: its shared memory would be left to the system
            del iterator
            gc.collect()


def _begin_worker(index: int, count: int) -> None:
    """In a process of Grain's, before its first batch: it ends with its parent, and only then.

    Stop signals often go to a whole group. The parent answers them, and still needs batches until it has saved. When
    the parent is killed, Grain's own processes would wait for it for ever, with their shared memory.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        os._exit(0)

    threading.Thread(target=follow, daemon=True).start()


def _batch(source: Batches, rows: slice, step: int) -> Batch:
    return source.batch(step, rows)
