"""Prepare a corpus: raw text to tokenised, checksummed shards, resumable at every step.

    read        items -> spool volumes of sentences      (a task is done when its .json is there)
    mark        duplicates and the validation split      (seconds; done again after an interruption)
    vocabulary  from a sample of the training documents  (done when its folder is there)
    encode      volumes -> parts                         (a folder each)
    pack        parts -> shards                          (a folder each)

Everything happens below `<fingerprint>.work`, which is renamed `<fingerprint>` at the end. No step
depends on the number of workers or on the order in which they finish, so every byte of the result
is always the same.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.metadata
import json
import os
import shutil
import time
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.config import knobs
from bert_jax.data import corpus
from bert_jax.data import tokenizer as tokenizers
from bert_jax.data.text import audit, dedup, encode, pool, shards
from bert_jax.data.vocabulary import train_vocabulary
from bert_jax.errors import DataError, UserError
from bert_jax.system import disk, fault_points, jsons, machine, opening

# Corpus knobs that do not affect the result by themselves.
FREE = ("path", "tfds_dir", "revision", "cache", "workers")
STRIPE = 1 << 20  # characters; the vocabulary's sample takes the same share of every stripe
BAD_LINES = 0.5  # share of lines with bad bytes above which a corpus is no text, or not in UTF-8
# Bytes on disk for a byte of text while it is prepared: spool, vocabulary's sample, 4-byte ids.
ROOM = 4
BAD_ROWS = 0.01  # share of malformed rows that on_bad_row=skip accepts
Log = Callable[[str], None]


def prepare(config: knobs.Config, log: Log = print) -> shards.Prepared:
    """Return the prepared corpus of a config; prepare it, or continue to, where it is missing."""
    cache = cache_folder(config.corpus)
    try:
        mark = fingerprint(config, cache)
        final = cache / mark[:16]
        if not (final / "manifest.json").is_file():
            cache.mkdir(parents=True, exist_ok=True)
            with pool.lock(final.with_suffix(".lock"), log):
                if not (final / "manifest.json").is_file():
                    _make(config, mark, final, log)
    except OSError as error:
        raise _user_error(error, config.corpus, cache) from error
    return shards.open(final)


def _user_error(error: OSError, settings: knobs.Corpus, cache: Path) -> UserError:
    """Return the user's error for an OSError: a full disk, unreadable text or unwritable cache."""
    if disk.is_full(error):
        text = sum(item.weight for item in corpus.SOURCES[settings.source].items(settings)[0])
        return disk.full(error.filename or cache, ROOM * text, f"preparing {text:,} bytes of text")
    message = f"{error.filename or cache}: {error.strerror or error}"
    if error.filename and not Path(os.fsdecode(error.filename)).is_relative_to(cache):
        return DataError(message, "check --config.corpus.path: may you read all of it?")
    return DataError(message, "set --config.corpus.cache to a folder you may write in")


def cache_folder(settings: knobs.Corpus) -> Path:
    """Return the folder of prepared corpora."""
    folder = settings.cache or os.environ.get("BERT_JAX_DATA") or "~/.cache/bert_jax"
    opening.local(folder, "the folder of prepared corpora")
    return Path(folder).expanduser()


def fingerprint(config: knobs.Config, cache: Path) -> str:
    """Return a sha256 of everything that shapes the result: text, knobs and library versions."""
    settings = {k: v for k, v in dataclasses.asdict(config.corpus).items() if k not in FREE}
    libraries = {name: importlib.metadata.version(name) for name in ("sentencex", "tokenizers")}
    if config.tokenizer.path:
        tokenizer = given_tokenizer(config.tokenizer)
        vocabulary: Any = tokenizer.hash
        kind = tokenizer.kind
    elif config.tokenizer.kind == "bpe":
        learned = ("kind", "vocab_size", "train_characters")
        vocabulary = {name: getattr(config.tokenizer, name) for name in learned}
        kind = "bpe"
    else:
        learned = ("vocab_size", "lowercase", "train_characters")
        vocabulary = {name: getattr(config.tokenizer, name) for name in learned}
        vocabulary["max_word_length"] = config.tokenizer.max_word_length or tokenizers.WORD_LENGTH
        kind = "wordpiece"
    if kind == "wordpiece":  # so do the fingerprints in committed records
        libraries["unicode"] = unicodedata.unidata_version
    shape = {
        "format": shards.FORMAT,
        "text": corpus.SOURCES[config.corpus.source].identity(config.corpus, cache),
        "corpus": settings,
        "tokenizer": vocabulary,
        "libraries": libraries,
    }
    return _digest(shape)


def text_digest(settings: knobs.Corpus, cache: Path) -> str:
    """Return a digest of the text alone."""
    return _digest(corpus.SOURCES[settings.source].identity(settings, cache))


def kept_text(settings: knobs.Corpus, mark: str) -> shards.Prepared | None:
    """Return the corpus with a fingerprint if it is in the cache, even where its text is gone."""
    folder = cache_folder(settings) / mark[:16]
    prepared = shards.open(folder) if (folder / "manifest.json").is_file() else None
    return prepared if prepared and prepared.fingerprint == mark else None


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def given_tokenizer(settings: knobs.Tokenizer) -> tokenizers.Tokenizer:
    """Load the vocabulary that `tokenizer.path` names."""
    path = Path(settings.path).expanduser()
    length = None if settings.kind == "bpe" else settings.max_word_length  # a preset's for words
    return tokenizers.load(path, settings.kind, length)


def _make(config: knobs.Config, mark: str, final: Path, log: Log) -> None:
    """Run all steps in the work folder, then move its result to the final folder."""
    settings = config.corpus
    if (
        config.tokenizer.path
        and settings.sentences == "auto"
        and not given_tokenizer(config.tokenizer).has_words
    ):  # a sentence splitter for prose would split at any dot
        settings = dataclasses.replace(settings, sentences="lines")
    items, notes = corpus.SOURCES[settings.source].items(settings)
    for note in notes:
        log(f"warning: {note}")
    begun = time.monotonic()
    with pool.Pool(settings.workers or machine.cores()) as workers:
        work = _Work(final.with_suffix(".work"), settings, workers, log)
        log(
            f"preparing {settings.source} {settings.path} in {final}: {len(items)} items, "
            f"{workers.workers} workers"
        )
        lines, several = corpus.one_sentence_lines(items, settings)
        read = _read(work, corpus.tasks(items), lines)
        volumes = [volume for task in read for volume in task["volumes"]]
        names = [volume["name"] for volume in volumes]
        counts: Counter = Counter()
        for task in read:
            counts.update(task["counts"])
        first = {kind: where for task in read[::-1] for kind, where in task["first"].items()}
        marks = _mark(work, names, counts, first)
        tokenizer = _vocabulary(work, config.tokenizer, names, marks)
        encoded = _encode(work, volumes, marks)
        knobs_of_corpus = dataclasses.asdict(settings)
        manifest = {
            "format": shards.FORMAT,
            "fingerprint": mark,
            "text": text_digest(config.corpus, final.parent),
            "splits": _pack(work, encoded, tokenizer.size),
            "tokenizer": {name: getattr(tokenizer, name) for name in ("hash", "size", "lowercase")},
            "corpus": {k: v for k, v in knobs_of_corpus.items() if k not in ("cache", "workers")},
            "tokenizer_settings": dataclasses.asdict(config.tokenizer),
        }
    for part in encoded:
        for side in shards.SPLITS:
            counts.update({name: part[side][name] for name in encode.LOST})
    counts["documents"] = counts.pop("records")
    facts: dict[str, Any] = dict(counts) | {
        "first": first,
        "one_sentence_lines": lines,
        "lines_with_several": None if np.isnan(several) else several,
        "notes": notes,
    }
    _finish(manifest, facts, tokenizer, work.result)
    _drop_unfinished(work.result)
    work.result.replace(final)
    shutil.rmtree(work.folder)
    log(f"prepared in {time.monotonic() - begun:.1f} s")


class _Work:
    """The work folder of a corpus that is being prepared, and the workers that fill it."""

    def __init__(self, folder: Path, settings: knobs.Corpus, workers: pool.Pool, log: Log):
        self.folder, self.settings, self.workers, self.log = folder, settings, workers, log
        self.spool, self.parts, self.result = folder / "spool", folder / "parts", folder / "result"
        self.tokenizer = folder / "tokenizer"
        for path in (self.spool, self.parts, self.result):
            path.mkdir(parents=True, exist_ok=True)
            _drop_unfinished(path)

    def run(
        self, step: str, function: str, calls: dict[int, tuple], weights: list[int], unit: str
    ) -> dict[int, Any]:
        """Run the unfinished calls of a step and return their results by index.

        `calls` has the arguments of "module:function" for each; `weights` are those of all calls of
        the step, finished ones too. The fault point after each call is `prepare_<step>`.
        """
        todo = list(calls)
        results = {}
        with pool.progress(step, weights, todo, unit, self.log) as advance:
            for i, result in self.workers.map(function, list(calls.values())):
                results[todo[i]] = result
                advance(todo[i])
                fault_points.point(f"prepare_{step}", todo[i])
        return results


def _drop_unfinished(folder: Path) -> None:
    """Remove what a killed process was writing: names that begin with a dot."""
    for path in folder.glob(".*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


# --- the steps ------------------------------------------------------------------------------------


def _read(work: _Work, tasks: list[list[corpus.Item]], lines: bool) -> list[dict[str, Any]]:
    done = {i: corpus.finished(work.spool, i) for i in range(len(tasks))}
    calls = {
        i: (i, tasks[i], work.settings, lines, work.spool)
        for i, result in done.items()
        if result is None
    }
    weights = [sum(item.weight for item in task) for task in tasks]
    done |= work.run("read", "bert_jax.data.corpus:extract", calls, weights, "B")
    return [result for result in done.values() if result is not None]


def _mark(
    work: _Work, names: list[str], counts: Counter, first: dict[str, str]
) -> list[np.ndarray]:
    """Return the marks of the records of each volume, and count what was dropped.

    Refuse a corpus with too many malformed rows, without documents, or that is mostly not UTF-8, of
    which a model would learn replacement characters.
    """
    settings = work.settings
    bad, rows = counts["bad_rows"], counts["rows"]
    if bad > BAD_ROWS * rows:
        raise DataError(
            f"{bad} of {rows} rows are malformed, first {first['bad_rows']}",
            f"config.corpus.on_bad_row=skip accepts {BAD_ROWS:.0%}; "
            "is config.corpus.text_field right?",
        )
    marks: list[np.ndarray] = []
    if names:
        marks, dropped = dedup.marks(work.spool, names, settings)
        counts.update(dropped)
    if not any((mark & 3).any() for mark in marks):
        kinds = [kind for kind in ("empty", "bad_documents", "bad_rows") if counts[kind]]
        seen = ", ".join(f"{counts[kind]} {kind.replace('_', ' ')}" for kind in kinds)
        raise DataError(
            f"no documents in {settings.source} {settings.path}".rstrip(),
            f"read: {seen}" if seen else "check config.corpus.path",
        )
    bad, lines = counts["bad_lines"], counts["lines"]
    if bad > BAD_LINES * lines:
        where = (
            f", first {first['bad_text']}" if "bad_text" in first else ": replacement characters"
        )
        raise DataError(
            f"{bad:,} of {lines:,} lines are not UTF-8{where}",
            "convert the files, for example: iconv -f LATIN1 -t UTF-8 FILE; files that are no text "
            "must go",
        )
    return marks


def _vocabulary(
    work: _Work, settings: knobs.Tokenizer, names: list[str], marks: list[np.ndarray]
) -> tokenizers.Tokenizer:
    """Load the given vocabulary or that of an earlier start, or learn one from training text."""
    if work.tokenizer.is_dir():
        return tokenizers.load(work.tokenizer)
    if settings.path:
        tokenizer = given_tokenizer(settings)
    else:
        size = settings.vocab_size
        work.log(f"vocabulary: training {size:,} pieces")
        texts = _sample(settings.train_characters, work.spool, names, marks)
        tokenizer = train_vocabulary(texts, settings, work.folder)
        if tokenizer.size < size:
            work.log(f"warning: the text yields {tokenizer.size:,} pieces, not {size:,}")
    part = work.tokenizer.with_name(".tokenizer")
    tokenizer.save(part)
    part.replace(work.tokenizer)
    return tokenizer


def _sample(limit: int, spool: Path, names: list[str], marks: list[np.ndarray]) -> Iterator[str]:
    """Yield training text of at most `limit` characters: all, or the same share of each stripe."""
    total = sum(
        int(corpus.records(spool, name)["characters"][(mark & 3) == dedup.TRAIN].sum())
        for name, mark in zip(names, marks, strict=True)
    )
    window = STRIPE if total <= limit else STRIPE * limit // total
    position = taken = 0
    for name, mark in zip(names, marks, strict=True):
        for _, sentence in encode.sentences(spool, name, mark, dedup.TRAIN):
            if position % STRIPE < window and taken + len(sentence) <= limit:
                taken += len(sentence)
                yield sentence
            position += len(sentence)


def _encode(
    work: _Work, volumes: list[dict[str, Any]], marks: list[np.ndarray]
) -> list[dict[str, Any]]:
    # A document must fit a shard.
    limit = min(work.settings.max_document_tokens, work.settings.shard_tokens)
    files = [work.parts / volume["name"] / "part.json" for volume in volumes]
    calls = {
        i: (work.spool, volumes[i]["name"], marks[i], work.tokenizer, limit, work.parts)
        for i, file in enumerate(files)
        if not file.is_file()
    }
    weights = [volume["characters"] for volume in volumes]
    work.run("encode", "bert_jax.data.text.encode:encode", calls, weights, "char")
    encode.known_words.cache_clear()  # with one worker, it was this process
    return [jsons.read(file, DataError, hint=shards.HINT) for file in files]


def _pack(work: _Work, encoded: list[dict], size: int) -> dict[str, list[dict]]:
    planned: list[tuple[str, str, list[encode.Slice]]] = []  # side, shard, slices
    for side in shards.SPLITS:
        tokens = sum(part[side]["tokens"] for part in encoded)
        folders = [str(work.parts / part["name"] / side) for part in encoded]
        slices = encode.plan(folders, tokens, work.settings.shard_tokens)
        planned += [(side, f"{side}-{i:05d}", shard) for i, shard in enumerate(slices)]
    calls = {
        i: (work.result, name, slices, size <= 1 << 16)
        for i, (_, name, slices) in enumerate(planned)
        if not (work.result / name).is_dir()
    }
    work.run("pack", "bert_jax.data.text.encode:pack", calls, [1] * len(planned), "shard")
    splits: dict[str, list[dict]] = {side: [] for side in shards.SPLITS}
    for side, name, _ in planned:
        file = work.result / name / "shard.json"
        splits[side].append(jsons.read(file, DataError, shards.ENTRY, hint=shards.HINT))
    return splits


def _finish(
    manifest: dict[str, Any], facts: dict[str, Any], tokenizer: tokenizers.Tokenizer, result: Path
) -> None:
    """Write the tokenizer, counts of the shards and the audit; write the manifest last."""
    files = tokenizer.save(result)
    counts = {}
    for side in shards.SPLITS:
        entries = manifest["splits"][side]
        opened = shards.Mapped(result, entries)
        counts[side] = audit.unigrams(opened, tokenizer.size)
        totals = {
            key: sum(entry[key] for entry in entries)
            for key in ("documents", "sentences", "tokens")
        }
        unknown = int(counts[side][tokenizer.special.unk]) / max(1, totals["tokens"])
        facts[side] = (
            totals | audit.lengths(opened) | {"shards": len(entries), "unknown_share": unknown}
        )
    np.save(result / "unigrams.npy", counts["train"])
    facts |= {
        "source": manifest["corpus"]["source"],
        "fingerprint": manifest["fingerprint"],
        "validation_fraction": manifest["corpus"]["validation_fraction"],
        "vocab_size": tokenizer.size,
        "unigram_entropy": audit.entropy(counts["train"]),
    }
    facts["warnings"] = facts.pop("notes") + audit.warnings(facts)
    shards.write_json(result / "audit.json", facts)
    names = ("audit.json", *files, "unigrams.npy")
    manifest["files"] = {
        name: {"bytes": (result / name).stat().st_size, "sha256": shards.sha256(result / name)}
        for name in names
    }
    shards.write_json(result / "manifest.json", manifest)
