"""Corpora small enough to check by hand, in memory."""

import itertools
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax import config as configs
from bert_jax.batch import HOST_KEYS, Batch, Special
from bert_jax.config import knobs
from bert_jax.data.corpus import Prepared, Split
from bert_jax.data.pipeline import TextStream
from tests.config.settings import set_and_resolve

SPECIAL = Special(pad=0, unk=1, cls=2, sep=3, mask=4)
FIRST = 5  # the first id that is text


def make_split(documents: Sequence[Sequence[int]]) -> Split:
    """Documents as lists of sentence lengths. Token t has the id FIRST + t."""
    lengths = [length for document in documents for length in document]
    return Split(
        tokens=np.arange(FIRST, FIRST + sum(lengths), dtype=np.uint32),
        sentence_ends=np.cumsum(lengths).astype(np.uint32),
        document_ends=np.cumsum([len(document) for document in documents]).astype(np.uint32),
    )


def random_documents(
    count: int, seed: int, sentences: float = 8, tokens: float = 12
) -> list[list[int]]:
    """Geometric numbers of sentences and tokens."""
    random = np.random.default_rng(seed)
    return [
        random.geometric(1 / tokens, n).tolist() for n in random.geometric(1 / sentences, count)
    ]


def list_documents(split: Split) -> list[list[list[int]]]:
    """The tokens of each sentence of each document."""
    ends = [0, *split.sentence_ends.tolist()]
    tokens = split.tokens.tolist()
    sentences = [tokens[a:b] for a, b in itertools.pairwise(ends)]
    edges = [0, *split.document_ends.tolist()]
    return [sentences[a:b] for a, b in itertools.pairwise(edges)]


def prepared(folder: Path, train: Split, validation: Split | None = None) -> Prepared:
    """A prepared corpus without a tokenizer that could read text; every third id goes on with a
    word.
    """
    size = FIRST + len(train.tokens)
    continuation = np.arange(size) % 3 == 1
    continuation[:FIRST] = False
    found = {"train": train, "validation": validation or make_split([])}
    tokenizer: Any = types.SimpleNamespace(special=SPECIAL, continuation=continuation)
    return Prepared(folder, {}, tokenizer, found, np.zeros(size, np.int64), "fingerprint")


def config(**overrides: Any) -> knobs.Config:
    """A resolved config; keys use __ for the dots of a path."""
    return set_and_resolve(configs.default(), {"optim__warmup_steps": 0, **overrides})


def source(
    folder: Path, seed: int | None = None, split: str = "train", **overrides: Any
) -> TextStream:
    """The batches of a small corpus."""
    train, validation = (make_split(random_documents(count, 0)) for count in (36, 10))
    made = prepared(folder, train, validation)
    return TextStream(
        made, split, config(**{"batch_size": 8, "sequence_length": 32} | overrides), seed
    )


def same(one: Batch, two: Batch) -> bool:
    """Whether two batches are equal in every array."""
    return all(np.array_equal(one[key], two[key]) for key in HOST_KEYS)
