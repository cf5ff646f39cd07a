"""Contestants for the work around the updates of a run: preparing a corpus, saving a checkpoint."""

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
from bert_jax.checkpoints.saving import Checkpoints
from bert_jax.config import knobs, recorded
from bert_jax.data import corpus, prepare, sides, spool

SLICE = 10_000  # sentences in a call of `encode_batch`


# --- preparing ------------------------------------------------------------------------------------


def preparing(config: dict[str, Any]) -> Ready:
    """Prepare a corpus whose vocabulary exists already."""
    resolved, prepared = ours.corpus_of(config)
    folder = Path(tempfile.mkdtemp(prefix="bert_jax_benchmark_"))
    known = dataclasses.replace(
        resolved.tokenizer, path=str(prepared.folder), kind="auto", max_word_length=None
    )
    empty = dataclasses.replace(resolved.corpus, cache=str(folder / "cache"))
    uncached = dataclasses.replace(resolved, tokenizer=known, corpus=empty)

    def call() -> None:
        prepare.prepare_corpus(uncached, log=ours.say)

    def forget() -> None:
        shutil.rmtree(folder)

    return Ready(call, _tokens(prepared), "tokens", {}, forget)


def encoding(config: dict[str, Any], alone: bool) -> Ready:
    """Encode the same sentences, in memory, by `encode_batch` of tokenizers in one process.

    First, its ids are compared with the prepared ones.

    Args:
      config: resolved.
      alone: whether to use one thread.
    """
    if alone:
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
    resolved, prepared = ours.corpus_of(config)
    saved = json.loads((prepared.folder / "tokenizer.json").read_text())
    # Without added tokens, a literal [MASK] is text, as in a corpus.
    plain = saved | {"added_tokens": [], "post_processor": None}
    engine = tokenizers.Tokenizer.from_str(json.dumps(plain))
    texts = list(_sentences(resolved))
    for side, name in enumerate(corpus.SPLITS):
        lists = [engine.encode(text).ids for own, text in texts if own == side]
        ids = np.fromiter(itertools.chain.from_iterable(lists), int)
        assert np.array_equal(ids, prepared.splits[name].tokens), f"other ids of {name}"
    sentences = [text for _, text in texts]

    def call() -> None:
        for start in range(0, len(sentences), SLICE):
            for encoded in engine.encode_batch(sentences[start : start + SLICE]):
                encoded.ids  # noqa: B018  # the list is made at this access

    return Ready(call, _tokens(prepared), "tokens", {"tokenizers": tokenizers.__version__})


def _tokens(prepared: corpus.Prepared) -> int:
    return sum(counts["tokens"] for counts in prepared.manifest["splits"].values())


def _sentences(config: knobs.Config) -> Iterator[tuple[int, str]]:
    """Yield every kept sentence with its side, as `prepare` has them before it tokenizes."""
    settings = config.corpus
    items, _ = corpus.SOURCES[settings.source].list_items(settings, corpus.find_cache(settings))
    lines, _ = prepare.has_sentence_lines(items, config)
    language = None if lines else settings.language
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        done = spool.read_task(0, items, settings, language, folder)
        names = [part["name"] for part in done["parts"]]
        records = np.concatenate([spool.read_records(folder, name) for name in names])
        chosen, _, _ = sides.choose_sides(records, settings)
        side = np.repeat(chosen, records["sentences"]).tolist()
        texts = itertools.chain.from_iterable(spool.read_sentences(folder, n) for n in names)
        for own, text in zip(side, texts, strict=True):
            if own != sides.DROPPED:
                yield own, text.lstrip(" ")


# --- saving ---------------------------------------------------------------------------------------


def saving(config: dict[str, Any], save: bool = True, whole: bool = False) -> Ready:
    """Save and start the next update: the time that a save holds up the training thread.

    The update donates the state, so it cannot start before the save has copied the state.

    Args:
      config: resolved.
      save: whether to save; else only the update is started.
      whole: whether to wait until the save is verified on disk, and start no update.
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
