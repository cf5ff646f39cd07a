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


def shard(documents: Sequence[Sequence[int]], vocab: int | None = None) -> Split:
    """Documents as lists of sentence lengths. Token t of the shard has the id FIRST + t (modulo a
    vocabulary).
    """
    lengths = [length for document in documents for length in document]
    ids = np.arange(sum(lengths))
    return Split(
        tokens=(FIRST + (ids if vocab is None else ids * 7919 % (vocab - FIRST))).astype(np.uint32),
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


def joined(parts: Sequence[Split]) -> Split:
    """Documents of several parts, one part after the other."""
    found = Split(np.zeros(0, np.uint32), np.zeros(0, np.int64), np.zeros(0, np.int64))
    for part in parts:
        found = Split(
            np.concatenate([found.tokens, part.tokens]),
            np.concatenate([found.sentence_ends, part.sentence_ends + len(found.tokens)]),
            np.concatenate([found.document_ends, part.document_ends + len(found.sentence_ends)]),
        )
    return found


def prepared(folder: Path, shards: Sequence[Split], **splits: Sequence[Split]) -> Prepared:
    """A prepared corpus without a tokenizer that could read text; every third id goes on with a
    word.
    """
    size = FIRST + max(len(s.tokens) for s in shards)
    continuation = np.arange(size) % 3 == 1
    continuation[:FIRST] = False
    parts = {"train": shards, "validation": (), **splits}
    found = {name: joined(of) for name, of in parts.items()}
    tokenizer: Any = types.SimpleNamespace(special=SPECIAL, continuation=continuation)
    return Prepared(folder, {}, tokenizer, found, np.zeros(size, np.int64), "fingerprint")


def config(**overrides: Any) -> knobs.Config:
    """A resolved config; keys use __ for the dots of a path."""
    return set_and_resolve(configs.default(), {"optim__warmup_steps": 0, **overrides})


def shards(count: int = 3, documents: int = 12) -> list[Split]:
    """A small corpus in several shards."""
    return [shard(random_documents(documents, seed)) for seed in range(count)]


def source(
    folder: Path, seed: int | None = None, split: str = "train", **overrides: Any
) -> TextStream:
    """The batches of a small corpus."""
    made = prepared(folder, shards(), validation=shards(2, 5))
    return TextStream(
        made, split, config(**{"batch_size": 8, "sequence_length": 32} | overrides), seed
    )


def same(one: Batch, two: Batch) -> bool:
    """Whether two batches are equal in every array."""
    return all(np.array_equal(one[key], two[key]) for key in HOST_KEYS)
