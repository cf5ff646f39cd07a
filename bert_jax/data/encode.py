"""The second pass of preparation: the sentences of a part to token ids."""

from __future__ import annotations

import functools
import io
import itertools
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.data import spool
from bert_jax.data import tokenizer as tokenizers
from bert_jax.data.corpus import SPLITS
from bert_jax.system import disk

WORDS = 1 << 18  # distinct words remembered, about 60 MB
BLOCK = 2048  # sentences encoded at once
# Separated before words are looked up, or every word would make a further word with each of them.
MARKS = ',.;:?!"()'
END = "\n"  # ends a sentence: a word without tokens
APART = "\x1f"  # stands between words; as a space by Python's rules, it is in no sentence


def encode_part(
    folder: Path, name: str, sides: np.ndarray, starts: np.ndarray, vocabulary: Path, out: Path
) -> None:
    """Write the ids of a part's texts, by side of the split.

    The file holds for each split its tokens [T], the number of tokens of each sentence [N], and the
    number of sentences of each document [D]. Sentences and documents without tokens are left out
    and counted.

    Args:
      folder: of the spool.
      name: of the part.
      sides: of its texts, see `sides.choose_sides`.
      starts: whether a document begins with a text.
      vocabulary: folder of the tokenizer.
      out: the file to write.
    """
    words = load_words(vocabulary)
    lengths = spool.read_records(folder, name)["sentences"].astype(np.int64)
    side = np.repeat(sides, lengths)  # [N], of each sentence
    begins = np.zeros(len(side), bool)  # [N]
    begins[(np.cumsum(lengths) - lengths)[starts & (lengths > 0)]] = True
    kept = side >= 0
    sentences = list(itertools.compress(spool.read_sentences(folder, name), kept))
    side = side[kept]
    begins = begins[kept]
    ids, sizes = words.encode(sentences, begins)
    empty = np.zeros(2, np.int64)  # documents and sentences without tokens
    arrays: dict[str, Any] = {"empty": empty}
    for number, split in enumerate(SPLITS):
        own = side == number
        own_sizes = sizes[own]
        filled = own_sizes > 0
        first = begins[own]
        first[:1] = True  # a document that is longer than a part is cut
        documents = np.bincount(np.cumsum(first)[filled], minlength=first.sum() + 1)[1:]
        arrays[f"{split}_tokens"] = ids[np.repeat(own, sizes)]
        arrays[f"{split}_sentences"] = own_sizes[filled]
        arrays[f"{split}_documents"] = documents[documents > 0]
        empty += (documents == 0).sum(), (~filled).sum()
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    disk.write(out, buffer.getvalue())


class Words:
    """Encodes sentences word by word, and each word only once.

    Nothing in BERT's normalisation or WordPiece looks across a space, and punctuation is a word by
    itself. So the ids are those of whole sentences. A word that was seen before costs a look-up,
    and the rest is arithmetic on arrays. Byte-level BPE looks at the space before a word and at no
    other, so there a word is known with its space.
    """

    def __init__(self, tokenizer: tokenizers.Tokenizer):
        self.tokenizer = tokenizer
        self.marks = [mark for mark in MARKS if _stands_alone(tokenizer, mark)]
        self._reset()

    def _reset(self) -> None:
        self.numbers = _Numbers()
        self.ids = np.zeros(0, np.uint32)  # of all words, one after the other
        self.starts = np.zeros(0, np.int64)  # of each word, in the ids
        self.sizes = np.zeros(0, np.int64)  # of each word

    def encode(self, sentences: list[str], begins: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids of sentences, one after the other, and the number of each sentence's ids.

        Args:
          sentences: with the blanks before them.
          begins: whether a document begins with a sentence [N]; the blank before it is no text.
        """
        parts = [(np.zeros(0, np.uint32), np.zeros(0, np.int64))]
        for start in range(0, len(sentences), BLOCK):
            block = slice(start, start + BLOCK)
            lines = sentences[block]
            if self.tokenizer.blank:
                for place in np.flatnonzero(begins[block]).tolist():
                    lines[place] = lines[place].lstrip(" ")
            parts.append(self._encode_block(lines))
        ids, sizes = zip(*parts, strict=True)
        return np.concatenate(ids), np.concatenate(sizes)

    def _encode_block(self, lines: list[str]) -> tuple[np.ndarray, np.ndarray]:
        if not self.tokenizer.divides_at_blanks:  # a pattern may match across a space
            if not self.tokenizer.blank:
                lines = [line.lstrip(" ") for line in lines]
            return _concatenate(self.tokenizer.encode_batch(lines))
        if len(self.numbers) > WORDS:
            self._reset()
        words = self._cut_words(END.join([*lines, ""]))
        numbers = np.fromiter(map(self.numbers.__getitem__, words), np.int64, len(words))  # [W]
        if self.numbers.fresh:
            self._learn()
        # Word w has sizes[w] ids from starts[w] on: list them all, and gather. [W] -> [T]
        sizes = self.sizes[numbers]
        ends = np.cumsum(sizes)
        before = np.repeat(self.starts[numbers] - ends + sizes, sizes)
        ids = self.ids[np.arange(ends[-1]) + before]
        return ids, np.diff(ends[numbers == self.numbers[END]], prepend=0)

    def _cut_words(self, text: str) -> list[str]:
        """Return the words of sentences, with END after each sentence."""
        if self.tokenizer.blank:
            text = text.replace(" ", f"{APART} ").replace(END, f"{APART}{END}{APART}")
            return text.split(APART)
        text = text.replace(END, f" {END} ")
        for mark in self.marks:
            text = text.replace(mark, f" {mark} ")
        return text.replace("  ", " ").split(" ")

    def _learn(self) -> None:
        """Encode the words that were seen for the first time."""
        fresh = [word.removesuffix(END) for word in self.numbers.fresh]
        ids, sizes = _concatenate(self.tokenizer.encode_batch(fresh))
        self.numbers.fresh.clear()
        self.starts = np.concatenate([self.starts, len(self.ids) + np.cumsum(sizes) - sizes])
        self.ids = np.concatenate([self.ids, ids])
        self.sizes = np.concatenate([self.sizes, sizes])


class _Numbers(dict[str, int]):
    """The number of each word; a new word gets the next number, and is listed in `fresh`."""

    def __init__(self) -> None:
        super().__init__({END: 0})
        self.fresh = [END]

    def __missing__(self, word: str) -> int:
        self.fresh.append(word)
        number = self[word] = len(self)
        return number


@functools.lru_cache(maxsize=1)
def load_words(vocabulary: Path) -> Words:
    """Return this process's `Words` of a saved tokenizer; the next part knows its words too."""
    return Words(tokenizers.load(vocabulary))


def _stands_alone(tokenizer: tokenizers.Tokenizer, mark: str) -> bool:
    """Tell whether a punctuation mark is a word by itself, whatever stands beside it."""
    if tokenizer.blank or not tokenizer.divides_at_blanks:
        return False
    joined, apart = tokenizer.encode_batch([f"a{mark}a{mark}", f"a {mark} a {mark}"])
    return joined == apart


def _concatenate(texts: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Return the ids of texts one after the other, and the length of each text."""
    sizes = np.fromiter(map(len, texts), np.int64, len(texts))
    return np.fromiter(itertools.chain.from_iterable(texts), np.uint32, int(sizes.sum())), sizes
