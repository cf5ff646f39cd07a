"""What surrounds the updates of a run: its text is prepared before them, its state is saved between them."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import tokenizers

from bert_jax.benchmarks import ours
from bert_jax.benchmarks.worker import Ready
from bert_jax.checkpoints.manager import Checkpoints
from bert_jax.config import knobs, recorded
from bert_jax.data import corpus
from bert_jax.data.text import dedup, encode, prepare, shards

SLICE = 10_000  # sentences given to `encode_batch` at once


# --- preparing ------------------------------------------------------------------------------------


def preparing(config: dict[str, Any]) -> Ready:
    """All that `prepare` does for a corpus of which only the vocabulary is there."""
    resolved, prepared = ours.corpus_of(config)
    folder = Path(tempfile.mkdtemp(prefix="bert_jax_benchmark_"))
    known = dataclasses.replace(
        resolved.tokenizer, path=str(prepared.folder), kind="auto", max_word_length=None
    )
    anew = dataclasses.replace(
        resolved,
        tokenizer=known,
        corpus=dataclasses.replace(resolved.corpus, cache=str(folder / "cache")),
    )

    def call() -> None:
        prepare.prepare(anew, log=ours.say)

    def forget() -> None:
        shutil.rmtree(folder)

    return Ready(call, _tokens(prepared), "tokens", {}, forget)


def encoding(config: dict[str, Any], alone: bool) -> Ready:
    """The same sentences, in memory, through `encode_batch` in one process; `alone`: in one thread of it.

    Before that, its ids are compared with those that were prepared.
    """
    if alone:
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
    resolved, prepared = ours.corpus_of(config)
    saved = json.loads(
        (prepared.folder / "tokenizer.json").read_text()
    )  # a literal [MASK] is text here
    engine = tokenizers.Tokenizer.from_str(
        json.dumps(saved | {"added_tokens": [], "post_processor": None})
    )
    texts = list(_sentences(resolved.corpus))
    for side, name in encode.SIDES.items():
        found = [engine.encode(text).ids for mark, text in texts if mark & 3 == side]
        wanted = np.concatenate(
            [np.zeros(0, int), *(shard.tokens for shard in prepared.splits[name])]
        )
        assert np.array_equal(np.fromiter(itertools.chain.from_iterable(found), int), wanted), (
            f"other ids of {name}"
        )
    sentences = [text for _, text in texts]

    def call() -> None:
        for start in range(0, len(sentences), SLICE):
            for one in engine.encode_batch(sentences[start : start + SLICE]):
                one.ids  # noqa: B018  # a list is made of them when they are asked for

    return Ready(call, _tokens(prepared), "tokens", {"tokenizers": tokenizers.__version__})


def _tokens(prepared: shards.Prepared) -> int:
    return sum(
        entry["tokens"] for side in shards.SPLITS for entry in prepared.manifest["splits"][side]
    )


def _sentences(settings: knobs.Corpus) -> Iterator[tuple[int, str]]:
    """Every sentence that is kept, with its mark, as `prepare` has them before it tokenises."""
    source = corpus.SOURCES[settings.source]
    items, _ = source.items(settings)
    lines, _ = corpus.one_sentence_lines(items, settings)
    with tempfile.TemporaryDirectory() as folder:
        spool = Path(folder)
        done = [
            corpus.extract(i, task, settings, lines, spool)
            for i, task in enumerate(corpus.tasks(items))
        ]
        names = [volume["name"] for one in done for volume in one["volumes"]]
        marks, _ = dedup.marks(spool, names, settings, source.near is not None)
        for name, mark in zip(names, marks, strict=True):
            yield from encode.sentences(spool, name, mark)


# --- saving ---------------------------------------------------------------------------------------


def saving(config: dict[str, Any], save: bool = True, whole: bool = False) -> Ready:
    """How long the thread that trains is held up by a save: until the next update, which donates, is under way.

    Args:
      config: resolved.
      save: else the next update alone.
      whole: the save until it is verified on disk, and no update.
    """
    resolved = recorded(config)
    trainer = ours.Trainer(resolved, ours.SPECIAL, resolved.tokenizer.vocab_size)
    batch = trainer.place(ours.rows(resolved))
    folder = Path(tempfile.mkdtemp(prefix="bert_jax_benchmark_"))
    checkpoints = Checkpoints(folder / "checkpoints", keep=1, keep_best=False)
    count = itertools.count(1)

    def call() -> None:
        if save:
            checkpoints.save(next(count), trainer.state, {})
        if whole:
            checkpoints.wait()
        else:
            trainer.begin(batch)

    def settle() -> None:
        trainer.wait()
        checkpoints.wait()
        shutil.rmtree(folder, ignore_errors=True)

    trainer.begin(batch)
    trainer.wait()
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(trainer.state))
    return Ready(call, size, "bytes", {"state_bytes": size}, settle)
