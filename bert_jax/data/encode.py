"""The two passes over a text, which worker processes run: texts to sentences, sentences to ids.

Texts are written in parts of some megabytes, so that even a single file keeps all workers busy. A
part is NAME.txt, with one sentence a line, and NAME.npy, with one RECORD for each text. A sentence
keeps the blank that it begins with: see `split_sentences`.
"""

import array
import collections
import functools
import hashlib
import itertools
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.config import knobs
from bert_jax.data import audit
from bert_jax.data import tokenizer as tokenizers
from bert_jax.data.corpus import SOURCES, SPLITS
from bert_jax.data.sentences import Item, Text, split_sentences
from bert_jax.data.tokenizer import replace_surrogates
from bert_jax.system import disk

PART = 4 << 20  # characters of a part: small, so that all processes have parts to encode
DOCUMENT = 16 << 20  # characters: a longer document is cut
REPLACED = "\ufffd"  # stands for bytes and characters that are no text
RECORD = np.dtype(
    [
        ("digest", np.uint64),  # of the text, spaces normalised
        ("sentences", np.uint32),
        ("characters", np.uint64),
        ("starts", bool),  # begins a document
    ]
)
WORDS = 1 << 18  # distinct words remembered, about 60 MB
BLOCK = 4096  # sentences encoded at once
# Separated before words are looked up, or every word would make a further word with each of them.
MARKS = ',.;:?!"()'
END = "\n"  # ends a sentence: a word whose only id is ENDED
ENDED = 2**32 - 1
APART = "\x1f"  # stands between words; as a space by Python's rules, it is in no sentence


# --- texts to sentences ---------------------------------------------------------------------------


def read_into_parts(
    number: int, items: list[Item], settings: knobs.Corpus, language: str | None, folder: Path
) -> dict[str, Any]:
    """Read items, and write their sentences in parts of the corpus.

    The result has the names of the parts, and the numbers of lines and of lines with bytes that are
    no text. It is also written as a JSON file, which marks the work as done. Without a `language`
    for splitting sentences, each line is a sentence.
    """
    read_texts = SOURCES[settings.source].read_texts
    texts = itertools.chain.from_iterable(read_texts(item, settings) for item in items)
    done: dict[str, Any] = {"parts": [], "lines": 0, "bad_lines": 0, "first_bad": ""}
    for group in _group_texts(texts):
        name = f"{number:05d}-{len(done['parts']):04d}"
        _write_part(folder, name, group, language, done)
        done["parts"].append(name)
    disk.write(folder / f"{number:05d}.json", json.dumps(done))
    return done


def read_records(folder: Path, name: str) -> np.ndarray:
    """Read what is known of each text of the part `name`: an array of RECORD."""
    return np.load(folder / f"{name}.npy", allow_pickle=False)


def read_sentences(folder: Path, name: str) -> list[str]:
    """Return the sentences of a part."""
    return (folder / f"{name}.txt").read_bytes().decode().split("\n")[:-1]


def _group_texts(texts: Iterable[Text]) -> Iterator[list[Text]]:
    """Yield groups of texts of about PART characters; if possible a group ends with a document."""
    held: list[Text] = []
    size = 0
    for text in texts:
        if size >= (PART if text.starts else DOCUMENT):
            yield held
            held = []
            size = 0
        held.append(text)
        size += len(text.text)
    if held:
        yield held


def _write_part(
    folder: Path, name: str, texts: list[Text], language: str | None, done: dict[str, Any]
) -> None:
    """Split texts into sentences, and write them as the part `name`.

    The numbers of lines, and of lines with bytes that are no text, are added to `done`.
    """
    written: list[str] = []
    records = []
    for text in texts:
        # NUL and lone surrogates are no text: no file of UTF-8 may hold them.
        clean = replace_surrogates(text.text.replace("\0", REPLACED))
        lines = clean.split("\n")
        found = [split_sentences(line, language) for line in lines]
        done["lines"] += sum(map(bool, found))
        if REPLACED in clean:
            done["bad_lines"] += sum(REPLACED in line for line in lines)
            done["first_bad"] = done["first_bad"] or text.where
        sentences = list(itertools.chain.from_iterable(found))
        written += sentences
        # The same text in other lines has the same digest. A blank follows each sentence.
        spaced = " ".join([*map(str.lstrip, sentences), ""])
        digest = hashlib.blake2b(spaced.encode(), digest_size=8).digest()
        count = len(sentences)
        number = int.from_bytes(digest, "little")
        records.append((number, count, len(spaced) - count, text.starts))
    with disk.replace_file(folder / f"{name}.npy") as file:
        np.save(file, np.array(records, RECORD))
    disk.write(folder / f"{name}.txt", "\n".join([*written, ""]).encode())


# --- sentences to ids -----------------------------------------------------------------------------


def encode_part(
    folder: Path, name: str, sides: np.ndarray, starts: np.ndarray, vocabulary: Path, out: Path
) -> None:
    """Write the token ids of one part of the corpus to a file, train and validation separately.

    The file holds for each split its tokens [T], the number of tokens of each sentence [N], and the
    number of sentences of each document [D]. It also holds the number of tokens in repeated
    sentences. Sentences and documents without tokens are left out and counted.

    Args:
      folder: the folder of the parts.
      name: the name of the part.
      sides: for each text, an index of SPLITS, or -1 for a text that is dropped.
      starts: whether each text begins a document.
      vocabulary: the folder of the tokenizer.
      out: the file to write.
    """
    lengths = read_records(folder, name)["sentences"].astype(np.int64)
    side = np.repeat(sides, lengths)  # [N], of each sentence
    begins = np.zeros(len(side), bool)  # [N]
    begins[(np.cumsum(lengths) - lengths)[starts & (lengths > 0)]] = True
    kept = side >= 0
    sentences = list(itertools.compress(read_sentences(folder, name), kept))
    ids, sizes = load_words(vocabulary).encode(sentences, begins[kept])
    empty = np.zeros(2, np.int64)  # documents and sentences without tokens
    arrays: dict[str, Any] = {"empty": empty}
    for number, split in enumerate(SPLITS):
        own = side[kept] == number
        own_sizes = sizes[own]
        filled = own_sizes > 0
        first = begins[kept][own]
        first[:1] = True  # a document that is longer than a part is cut
        documents = np.bincount(np.cumsum(first)[filled], minlength=first.sum() + 1)[1:]
        tokens = ids[np.repeat(own, sizes)]
        arrays[f"{split}_tokens"] = tokens
        arrays[f"{split}_sentences"] = own_sizes[filled]
        arrays[f"{split}_repeated"] = np.array(audit.count_repeated(tokens, own_sizes[filled]))
        arrays[f"{split}_documents"] = documents[documents > 0]
        empty += (documents == 0).sum(), (~filled).sum()
    with disk.replace_file(out) as file:
        np.savez(file, **arrays)


@functools.lru_cache(maxsize=1)
def load_words(vocabulary: Path) -> "Words":
    """Return this process's `Words` of a saved tokenizer.

    The object is kept from part to part, so that each word is encoded once.
    """
    return Words(tokenizers.load_tokenizer(vocabulary))


class Words:
    """Encodes sentences word by word, and each word only once: 8 times as fast as the library.

    BERT's normalisation and WordPiece never look across a space, and punctuation is a word by
    itself. So the ids of the words are the ids of the sentence. Byte-level BPE looks only at the
    space before a word, so its words are stored with this space.
    """

    def __init__(self, tokenizer: tokenizers.Tokenizer):
        self.tokenizer = tokenizer
        divisible = tokenizer.divides_at_blanks and not tokenizer.blank
        self.marks = [mark for mark in MARKS if divisible and _stands_alone(tokenizer, mark)]
        self._forget()

    def _forget(self) -> None:
        # A new word gets the next number.
        self.numbers: dict[str, int] = collections.defaultdict(itertools.count().__next__)
        self.ids = array.array("I")  # of all words, one after the other
        # Where each word begins in `ids`, and where the last word ends.
        self.starts = array.array("q", [0])

    def encode(self, sentences: list[str], begins: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids of all sentences in one array, and the number of ids of each sentence.

        Args:
          sentences: the sentences, each with the blank that it begins with.
          begins: whether each sentence begins a document [N]. The blank of such a sentence is
            dropped.
        """
        lines = [
            line.lstrip(" ") if first or not self.tokenizer.blank else line
            for line, first in zip(sentences, begins.tolist(), strict=True)
        ]
        blocks = [np.zeros(0, np.uint32)]
        for start in range(0, len(lines), BLOCK):
            blocks.append(self._encode_block(lines[start : start + BLOCK]))
        ids = np.concatenate(blocks)
        # The ids of the sentences "a b" and "c" are 7 8 ENDED 9 ENDED: sizes 2 and 1.
        ended = ids == ENDED
        places = np.flatnonzero(ended) - np.arange(len(lines))
        return ids[~ended], np.diff(places, prepend=0)

    def _encode_block(self, lines: list[str]) -> np.ndarray:
        """Return the ids of sentences in one array, with the id ENDED after each sentence."""
        if not self.tokenizer.divides_at_blanks:  # a pattern may match across a space
            return _concatenate([[*ids, ENDED] for ids in self.tokenizer.encode_batch(lines)])
        if len(self.numbers) > WORDS:
            self._forget()
        words = self._cut_words(END.join([*lines, ""]))
        numbers = np.fromiter(map(self.numbers.__getitem__, words), np.int64, len(words))  # [W]
        if fresh := list(itertools.islice(self.numbers, len(self.starts) - 1, None)):
            found = self.tokenizer.encode_batch(fresh)
            for word, ids in zip(fresh, found, strict=True):
                self.ids.extend([ENDED] if word == END else ids)
                self.starts.append(len(self.ids))
        # Word w has sizes[w] ids from starts[w] on: list them all, and gather. [W] -> [T]
        edges = np.frombuffer(self.starts, np.int64)
        starts = edges[numbers]
        sizes = edges[numbers + 1] - starts
        ends = np.cumsum(sizes)
        places = np.arange(ends[-1]) + np.repeat(starts - ends + sizes, sizes)
        return np.frombuffer(self.ids, np.uint32)[places]

    def _cut_words(self, text: str) -> list[str]:
        """Split a text into words; each sentence of the text ends with the word END."""
        if self.tokenizer.blank:
            text = text.replace(" ", f"{APART} ").replace(END, f"{APART}{END}{APART}")
            return text.split(APART)
        text = text.replace(END, f" {END} ")
        for mark in self.marks:
            text = text.replace(mark, f" {mark} ")
        return text.replace("  ", " ").split(" ")


def _concatenate(texts: list[list[int]]) -> np.ndarray:
    return np.fromiter(itertools.chain.from_iterable(texts), np.uint32)


def _stands_alone(tokenizer: tokenizers.Tokenizer, mark: str) -> bool:
    """Tell whether a punctuation mark is always a word of its own, even next to a letter."""
    joined, apart = tokenizer.encode_batch([f"a{mark}a{mark}", f"a {mark} a {mark}"])
    return joined == apart
