"""Spool to shards: tokenise volumes into parts, in parallel, and pack parts into even shards."""

from __future__ import annotations

import functools
import itertools
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.data import corpus
from bert_jax.data import tokenizer as tokenizers
from bert_jax.data.text import dedup, shards
from bert_jax.data.text.sentences import GLUED

SIDES = {dedup.TRAIN: "train", dedup.VALIDATION: "validation"}
WORDS = 1 << 18  # distinct words remembered, about 60 MB
BATCH = 1 << 17  # characters tokenised at once
# Separated before words are looked up, or every word would make a further word with each of them.
MARKS = ',.;:?!"()'
END = "\n"  # ends a sentence: a word without tokens
KEPT: dict[str, type[np.integer]] = {
    "tokens": np.uint32,
    "sentence_ends": np.int64,
    "document_ends": np.int64,
}
LOST = ("cut_documents", "cut_sentences", "empty_sentences", "empty")  # counts of a part
Slice = tuple[str, int, int]  # documents of a part: its folder, the first document, the end


def sentences(
    spool: Path, name: str, marks: np.ndarray, side: int | None = None
) -> Iterator[tuple[int, str]]:
    """Yield (mark, sentence) for the kept records of a volume, of one side where it is given.

    The mark has STARTS only at the first sentence of a document.
    """
    counts = corpus.records(spool, name)["sentences"]
    lines = corpus.read_sentences(spool, name)
    for mark, count in zip(marks.tolist(), counts.tolist(), strict=True):
        record_side = mark & 3
        if record_side == dedup.DROP or (side is not None and record_side != side):
            next(itertools.islice(lines, count, count), None)
            continue
        for line in itertools.islice(lines, count):
            yield mark, line[:-1].removeprefix(GLUED)
            mark = record_side


def encode(
    spool: Path, name: str, marks: np.ndarray, folder: Path, limit: int, parts: Path
) -> dict[str, Any]:
    """Tokenise one volume into a part, in bounded memory, and return its counts.

    `folder` is that of the tokenizer; a document has at most `limit` tokens.
    """
    words = known_words(folder)
    working = parts / f".{name}.{os.getpid()}"
    shutil.rmtree(working, ignore_errors=True)
    sides = {mark: _Part(working / side, limit) for mark, side in SIDES.items()}
    counts = corpus.records(spool, name)["sentences"].astype(np.int64)
    each = np.repeat(marks & 3, counts)  # [N], the mark of each sentence
    each[(np.cumsum(counts) - counts)[counts > 0]] = marks[counts > 0]
    first = 0
    for block in corpus.read_blocks(spool, name, BATCH):
        end = first + block.count("\n")
        _add(block, each[first:end], words, sides)
        first = end
    done = {"name": name, **{SIDES[mark]: part.close() for mark, part in sides.items()}}
    shards.write_json(working / "part.json", done)
    working.replace(parts / name)
    return done


def _add(lines: str, marks: np.ndarray, words: Words, sides: dict[int, _Part]) -> None:
    """Tokenise sentences, one a line, and append those that are kept to the parts."""
    kept = marks & 3 != dedup.DROP
    if not kept.all():
        held = itertools.compress(lines.split("\n"), kept)
        lines, marks = "".join(f"{sentence}\n" for sentence in held), marks[kept]
    if not len(marks):
        return
    starts = marks & dedup.STARTS > 0
    ids, lengths = words.encode_lines(lines, starts)
    for side, part in sides.items():
        chosen = marks & 3 == side
        part.add(ids[np.repeat(chosen, lengths)], lengths[chosen], starts[chosen])


class Words:
    """Tokenizer of sentences whose words are separated by one space; encodes each word only once.

    Nothing in BERT's normalisation or WordPiece looks across a space, and punctuation is a word by
    itself. So the ids are those of whole sentences, once `settled` has lowercased the letters that
    depend on their neighbours. A word that was seen before costs a look-up, and the rest is
    arithmetic on arrays. Byte-level BPE looks at the space before a word and at none other, so
    there a word is known with its space, and all sentences of a document but the first begin with
    one, unless the text has none there.
    """

    def __init__(self, tokenizer: tokenizers.Tokenizer):
        self.tokenizer = tokenizer
        self._reset()

    def _reset(self) -> None:
        self.places = _Places()
        self.ids = np.zeros(0, np.uint32)  # of all words, one after the other
        self.starts, self.lengths = np.zeros(0, np.int64), np.zeros(0, np.int64)  # of each word

    def encode(self, sentences: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids of the sentences, concatenated, and how many each sentence has."""
        return self.encode_lines("".join(f"{sentence}{END}" for sentence in sentences))

    def encode_lines(
        self, lines: str, starts: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Do as `encode` for text with a sentence a line, of which `starts` begin a document."""
        if self.tokenizer.blank and starts is not None:
            lines = _spaced(lines, starts)
        else:
            lines = lines.replace(GLUED, "")
        if not self.tokenizer.divides_at_blanks:  # a piece may reach across a space
            return _concatenate(self.tokenizer.encode_batch(lines.split(END)[:-1]))
        if len(self.places) > WORDS:
            self._reset()
        words = self._with_blanks(lines) if self.tokenizer.blank else self._without_blanks(lines)
        places = np.fromiter(map(self.places.__getitem__, words), np.int64, len(words))
        if self.places.fresh:
            self._learn()
        lengths = self.lengths[places]
        after = np.cumsum(lengths)
        ids = self.ids[
            np.arange(after[-1]) + np.repeat(self.starts[places] - after + lengths, lengths)
        ]
        return ids, np.diff(after[places == self.places[END]], prepend=0)

    @staticmethod
    def _with_blanks(lines: str) -> list[str]:
        # GLUED, which is in no text, takes the place of what separates words.
        return lines.replace(" ", f"{GLUED} ").replace(END, f"{GLUED}{END}{GLUED}").split(GLUED)

    def _without_blanks(self, lines: str) -> list[str]:
        text = lines.replace(END, f" {END} ")
        for mark in MARKS:
            text = text.replace(mark, f" {mark} ")
        return text.replace("  ", " ").split(" ")

    def _learn(self) -> None:
        fresh = [word.removesuffix(END) for word in self.places.fresh]
        ids, lengths = _concatenate(self.tokenizer.encode_batch(fresh))
        self.places.fresh.clear()
        self.starts = np.concatenate([self.starts, len(self.ids) + np.cumsum(lengths) - lengths])
        self.ids = np.concatenate([self.ids, ids])
        self.lengths = np.concatenate([self.lengths, lengths])


class _Places(dict[str, int]):
    """The number of each word; a new word gets the next number and is listed in `fresh`."""

    def __init__(self) -> None:
        super().__init__({END: 0})
        self.fresh = [END]

    def __missing__(self, word: str) -> int:
        self.fresh.append(word)
        place = self[word] = len(self)
        return place


@functools.lru_cache(maxsize=1)
def known_words(folder: Path) -> Words:
    """Return this process's `Words` for a saved tokenizer; the next volume knows its words too."""
    return Words(tokenizers.load(folder))


def _spaced(lines: str, starts: np.ndarray) -> str:
    """Return sentences, one a line, with a blank before those that the text separates by one."""
    parts = []
    for sentence, start in zip(lines.split(END)[:-1], starts.tolist(), strict=True):
        blank = "" if start or sentence.startswith(GLUED) else " "
        parts.append(f"{blank}{sentence.removeprefix(GLUED)}{END}")
    return "".join(parts)


def _concatenate(texts: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Return the ids of texts one after the other, and the length of each text."""
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    return np.fromiter(itertools.chain.from_iterable(texts), np.uint32, int(lengths.sum())), lengths


class _Part:
    """Writer of the documents of one volume on one side of the split, to three files."""

    def __init__(self, folder: Path, limit: int):
        folder.mkdir(parents=True)
        self.limit = limit
        self.files = {name: (folder / name).open("wb") for name in KEPT}
        self.counts = {"documents": 0, "sentences": 0, "tokens": 0}
        self.lost = dict.fromkeys(LOST, 0)
        self.length = 0  # tokens of the current document
        self.begun = False

    def add(self, ids: np.ndarray, lengths: np.ndarray, starts: np.ndarray) -> None:
        """Append sentences, some of which start a document; end a document that would be too long.

        `ids` are those of all sentences, one after the other.
        """
        self.files["tokens"].write(ids.astype(KEPT["tokens"]).tobytes())
        if not len(lengths):
            return
        edges = np.concatenate([[0], np.flatnonzero(starts), [len(lengths)]])
        totals = np.diff(np.concatenate([[0], np.cumsum(lengths)])[edges])  # of each document
        totals[0] += self.length
        if totals.max() > self.limit:
            self._add_cut(lengths.tolist(), starts.tolist())
        else:
            self._add_whole(lengths, edges, totals)

    def _add_whole(self, lengths: np.ndarray, edges: np.ndarray, totals: np.ndarray) -> None:
        """Append sentences of documents that fit; the last one may go on."""
        counts, filled = self.counts, lengths > 0
        ends = counts["tokens"] + np.cumsum(lengths[filled])
        before = counts["sentences"] + np.concatenate([[0], np.cumsum(filled)])[edges[1:-1]]
        over = totals[:-1] > 0  # of the documents that end here
        self._write("sentence_ends", ends)
        self._write("document_ends", before[over])
        self.lost["empty"] += int((~over).sum())
        if len(over) and not (over[0] or edges[1] or self.begun):
            self.lost["empty"] -= 1  # nothing came before the first one that starts here
        self.lost["empty_sentences"] += int((~filled).sum())
        counts["documents"] += int(over.sum())
        counts["sentences"] += int(filled.sum())
        counts["tokens"] += int(lengths.sum())
        self.length, self.begun = int(totals[-1]), True

    def _add_cut(self, lengths: list[int], starts: list[bool]) -> None:
        """Append sentences one by one; cut documents and sentences that are too long."""
        counts, ends = self.counts, []
        for size, start in zip(lengths, starts, strict=True):
            if start:
                self.end_document()
            self.begun = True
            if not size:
                self.lost["empty_sentences"] += 1
                continue
            if size > self.limit:
                self.lost["cut_sentences"] += 1
            for before in range(0, size, self.limit):
                piece = min(size - before, self.limit)
                if self.length and self.length + piece > self.limit:
                    self.lost["cut_documents"] += 1
                    self._end()
                self.length += piece
                counts["tokens"] += piece
                counts["sentences"] += 1
                ends.append(counts["tokens"])
        self._write("sentence_ends", np.array(ends, np.int64))

    def _write(self, name: str, values: np.ndarray) -> None:
        self.files[name].write(values.astype(KEPT[name]).tobytes())

    def end_document(self) -> None:
        """End the current document; a document without tokens counts as empty."""
        if self.length:
            self._end()
        elif self.begun:
            self.lost["empty"] += 1
        self.begun = False

    def _end(self) -> None:
        self.counts["documents"] += 1
        self._write("document_ends", np.array([self.counts["sentences"]]))
        self.length = 0

    def close(self) -> dict[str, int]:
        """End the last document and return the counts."""
        self.end_document()
        for file in self.files.values():
            file.close()
        return self.counts | self.lost


def _load(part: str, name: str) -> np.ndarray:
    file = Path(part) / name
    return np.memmap(file, KEPT[name], "r") if file.stat().st_size else np.zeros(0, KEPT[name])


def plan(parts: list[str], tokens: int, limit: int) -> list[list[Slice]]:
    """Divide the documents of all parts, in order, into shards of about equal size.

    Returns the slices of each shard, which has at most `limit` of all the tokens.
    """
    target = tokens / max(1, -(-tokens // limit))
    planned: list[list[Slice]] = []
    size = float("inf")  # tokens of the current shard
    for part in parts:
        sentence_ends, document_ends = _load(part, "sentence_ends"), _load(part, "document_ends")
        # [D], token offsets
        ends = sentence_ends[document_ends - 1] if len(document_ends) else document_ends
        first = base = 0
        while first < len(ends):
            fits = int(np.searchsorted(ends, base + limit - size, "right")) if size < limit else 0
            if size >= target or fits <= first:
                planned.append([])
                size = 0
                continue
            enough = int(np.searchsorted(ends, base + target - size, "left")) + 1
            stop = min(fits, enough, len(ends))
            planned[-1].append((part, first, stop))
            size += int(ends[stop - 1]) - base
            first, base = stop, int(ends[stop - 1])
    return planned


def pack(folder: Path, name: str, slices: list[Slice], small: bool) -> dict[str, Any]:
    """Write one shard from its slices, with uint16 ids if `small`, and return its entry."""
    tokens, sentence_ends, document_ends = [], [], []
    token = sentence = 0
    for part, first, stop in slices:
        ends, documents = _load(part, "sentence_ends"), _load(part, "document_ends")
        low, high = int(documents[first - 1]) if first else 0, int(documents[stop - 1])
        start, end = int(ends[low - 1]) if low else 0, int(ends[high - 1])
        tokens.append(_load(part, "tokens")[start:end].astype(np.uint16 if small else np.uint32))
        sentence_ends.append((ends[low:high] - start + token).astype(np.uint32))
        document_ends.append((documents[first:stop] - low + sentence).astype(np.uint32))
        token, sentence = token + end - start, sentence + high - low
    return shards.write(
        folder, name, *(np.concatenate(arrays) for arrays in (tokens, sentence_ends, document_ends))
    )
