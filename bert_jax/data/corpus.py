"""Prepared corpora: memory-mapped arrays in a folder that is named by a fingerprint.

The fingerprint is a digest of everything that shapes the corpus: text, knobs, library versions.

<fingerprint>/
    manifest.json  audit.json  tokenizer.json  vocab.txt  unigrams.npy
    train/       tokens.npy         uint16 or uint32 [T]
                 sentence_ends.npy  int64 [N]  the end of each sentence, counted in tokens
                 document_ends.npy  int64 [D]  the end of each document, counted in sentences
    validation/  ...

Text comes from a source: a module in SOURCES, whose name is a choice of `corpus.source` in
`config/data_knobs.py`. A source lists items of work, so that several processes can read. It has
three functions:

    identify(settings, cache)    -> JSON that names the text
    list_items(settings, cache)  -> items, notes of what is left out
    read_texts(item, settings)   -> an iterator of texts

`Item` and `Text` are in `sentences.py`. `cache` is the folder of prepared corpora, where a source
may store facts that take long to find out.
"""

import dataclasses
import hashlib
import importlib.metadata
import json
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from bert_jax.config import knobs, table
from bert_jax.data import docstrings, files, hub, tfds
from bert_jax.data import tokenizer as tokenizers
from bert_jax.data.engines import WORD_LENGTH
from bert_jax.errors import DataError
from bert_jax.system import jsons, machine, opening

SOURCES: dict[str, Any] = {
    "docstrings": docstrings,
    "files": files,
    "tfds": tfds,
    "hub": hub,
}
FORMAT = 2  # of the folder
SPLITS = ("train", "validation")
HINT = "delete the folder and prepare again"
TRAINED_ON = 500_000_000  # characters of text that a vocabulary is trained on, at most
# What fingerprints hold besides, so that those in committed records stay valid.
CONSTANTS = {
    "on_bad_text": "replace",
    "on_bad_row": "fail",
    "max_document_tokens": 1_000_000,
    "shard_tokens": 16_000_000,
}


class Counts(msgspec.Struct):
    """The size of a split: its numbers of documents, sentences and tokens."""

    documents: int
    sentences: int
    tokens: int


class Vocabulary(msgspec.Struct):
    """The digest and the size of the tokenizer that cut the text."""

    hash: str
    size: int


class Manifest(msgspec.Struct):
    """The manifest of a prepared folder, without fields that are never read."""

    format: int
    fingerprint: str
    text: str  # a digest
    splits: dict[str, Counts]
    tokenizer: Vocabulary


@dataclasses.dataclass(frozen=True)
class Split:
    """The documents, sentences and tokens of a split, as three flat arrays."""

    tokens: np.ndarray  # [T]
    sentence_ends: np.ndarray  # [N], in the tokens
    document_ends: np.ndarray  # [D], in the sentences


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A prepared corpus, opened: its tokenizer, its splits and the counts of its tokens."""

    folder: Path
    manifest: Manifest
    tokenizer: tokenizers.Tokenizer
    splits: Mapping[str, Split]
    unigrams: np.ndarray  # int64 [V], how often each token occurs in train
    fingerprint: str


# --- opening --------------------------------------------------------------------------------------


def open_corpus(folder: Path) -> Prepared:
    """Open a prepared corpus; refuse files that are damaged or do not belong together."""
    manifest = read_manifest(folder)
    tokenizer = tokenizers.load_tokenizer(folder)
    if tokenizer.hash != manifest.tokenizer.hash:
        raise DataError(f"{folder}: tokenizer.json is not the one that the text was cut by", HINT)
    splits = {name: open_split(folder / name, manifest.splits[name]) for name in SPLITS}
    unigrams = open_array(folder / "unigrams.npy", tokenizer.size)
    if unigrams.sum() != manifest.splits["train"].tokens:
        raise DataError(f"{folder}/unigrams.npy does not count the tokens of train", HINT)
    return Prepared(folder, manifest, tokenizer, splits, unigrams, manifest.fingerprint)


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a prepared folder."""
    file = folder / "manifest.json"
    manifest = jsons.read(file, DataError, Manifest, HINT)
    if manifest.format != FORMAT:
        raise DataError(f"{file} has format {manifest.format}, not {FORMAT}", HINT)
    if manifest.splits.keys() != set(SPLITS):
        raise DataError(f"{file} does not count the splits {' and '.join(SPLITS)}", HINT)
    return manifest


def open_split(folder: Path, counts: Counts) -> Split:
    """Memory-map the arrays of a split."""
    return Split(
        open_array(folder / "tokens.npy", counts.tokens),
        open_array(folder / "sentence_ends.npy", counts.sentences),
        open_array(folder / "document_ends.npy", counts.documents),
    )


def open_array(file: Path, length: int) -> np.ndarray:
    """Memory-map an array; refuse a file that is missing, damaged, or of another length."""
    try:
        array = np.load(file, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{file} cannot be read: {error}", HINT) from error
    if array.shape != (length,):
        raise DataError(f"{file} has shape {array.shape}, not ({length},)", HINT)
    return array


# --- names ----------------------------------------------------------------------------------------


def find_cache(settings: knobs.Corpus) -> Path:
    """Return the folder of prepared corpora."""
    folder = opening.expand_home(settings.cache or machine.cache_folder())
    opening.check_local(folder, "the folder of prepared corpora")
    return folder


def find_prepared(settings: knobs.Corpus, fingerprint: str) -> Prepared | None:
    """Return the prepared corpus with a fingerprint, or None if the cache lacks it.

    The files that the corpus was made from need not exist any more.
    """
    folder = find_cache(settings) / fingerprint[:16]
    if not (folder / "manifest.json").is_file():
        return None
    prepared = open_corpus(folder)
    return prepared if prepared.fingerprint == fingerprint else None


def fingerprint_corpus(config: knobs.Config, cache: Path) -> str:
    """Return a sha256 of everything that shapes a corpus: its text, knobs and library versions."""
    settings = dataclasses.asdict(config.corpus)
    for name, knob in table.read_section(knobs.Corpus).items():
        if knob.traits.place or knob.traits.free:
            del settings[name]
    libraries = {name: importlib.metadata.version(name) for name in ("sentencex", "tokenizers")}
    kind = "wordpiece"
    if config.tokenizer.path:
        tokenizer = load_vocabulary(config.tokenizer)
        kind = tokenizer.kind
        vocabulary: Any = tokenizer.hash
    else:
        vocabulary = {"vocab_size": config.tokenizer.vocab_size, "train_characters": TRAINED_ON}
        if config.tokenizer.kind == "bpe":
            kind = vocabulary["kind"] = "bpe"
        else:
            limit = config.tokenizer.max_word_length or WORD_LENGTH
            vocabulary |= {"lowercase": config.tokenizer.lowercase, "max_word_length": limit}
    if kind == "wordpiece":  # so do the fingerprints in committed records
        libraries["unicode"] = unicodedata.unidata_version
    shape = {
        "format": 1,  # as it was when records were committed
        "text": SOURCES[config.corpus.source].identify(config.corpus, cache),
        "corpus": settings | CONSTANTS,
        "tokenizer": vocabulary,
        "libraries": libraries,
    }
    return _digest(shape)


def digest_text(settings: knobs.Corpus, cache: Path) -> str:
    """Return a digest of a corpus's text, before any knob changes how it is divided or encoded."""
    return _digest(SOURCES[settings.source].identify(settings, cache))


def load_vocabulary(settings: knobs.Tokenizer) -> tokenizers.Tokenizer:
    """Load the vocabulary that `tokenizer.path` names."""
    path = opening.expand_home(settings.path)
    return tokenizers.load_tokenizer(path, settings.kind, settings.max_word_length)


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
