"""Prepare a corpus in two passes over its text, each of which can be interrupted.

    read        items -> parts of sentences               (a task is done when its .json is there)
    choose      duplicates and the validation split       (seconds; done again after a kill)
    vocabulary  from a sample of the training documents   (done when its folder is there)
    encode      parts of sentences -> parts of ids        (a file each)
    join        parts of ids -> one array a split         (seconds; done again after a kill)

Everything happens below `<fingerprint>.work`. Each file appears there whole, by a rename, and at
the end the result is renamed to `<fingerprint>`. No step depends on the number of workers or on the
order in which they finish, so every byte of the result is always the same.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tqdm

from bert_jax.config import knobs
from bert_jax.data import audit, encode, sides, spool
from bert_jax.data import corpus as corpora
from bert_jax.data import tokenizer as tokenizers
from bert_jax.data.corpus import SOURCES, SPLITS, Prepared
from bert_jax.data.sentences import Item, split_sentences
from bert_jax.data.vocabulary import train_vocabulary
from bert_jax.data.worker import Workers
from bert_jax.errors import DataError, UserError
from bert_jax.system import disk, folder_locks, machine

STRIPE = 1 << 20  # characters; the vocabulary's sample takes the same share of every stripe
BAD_LINES = 0.5  # share of lines with bad bytes above which a corpus is no text, or not in UTF-8
# Bytes on disk for a byte of text while it is prepared: spool, vocabulary's sample, ids.
ROOM = 4
SAMPLED = 16  # items whose first texts decide whether lines are sentences
TEXTS, LINES = 40, 1000  # texts that are sampled of an item, and lines of a text
ONE_SENTENCE = 0.2  # lines are sentences if at most this share of them splits into several
REPORT = 10  # seconds between two reports of progress that no terminal shows
Log = Callable[[str], None]


def prepare_corpus(config: knobs.Config, log: Log = print) -> Prepared:
    """Return the prepared corpus of a config; prepare it, or go on to, if it is missing."""
    cache = corpora.find_cache(config.corpus)
    try:
        fingerprint = corpora.fingerprint_corpus(config, cache)
        final = cache / fingerprint[:16]
        if not (final / "manifest.json").is_file():
            cache.mkdir(parents=True, exist_ok=True)
            waiting = f"waiting for another process that prepares {final}"
            with folder_locks.wait(final.with_suffix(".lock"), lambda: log(waiting)):
                if not (final / "manifest.json").is_file():
                    _prepare(config, fingerprint, final, log)
    except OSError as error:
        raise _explain(error, config.corpus, cache) from error
    return corpora.open_corpus(final)


def _explain(error: OSError, settings: knobs.Corpus, cache: Path) -> UserError:
    """Return the user's error for an OSError: a full disk, unreadable text or unwritable cache."""
    if disk.is_full(error):
        text = sum(item.weight for item in SOURCES[settings.source].list_items(settings, cache)[0])
        return disk.full(error.filename or cache, ROOM * text, f"preparing {text:,} bytes of text")
    message = f"{error.filename or cache}: {error.strerror or error}"
    if error.filename and not Path(os.fsdecode(error.filename)).is_relative_to(cache):
        return DataError(message, "check --config.corpus.path: may you read all of it?")
    return DataError(message, "set --config.corpus.cache to a folder you may write in")


def _prepare(config: knobs.Config, fingerprint: str, final: Path, log: Log) -> None:
    """Run all steps in the work folder, then move its result to the final folder."""
    begun = time.monotonic()
    settings = config.corpus
    items, notes = SOURCES[settings.source].list_items(settings, final.parent)
    for note in notes:
        log(f"warning: {note}")
    with Workers(settings.workers or machine.cores()) as workers:
        work = _Work(final.with_suffix(".work"), settings, workers, log)
        log(
            f"preparing {settings.source} {settings.path} in {final}: {len(items)} items, "
            f"{workers.count} workers"
        )
        lines, several = has_sentence_lines(items, config)
        read = _read(work, spool.group_items(items), None if lines else settings.language)
        parts = [part for task in read for part in task["parts"]]
        names = [part["name"] for part in parts]
        facts: dict[str, Any] = {
            "lines": sum(task["lines"] for task in read),
            "bad_lines": sum(task["bad_lines"] for task in read),
            "empty_sentences": 0,
            "first_bad": next((task["first_bad"] for task in read if task["first_bad"]), ""),
            "one_sentence_lines": lines,
            "lines_with_several": None if np.isnan(several) else several,
        }
        chosen, starts = _choose(work, names, facts)
        _check_text(settings, facts, chosen)
        tokenizer = _learn_vocabulary(work, config.tokenizer, names, chosen)
        encoded = _encode(work, parts, chosen, starts)
    manifest = {
        "format": corpora.FORMAT,
        "fingerprint": fingerprint,
        "text": corpora.digest_text(settings, final.parent),
        "splits": {split: _join(work, encoded, split, tokenizer.size) for split in SPLITS},
        "tokenizer": {name: getattr(tokenizer, name) for name in ("hash", "size", "lowercase")},
        "corpus": dataclasses.asdict(dataclasses.replace(settings, cache="", workers=0)),
        "tokenizer_settings": dataclasses.asdict(config.tokenizer),
    }
    for part in encoded:
        documents, sentences = _load(part, "empty").tolist()
        facts["empty"] += documents
        facts["empty_sentences"] += sentences
    _finish(work.result, manifest, facts, notes, tokenizer)
    work.result.replace(final)
    shutil.rmtree(work.folder)
    log(f"prepared in {time.monotonic() - begun:.1f} s")


class _Work:
    """The work folder of a corpus that is being prepared, and the workers that fill it."""

    def __init__(self, folder: Path, settings: knobs.Corpus, workers: Workers, log: Log):
        self.folder, self.settings, self.workers, self.log = folder, settings, workers, log
        self.spool = folder / "spool"
        self.encoded = folder / "encoded"
        self.vocabulary = folder / "tokenizer"
        self.result = folder / "result"
        for path in (self.spool, self.encoded, self.result):
            path.mkdir(parents=True, exist_ok=True)
            for draft in path.rglob(".*"):  # what a killed process was writing
                draft.unlink()

    def run(
        self, step: str, function: Callable, calls: dict[int, tuple], weights: list[int], unit: str
    ) -> dict[int, Any]:
        """Run the unfinished calls of a step, and return their results by number.

        Args:
          step: its name.
          function: what is called.
          calls: the arguments of unfinished calls.
          weights: of all calls, finished ones too.
          unit: of the weights.
        """
        results = {}
        numbers = list(calls)
        done = sum(weights) - sum(weights[number] for number in numbers)
        if calls and len(calls) < len(weights):
            self.log(f"{step}: {len(weights) - len(calls)} of {len(weights)} were done before")
        pause = 0.1 if sys.stderr.isatty() else REPORT
        with tqdm.tqdm(
            total=sum(weights),
            initial=done,
            desc=step,
            unit=unit,
            unit_scale=True,
            leave=False,
            delay=pause,
            mininterval=pause,
        ) as bar:
            for index, result in self.workers.run(function, list(calls.values())):
                results[numbers[index]] = result
                bar.update(weights[numbers[index]])
        return results


# --- the steps ------------------------------------------------------------------------------------


def has_sentence_lines(items: list[Item], config: knobs.Config) -> tuple[bool, float]:
    """Tell whether lines are sentences, and the share of lines that split into several.

    The share is measured on evenly spaced items. It is small for lm1b and google's sample text, and
    large for prose in paragraphs. It is NaN if it decides nothing.
    """
    settings = config.corpus
    if settings.sentences != "auto":
        return settings.sentences == "lines", float("nan")
    if config.tokenizer.path and not corpora.load_vocabulary(config.tokenizer).has_words:
        return True, float("nan")  # a splitter for prose would split at any dot
    several = lines = 0
    for item in items[:: max(1, len(items) // SAMPLED)][:SAMPLED]:
        texts = SOURCES[settings.source].read_texts(item, settings)
        for text in itertools.islice(texts, TEXTS):
            for line in text.text.split("\n", LINES)[:LINES]:
                count = len(split_sentences(line, settings.language))
                lines += count > 0
                several += count > 1
    share = several / max(lines, 1)
    return share <= ONE_SENTENCE, share


def _read(work: _Work, tasks: list[list[Item]], language: str | None) -> list[dict[str, Any]]:
    """Read all tasks, and return what was done for each."""
    done = {number: spool.read_done(work.spool, number) for number in range(len(tasks))}
    calls = {
        number: (number, tasks[number], work.settings, language, work.spool)
        for number, result in done.items()
        if result is None
    }
    weights = [sum(item.weight for item in task) for task in tasks]
    done |= work.run("read", spool.read_task, calls, weights, "B")
    return [result for result in done.values() if result is not None]


def _choose(
    work: _Work, names: list[str], facts: dict[str, Any]
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return for each part the sides of its texts and where documents start; count what goes."""
    of_parts = [spool.read_records(work.spool, name) for name in names]
    records = np.concatenate([np.zeros(0, spool.RECORD), *of_parts])
    chosen, starts, counts = sides.choose_sides(records, work.settings)
    facts |= counts
    edges = np.cumsum([len(part) for part in of_parts])[:-1]
    return np.split(chosen, edges), np.split(starts, edges)


def _check_text(settings: knobs.Corpus, facts: dict[str, Any], chosen: list[np.ndarray]) -> None:
    """Refuse a corpus without documents, and one of which a model would learn U+FFFD."""
    if not any((part != sides.DROPPED).any() for part in chosen):
        empty = f"read: {facts['empty']} empty documents" if facts["empty"] else ""
        raise DataError(
            f"no documents in {settings.source} {settings.path}".rstrip(),
            empty or "check config.corpus.path",
        )
    if facts["bad_lines"] > BAD_LINES * facts["lines"]:
        raise DataError(
            f"{facts['bad_lines']:,} of {facts['lines']:,} lines are not UTF-8, "
            f"first {facts['first_bad']}",
            "convert the files, for example: iconv -f LATIN1 -t UTF-8 FILE; files that are no text "
            "must go",
        )


def _learn_vocabulary(
    work: _Work, settings: knobs.Tokenizer, names: list[str], chosen: list[np.ndarray]
) -> tokenizers.Tokenizer:
    """Load the given vocabulary or that of an earlier start, or learn one from training text."""
    if work.vocabulary.is_dir():
        return tokenizers.load(work.vocabulary)
    if settings.path:
        tokenizer = corpora.load_vocabulary(settings)
    else:
        size = settings.vocab_size
        work.log(f"vocabulary: training {size:,} pieces")
        texts = sample_text(corpora.TRAINED_ON, work.spool, names, chosen)
        tokenizer = train_vocabulary(texts, settings, work.folder)
        if tokenizer.size < size:
            work.log(f"warning: the text yields {tokenizer.size:,} pieces, not {size:,}")
    part = work.folder / ".tokenizer"
    tokenizer.save(part)
    part.replace(work.vocabulary)
    return tokenizer


def sample_text(
    limit: int, folder: Path, names: list[str], chosen: list[np.ndarray]
) -> Iterator[str]:
    """Yield training text of at most `limit` characters: all, or the same share of each stripe."""
    total = 0
    for name, part in zip(names, chosen, strict=True):
        characters = spool.read_records(folder, name)["characters"]
        total += int(characters[part == sides.TRAIN].sum())
    window = STRIPE if total <= limit else STRIPE * limit // total
    position = taken = 0
    for name, part in zip(names, chosen, strict=True):
        kept = np.repeat(part == sides.TRAIN, spool.read_records(folder, name)["sentences"])
        for sentence in itertools.compress(spool.read_sentences(folder, name), kept):
            plain = sentence.lstrip(" ")
            if position % STRIPE < window and taken + len(plain) <= limit:
                taken += len(plain)
                yield plain
            position += len(plain)


def _encode(
    work: _Work,
    parts: list[dict[str, Any]],
    chosen: list[np.ndarray],
    starts: list[np.ndarray],
) -> list[Path]:
    """Encode all parts, and return their files."""
    files = [work.encoded / f"{part['name']}.npz" for part in parts]
    calls = {
        i: (work.spool, parts[i]["name"], chosen[i], starts[i], work.vocabulary, file)
        for i, file in enumerate(files)
        if not file.is_file()
    }
    work.run("encode", encode.encode_part, calls, [part["characters"] for part in parts], "char")
    encode.load_words.cache_clear()  # with one worker, it was this process
    return files


def _join(work: _Work, encoded: list[Path], split: str, size: int) -> dict[str, int]:
    """Write the arrays of a split from its parts, and return their lengths."""
    folder = work.result / split
    folder.mkdir(exist_ok=True)
    sentences = [_load(file, f"{split}_sentences") for file in encoded]  # tokens of each
    documents = [_load(file, f"{split}_documents") for file in encoded]  # sentences of each
    counts = {
        "tokens": sum(int(part.sum()) for part in sentences),
        "sentences": sum(map(len, sentences)),
        "documents": sum(map(len, documents)),
    }
    kind = np.uint16 if size <= 1 << 16 else np.uint32
    tokens = (_load(file, f"{split}_tokens").astype(kind) for file in encoded)
    write_array(folder / "tokens.npy", kind, counts["tokens"], tokens)
    write_array(folder / "sentence_ends.npy", np.int64, counts["sentences"], _accumulate(sentences))
    write_array(folder / "document_ends.npy", np.int64, counts["documents"], _accumulate(documents))
    return counts


def _load(file: Path, name: str) -> np.ndarray:
    """Return an array of a part of ids."""
    with np.load(file, allow_pickle=False) as arrays:
        return arrays[name]


def _accumulate(parts: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
    """Yield the cumulative sum of arrays that follow one another."""
    total = 0
    for part in parts:
        yield total + np.cumsum(part, dtype=np.int64)
        total += int(part.sum())


def write_array(path: Path, kind: Any, length: int, parts: Iterable[np.ndarray]) -> None:
    """Write arrays that follow one another as one .npy file of a known length."""
    header = {
        "descr": np.lib.format.dtype_to_descr(np.dtype(kind)),
        "fortran_order": False,
        "shape": (length,),
    }
    with disk.replacing(path) as file:
        np.lib.format.write_array_header_1_0(file, header)
        for part in parts:
            file.write(part.tobytes())


def _finish(
    result: Path,
    manifest: dict[str, Any],
    facts: dict[str, Any],
    notes: list[str],
    tokenizer: tokenizers.Tokenizer,
) -> None:
    """Write the tokenizer, the counts of tokens and the audit; write the manifest last."""
    tokenizer.save(result)
    unigrams = {}
    for name in SPLITS:
        split = corpora.open_split(result / name, manifest["splits"][name])
        unigrams[name] = audit.count_tokens(split, tokenizer.size)
        unknown = int(unigrams[name][tokenizer.special.unk])
        facts[name] = audit.describe_split(split, unknown)
    counts = unigrams["train"]
    write_array(result / "unigrams.npy", np.int64, len(counts), [counts])
    facts |= {
        "source": manifest["corpus"]["source"],
        "fingerprint": manifest["fingerprint"],
        "validation_fraction": manifest["corpus"]["validation_fraction"],
        "vocab_size": tokenizer.size,
        "unigram_entropy": audit.measure_entropy(counts),
    }
    facts["warnings"] = notes + audit.find_problems(facts)
    for name, value in (("audit.json", facts), ("manifest.json", manifest)):
        disk.write(result / name, json.dumps(value, indent=1, sort_keys=True) + "\n")
