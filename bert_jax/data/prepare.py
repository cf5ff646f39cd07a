"""Prepare a corpus in two passes over its text, each of which can be interrupted.

    read        items -> sentences in parts               (a task is done when its .json is there)
    choose      duplicates and the validation split       (seconds; done again after a kill)
    vocabulary  from a sample of the training documents   (done when its folder is there)
    encode      sentences -> ids, part by part            (a file each)
    join        parts of ids -> one array a split         (seconds; done again after a kill)

All files are written below `<fingerprint>.work`. Each file appears there complete, by a rename. At
the end the result is renamed to `<fingerprint>`. No step depends on the number of workers or on the
order in which they finish, so every byte of the result is always the same.
"""

import collections
import itertools
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tqdm

from bert_jax.config import knobs
from bert_jax.data import audit, encode
from bert_jax.data import corpus as corpora
from bert_jax.data import tokenizer as tokenizers
from bert_jax.data.corpus import SOURCES, SPLITS, Prepared
from bert_jax.data.sentences import Item, split_sentences
from bert_jax.data.vocabulary import train_vocabulary
from bert_jax.data.workers import run_calls
from bert_jax.errors import DataError, need
from bert_jax.system import disk, folder_locks, jsons, machine
from bert_jax.system.counts import format_count

TASK = 8 << 20  # bytes of small items that one call reads
STRIPE = 1 << 20  # characters; the vocabulary's sample takes the same share of every stripe
BAD_LINES = 0.5  # share of lines with bad bytes above which a corpus is no text, or not in UTF-8
SAMPLED = 16  # items whose first texts decide whether lines are sentences
TEXTS, LINES = 40, 1000  # texts that are sampled of an item, and lines of a text
ONE_SENTENCE = 0.2  # lines are sentences if at most this share of them splits into several
LANGUAGE = re.compile(r"[a-z]{2,3}(-[a-z]+)*")
COUNTS = ("documents", "sentences", "tokens")  # of a split, in the manifest
DROPPED, TRAIN, VALIDATION = -1, 0, 1  # sides of a text: the latter two are indices of SPLITS
Log = Callable[[str], None]


def prepare_corpus(config: knobs.Config, log: Log = print) -> Prepared:
    """Return the prepared corpus of a config; prepare it first if the cache lacks it.

    A preparation that was interrupted continues.
    """
    cache = corpora.find_cache(config.corpus)
    try:
        fingerprint = corpora.fingerprint_corpus(config, cache)
        final = cache / fingerprint[:16]
        work = final.with_suffix(".work")
        is_prepared = (final / "manifest.json").is_file
        if not is_prepared() or os.access(work, os.W_OK):
            cache.mkdir(parents=True, exist_ok=True)
            waiting = f"waiting for another process that prepares {final}"
            with folder_locks.wait_for_lock(final.with_suffix(".lock"), lambda: log(waiting)):
                if not is_prepared():
                    _prepare(config, fingerprint, final, log)
                shutil.rmtree(work, ignore_errors=True)  # also what a kill at this line left
    except OSError as error:
        if disk.is_full(error):
            raise disk.make_full_error(error.filename or cache) from error
        raise DataError(
            f"{error.filename or cache}: {error.strerror or error}",
            "may you read all of --config.corpus.path, and write in --config.corpus.cache?",
        ) from error
    return corpora.open_corpus(final)


def _prepare(config: knobs.Config, fingerprint: str, final: Path, log: Log) -> None:
    """Run all steps in the work folder, then rename the result to the folder `final`."""
    begun = time.monotonic()
    settings = config.corpus
    said = f"config.corpus.language = {settings.language!r} is no code of a language"
    hint = "such as en, de or pt-br; sentencex splits languages that it does not know as English"
    need(LANGUAGE.fullmatch(settings.language) is not None, said, hint)
    items, notes = SOURCES[settings.source].list_items(settings, final.parent)
    processes = settings.workers or machine.count_cores()
    work = _Work(final.with_suffix(".work"), processes, log)
    for note in notes:  # of files that are skipped, before hours of work on the others
        log(f"warning: {note}")
    amount = f"{format_count(len(items), 'item')}, {format_count(processes, 'worker')}"
    log(f"preparing {settings.source} {settings.path} in {final}: {amount}")
    facts, names = _read(work, items, config)
    of_parts = [encode.read_records(work.spool, name) for name in names]
    records = np.concatenate([np.zeros(0, encode.RECORD), *of_parts])
    sides, starts, counts = choose_sides(records, settings)
    facts |= counts
    _check_text(settings, facts, sides)
    edges = np.cumsum([len(part) for part in of_parts])[:-1]
    parts = dict(zip(names, np.split(sides, edges), strict=True))
    tokenizer = _learn_vocabulary(work, config.tokenizer, parts)
    files = _encode(work, parts, np.split(starts, edges))
    tokenizer.save(work.result)
    joined = {split: _join(work.result, files, split, tokenizer) for split in SPLITS}
    manifest = {
        "format": corpora.FORMAT,
        "fingerprint": fingerprint,
        "text": corpora.digest_text(settings, final.parent),
        "splits": {name: {key: facts[key] for key in COUNTS} for name, facts in joined.items()},
        "tokenizer": {name: getattr(tokenizer, name) for name in ("hash", "size", "lowercase")},
    }
    empty = np.array([_load(file, "empty") for file in files]).sum(axis=0).tolist()
    facts["empty"] += empty[0]
    facts |= joined | {
        "empty_sentences": empty[1],
        "source": settings.source,
        "fingerprint": fingerprint,
        "validation_fraction": settings.validation_fraction,
        "vocab_size": tokenizer.size,
        "unigram_entropy": audit.measure_entropy(np.load(work.result / "unigrams.npy")),
    }
    facts["warnings"] = audit.find_problems(facts, "none")  # a run warns of its own pairs
    for name, value in (("audit.json", facts), ("manifest.json", manifest)):
        disk.write(work.result / name, json.dumps(value, indent=1, sort_keys=True) + "\n")
    if corpora.fingerprint_corpus(config, final.parent) != fingerprint:
        shutil.rmtree(work.folder)  # parts of both texts
        raise DataError("the text changed while it was prepared", "run the same command again")
    work.result.replace(final)
    log(f"prepared in {time.monotonic() - begun:.1f} s")


class _Work:
    """The work folder of a corpus that is being prepared; `run` makes its missing files."""

    def __init__(self, folder: Path, processes: int, log: Log):
        self.folder = folder
        self.processes = processes
        self.log = log
        self.spool = folder / "spool"
        self.encoded = folder / "encoded"
        self.result = folder / "result"
        for path in (self.spool, self.encoded, self.result):
            path.mkdir(parents=True, exist_ok=True)
            for draft in path.rglob(".*"):  # what a killed process was writing
                draft.unlink()

    def run(self, function: Callable, calls: dict[Path, tuple]) -> None:
        """Call a function for each file that does not exist yet, and show a progress bar.

        `calls` maps each file to the arguments of the call that makes the file.
        """
        name = function.__name__.partition("_")[0]
        missing = [call for file, call in calls.items() if not file.is_file()]
        done = len(calls) - len(missing)
        if missing and done:
            self.log(f"{name}: {done} of {len(calls)} were done before")
        pause = 0.1 if sys.stderr.isatty() else 10.0  # seconds between two reports
        results = run_calls(self.processes, function, missing)
        options: dict[str, Any] = {"leave": False, "delay": pause, "mininterval": pause}
        with tqdm.tqdm(results, name, len(calls), initial=done, **options) as bar:
            collections.deque(bar, maxlen=0)


# --- read -----------------------------------------------------------------------------------------


def _read(work: _Work, items: list[Item], config: knobs.Config) -> tuple[dict[str, Any], list[str]]:
    """Split all items into sentences, and write these in parts; return counts and part names."""
    lines, several = has_sentence_lines(items, config)
    language = None if lines else config.corpus.language
    calls = {
        work.spool / f"{number:05d}.json": (number, task, config.corpus, language, work.spool)
        for number, task in enumerate(group_items(items))
    }
    work.run(encode.read_into_parts, calls)
    tasks = [jsons.read(file, DataError, dict) for file in calls]
    facts = {
        "lines": sum(task["lines"] for task in tasks),
        "bad_lines": sum(task["bad_lines"] for task in tasks),
        "first_bad": next((task["first_bad"] for task in tasks if task["first_bad"]), ""),
        "one_sentence_lines": lines,
        "lines_with_several": several,
    }
    return facts, [name for task in tasks for name in task["parts"]]


def group_items(items: list[Item]) -> list[list[Item]]:
    """Group consecutive items into tasks that read about TASK bytes each."""
    groups: list[list[Item]] = []
    size = TASK
    for item in items:
        if size >= TASK:
            groups.append([])
            size = 0
        groups[-1].append(item)
        size += item.weight
    return groups


def has_sentence_lines(items: list[Item], config: knobs.Config) -> tuple[bool, float | None]:
    """Return whether each line of the text is a sentence, and the share of lines that are not.

    The share counts the lines that split into several sentences, on evenly spaced items. The share
    is small for lm1b and google's sample text, and large for prose in paragraphs. The share is None
    if a knob or the vocabulary decides, so that nothing is measured.
    """
    settings = config.corpus
    if settings.sentences != "auto":
        return settings.sentences == "lines", None
    if config.tokenizer.path and not corpora.load_vocabulary(config.tokenizer).has_words:
        return True, None  # a splitter for prose would split at any dot
    counts = []
    for item in items[:: max(1, len(items) // SAMPLED)][:SAMPLED]:
        texts = SOURCES[settings.source].read_texts(item, settings)
        for text in itertools.islice(texts, TEXTS):
            lines = tokenizers.replace_surrogates(text.text).split("\n", LINES)[:LINES]
            counts += [len(split_sentences(line, settings.language)) for line in lines]
    share = sum(count > 1 for count in counts) / max(1, sum(count > 0 for count in counts))
    return share <= ONE_SENTENCE, share


# --- choose ---------------------------------------------------------------------------------------


def choose_sides(
    records: np.ndarray, settings: knobs.Corpus
) -> tuple[np.ndarray, np.ndarray, dict[str, int]]:
    """Drop copies of texts, and divide the documents into train and validation by their digests.

    Args:
      records: the `encode.RECORD` of each text [R].
      settings: whether to drop copies, and the share of documents for validation.

    Returns:
      The side of each text [R]; whether each text is the first of its document that is kept [R];
      and counts of dropped texts.
    """
    kept = np.flatnonzero(records["sentences"] > 0)
    counts = {"documents": len(records), "empty": len(records) - len(kept), "duplicates": 0}
    if settings.deduplicate:
        first = np.sort(np.unique(records["digest"][kept], return_index=True)[1])
        counts["duplicates"] = len(kept) - len(first)
        kept = kept[first]
    # [R], the text with which the document of each text begins. It decides the side, even if it is
    # dropped itself.
    opening = np.maximum.accumulate(np.where(records["starts"], np.arange(len(records)), 0))
    digests = records["digest"][opening[kept]]
    sides = np.full(len(records), DROPPED, np.int8)
    sides[kept] = np.where(_hold_out(digests, settings.validation_fraction), VALIDATION, TRAIN)
    starts = np.zeros(len(records), bool)
    starts[kept] = np.diff(opening[kept], prepend=-1) != 0
    return sides, starts, counts


def _hold_out(digests: np.ndarray, fraction: float) -> np.ndarray:
    """Tell for each document whether it is for validation, bool [N].

    These are the documents with the lowest digests. If there are two digests or more, neither side
    is empty. No document is marked if the fraction is 0, or if all documents have the same digest.
    """
    limit = int(fraction * 2**64)
    if limit == 0 or not len(digests) or digests.min() == digests.max():
        return np.zeros(len(digests), bool)
    # The lowest digest is always held out, and the highest never is.
    limit = min(max(limit, int(digests.min()) + 1), int(digests.max()))
    return digests < np.uint64(limit)


def _check_text(settings: knobs.Corpus, facts: dict[str, Any], sides: np.ndarray) -> None:
    """Refuse a corpus without documents, and a corpus with many lines that are not UTF-8."""
    if (sides == DROPPED).all():
        name = f"{settings.source} {settings.path}".rstrip()
        hint = f"check config.corpus.path; read: {facts['empty']} empty documents"
        raise DataError(f"no documents in {name}", hint)
    if facts["bad_lines"] > BAD_LINES * facts["lines"]:
        raise DataError(
            f"{facts['bad_lines']:,} of {facts['lines']:,} lines are not UTF-8, "
            f"first in the document at {facts['first_bad']}",
            "convert the files, for example: iconv -f LATIN1 -t UTF-8 FILE; files that are no text "
            "must go",
        )


# --- vocabulary -----------------------------------------------------------------------------------


def _learn_vocabulary(
    work: _Work, settings: knobs.Tokenizer, parts: dict[str, np.ndarray]
) -> tokenizers.Tokenizer:
    """Return the vocabulary: a given one, one of an earlier attempt, or one trained on the text."""
    folder = work.folder / "tokenizer"
    if folder.is_dir():
        return tokenizers.load_tokenizer(folder)
    if settings.path:
        tokenizer = corpora.load_vocabulary(settings)
    else:
        size = settings.vocab_size
        work.log(f"vocabulary: training {size:,} pieces")
        texts = sample_text(corpora.TRAINED_ON, work.spool, parts)
        tokenizer = train_vocabulary(texts, settings, work.folder)
        if tokenizer.size < size:
            work.log(f"warning: the text yields {tokenizer.size:,} pieces, not {size:,}")
    draft = work.folder / ".tokenizer"
    tokenizer.save(draft)
    draft.replace(folder)
    return tokenizer


def sample_text(limit: int, spool: Path, parts: dict[str, np.ndarray]) -> Iterator[str]:
    """Yield sentences of the training text, of at most `limit` characters in all.

    If there is more text, the same share of each stripe of STRIPE characters is taken. `parts` maps
    the name of each part of the corpus to the sides of its texts: train, validation or dropped.
    """
    records = {name: encode.read_records(spool, name) for name in parts}
    total = sum(int(records[n]["characters"][sides == TRAIN].sum()) for n, sides in parts.items())
    window = STRIPE if total <= limit else STRIPE * limit // total
    position = taken = 0
    for name, sides in parts.items():
        kept = np.repeat(sides == TRAIN, records[name]["sentences"])
        for sentence in itertools.compress(encode.read_sentences(spool, name), kept):
            plain = sentence.lstrip(" ")
            if position % STRIPE < window and taken + len(plain) <= limit:
                taken += len(plain)
                yield plain
            position += len(plain)


def _encode(work: _Work, parts: dict[str, np.ndarray], starts: list[np.ndarray]) -> list[Path]:
    """Encode the sentences of all parts of the corpus, a file of ids each; return the files."""
    calls = {}
    for (name, sides), begins in zip(parts.items(), starts, strict=True):
        file = work.encoded / f"{name}.npz"
        calls[file] = (work.spool, name, sides, begins, work.folder / "tokenizer", file)
    work.run(encode.encode_part, calls)
    encode.load_words.cache_clear()  # with one worker, it was this process
    return list(calls)


# --- join -----------------------------------------------------------------------------------------


def _join(
    result: Path, encoded: list[Path], split: str, tokenizer: tokenizers.Tokenizer
) -> dict[str, Any]:
    """Write the arrays of a split from the files of ids; return {name: number} for the audit."""
    folder = result / split
    folder.mkdir(exist_ok=True)
    kind = np.uint16 if tokenizer.size <= 1 << 16 else np.uint32
    sentences = [_load(file, f"{split}_sentences") for file in encoded]  # tokens of each
    documents = [_load(file, f"{split}_documents") for file in encoded]  # sentences of each
    facts: dict[str, Any] = {
        "tokens": sum(int(part.sum()) for part in sentences),
        "sentences": sum(map(len, sentences)),
        "documents": sum(map(len, documents)),
        "one_sentence_documents": sum(int((part == 1).sum()) for part in documents),
        "repeated_tokens": sum(int(_load(file, f"{split}_repeated")) for file in encoded),
    }
    unigrams = np.zeros(tokenizer.size, np.int64)

    def count_tokens() -> Iterator[np.ndarray]:
        for file in encoded:
            part: Any = _load(file, f"{split}_tokens").astype(kind)
            np.add(unigrams, np.bincount(part, minlength=len(unigrams)), out=unigrams)
            yield part

    write_array(folder / "tokens.npy", kind, facts["tokens"], count_tokens())
    write_array(folder / "sentence_ends.npy", np.int64, facts["sentences"], _accumulate(sentences))
    write_array(folder / "document_ends.npy", np.int64, facts["documents"], _accumulate(documents))
    if split == "train":
        write_array(result / "unigrams.npy", np.int64, len(unigrams), [unigrams])
    unknown = int(unigrams[tokenizer.special.unk])
    return facts | {"unknown_share": unknown / max(1, facts["tokens"])}


def _accumulate(parts: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
    """Yield the cumulative sum over arrays that follow one another, an array at a time."""
    total = 0
    for part in parts:
        yield total + np.cumsum(part, dtype=np.int64)
        total += int(part.sum())


def _load(file: Path, name: str) -> np.ndarray:
    """Read one array from a file of ids."""
    with np.load(file, allow_pickle=False) as arrays:
        return arrays[name]


def write_array(path: Path, kind: Any, length: int, parts: Iterable[np.ndarray]) -> None:
    """Write several arrays one after the other as one .npy file, whose length is known."""
    descr = np.lib.format.dtype_to_descr(np.dtype(kind))
    header = {"descr": descr, "fortran_order": False, "shape": (length,)}
    with disk.replace_file(path) as file:
        np.lib.format.write_array_header_1_0(file, header)
        for part in parts:
            file.write(part.tobytes())
