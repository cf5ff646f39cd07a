"""Make one batch in the shape that a config trains on, for programs that need no corpus."""

from __future__ import annotations

import numpy as np

from bert_jax.batch import SPECIAL, Batch
from bert_jax.config import knobs
from bert_jax.masking import rates
from bert_jax.training import data


def make_batch(config: knobs.Config, vocab_size: int) -> Batch:
    """Take the first batch of a labelled task, or make a batch of random text."""
    if config.task.source:
        return data.gather(config).source.batch(0)
    return make_random_text(config, np.full(config.batch_size, config.sequence_length), vocab_size)


def make_random_text(config: knobs.Config, sizes: np.ndarray, vocab_size: int) -> Batch:
    """Make a batch of random text in which each row is one example of the given size.

    Examples of a config with pairs have a separator in the middle too. A config that packs has
    room for several examples in a row, and all but the first stay empty.
    """
    rng = np.random.default_rng(0)
    columns = np.arange(config.sequence_length)[None, :]
    lengths = sizes[:, None]
    real, middle = columns < lengths, lengths // 2
    paired = config.pairs != "none"
    separators = (columns == lengths - 1) | ((columns == middle) & paired)
    words = rng.integers(len(SPECIAL), vocab_size, real.shape)
    tokens = np.where(columns == 0, SPECIAL.cls, np.where(separators, SPECIAL.sep, words))
    is_word = real & (columns > 0) & ~separators
    examples = np.zeros((len(sizes), config.packing), np.int32)  # [B, S]
    numbers, labels = examples.copy(), examples - 1
    numbers[:, 0] = np.arange(len(sizes))
    if paired:
        labels[:, 0] = numbers[:, 0] % 2
    batch = {
        "tokens": np.where(real, tokens, SPECIAL.pad),
        "type_ids": real & (columns > middle) & paired,
        "positions": np.where(real, columns, 0),
        "segment_ids": real,
        "unit_ids": np.where(is_word, columns, -1),
        "example_ids": numbers,
        "copies": examples,
        "places": numbers,
        "cls_positions": examples,
        "labels": labels,
    }
    if rates.count_views(config.masking) > 1:
        batch["views"] = examples
    arrays = {key: np.asarray(value, np.int32) for key, value in batch.items()}
    if config.masked and config.masking.weights != "none":
        arrays["unit_scales"] = np.ones(real.shape, np.float32)
    return arrays
