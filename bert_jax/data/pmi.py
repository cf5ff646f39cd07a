"""Find the collocations of the training text, for the masking unit `pmi`.

This is PMI-Masking (Levine et al., 2021, arXiv 2010.01825). A collocation is an n-gram of words
that occurs more often than its parts would by chance, however it is segmented:

    PMI(w1..wn) = min over its segmentations of  log p(w1..wn) / prod p(segment)

N-grams above a count are ranked separately for each n, and the best are taken: half of them pairs,
a quarter triples and so on. As many are taken as are needed for a share of the text to lie in
collocations. The paper's list has 800,000, which cover half of its text. The lists that its authors
published use a score that counts frequency twice, and are not used here. N-grams are compared by
64-bit hashes. The text is streamed, in as many passes as memory requires. The list depends only on
the training text and the settings. The list is stored in the folder of the corpus.
"""

import contextlib
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bert_jax.config import knobs
from bert_jax.data import hashing
from bert_jax.data.corpus import Prepared
from bert_jax.data.ngrams import Hashes, hash_ngrams, word_hashes
from bert_jax.system import disk, folder_locks
from bert_jax.system.log import log_line

VERSION = 2  # of the construction: raise it when a list would come out different
HELD = 1 << 25  # hashes of a pass over the text that are in memory at once
SEARCHED = 500_000_000  # tokens of text in which collocations are counted, at most
OFTEN = 10  # a collocation occurs more often than this
BLOCK = 1 << 21  # tokens read at once, or one document
SAMPLE = 1 << 24  # most words on which the covered share of the text is measured
_DRAW = 0x504D49  # seed of the draw of documents, distinct from other uses of hashing.make_key


class Block(NamedTuple):
    """The words of consecutive documents, as hashes."""

    words: np.ndarray  # uint64 [W], hash of each word
    text: np.ndarray  # [W], equal for words that may lie in one n-gram


class Search:
    """The search for collocations: it counts, scores and ranks n-grams."""

    def __init__(self, prepared: Prepared, settings: knobs.Masking):
        self.split = prepared.splits["train"]
        self.tokenizer = prepared.tokenizer
        self.most = settings.pmi_words
        self.coverage = settings.pmi_coverage
        tokens = len(self.split.tokens)
        self.share = min(1.0, SEARCHED / max(tokens, 1))
        self.passes = -(-min(tokens, SEARCHED) // HELD)
        # Of the frequent n-grams, at n - 1: their hashes, and their log-probabilities.
        self.frequent: list[Hashes] = []
        self.log_p: list[np.ndarray] = []

    def run(self) -> Hashes:
        """Count, score and rank n-grams, and return the hashes of the collocations."""
        for n in range(1, self.most + 1):
            self._count(n)
        whole = [self.log_p[0]]  # log-probability of the likeliest segmentation, also in one part
        keys = []
        for n in range(2, self.most + 1):
            cut = self._segment(n, whole)
            # The last bit of a logarithm differs between machines.
            keys.append(self._rank(n, np.round(self.log_p[n - 1] - cut, 9)))
            whole.append(np.maximum(self.log_p[n - 1], cut))
        limit = self._limit(keys)
        found = [self.frequent[n].sorted[key <= limit] for n, key in enumerate(keys, 1)]
        return Hashes(np.sort(np.concatenate(found)))

    def _blocks(self) -> Iterator[Block]:
        """Yield the text that is searched, in blocks: all documents, or a random share of them."""
        ends = self.split.sentence_ends[self.split.document_ends - 1]
        starts = np.concatenate([[0], ends[:-1]])
        key = np.uint64(hashing.make_key(_DRAW, 0))
        draw = hashing.mix_words(np.arange(len(ends), dtype=np.uint64) ^ key)
        chosen = np.flatnonzero((draw >> 11) * 2.0**-53 < self.share)
        sizes = (ends - starts)[chosen]
        groups = (np.cumsum(sizes) - sizes) // BLOCK
        for group in np.unique(groups).tolist():
            documents = chosen[groups == group].tolist()
            parts = [self.split.tokens[starts[i] : ends[i]] for i in documents]
            tokens = np.concatenate(parts)
            first = np.zeros(len(tokens), bool)
            first[np.cumsum([0, *map(len, parts[:-1])])] = True
            yield self._block(tokens, first)

    def _block(self, tokens: np.ndarray, first: np.ndarray) -> Block:
        begins = np.flatnonzero(~self.tokenizer.continuation[tokens] | first)
        unknown_pieces = tokens == self.tokenizer.special.unk
        unknown = np.add.reduceat(unknown_pieces, begins, dtype=np.int64) > 0  # in no n-gram
        edge = first[begins] | unknown
        edge[1:] |= unknown[:-1]
        return Block(word_hashes(tokens, begins), np.cumsum(edge))

    def _count(self, n: int) -> None:
        """Find the frequent n-grams of n words, and the log-probability of each.

        An n-gram is counted only if its first n - 1 words and its last n - 1 words are frequent.
        """
        total = 0
        frequent = [np.zeros(0, np.uint64)]
        counts = [np.zeros(0, np.int64)]
        for number in range(self.passes):
            held = [np.zeros(0, np.uint64)]
            for block in self._blocks():
                *shorter, (_, hashes, inside) = hash_ngrams(block.words, block.text, n)
                total += int(inside.sum()) if number == 0 else 0
                counted = inside & (hashes % np.uint64(self.passes) == number)
                if shorter:
                    parts = self.frequent[n - 2].find(shorter[-1][1]) >= 0
                    counted &= parts[:-1] & parts[1:]
                held.append(hashes[counted])
            distinct, times = np.unique(np.concatenate(held), return_counts=True)
            frequent.append(distinct[times > OFTEN])
            counts.append(times[times > OFTEN])
        hashes = np.concatenate(frequent)
        ascending = np.argsort(hashes)
        self.frequent.append(Hashes(hashes[ascending]))
        self.log_p.append(np.log(np.concatenate(counts)[ascending] / max(total, 1)))

    def _segment(self, n: int, whole: list[np.ndarray]) -> np.ndarray:
        """Return the log-probability of the likeliest segmentation of each frequent n-gram.

        A segmentation cuts the n-gram into at least two parts. The parts are looked up where the
        n-gram first occurs.
        """
        cut = np.full(len(self.log_p[n - 1]), np.nan)
        for block in self._blocks():
            levels = list(hash_ngrams(block.words, block.text, n))
            _, hashes, inside = levels[-1]
            index = np.where(inside, self.frequent[n - 1].find(hashes), -1)
            fresh = np.flatnonzero(index >= 0)
            fresh = fresh[np.isnan(cut[index[fresh]])]
            index, first = np.unique(index[fresh], return_index=True)
            rows = fresh[first]
            best = np.full(len(index), -np.inf)
            for k in range(1, n):  # the first part has k words
                front = self.frequent[k - 1].find(levels[k - 1][1][rows])
                back = self.frequent[n - k - 1].find(levels[n - k - 1][1][rows + k])
                best = np.maximum(best, self.log_p[k - 1][front] + whole[n - k - 1][back])
            cut[index] = best
        return cut

    def _rank(self, n: int, scores: np.ndarray) -> np.ndarray:
        """Return, for each n-gram of n words, the length of the shortest list that contains it.

        Each list takes a fixed share of its n-grams from the n-grams of n words, the best scores
        first.
        """
        share = 2.0 ** -min(n - 1, self.most - 2)  # of 2 to 4 words: 1/2, 1/4, 1/4
        ranking = np.lexsort((self.frequent[n - 1].sorted, -scores))
        keys = np.empty(len(scores))
        keys[ranking] = np.arange(1, len(scores) + 1) / share
        return np.where(scores > 0, keys, np.inf)  # the others are no more frequent than by chance

    def _limit(self, keys: list[np.ndarray]) -> float:
        """Return the length that the list needs to cover the share `coverage` of the words."""
        least = [np.zeros(0)]  # of each word, the shortest list that covers it
        every = max(1, min(len(self.split.tokens), SEARCHED) // SAMPLE)
        for number, block in enumerate(self._blocks()):
            if number % every:
                continue
            covered = np.full(len(block.words), np.inf)
            for n, hashes, inside in hash_ngrams(block.words, block.text, self.most):
                if n == 1 or not len(keys[n - 2]):
                    continue
                index = self.frequent[n - 1].find(hashes)
                needed = np.where(inside & (index >= 0), keys[n - 2][index], np.inf)
                for place in range(n):
                    word = covered[place : place + len(needed)]
                    np.minimum(word, needed, out=word)
            least.append(covered)
        words = np.concatenate(least)
        count = int(np.ceil(self.coverage * len(words)))
        if not count:
            return 0.0
        limit = float(np.partition(words, count - 1)[count - 1])
        # Where all collocations together cover less, all are taken.
        return limit if np.isfinite(limit) else sys.float_info.max


def name_list(settings: knobs.Masking) -> str:
    """Name the file for the collocations that these settings define."""
    values = (settings.pmi_words, OFTEN, settings.pmi_coverage, SEARCHED)
    return "-".join(["pmi", str(VERSION), *(f"{value:g}" for value in values)])


def load_collocations(prepared: Prepared, settings: knobs.Masking) -> Hashes:
    """Return the hashes of a corpus's collocations; find them if its folder has no file of them."""
    folder = prepared.folder / "collocations"
    file = folder / f"{name_list(settings)}.npz"
    with contextlib.ExitStack() as stack:
        # Without permission to write, as in a corpus of another user, each process makes its list.
        with contextlib.suppress(OSError):
            folder.mkdir(exist_ok=True)
            waiting = f"waiting for another process that looks for collocations in {folder}"
            stack.enter_context(
                folder_locks.wait_for_lock(file.with_suffix(".lock"), lambda: log_line(waiting))
            )
        if (existing := _read(file)) is not None:
            return existing
        log_line(f"looking for collocations in {prepared.folder}")
        hashes = Search(prepared, settings).run()
        log_line(f"{len(hashes.sorted):,} collocations of up to {settings.pmi_words} words")
        try:
            with disk.replace_file(file) as packed:
                np.savez(packed, hashes=hashes.sorted)
        except (OSError, disk.DiskFull) as error:
            log_line(f"warning: the list is not kept, and will be made again: {error}")
    return hashes


def _read(file: Path) -> Hashes | None:
    """Read the hashes of collocations; return None if the file is missing or damaged."""
    try:
        with np.load(file, allow_pickle=False) as arrays:  # zipfile checks its checksum
            return Hashes(arrays["hashes"])
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None
