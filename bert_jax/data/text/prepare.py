"""Raw text becomes tokenised, checksummed shards, resumable at every step.

    read        items -> spool volumes of sentences      (a task is done when its .json is there)
    mark        duplicates and the validation split      (seconds; done again after an interruption)
    vocabulary  from a sample of the training documents  (a folder)
    encode      volumes -> parts                         (a folder each)
    pack        parts -> shards                          (a folder each)

Everything happens below `<fingerprint>.work`, which becomes `<fingerprint>` at the end. No step depends on the number
of workers or on what finished first, so neither does a byte of the result.
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
from bert_jax.errors import DataError, UserError
from bert_jax.system import disk, fault_points, jsons, opening

FREE = (
    "path",
    "tfds_dir",
    "cache",
    "workers",
)  # corpus knobs that do not shape the result by themselves
STRIPE = 1 << 20  # characters; the vocabulary's sample takes the same share of every stripe
BAD_LINES = 0.5  # share of lines with bytes that are no text from which a corpus is in another encoding, or no text
ROOM = 4  # bytes on disk for one of text, while it is prepared: the spool, the vocabulary's sample, ids of 4 bytes
BAD_ROWS = 0.01  # share of malformed rows that on_bad_row=skip accepts
Log = Callable[[str], None]


def prepare(config: knobs.Config, log: Log = print) -> shards.Prepared:
    """The prepared corpus of a config: found, continued or made."""
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
        raise _blame(error, config.corpus, cache) from error
    return shards.open(final)


def _blame(error: OSError, settings: knobs.Corpus, cache: Path) -> UserError:
    """Return what an error of the disk means: no room, text that cannot be read, or a cache that cannot be written."""
    if disk.is_full(error):
        text = sum(item.weight for item in corpus.SOURCES[settings.source].items(settings)[0])
        return disk.full(error.filename or cache, ROOM * text, f"preparing {text:,} bytes of text")
    said = f"{error.filename or cache}: {error.strerror or error}"
    if error.filename and not Path(os.fsdecode(error.filename)).is_relative_to(cache):
        return DataError(said, "check --config.corpus.path: may you read all of it?")
    return DataError(said, "set --config.corpus.cache to a folder you may write in")


def cache_folder(settings: knobs.Corpus) -> Path:
    """Where prepared corpora live."""
    given = settings.cache or os.environ.get("BERT_JAX_DATA") or "~/.cache/bert_jax"
    opening.local(given, "the folder of prepared corpora")
    return Path(given).expanduser()


def fingerprint(config: knobs.Config, cache: Path) -> str:
    """sha256 of everything that shapes the result: the text, the knobs, the libraries that cut it."""
    settings = {k: v for k, v in dataclasses.asdict(config.corpus).items() if k not in FREE}
    libraries = {name: importlib.metadata.version(name) for name in ("sentencex", "tokenizers")}
    if config.tokenizer.path:
        given = given_tokenizer(config.tokenizer)
        vocabulary: Any = given.hash
        characters = given.style.characters
    else:
        learned = ("vocab_size", "lowercase", "train_characters")
        vocabulary = {name: getattr(config.tokenizer, name) for name in learned}
        vocabulary["max_word_length"] = config.tokenizer.max_word_length or tokenizers.WORD_LENGTH
        characters = (
            "google" if config.tokenizer.characters == "auto" else config.tokenizer.characters
        )
    if characters == "google":
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
    """Return a digest of the text alone, whatever is made of it."""
    return _digest(corpus.SOURCES[settings.source].identity(settings, cache))


def kept(settings: knobs.Corpus, mark: str) -> shards.Prepared | None:
    """Return the prepared corpus of a fingerprint where it is still there, whatever became of its text."""
    folder = cache_folder(settings) / mark[:16]
    found = shards.open(folder) if (folder / "manifest.json").is_file() else None
    return found if found and found.fingerprint == mark else None


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def given_tokenizer(settings: knobs.Tokenizer) -> tokenizers.Tokenizer:
    """The vocabulary that `tokenizer.path` names."""
    path = Path(settings.path).expanduser()
    return tokenizers.load(
        path,
        kind=settings.kind,
        max_word_length=settings.max_word_length,
        characters=settings.characters,
    )


def _make(config: knobs.Config, mark: str, final: Path, log: Log) -> None:
    """All steps, in the work folder."""
    work = final.with_suffix(".work")
    spool, parts, result = (work / name for name in ("spool", "parts", "result"))
    for folder in (spool, parts, result):
        folder.mkdir(parents=True, exist_ok=True)
        _drop_unfinished(folder)
    settings = config.corpus
    source = corpus.SOURCES[settings.source]
    items, notes = source.items(settings)
    for note in notes:
        log(f"warning: {note}")
    begun = time.monotonic()
    with pool.Pool(settings.workers or pool.cores()) as workers:
        if (
            config.tokenizer.path
            and settings.sentences == "auto"
            and not given_tokenizer(config.tokenizer).has_words
        ):
            settings = dataclasses.replace(
                settings, sentences="lines"
            )  # a splitter of prose would cut at any dot
        lines, several = corpus.one_sentence_lines(items, settings)
        log(
            f"preparing {settings.source} {settings.path} in {final}: {len(items)} items, {workers.workers} workers"
        )
        read = _read(workers, corpus.tasks(items), settings, lines, spool, log)
        volumes = [volume for task in read for volume in task["volumes"]]
        names = [volume["name"] for volume in volumes]
        counts: Counter = Counter()
        for task in read:
            counts.update(task["counts"])
        first = {kind: where for task in read[::-1] for kind, where in task["first"].items()}
        _check_rows(counts, first)
        marks, found = (
            dedup.marks(spool, names, settings, source.near is not None) if names else ([], {})
        )
        counts.update(found)
        if not any((mark & 3).any() for mark in marks):
            raise DataError(
                f"no documents in {settings.source} {settings.path}".rstrip(), _why_none(counts)
            )
        _check_text(counts, first)
        tokenizer = _vocabulary(config.tokenizer, spool, names, marks, work / "tokenizer", log)
        encoded = _encode(workers, volumes, marks, settings, spool, work / "tokenizer", parts, log)
        manifest = {
            "format": shards.FORMAT,
            "fingerprint": mark,
            "text": text_digest(config.corpus, final.parent),
            "splits": _pack(workers, encoded, settings, parts, result, tokenizer.size, log),
            "tokenizer": {
                "hash": tokenizer.hash,
                "size": tokenizer.size,
                "lowercase": tokenizer.lowercase,
            },
            "corpus": {
                k: v
                for k, v in dataclasses.asdict(settings).items()
                if k not in ("cache", "workers")
            },
            "tokenizer_settings": dataclasses.asdict(config.tokenizer),
        }
    for part in encoded:
        for side in shards.SPLITS:
            counts.update(
                {
                    k: part[side][k]
                    for k in ("cut_documents", "cut_sentences", "empty_sentences", "empty")
                }
            )
    counts["documents"] = counts.pop("records")
    facts: dict[str, Any] = dict(counts) | {
        "first": first,
        "one_sentence_lines": lines,
        "notes": notes,
    }
    facts["lines_with_several"] = None if several != several else several
    _finish(manifest, facts, tokenizer, result)
    _drop_unfinished(result)
    result.replace(final)
    shutil.rmtree(work)
    log(f"prepared in {time.monotonic() - begun:.1f} s")


def _drop_unfinished(folder: Path) -> None:
    """Removes what a killed process was writing: names that begin with a dot."""
    for path in folder.glob(".*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


# --- the steps ------------------------------------------------------------------------------------------------------


def _read(
    workers: pool.Pool,
    tasks: list[list[corpus.Item]],
    settings: knobs.Corpus,
    lines: bool,
    spool: Path,
    log: Log,
) -> list[dict[str, Any]]:
    done = [corpus.finished(spool, i) for i in range(len(tasks))]
    todo = [i for i, result in enumerate(done) if result is None]
    weights = [sum(item.weight for item in task) for task in tasks]
    with pool.progress("read", weights, todo, "B", log) as advance:
        calls = [(i, tasks[i], settings, lines, spool) for i in todo]
        for at, result in workers.map("bert_jax.data.corpus:extract", calls):
            done[todo[at]] = result
            advance(todo[at])
            fault_points.point("prepare_read", todo[at])
    return [result for result in done if result is not None]


def _check_rows(counts: Counter, first: dict[str, str]) -> None:
    bad, rows = counts["bad_rows"], counts["rows"]
    if bad > BAD_ROWS * rows:
        hint = f"config.corpus.on_bad_row=skip accepts {BAD_ROWS:.0%}; is config.corpus.text_field right?"
        raise DataError(f"{bad} of {rows} rows are malformed, first {first['bad_rows']}", hint)


def _check_text(counts: Counter, first: dict[str, str]) -> None:
    """Refuse a corpus that is mostly not UTF-8, of which a model would learn replacement characters."""
    bad, lines = counts["bad_lines"], counts["lines"]
    if bad > BAD_LINES * lines:
        where = (
            f", first {first['bad_text']}" if "bad_text" in first else ": replacement characters"
        )
        hint = "convert the files, for example: iconv -f LATIN1 -t UTF-8 FILE; files that are no text must go"
        raise DataError(f"{bad:,} of {lines:,} lines are not UTF-8{where}", hint)


def _why_none(counts: Counter) -> str:
    kinds = ("empty", "bad_documents", "bad_rows")
    seen = ", ".join(f"{counts[kind]} {kind.replace('_', ' ')}" for kind in kinds if counts[kind])
    return f"read: {seen}" if seen else "check config.corpus.path"


def _vocabulary(
    settings: knobs.Tokenizer,
    spool: Path,
    names: list[str],
    marks: list[np.ndarray],
    folder: Path,
    log: Log,
) -> tokenizers.Tokenizer:
    """Given, found from an earlier start, or trained on the training documents."""
    if folder.is_dir():
        return tokenizers.load(folder)
    if settings.path:
        tokenizer = given_tokenizer(settings)
    else:
        log(f"vocabulary: training {settings.vocab_size:,} pieces")
        tokenizer = tokenizers.train(
            _sample(settings.train_characters, spool, names, marks), settings, folder.parent
        )
        if tokenizer.size < settings.vocab_size:
            log(f"warning: the text yields {tokenizer.size:,} pieces, not {settings.vocab_size:,}")
    part = folder.with_name(".tokenizer")
    tokenizer.save(part)
    part.replace(folder)
    return tokenizer


def _sample(limit: int, spool: Path, names: list[str], marks: list[np.ndarray]) -> Iterator[str]:
    """Training text, at most `limit` characters: all of it, or the first share of every stripe."""
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
    workers: pool.Pool,
    volumes: list[dict[str, Any]],
    marks: list[np.ndarray],
    settings: knobs.Corpus,
    spool: Path,
    tokenizer: Path,
    parts: Path,
    log: Log,
) -> list[dict[str, Any]]:
    limit = min(settings.max_document_tokens, settings.shard_tokens)  # a document must fit a shard
    names = [volume["name"] for volume in volumes]
    todo = [i for i, name in enumerate(names) if not (parts / name / "part.json").is_file()]
    with pool.progress(
        "encode", [volume["characters"] for volume in volumes], todo, "char", log
    ) as advance:
        calls = [(spool, names[i], marks[i], tokenizer, limit, parts) for i in todo]
        for at, _ in workers.map("bert_jax.data.text.encode:encode", calls):
            advance(todo[at])
            fault_points.point("prepare_encode", todo[at])
    encode.known_words.cache_clear()  # of this process, where it was the only worker
    return [jsons.read(parts / name / "part.json", DataError, hint=shards.HINT) for name in names]


def _pack(
    workers: pool.Pool,
    encoded: list[dict],
    settings: knobs.Corpus,
    parts: Path,
    result: Path,
    size: int,
    log: Log,
) -> dict[str, list[dict]]:
    planned: list[tuple[str, str, list[encode.Slice]]] = []  # side, shard, slices
    for side in shards.SPLITS:
        tokens = sum(part[side]["tokens"] for part in encoded)
        folders = [str(parts / part["name"] / side) for part in encoded]
        slices = encode.plan(folders, tokens, settings.shard_tokens)
        planned += [(side, f"{side}-{i:05d}", shard) for i, shard in enumerate(slices)]
    todo = [i for i, (_, name, _) in enumerate(planned) if not (result / name).is_dir()]
    with pool.progress("pack", [1] * len(planned), todo, "shard", log) as advance:
        calls = [(result, planned[i][1], planned[i][2], size <= 1 << 16) for i in todo]
        for at, _ in workers.map("bert_jax.data.text.encode:pack", calls):
            advance(todo[at])
            fault_points.point("prepare_pack", todo[at])
    splits: dict[str, list[dict]] = {side: [] for side in shards.SPLITS}
    for side, name, _ in planned:
        splits[side].append(
            jsons.read(result / name / "shard.json", DataError, shards.ENTRY, hint=shards.HINT)
        )
    return splits


def _finish(
    manifest: dict[str, Any], facts: dict[str, Any], tokenizer: tokenizers.Tokenizer, result: Path
) -> None:
    """Counts what was written; the manifest comes last."""
    tokenizer.save(result)
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
    names = ("audit.json", *tokenizers.FILES, "unigrams.npy")
    manifest["files"] = {
        name: {"bytes": (result / name).stat().st_size, "sha256": shards.sha256(result / name)}
        for name in names
    }
    shards.write_json(result / "manifest.json", manifest)
