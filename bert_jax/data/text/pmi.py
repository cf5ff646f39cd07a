"""Collocations of the training text, for the unit `pmi` (PMI-Masking, Levine et al., 2021, arXiv 2010.01825).

A collocation is an n-gram of words that occurs more often than its parts would by chance, however it is cut:

    PMI(w1..wn) = min over its segmentations of  log p(w1..wn) / prod p(segment)

Those above a count are ranked for each n apart, and the best are taken: half of them pairs, a quarter threes and so
on, as many as it takes for a share of the text to lie in one. The paper's list has 800,000, which hold half of its
text; the lists its authors published go by a score that counts frequency twice, and are not used here. The text is
streamed, in as many passes as memory asks for. No step depends on anything but the training shards and the settings,
so neither does the list, which is kept beside the shards.
"""

from __future__ import annotations

import contextlib
import os
import sys
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bert_jax.config import knobs
from bert_jax.data.batches import order
from bert_jax.data.text import pool
from bert_jax.data.text.ngrams import Hashes, grams, word_hashes
from bert_jax.data.text.shards import Prepared, Shard

VERSION = 1  # of the construction: raise it when a list would come out different
HELD = 1 << 25  # hashes of a pass over the text that are in memory at once
BLOCK = 1 << 21  # tokens read at once, or one document
SAMPLE = 1 << 24  # words the share of the text is measured on, at most
_DRAW = 0x504D49  # keeps the hashes that choose documents apart from others


class Block(NamedTuple):
    """Some documents."""

    tokens: np.ndarray  # [T]
    begins: np.ndarray  # [W], where each word begins
    words: np.ndarray  # uint64 [W]
    text: np.ndarray  # [W], the same number for neighbours that an n-gram may hold


class Search:
    """Counts, scores and ranks."""

    def __init__(self, prepared: Prepared, settings: knobs.Masking):
        self.shards: Sequence[Shard] = prepared.splits["train"]
        self.tokenizer, self.most, self.often = (
            prepared.tokenizer,
            settings.pmi_words,
            settings.pmi_count,
        )
        self.coverage = settings.pmi_coverage
        tokens = sum(len(shard.tokens) for shard in self.shards)
        self.share = min(1.0, settings.pmi_tokens / max(tokens, 1))
        self.passes = -(-min(tokens, settings.pmi_tokens) // HELD)
        self.counts: list[np.ndarray] = []  # of the n-grams that occur often, at n - 1
        self.found: list[Hashes] = []
        self.log_p: list[np.ndarray] = []

    def run(self) -> tuple[Hashes, list[str]]:
        """The collocations, and a list to read: tab-separated, the best first."""
        for n in range(1, self.most + 1):
            self._count(n)
        whole = [self.log_p[0]]  # the likeliest segmentation of each, itself being one
        scores, places = [], []
        for n in range(2, self.most + 1):
            cut, where = self._cut(n, whole)
            scores.append(
                np.round(self.log_p[n - 1] - cut, 9)
            )  # a logarithm's last bit differs between machines
            whole.append(np.maximum(self.log_p[n - 1], cut))
            places.append(where)
        keys = [self._keys(n, score) for n, score in enumerate(scores, 2)]
        limit = self._limit(keys)
        taken = [np.flatnonzero(key <= limit) for key in keys]
        hashes = [self.found[n].sorted[rows] for n, rows in enumerate(taken, 1)]
        return Hashes(np.sort(np.concatenate(hashes))), self._lines(taken, keys, scores, places)

    def blocks(self) -> Iterator[Block]:
        """The text that is counted: all documents, or a share of them, drawn by their numbers."""
        for number, shard in enumerate(self.shards):
            ends = np.asarray(shard.sentence_ends)[np.asarray(shard.document_ends) - 1].astype(
                np.int64
            )
            starts = np.concatenate([[0], ends[:-1]])
            draw = order.mix(
                np.arange(len(ends), dtype=np.uint64) ^ np.uint64(order.key(_DRAW, number))
            )
            chosen = np.flatnonzero((draw >> 11) * 2.0**-53 < self.share)
            sizes = (ends - starts)[chosen]
            groups = (np.cumsum(sizes) - sizes) // BLOCK
            for group in np.unique(groups).tolist():
                documents = chosen[groups == group]
                parts = [shard.tokens[starts[one] : ends[one]] for one in documents.tolist()]
                yield self._block(np.concatenate(parts), np.cumsum([0, *map(len, parts[:-1])]))

    def _block(self, tokens: np.ndarray, documents: np.ndarray) -> Block:
        first = np.zeros(len(tokens), bool)
        first[documents] = True
        begins = np.flatnonzero(~self.tokenizer.continuation[tokens] | first)
        unknown = (
            np.add.reduceat(tokens == self.tokenizer.special.unk, begins, dtype=np.int64) > 0
        )  # in no n-gram
        edge = first[begins] | unknown
        edge[1:] |= unknown[:-1]
        return Block(tokens, begins, word_hashes(tokens, begins), np.cumsum(edge))

    def _count(self, n: int) -> None:
        """The n-grams that occur often enough; whatever holds one that does not cannot."""
        total, kept, counts = 0, [], []
        for number in range(self.passes):
            held = []
            for block in self.blocks():
                *shorter, (_, hashes, inside) = grams(block.words, block.text, n)
                total += int(inside.sum()) if number == 0 else 0
                wanted = inside & (hashes % np.uint64(self.passes) == number)
                if shorter:
                    parts = self.found[n - 2].find(shorter[-1][1]) >= 0
                    wanted &= parts[:-1] & parts[1:]
                held.append(hashes[wanted])
            found, times = np.unique(
                np.concatenate([np.zeros(0, np.uint64), *held]), return_counts=True
            )
            kept.append(found[times > self.often])
            counts.append(times[times > self.often])
        hashes = np.concatenate([np.zeros(0, np.uint64), *kept])
        inorder = np.argsort(hashes)
        self.found.append(Hashes(hashes[inorder]))
        self.counts.append(np.concatenate([np.zeros(0, np.int64), *counts])[inorder])
        self.log_p.append(np.log(self.counts[-1] / max(total, 1)))

    def _cut(self, n: int, whole: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """The log-probability of the likeliest way to cut each n-gram, and where it occurs: block and word."""
        cut = np.full(len(self.counts[n - 1]), np.nan)
        where = np.zeros((len(cut), 2), np.int64)
        for number, block in enumerate(self.blocks()):
            levels = list(grams(block.words, block.text, n))
            _, hashes, inside = levels[-1]
            at = np.where(inside, self.found[n - 1].find(hashes), -1)
            fresh = np.flatnonzero(at >= 0)
            fresh = fresh[np.isnan(cut[at[fresh]])]
            at, first = np.unique(at[fresh], return_index=True)
            rows = fresh[first]
            best = np.full(len(at), -np.inf)
            for k in range(1, n):  # the first part has k words
                front = self.found[k - 1].find(levels[k - 1][1][rows])
                back = self.found[n - k - 1].find(levels[n - k - 1][1][rows + k])
                best = np.maximum(best, self.log_p[k - 1][front] + whole[n - k - 1][back])
            cut[at], where[at, 0], where[at, 1] = best, number, rows
        return cut, where

    def _keys(self, n: int, scores: np.ndarray) -> np.ndarray:
        """How long the list is when each is taken: of those of n words a share of it has room, the best first."""
        share = 2.0 ** -(n - 1 if n < self.most else n - 2) if self.most > 2 else 1.0
        keys = np.empty(len(scores))
        keys[np.lexsort((self.found[n - 1].sorted, -scores))] = (
            np.arange(1, len(scores) + 1) / share
        )
        return np.where(scores > 0, keys, np.inf)  # the rest occurs as often as chance has it

    def _limit(self, keys: list[np.ndarray]) -> float:
        """How long the list must be for so many words to lie in one of its entries."""
        least = []
        every = max(1, sum(len(shard.tokens) for shard in self.shards) // SAMPLE)
        for number, block in enumerate(self.blocks()):
            if number % every:
                continue
            covered = np.full(len(block.words), np.inf)
            for n, hashes, inside in grams(block.words, block.text, self.most):
                if n == 1 or not len(keys[n - 2]):
                    continue
                at = self.found[n - 1].find(hashes)
                here = np.where(inside & (at >= 0), keys[n - 2][at], np.inf)
                for place in range(n):
                    one = covered[place : place + len(here)]
                    np.minimum(one, here, out=one)
            least.append(covered)
        words = np.concatenate([np.zeros(0), *least])
        wanted = int(np.ceil(self.coverage * len(words)))
        if not wanted:
            return 0.0
        limit = float(np.partition(words, wanted - 1)[wanted - 1])
        return (
            limit if np.isfinite(limit) else sys.float_info.max
        )  # the text has no more: all of them

    def _lines(
        self,
        taken: list[np.ndarray],
        keys: list[np.ndarray],
        scores: list[np.ndarray],
        places: list[np.ndarray],
    ) -> list[str]:
        entries = sorted(
            (int(places[n][row, 0]), int(places[n][row, 1]), n, row)
            for n, rows in enumerate(taken)
            for row in rows.tolist()
        )
        lines: list[tuple[float, str]] = []
        at = 0
        for number, block in enumerate(self.blocks()):
            bounds = np.append(block.begins, len(block.tokens))
            while at < len(entries) and entries[at][0] == number:
                _, word, n, row = entries[at]
                pieces = [
                    self.tokenizer.vocab[i]
                    for i in block.tokens[bounds[word] : bounds[word + n + 2]].tolist()
                ]
                text = " ".join(pieces).replace(" ##", "")
                line = f"{text}\t{n + 2}\t{self.counts[n + 1][row]}\t{scores[n][row]:.3f}\n"
                lines.append((float(keys[n][row]), line))
                at += 1
        return ["collocation\twords\tcount\tpmi\n", *(line for _, line in sorted(lines))]


def name(settings: knobs.Masking) -> str:
    """Of the list of these settings."""
    knobs_of_it = (
        settings.pmi_words,
        settings.pmi_count,
        settings.pmi_coverage,
        settings.pmi_tokens,
    )
    return "-".join(["pmi", str(VERSION), *(f"{value:g}" for value in knobs_of_it)])


def _log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def collocations(
    prepared: Prepared, settings: knobs.Masking, log: Callable[[str], None] = _log
) -> Hashes:
    """The collocations of a prepared corpus: found beside its shards, or made and put there with a list to read."""
    folder = prepared.folder / "collocations"
    file = folder / f"{name(settings)}.npz"
    if (found := _read(file)) is not None:
        return found
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(
            OSError
        ):  # a corpus prepared by somebody else: each process makes its own list
            folder.mkdir(exist_ok=True)
            stack.enter_context(pool.lock(file.with_suffix(".lock"), log))
            if (found := _read(file)) is not None:
                return found
        log(f"looking for collocations in {prepared.folder}")
        made, lines = Search(prepared, settings).run()
        log(f"{len(made.sorted):,} collocations of up to {settings.pmi_words} words")
        try:
            _write(
                file.with_suffix(".tsv"),
                lambda path: path.write_text("".join(lines), encoding="utf-8"),
            )
            _write(file, lambda path: np.savez(path, hashes=made.sorted))
        except OSError as error:
            log(f"warning: the list is not kept, and will be made again: {error}")
    return made


def _write(file: Path, write: Callable[[Path], object]) -> None:
    """A file that is there whole or not at all."""
    part = file.with_name(f".{os.getpid()}{file.suffix}")
    write(part)
    part.replace(file)


def _read(file: Path) -> Hashes | None:
    try:
        with np.load(file, allow_pickle=False) as arrays:  # its checksum is looked at
            return Hashes(arrays["hashes"])
    except (
        OSError,
        ValueError,
        KeyError,
        EOFError,
        zipfile.BadZipFile,
    ):  # none yet, or a damaged one: made anew
        return None
