"""Batches as a pure function of the step: order, gathering and prefetching.

An epoch visits every example of its plan once, in an order of its own. Epochs follow each other
without a gap, so a batch may hold the end of one and the beginning of the next; nothing is dropped.
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
from bert_jax.config import knobs, laws
from bert_jax.data import units
from bert_jax.data.batches import order, packing, pairs
from bert_jax.data.batches.plans import Plans
from bert_jax.data.text import pmi
from bert_jax.data.text.shards import Prepared, Shard
from bert_jax.errors import DataError, Stopped


class Source:
    """Stream of batches of one split; cheap to create, and can be sent to another process."""

    def __init__(
        self, prepared: Prepared, split: str, config: knobs.Config, seed: int | None = None
    ):
        """With `seed`, the source is for evaluation: its pairs and units are fixed by that seed.

        Then an example has one view, and its units have no weights.
        """
        self._shards = _Shards(prepared.splits.get(split, ()))
        if not sum(len(shard.tokens) for shard in self._shards):
            raise _no_documents(prepared, split)
        self.batch_size, self.length = config.batch_size, config.sequence_length
        self._most = config.packing if seed is None else 1  # examples a row
        # Rows of several examples hold whole documents. A row of one, as evaluations read it, is
        # filled across documents.
        whole = self._most > 1 and config.pairs == "none"
        self._mode = "documents" if whole else config.pairs
        self._masking = config.masking
        self._special = prepared.tokenizer.special
        self._continuation = prepared.tokenizer.continuation
        self._seed = config.data_seed if seed is None else seed
        masking = config.masking
        pmi_unit = masking.unit == "pmi"
        self._collocations = pmi.collocations(prepared, masking) if pmi_unit else None
        self._copies = masking.dupe_factor if seed is None else 1  # 0: a new one each epoch
        self.views = laws.views(masking) if seed is None else 1
        self._weights: np.ndarray | None = None  # float64 [V]
        if seed is None and masking.weights == "frequency":
            self._weights = units.frequency_weights(prepared.unigrams, masking.weights_power)
        # Epochs after which their lengths repeat; 0: never.
        self._period = self._copies if pairs.is_paired(self._mode) else 1
        self._ends = np.zeros(0, np.int64)  # where each known copy ends in the stream
        static = self._copies > 0
        # A plan has room for one separator between two texts.
        room = self.length - (self._special.separators - 1 if pairs.is_paired(self._mode) else 0)
        plan = (self._shards, self._mode, config.examples, room, self._seed, static)
        self._plans = Plans(prepared.folder, prepared.fingerprint, split, *plan)
        rows = (prepared.folder, self.length, self._most, self._seed, self._special.separators)
        self.packer = packing.Packer(self._plans, *rows) if self._most > 1 else None

    @property
    def fingerprint(self) -> str:
        """Return a digest of all the batches depend on: equal fingerprints give equal streams."""
        masking = dataclasses.asdict(self._masking)
        shape = [self._plans.family, self._seed, self._copies]
        shape += [self.batch_size, self.length, self._mode]
        shape += [masking[name] for name in ("unit", "max_unit", "span_mean", "span_max")]
        if self._collocations:
            shape += [hashlib.sha256(self._collocations.sorted.tobytes()).hexdigest()]
        shape += [self._most] if self._most > 1 else []
        shape += [["views", self.views]] if self.views > 1 else []
        if self._weights is not None:
            shape += [["weights", masking["weights"], masking["weights_power"]]]
        shape += [list(self._special), hashlib.sha256(self._continuation.tobytes()).hexdigest()]
        return hashlib.sha256(json.dumps(shape).encode()).hexdigest()

    def count(self, epoch: int) -> int:
        """Return the number of examples in an epoch."""
        return int(self._plans.counts(self._copy(epoch)).sum())

    def rows(self, epoch: int) -> int:
        """Return the number of rows of an epoch, each of which may hold several examples."""
        return self.packer.count(self._copy(epoch)) if self.packer else self.count(epoch)

    def documents(self) -> np.ndarray:
        """Return the document that each example of the first epoch's plan begins in."""
        numbers, before, documents = self._plans.counts(self._copy(0)), 0, []
        records = np.split(self._plans.records(self._copy(0)), np.cumsum(numbers)[:-1])
        for shard, own in zip(self._shards, records, strict=True):
            sentence = np.searchsorted(shard.sentence_ends, own["a_start"], side="right")
            documents.append(before + np.searchsorted(shard.document_ends, sentence, side="right"))
            before += len(shard.document_ends)
        return np.concatenate(documents)

    def batch(self, step: int, rows: slice = slice(None)) -> Batch:
        """Return the given rows of the global batch of a step."""
        index = step * self.batch_size + np.arange(self.batch_size, dtype=np.int64)[rows]
        epochs, offsets = self._locate(index // self.views)
        batch = self._padding(len(index), self._most)
        if self.views > 1:
            batch["views"] = np.repeat(index % self.views, self._most).reshape(len(index), -1)
            batch["views"] = batch["views"].astype(np.int32)
        for epoch in np.unique(epochs).tolist():
            targets = np.flatnonzero(epochs == epoch)  # rows of the batch
            places, copy = offsets[targets], self._copy(epoch)
            if self.packer:
                packed = self.packer.rows(epoch, copy, places)
                self._fill_packed(batch, targets, copy, packed, places)
                continue
            key = order.key(self._seed, order.EXAMPLES, epoch)
            examples = order.permute(places, self.count(epoch), key)
            self._fill(batch, targets, copy, examples, places)
        return batch

    def evaluation_batch(self, index: int, size: int) -> Batch:
        """Return the examples from index * size on, in the order of the first epoch's plan.

        Rows after the last example are padding.
        """
        batch = self._padding(size)
        examples = np.arange(index * size, min((index + 1) * size, self.count(0)), dtype=np.int64)
        if len(examples):
            self._fill(batch, np.arange(len(examples)), self._copy(0), examples, examples)
        return batch

    def _copy(self, epoch: int) -> int:
        return epoch % self._copies if self._copies else epoch

    def _locate(self, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the epoch of each example of the stream, and its place in that epoch."""
        last, ends = index.max(initial=0), self._ends
        while not len(ends) or (last >= ends[-1] and len(ends) != self._period):
            ends = self._ends = np.cumsum(self._sizes(len(ends) + 1)[: self._period or None])
        turn = index // ends[-1] if len(ends) == self._period else np.zeros_like(index)
        rest = index - turn * ends[-1]
        copy = np.searchsorted(ends, rest, side="right")
        return turn * len(ends) + copy, rest - np.concatenate([[0], ends])[copy]

    def _sizes(self, copies: int) -> np.ndarray:
        """Return the number of rows of every known copy, at least `copies` of them."""
        if self.packer:
            return np.array([self.packer.count(copy) for copy in range(copies)])
        return self._plans.table(copies).sum(axis=1)

    # --- gathering --------------------------------------------------------------------------------

    def _padding(self, size: int, examples: int = 1) -> Batch:
        """Return rows of padding, which no loss or metric counts."""
        tokens, slots = (size, self.length), (size, examples)
        weights = {} if self._weights is None else {"unit_scales": np.zeros(tokens, np.float32)}
        return {
            "tokens": np.full(tokens, self._special.pad, np.int32),
            "type_ids": np.zeros(tokens, np.int32),
            "positions": np.zeros(tokens, np.int32),
            "segment_ids": np.zeros(tokens, np.int32),
            "unit_ids": np.full(tokens, -1, np.int32),
            "example_ids": np.zeros(slots, np.int32),
            "copies": np.zeros(slots, np.int32),
            "places": np.zeros(slots, np.int32),
            "cls_positions": np.zeros(slots, np.int32),
            "labels": np.full(slots, -1, np.int32),
            **weights,
        }

    def _fill_packed(
        self, batch: Batch, rows: np.ndarray, copy: int, examples: np.ndarray, places: np.ndarray
    ) -> None:
        """Write the examples [rows, S] of a copy into rows of a batch."""
        row, slot = np.nonzero(examples >= 0)
        unpacked, own = self._padding(len(row)), examples[row, slot].astype(np.int64)
        self._fill(unpacked, np.arange(len(row)), copy, own, places[row] * self._most + slot)
        packing.place(unpacked, batch, rows[row], slot)

    def _fill(
        self, batch: Batch, rows: np.ndarray, copy: int, examples: np.ndarray, places: np.ndarray
    ) -> None:
        """Write examples of a copy into rows of a batch, an example a row.

        Their `places` in the order of the epoch decide rates that are drawn; in static copies,
        where a rate belongs to the example, its number does.
        """
        records = self._plans.records(copy)[examples]
        bounds = np.cumsum(self._plans.counts(copy))
        shard_of = np.searchsorted(bounds, examples, side="right")
        groups = [
            (self._shards[s], np.flatnonzero(shard_of == s)) for s in np.unique(shard_of).tolist()
        ]
        columns = np.arange(self.length, dtype=np.int64)
        if pairs.is_paired(self._mode):
            text, index, length, type_ids = _lay_out_pairs(
                records, columns, self._special.separators
            )
        else:
            text, index, length = _lay_out_rows(records, columns, groups)
            type_ids = np.zeros_like(index, np.int32)
        tokens = np.full(text.shape, self._special.sep, np.int32)
        for shard, group in groups:
            words = np.asarray(shard.tokens)[index[group]]
            tokens[group] = np.where(text[group], words, tokens[group])
        real = columns < length  # [B, L]
        tokens[:, 0] = self._special.cls
        tokens[~real] = self._special.pad
        ids = examples.astype(np.int32)[:, None]  # [B, 1]
        copies = np.full_like(ids, copy)
        unit_of = (self._continuation, self._masking, ids, copies, self._seed, self._collocations)
        unit_ids = getattr(units, self._masking.unit)(units.Rows(tokens, text, *unit_of))
        batch["tokens"][rows] = tokens
        batch["type_ids"][rows] = type_ids
        batch["positions"][rows] = np.where(real, columns, 0)
        batch["segment_ids"][rows] = real
        batch["unit_ids"][rows] = unit_ids
        if self._weights is not None:
            batch["unit_scales"][rows] = units.scales(tokens, unit_ids, self._weights)
        batch["example_ids"][rows] = ids
        batch["copies"][rows] = copies
        places = examples if self._copies else places
        batch["places"][rows] = places.astype(np.uint32).view(np.int32)[:, None]
        batch["labels"][rows] = records["label"][:, None]


def _no_documents(prepared: Prepared, split: str) -> DataError:
    """Return the error for a split without documents, with the reason if it is known."""
    trained = sum(len(shard.document_ends) for shard in prepared.splits.get("train", ()))
    message = f"{prepared.folder} holds no documents for {split}"
    hint = "check corpus.source and path"
    if split == "validation" and trained == 1:
        message += ": the text is a single document, which is not divided"
        hint = "separate documents by blank lines; in .jsonl and .parquet files a row is a document"
    elif split == "validation":
        hint = "raise corpus.validation_fraction; are all documents the same?"
    return DataError(message, hint)


class _Shards(list):
    """Shards that are sent to another process as the names of their files."""

    def __reduce__(self) -> tuple:
        fields = dataclasses.fields(Shard)
        return _reopen, ([[_locator(getattr(s, f.name)) for f in fields] for s in self],)


def _locator(array: np.ndarray) -> Any:
    if isinstance(array, np.memmap):
        return str(array.filename), array.dtype, array.offset, array.shape
    return array


def _reopen(shards: list[list[Any]]) -> _Shards:
    def array(locator: Any) -> np.ndarray:
        if isinstance(locator, np.ndarray):
            return locator
        name, dtype, offset, shape = locator
        return np.memmap(name, dtype, "r", offset, shape)

    return _Shards(Shard(*map(array, arrays)) for arrays in shards)


_Groups = list[tuple[Shard, np.ndarray]]  # each shard with the rows that come from it


def _lay_out_pairs(
    records: np.ndarray, columns: np.ndarray, separators: int
) -> tuple[np.ndarray, ...]:
    """Lay out rows of [CLS] A [SEP] B [SEP]; with two separators all type ids are 0.

    Returns:
      Whether a column is text [B, L], its token offset [B, L], lengths [B, 1], type_ids [B, L].
    """
    a_start, a_length, b_start, b_length = (
        records[name].astype(np.int64)[:, None]
        for name in ("a_start", "a_length", "b_start", "b_length")
    )
    b_column = a_length + 1 + separators  # [B, 1], where B begins
    length = a_length + 2 + np.where(b_length > 0, b_length + separators, 0)
    after = columns >= b_column  # [B, L]
    in_a = (columns > 0) & (columns <= a_length)
    in_b = after & (columns < b_column + b_length)
    text = in_a | in_b
    index = np.where(text, columns + np.where(after, b_start - b_column, a_start - 1), 0)
    return text, index, length, after & (columns < length) & (separators == 1)


def _lay_out_rows(
    records: np.ndarray, columns: np.ndarray, groups: _Groups
) -> tuple[np.ndarray, ...]:
    """Lay out rows of [CLS] text [SEP], with a [SEP] between documents: see `_lay_out_pairs`."""
    start, tokens, document, breaks = (
        records[name].astype(np.int64)[:, None]
        for name in ("a_start", "a_length", "document", "breaks")
    )
    length = tokens + breaks + 2  # [B, 1]
    separator = np.zeros((len(records), len(columns)), bool)
    for shard, group in groups:
        count = breaks[group, 0]
        row = np.repeat(group, count)
        # The number of each break in its row.
        number = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
        last = np.asarray(shard.document_ends)[document[row, 0] + number].astype(np.int64) - 1
        end = np.asarray(shard.sentence_ends)[last].astype(np.int64)
        separator[row, 1 + end - start[row, 0] + number] = True
    text = (columns > 0) & (columns < length - 1) & ~separator
    index = np.where(text, start + columns - 1 - np.cumsum(separator, axis=1), 0)
    return text, index, length


# --- prefetching ----------------------------------------------------------------------------------


class Batches(Protocol):
    """Stream of batches that can be sent to another process."""

    def batch(self, step: int, rows: slice = slice(None)) -> Batch:
        """Return the given rows of the global batch of a step."""


def prefetch(
    source: Batches, start: int, stop: int, settings: knobs.Loader, rows: slice = slice(None)
) -> Generator[Batch, None, None]:
    """Yield the batches of steps start to stop - 1, assembled ahead by threads or processes."""
    if stop <= start:
        return
    import grain  # takes a second, which nothing else on the data side should pay
    from absl import flags

    if not flags.FLAGS.is_parsed():  # in a notebook or a test; Grain's processes read its flags
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
        processes = grain.MultiprocessingOptions(
            num_workers=workers, per_worker_buffer_size=max(1, ahead // workers)
        )
        dataset = dataset.mp_prefetch(processes, worker_init_fn=_begin_worker)
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
                    "the same command continues; if it happens again, lower loader.workers or "
                    "find more memory",
                ) from error
            # Arrays from a process lie in shared memory, which is freed with the last reference.
            yield {name: np.array(array) for name, array in batch.items()} if workers else batch
    finally:
        iterator.close()
        if workers:
            # A cycle in Grain's iterator holds the last batch, whose shared memory would be left to
            # the system.
            del iterator
            gc.collect()


def _begin_worker(index: int, count: int) -> None:
    """Make a process of Grain's end with its parent, and only then.

    Stop signals often go to a whole group of processes. The parent handles them, and still needs
    batches until it has saved. When the parent is killed, Grain's own processes would wait for it
    for ever, with their shared memory.
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
