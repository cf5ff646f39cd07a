"""Make a batch of the shapes that a config trains on, for programs without a corpus."""

import dataclasses

import numpy as np

from bert_jax.batch import SPECIAL, Batch
from bert_jax.config import knobs
from bert_jax.masking import rates
from bert_jax.training import data


def make_batch(config: knobs.Config, vocab_size: int) -> Batch:
    """Return the first batch of a labelled task, or make a batch of random text."""
    if config.task.source:
        return data.load_training_data(config).source.batch(0)
    return make_random_text(config, np.full(config.batch_size, config.sequence_length), vocab_size)


def make_longest_batch(config: knobs.Config, vocab_size: int) -> Batch:
    """Make a batch whose rows have `sequence_length` tokens, for a labelled task too."""
    task = dataclasses.replace(config.task, pad="full", group="none")
    return make_batch(dataclasses.replace(config, task=task), vocab_size)


def make_random_text(config: knobs.Config, sizes: np.ndarray, vocab_size: int) -> Batch:
    """Make a batch of random text; each row is one example of the given size.

    If the config has pairs, an example has a separator in the middle. If the config packs, a row
    has room for several examples, of which only the first is filled.
    """
    columns = np.arange(config.sequence_length)[None, :]  # [1, L]
    lengths = sizes[:, None]  # [B, 1]
    is_real = columns < lengths  # [B, L]
    middle = lengths // 2
    is_paired = config.pairs != "none"
    is_separator = (columns == lengths - 1) | ((columns == middle) & is_paired)
    words = np.random.default_rng(0).integers(len(SPECIAL), vocab_size, is_real.shape)
    tokens = np.where(columns == 0, SPECIAL.cls, np.where(is_separator, SPECIAL.sep, words))
    is_word = is_real & (columns > 0) & ~is_separator
    zeros = np.zeros((len(sizes), config.packing), np.int32)  # [B, S]
    numbers = zeros.copy()
    numbers[:, 0] = np.arange(len(sizes))
    labels = zeros - 1
    if is_paired:
        labels[:, 0] = numbers[:, 0] % 2
    batch = {
        "tokens": np.where(is_real, tokens, SPECIAL.pad),
        "type_ids": is_real & (columns > middle) & is_paired,
        "positions": np.where(is_real, columns, 0),
        "segment_ids": is_real,
        "unit_ids": np.where(is_word, columns, -1),
        "example_ids": numbers,
        "copies": zeros,
        "places": numbers,
        "cls_positions": zeros,
        "labels": labels,
    }
    if rates.count_views(config.masking) > 1:
        batch["views"] = zeros
    arrays = {key: np.asarray(value, np.int32) for key, value in batch.items()}
    if config.masked and config.masking.weights != "none":
        arrays["unit_scales"] = np.ones(is_real.shape, np.float32)
    return arrays
