"""Passages of a source of texts, and which of their words are masked: equal for all vocabularies.

A passage is whole sentences of one document, together at most so many words. A word is what stands
between white space, but each Chinese character is a word, as to BERT's tokenizer. Which words are
masked, and so what else the model reads, follows from the text alone. A vocabulary only decides how
many tokens a word has: those that hold its characters, and in vocabularies where a token begins
with a blank, that blank.

A sentence of more words is cut. One with a word of more than LONGEST characters is left out, and
logged. A model that cannot hold a passage predicts the same words of it in windows (`hidden.py`),
and sees less around them.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import logging
import re
from collections.abc import Iterator, Sequence

import numpy as np

from bert_jax.config import knobs
from bert_jax.data import hashing
from bert_jax.data.sentences import split_sentences
from bert_jax.data.tokenizer import replace_surrogates
from bert_jax.errors import ConfigError, DataError
from bert_jax.evaluation.metrics import digest
from bert_jax.interop import runs
from bert_jax.masking import quotas
from bert_jax.suites import Passages, lines

logger = logging.getLogger(__name__)

WORDS = 64  # of a passage, unless --words says otherwise: about 90 tokens of English
LONGEST = (
    100  # characters of a word: a longer one is [UNK] to some vocabularies, 50 tokens to others
)
LANGUAGE = "en"  # of the sentence splitter
SEED = knobs.Eval().seed
EXAMPLE = "files:texts/, a folder of .txt or .jsonl files"
IDEOGRAPHS = (  # each is a word by itself
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0x2F800, 0x2FA1F),
)
_CHINESE = "".join(f"{chr(first)}-{chr(last)}" for first, last in IDEOGRAPHS)
WORD = re.compile(f" ?(?:[{_CHINESE}]|[^ {_CHINESE}]+)")  # with the blank before it, if any
_ORDER, _SHIFT = 0x574F5244, 0x53484946  # keep two uses of a text's bits apart
_STEP = np.uint64(0x9E3779B97F4A7C15)


@dataclasses.dataclass(frozen=True)
class Passage:
    """Words with at most one blank between two, and the number of their document."""

    text: str
    document: int

    @functools.cached_property
    def lengths(self) -> np.ndarray:
        """The number of characters of each word."""
        return np.array(word_lengths(self.text), np.int64)

    @functools.cached_property
    def ranks(self) -> np.ndarray:
        """The place of each word in the random order in which words are masked."""
        return shuffled(self.text, len(self.lengths))

    def masked(self, rate: float) -> np.ndarray:
        """Choose the words masked at a rate; a lower rate chooses some of the same words."""
        count = len(self.lengths)
        return self.ranks < quotas.mean_quotas(rate, count, "nearest")[count]


@dataclasses.dataclass(frozen=True)
class Encoded:
    """A passage in the tokens of a model."""

    passage: Passage
    ids: np.ndarray  # int32 [n]
    offsets: list[tuple[int, int]]  # the start and end of each token in the text

    @functools.cached_property
    def words(self) -> np.ndarray:
        """The number of the word that each token belongs to, int64 [n]."""
        return words_of(self.passage.text, self.offsets)


def shuffled(text: str, count: int, *draw: int) -> np.ndarray:
    """Return the place of each of `count` parts of a text in a random order.

    It is a function of the evaluation seed, the text, the part and the draw alone.
    """
    key = np.uint64(hashing.make_key(SEED, _ORDER, _name(text), *draw))
    scores = hashing.mix_words(key + np.arange(1, count + 1, dtype=np.uint64) * _STEP)
    return np.argsort(np.argsort(scores))


def shift(text: str) -> float:
    """Return a random number from 0 to below 1 for a text, by the evaluation seed."""
    return (hashing.make_key(SEED, _SHIFT, _name(text)) >> 11) / 2**53


def _name(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")


def load(run: runs.TrainedModel, options: Passages) -> list[Encoded]:
    """Read the passages of a source and encode them for a model."""
    if not run.tokenizer.has_words:
        raise ConfigError(
            f"suite {options.suite} masks words of a --source, "
            f"and the vocabulary of {run.folder} has none",
            "evaluate it on a corpus: leave --source out",
        )
    most, room = options.words or WORDS, run.longest - 2
    encoded = _encode(run, options, most)
    logger.info(f"{options.suite}: {len(encoded):,} passages of at most {most} words")
    if long := sum(len(one.ids) > room for one in encoded):
        logger.info(
            f"{options.suite}: {long:,} of them have more than {room} tokens: read in windows"
        )
    return encoded


def identity(encoded: Sequence[Encoded], *settings: object) -> np.ndarray:
    """Digest what decides which words a model reads and predicts: no vocabulary does."""
    texts = (f"{len(one.passage.text)}:{one.passage.text}".encode() for one in encoded)
    return digest([repr((SEED, *settings)).encode(), *texts])


def word_lengths(text: str) -> list[int]:
    """Return the number of characters of each word."""
    return [len(word.lstrip(" ")) for word in WORD.findall(" ".join(text.split()))]


def words_of(text: str, offsets: Sequence[tuple[int, int]]) -> np.ndarray:
    """Return the number of the word of each token; a blank belongs to the word after it."""
    starts = [word.start() for word in WORD.finditer(text)]
    at = np.searchsorted(starts, np.arange(len(text)), side="right") - 1
    spans = np.array(offsets, np.int64).reshape(-1, 2)
    first = np.minimum(spans[:, 0], len(text) - 1)
    last = np.maximum(spans[:, 1] - 1, first)
    if (across := np.flatnonzero(at[first] != at[last])).size:
        start, end = offsets[across[0]]
        raise ConfigError(
            f"the vocabulary has a token of several words, {text[start:end]!r}",
            "words of such a model cannot be masked one by one",
        )
    return at[first]


def _encode(run: runs.TrainedModel, options: Passages, most: int) -> list[Encoded]:
    """Encode passages of at most `most` words."""
    left_out: list[str] = []  # words
    found = _read_passages(options.source, options.suite, most, left_out)
    passages = list(itertools.islice(found, options.limit or None))
    if left_out:
        logger.info(
            f"{options.suite}: {len(left_out):,} sentences with a word of more than {LONGEST} "
            f"characters are left out, first {left_out[0][:20]}…"
        )
    encodings = run.tokenizer.encode_with_offsets([passage.text for passage in passages])
    if not any(ids for ids, _ in encodings):
        held = "only sentences with longer words" if left_out else "no text"
        raise DataError(f"{options.source} holds {held}", f"for example --source={EXAMPLE}")
    return [
        Encoded(passage, np.array(ids, np.int32), offsets)
        for passage, (ids, offsets) in zip(passages, encodings, strict=True)
    ]


def _read_passages(source: str, suite: str, most: int, left_out: list[str]) -> Iterator[Passage]:
    """Yield the passages of all files."""
    number = itertools.count()
    for path in lines.find_files(source, suite, EXAMPLE, lines.TEXTS):
        for document in lines.read_documents(path):
            at = next(number)
            held: list[str] = []
            for words in _sentences(document, most, left_out):
                if held and len(held) + len(words) > most:
                    yield Passage("".join(held).lstrip(" "), at)
                    held = []
                held += words
            if held:
                yield Passage("".join(held).lstrip(" "), at)


def _sentences(document: Sequence[str], most: int, left_out: list[str]) -> Iterator[list[str]]:
    """Yield the words of each sentence with the blanks before them, of a longer one `most`."""
    for line in document:
        for sentence in split_sentences(replace_surrogates(line), LANGUAGE):
            words = WORD.findall(sentence)
            if longest := next((w for w in words if len(w.lstrip(" ")) > LONGEST), ""):
                left_out.append(longest.lstrip(" "))
                continue
            yield from (words[at : at + most] for at in range(0, len(words), most))
