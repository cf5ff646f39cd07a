"""Batches as a pure function of their index: plans, order, gathering and prefetching.

An epoch visits the examples of its plan in a random order. A batch may hold the end of one epoch
and the beginning of the next. Plans are made in memory, and the last two are kept. A plan for 10^9
tokens takes 19 CPU seconds with pairs and 12 without. A plan is made at each start and, with pairs,
at each epoch.

Every epoch reads as many rows as the first, so that a division gives the epoch of a batch. With
pairs, later plans have a few examples more or fewer than the first: about 1 % for 5,000 documents,
0.1 % for 100,000. An epoch leaves out the rest of a longer plan, and reads some examples of a
shorter plan twice.
"""

import collections
import dataclasses
import functools
import hashlib
import json
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any

import numpy as np

from bert_jax.batch import Batch
from bert_jax.config import knobs
from bert_jax.data import hashing, packing, pairs, pmi
from bert_jax.data.corpus import Prepared, Split
from bert_jax.data.ngrams import Hashes
from bert_jax.errors import DataError
from bert_jax.masking import rates, units

AHEAD = 4  # batches that a thread makes ahead of the step
_VERSION = 1  # part of the fingerprint: increase it when the construction of plans changes
# Keep the hashes of the order of examples and of rows apart from all others.
_EXAMPLES, _ROWS = 0x4F524445, 0x524F5753


class TextStream:
    """A stream of batches of one split of a prepared corpus."""

    def __init__(
        self, prepared: Prepared, split: str, config: knobs.Config, seed: int | None = None
    ):
        """Prepare the stream; plans are made when batches need them.

        With a `seed` the stream is for evaluation. Pairs and units are drawn with this seed, an
        example has one view, and its units have no weights.
        """
        self._split = prepared.splits[split]
        if not len(self._split.tokens):
            raise _no_documents(prepared, split)
        training = seed is None
        self.batch_size = config.batch_size
        self.length = config.sequence_length
        self._most = 1  # examples a row
        self._copies = 1  # of the data; 0: a new copy each epoch
        self.views = 1
        if training:
            self._most = config.packing
            self._copies = config.masking.dupe_factor
            self.views = rates.count_views(config.masking)
        # Rows of several examples hold whole documents. Rows of one example, as evaluations read
        # them, are filled across documents.
        whole = self._most > 1 and config.pairs == "none"
        self._mode: str = config.pairs
        if whole:
            self._mode = "documents"
        self._paired = pairs.is_paired(self._mode)
        self._masking = masking = config.masking
        self._special = prepared.tokenizer.special
        self._continuation = prepared.tokenizer.continuation
        self._seed = config.data_seed if seed is None else seed
        self._collocations: Hashes | None = None
        if masking.unit == "pmi":
            self._collocations = pmi.load_collocations(prepared, masking)
        self._weights: np.ndarray | None = None  # float64 [V]
        if training and masking.weights == "frequency":
            self._weights = units.frequency_weights(prepared.unigrams, masking.weights_power)
        self._settings = config.examples  # of pairs
        self._room = self.length
        if self._paired:  # a plan has room for one separator between two texts
            self._room -= self._special.separators - 1
        self._plan_id = _identify_plan(prepared, split, self._mode, config, self._room, self._seed)
        # A batch may hold the end of one epoch and the beginning of the next.
        self._plan = functools.lru_cache(2)(self._make_plan)
        self._groups = functools.lru_cache(2)(self._make_groups)
        self._table = functools.lru_cache(2)(self._make_table)

    @property
    def fingerprint(self) -> str:
        """Return a digest of everything that the batches depend on.

        Streams with equal fingerprints yield equal batches.
        """
        masking = dataclasses.asdict(self._masking)
        shape = [self._plan_id, self._seed, self._copies]
        shape += [self.batch_size, self.length, self._mode]
        shape += [masking[name] for name in ("unit", "max_unit", "span_mean", "span_max")]
        if self._collocations:
            shape += [hashlib.sha256(self._collocations.sorted.tobytes()).hexdigest()]
        if self._most > 1:
            shape += [self._most]
        if self.views > 1:
            shape += [["views", self.views]]
        if self._weights is not None:
            shape += [["weights", masking["weights"], masking["weights_power"]]]
        shape += [list(self._special), hashlib.sha256(self._continuation.tobytes()).hexdigest()]
        return hashlib.sha256(json.dumps(shape).encode()).hexdigest()

    @functools.cached_property
    def examples_per_epoch(self) -> int:
        """Count the examples that an epoch reads: the examples of the first epoch's plan."""
        return len(self._plan(0))

    @functools.cached_property
    def rows_per_epoch(self) -> int:
        """Count the rows that an epoch reads; a row may hold several examples."""
        if self._most == 1:
            return self.examples_per_epoch
        return packing.count_rows(self._groups(0))

    def measure_packing(self) -> tuple[float, float, float]:
        """Return the three numbers of `packing.measure_efficiency` for the first plan."""
        return packing.measure_efficiency(self._groups(0), self.length)

    def number_documents(self) -> np.ndarray:
        """Return the number of the document in which each example of the first plan begins."""
        starts = self._plan(0)["a_start"]
        sentence = np.searchsorted(self._split.sentence_ends, starts, side="right")
        return np.searchsorted(self._split.document_ends, sentence, side="right")

    def batch(self, index: int, rows: slice = slice(None)) -> Batch:
        """Return the batch of the update with this 0-based index, or only `rows` of the batch."""
        numbers = index * self.batch_size + np.arange(self.batch_size, dtype=np.int64)[rows]
        epochs, places = np.divmod(numbers // self.views, self.rows_per_epoch)  # [B]
        batch = self._make_padding(len(numbers), self._most)
        if self.views > 1:
            views = np.repeat(numbers % self.views, self._most).astype(np.int32)
            batch["views"] = views.reshape(-1, self._most)
        for epoch in np.unique(epochs).tolist():
            targets = np.flatnonzero(epochs == epoch)  # rows of the batch
            self._fill_epoch(batch, targets, epoch, places[targets])
        return batch

    def evaluation_batch(self, index: int, size: int) -> Batch:
        """Return a batch of examples index * size to (index + 1) * size - 1 of the first plan.

        Rows after the last example are padding.
        """
        batch = self._make_padding(size)
        end = min((index + 1) * size, self.examples_per_epoch)
        examples = np.arange(index * size, end, dtype=np.int64)
        if len(examples):
            self._fill(batch, np.arange(len(examples)), 0, examples, examples)
        return batch

    # --- plans ------------------------------------------------------------------------------------

    def _make_plan(self, copy: int) -> np.ndarray:
        shape = (self._mode, self._settings, self._room, self._seed)
        return pairs.plan_split(self._split, *shape, copy)

    def _make_groups(self, plan: int) -> list[packing.RowGroup]:
        """Group the rows of a plan by the lengths of the examples that share a row."""
        counts = np.bincount(self._measure_lengths(plan), minlength=self.length + 1)
        return packing.plan_rows(counts, self.length, self._most)

    def _make_table(self, epoch: int, plan: int) -> np.ndarray:
        """Return the examples of each packed row of an epoch [R, S]; -1 means no example."""
        sizes = self._measure_lengths(plan)
        examples = self._permute(np.arange(len(sizes)), len(sizes), _EXAMPLES, epoch)
        table = packing.assign_examples(self._groups(plan), sizes[examples], self._most)
        return np.where(table >= 0, examples[table], -1).astype(np.int32)

    def _measure_lengths(self, plan: int) -> np.ndarray:
        return pairs.measure_lengths(self._plan(plan), self._special.separators)

    def _permute(self, places: np.ndarray, count: int, kind: int, epoch: int) -> np.ndarray:
        """Return the numbers at the given places of an epoch's random order of 0 to `count` - 1.

        Places from `count` on begin again at the first. `kind` tells whether examples or rows are
        ordered, whose orders are independent.
        """
        key = hashing.make_key(self._seed, kind, epoch)
        return hashing.permute_index(places % count, count, key)

    # --- gathering --------------------------------------------------------------------------------

    def _make_padding(self, size: int, examples: int = 1) -> Batch:
        """Return rows of padding, which no loss or metric counts."""
        tokens, slots = (size, self.length), (size, examples)
        batch = {
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
        }
        if self._weights is not None:
            batch["unit_scales"] = np.zeros(tokens, np.float32)
        return batch

    def _fill_epoch(
        self, batch: Batch, targets: np.ndarray, epoch: int, places: np.ndarray
    ) -> None:
        """Write the rows at the given places of an epoch's order into rows `targets` of a batch."""
        copy = epoch
        if self._copies:
            copy = epoch % self._copies
        plan = self._plan_of(copy)
        if self._most == 1:
            examples = self._permute(places, len(self._plan(plan)), _EXAMPLES, epoch)
            self._fill(batch, targets, copy, examples, places)
            return
        table = self._table(epoch, plan)  # [R, S]
        packed = table[self._permute(places, len(table), _ROWS, epoch)]  # [B, S]
        row, slot = np.nonzero(packed >= 0)  # [N], of each example
        alone = self._make_padding(len(row))  # [N, L], an example a row
        examples = packed[row, slot].astype(np.int64)
        self._fill(alone, np.arange(len(row)), copy, examples, places[row] * self._most + slot)
        packing.place_examples(alone, batch, targets[row], slot)

    def _plan_of(self, copy: int) -> int:
        """Return the number of a copy's plan: 0 for every copy, unless examples are pairs."""
        return copy if self._paired else 0

    def _fill(
        self, batch: Batch, rows: np.ndarray, copy: int, examples: np.ndarray, places: np.ndarray
    ) -> None:
        """Write examples of a copy of the data into rows of a batch, one example in each row.

        `places` has the place of each example in the order of the epoch. If masking rates are
        drawn, an example draws its rate by its place. With static copies it draws its rate by its
        number instead.
        """
        plan = self._plan(self._plan_of(copy))[examples]
        columns = np.arange(self.length, dtype=np.int64)
        if self._paired:
            text, index, length, type_ids = _lay_out_pairs(plan, columns, self._special.separators)
        else:
            text, index, length = _lay_out_rows(plan, columns, self._split)
            type_ids = np.zeros_like(index, np.int32)
        words = np.asarray(self._split.tokens)[index]
        tokens = np.where(text, words, self._special.sep).astype(np.int32)  # [B, L]
        real = columns < length  # [B, L]
        tokens[:, 0] = self._special.cls
        tokens[~real] = self._special.pad
        ids = examples.astype(np.int32)[:, None]  # [B, 1]
        copies = np.full_like(ids, copy)
        unit_of = (self._continuation, self._masking, ids, copies, self._seed, self._collocations)
        unit_ids = units.MARKERS[self._masking.unit](units.Rows(tokens, text, *unit_of))
        batch["tokens"][rows] = tokens
        batch["type_ids"][rows] = type_ids
        batch["positions"][rows] = np.where(real, columns, 0)
        batch["segment_ids"][rows] = real
        batch["unit_ids"][rows] = unit_ids
        if self._weights is not None:
            batch["unit_scales"][rows] = units.unit_scales(tokens, unit_ids, self._weights)
        batch["example_ids"][rows] = ids
        batch["copies"][rows] = copies
        if self._copies:
            places = examples
        batch["places"][rows] = places.astype(np.uint32).view(np.int32)[:, None]
        batch["labels"][rows] = plan["label"][:, None]


def _identify_plan(
    prepared: Prepared, split: str, mode: str, config: knobs.Config, room: int, seed: int
) -> str:
    """Return a digest of everything that the plans of a split depend on."""
    shape: dict[str, Any] = {
        "version": _VERSION,
        "corpus": prepared.fingerprint,
        "split": split,
        "mode": mode,
        "sequence_length": room,
    }
    if pairs.is_paired(mode):
        shape |= {"examples": dataclasses.asdict(config.examples), "seed": seed}
    return hashlib.sha256(json.dumps(shape, sort_keys=True).encode()).hexdigest()[:24]


def _no_documents(prepared: Prepared, split: str) -> DataError:
    """Make the error for a split without documents."""
    trained = len(prepared.splits["train"].document_ends)
    hint = "raise corpus.validation_fraction; are all documents the same?"
    if trained <= 1:
        hint = "separate documents by blank lines; in .jsonl and .parquet files a row is a document"
    return DataError(f"{prepared.folder} holds no documents for {split}, of {trained}", hint)


# --- where each column of a row comes from --------------------------------------------------------


def _lay_out_pairs(
    plan: np.ndarray, columns: np.ndarray, separators: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Find the token for each column of rows [CLS] A [SEP] B [SEP].

    With two separators between A and B, all type ids are 0.

    Returns:
      text: whether a column is a token of A or B [B, L];
      index: which token of the split it is [B, L];
      length: the tokens of each row [B, 1];
      type_ids [B, L].
    """
    a_start, a_length, b_start, b_length = (
        plan[name].astype(np.int64)[:, None]
        for name in ("a_start", "a_length", "b_start", "b_length")
    )
    b_column = a_length + 1 + separators  # [B, 1], where B begins
    length = a_length + 2 + np.where(b_length > 0, b_length + separators, 0)
    after = columns >= b_column  # [B, L]
    in_a = (columns > 0) & (columns <= a_length)
    in_b = after & (columns < b_column + b_length)
    text = in_a | in_b
    # Column c holds token a_start + c - 1 of A, or token b_start + c - b_column of B.
    index = np.where(text, columns + np.where(after, b_start - b_column, a_start - 1), 0)
    return text, index, length, after & (columns < length) & (separators == 1)


def _lay_out_rows(
    plan: np.ndarray, columns: np.ndarray, split: Split
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Find the token for each column of rows [CLS] text [SEP], with a [SEP] between documents.

    The results are the first three of `_lay_out_pairs`.
    """
    start, tokens, document, breaks = (
        plan[name].astype(np.int64)[:, None]
        for name in ("a_start", "a_length", "document", "breaks")
    )
    length = tokens + breaks + 2  # [B, 1]
    count = breaks[:, 0]
    row = np.repeat(np.arange(len(plan)), count)  # [S], of each separator
    # The number of each separator in its row: rows with 2 and 3 of them give 0 1 0 1 2.
    number = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
    last = np.asarray(split.document_ends)[document[row, 0] + number].astype(np.int64) - 1
    end = np.asarray(split.sentence_ends)[last].astype(np.int64)
    separator = np.zeros((len(plan), len(columns)), bool)  # [B, L]
    separator[row, 1 + end - start[row, 0] + number] = True
    text = (columns > 0) & (columns < length - 1) & ~separator
    # Each separator before a column moves its text one column on.
    index = np.where(text, start + columns - 1 - np.cumsum(separator, axis=1), 0)
    return text, index, length


# --- prefetching ----------------------------------------------------------------------------------


def prefetch(make: Callable[[int], Batch], start: int, stop: int) -> Generator[Batch, None, None]:
    """Yield the batches with indices `start` to `stop` - 1; a thread makes AHEAD of them early."""
    indices = iter(range(start, stop))
    thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="prefetch")
    try:
        waiting = collections.deque(thread.submit(make, index) for index in islice(indices, AHEAD))
        while waiting:
            batch = waiting.popleft().result()
            waiting.extend(thread.submit(make, index) for index in islice(indices, 1))
            yield batch
    finally:
        thread.shutdown(cancel_futures=True)
