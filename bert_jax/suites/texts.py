"""Reads the texts of a --source, and cuts them into passages of whole sentences.

Files are plain or gzipped, with a text or a JSON object in each line. A passage is a number of
whole sentences of one document with at most a given number of words. A longer sentence is cut.
Words are separated by white space, but each Chinese character is a word, as for BERT's tokenizer.
Which words are masked depends only on the text and not on the vocabulary. A word's tokens are the
tokens that hold its characters. In vocabularies whose tokens begin with a blank, they include the
blank before the word.
"""

import dataclasses
import glob
import hashlib
import itertools
import logging
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.config import knobs
from bert_jax.data import hashing
from bert_jax.data.files import parse_rows
from bert_jax.data.rows import read_lines
from bert_jax.data.sentences import split_sentences
from bert_jax.data.tokenizer import replace_surrogates
from bert_jax.errors import ConfigError, DataError, need
from bert_jax.evaluation.metrics import digest
from bert_jax.interop import runs
from bert_jax.masking import quotas
from bert_jax.suites import Options
from bert_jax.system import opening

logger = logging.getLogger(__name__)

TEXTS = ("txt", "jsonl")  # endings of files that hold texts
EXAMPLE = "files:texts/, a folder of .txt or .jsonl files"
WORDS = 64  # of a passage, unless --words says otherwise: about 90 tokens of English
LANGUAGE = "en"  # of the sentence splitter
SEED = knobs.Eval().seed
_CHINESE = (  # ideographs, each a word by itself
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002a6df"
    "\U0002a700-\U0002b73f\U0002b740-\U0002b81f\U0002b820-\U0002ceaf\U0002f800-\U0002fa1f"
)
WORD = re.compile(f" ?(?:[{_CHINESE}]|[^ {_CHINESE}]+)")  # with the blank before it, if any
_ORDER, _SHIFT = 0x574F5244, 0x53484946  # keep two uses of a text's bits apart
_STEP = np.uint64(0x9E3779B97F4A7C15)


# --- files ----------------------------------------------------------------------------------------


def find_files(
    source: str, suite: str, example: str, endings: Sequence[str] = ("jsonl",)
) -> list[Path]:
    """Find the files of a source files:PATTERN, or of a path, sorted by name.

    For a folder, these are its files with one of the endings, gzipped or not.
    """
    kind, _, pattern = source.partition(":")
    if opening.expand_home(source).exists():
        pattern = source
    elif kind != "files" or not pattern:
        raise ConfigError(
            f"suite {suite} cannot read --source={source!r}", f"for example --source={example}"
        )
    pattern = os.path.expanduser(pattern)
    if Path(pattern).is_dir():
        names = [f"*.{ending}{packed}" for ending in endings for packed in ("", ".gz")]
        files = sorted(file for name in names for file in Path(pattern).glob(name))
    elif Path(pattern).is_file():
        files = [Path(pattern)]
    else:
        files = sorted(map(Path, glob.glob(pattern)))
    if not files:
        raise DataError(f"no files at {pattern}", f"for example --source={example}")
    return files


def read_documents(path: Path) -> Iterator[list[str]]:
    """Yield the lines of each document of a file.

    A document is the text of a JSON object or, in a text file, the lines between blank lines.
    """
    if _has_objects(path):
        yield from (row["text"].split("\n") for _, row in read_objects(path, ["text"]))
        return
    every = _read_plain(path)
    for has_text, lines in itertools.groupby(every, key=lambda line: bool(line.strip())):
        if has_text:
            yield list(lines)


def _read_plain(path: Path) -> Iterator[str]:
    """Yield the lines of a text file; warn if bytes are not UTF-8, which become U+FFFD."""
    replaced = 0
    for _, line in read_lines(path, errors="replace"):
        replaced += "\ufffd" in line
        yield line
    if replaced:
        logger.warning(f"{path}: bytes that are no UTF-8 are read as U+FFFD, lines: {replaced:,}")


def read_texts(path: Path) -> Iterator[str]:
    """Yield the text of each JSON object or, in a text file, each line that is not blank."""
    for lines in read_documents(path):
        yield from ["\n".join(lines)] if _has_objects(path) else lines


def _has_objects(path: Path) -> bool:
    return ".jsonl" in path.suffixes or path.suffix == ".json"


def read_objects(path: Path, needed: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield FILE:LINE and the JSON object of each line; refuse a line without the needed texts."""
    for where, row in parse_rows(read_lines(path), path):
        yield where, check_fields(where, row, needed)


def check_fields(where: str, row: Any, needed: Sequence[str]) -> dict[str, Any]:
    """Return a row; refuse it if one of the needed fields is not a text."""
    for name in needed:
        if not isinstance(row, dict) or not isinstance(row.get(name), str) or not row[name].strip():
            raise DataError(f"{where}: no text {name!r}", f"each row needs {', '.join(needed)}")
    return row


# --- words ----------------------------------------------------------------------------------------


def count_characters(text: str) -> list[int]:
    """Count the characters of each word of a text."""
    return [len(word.lstrip(" ")) for word in WORD.findall(" ".join(text.split()))]


def number_words(text: str, offsets: Sequence[tuple[int, int]]) -> np.ndarray:
    """Return the number of the word that each token belongs to [n].

    A blank belongs to the word after it.
    """
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


def shuffle_parts(text: str, count: int, *draw: int) -> np.ndarray:
    """Return the rank of each part of a text in a random order [count], from 0.

    The parts are words or tokens, `count` in all. The order depends only on the text, the count and
    the draw.
    """
    key = np.uint64(hashing.make_key(SEED, _ORDER, _hash_text(text), *draw))
    scores = hashing.mix_words(key + np.arange(1, count + 1, dtype=np.uint64) * _STEP)
    return np.argsort(np.argsort(scores))


def draw_shift(text: str) -> float:
    """Draw a number from 0 to below 1, which depends only on a text."""
    return (hashing.make_key(SEED, _SHIFT, _hash_text(text)) >> 11) / 2**53


def _hash_text(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")


# --- passages -------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Passage:
    """A passage of a text with its tokens, and the word that each token belongs to.

    No two words have more than one blank between them.
    """

    text: str
    document: int  # its number
    ids: np.ndarray  # int32 [n]
    words: np.ndarray  # int64 [n], the number of the word that each token belongs to
    lengths: np.ndarray  # int64 [W], characters of each word

    def choose_masked(self, rate: float) -> np.ndarray:
        """Choose the words to mask at a rate, bool [W].

        The words that are masked at a lower rate are also masked at a higher rate.
        """
        count = len(self.lengths)
        ranks = shuffle_parts(self.text, count)
        return ranks < quotas.mean_quotas(rate, count, "nearest")[count]


def load_passages(run: runs.TrainedModel, options: Options) -> list[Passage]:
    """Read the passages of a source and encode them for a model."""
    suite = options.suite
    most = options.words or WORDS
    room = run.longest - 2
    need(
        run.tokenizer.has_words,
        f"suite {suite} masks words of a --source, and the vocabulary of {run.folder} has none",
        "evaluate it on a corpus: leave --source out",
    )
    found = _read_passages(find_files(options.source, suite, EXAMPLE, TEXTS), most)
    texts = list(itertools.islice(found, options.limit or None))
    encoded = run.tokenizer.encode_with_offsets([text for text, _ in texts])
    passages = [
        Passage(
            text,
            document,
            np.array(ids, np.int32),
            number_words(text, offsets),
            np.array(count_characters(text), np.int64),
        )
        for (text, document), (ids, offsets) in zip(texts, encoded, strict=True)
    ]
    if not any(len(one.ids) for one in passages):
        raise DataError(f"{options.source} holds no text", f"for example --source={EXAMPLE}")
    logger.info(f"{suite}: {len(passages):,} passages of at most {most} words")
    if long := sum(len(one.ids) > room for one in passages):
        logger.info(f"{suite}: {long:,} of them have more than {room} tokens: read in windows")
    return passages


def digest_passages(passages: Sequence[Passage], *settings: object) -> np.ndarray:
    """Digest what decides which words are read and masked: the texts, settings and the seed."""
    texts = (f"{len(one.text)}:{one.text}".encode() for one in passages)
    return digest([repr((SEED, *settings)).encode(), *texts])


def _read_passages(files: Sequence[Path], most: int) -> Iterator[tuple[str, int]]:
    """Yield (text, number of its document) of each passage, which has at most `most` words."""
    documents = itertools.chain.from_iterable(map(read_documents, files))
    for number, document in enumerate(documents):
        held: list[str] = []  # words with the blanks before them
        for words in _split_document(document, most):
            if held and len(held) + len(words) > most:
                yield "".join(held).lstrip(" "), number
                held = []
            held += words
        if held:
            yield "".join(held).lstrip(" "), number


def _split_document(document: Sequence[str], most: int) -> Iterator[list[str]]:
    """Yield the words of each sentence of a document; divide sentences that exceed `most` words."""
    for line in document:
        for sentence in split_sentences(replace_surrogates(line), LANGUAGE):
            words = WORD.findall(sentence)
            yield from (words[at : at + most] for at in range(0, len(words), most))
