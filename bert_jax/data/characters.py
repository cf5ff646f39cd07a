"""Split text into words as google's tokenization.py does, by the Unicode tables of this Python.

The tokenizers library has its own Unicode tables: it drops private-use characters, treats U+2B820
to U+2B91F as letters, and lacks the characters that Unicode gained since. The two agree for most
texts; `Rules.apart` finds the texts for which they differ, and `Rules.words` splits those.

Both implementations handle one character after the other: a character that is treated alike in
"aXb" is treated alike everywhere. Each character is therefore compared once, when it is first seen.
Only two things depend on neighbouring characters. A capital sigma at the end of a word becomes ς,
so `Rules.settled` lowercases sigmas beforehand. And combining marks are sorted, so the few marks
that stay in the word count as treated differently.
"""

from __future__ import annotations

import functools
import itertools
import re
import unicodedata
from collections.abc import Iterator, Sequence

import numpy as np
from tokenizers import normalizers, pre_tokenizers

UNSEEN, ALIKE, APART = range(3)  # not compared yet; treated alike by both; treated differently
IDEOGRAPHS = (  # each is a word by itself
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0x2F800, 0x2FA1F),
)
# Characters that are dropped, but that str.lower would take for the end of a word before a sigma.
_VOID = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufffd]")
Letters = list[tuple[str, int]]  # characters, each with its index in the text


class Rules:
    """google's rules, and the characters that the tokenizers library treats differently."""

    def __init__(self, lowercase: bool, strip_accents: bool, chinese: bool):
        self.lowercase = lowercase
        self.strip_accents = strip_accents
        self.chinese = chinese
        self.normalizer = normalizers.BertNormalizer(
            clean_text=True,
            handle_chinese_chars=chinese,
            strip_accents=strip_accents,
            lowercase=lowercase,
        )
        self._treatment = np.full(0x110000, UNSEEN, np.uint8)  # of each code point
        self._treatment[:0x80] = ALIKE
        # Surrogates: google's code keeps them, the library refuses a text with one.
        self._treatment[0xD800:0xE000] = APART

    def lowercase_sigmas(self, text: str) -> str:
        """Lowercase capital sigmas, to the final form at the end of a word; keep the length."""
        if "Σ" not in text or not self.lowercase:
            return text
        text = _VOID.sub("\u00ad", text)  # a soft hyphen is dropped too, and ends no word
        parts, done = [], 0
        while (at := text.find("Σ", done)) >= 0:
            start, end = text.rfind(" ", done, at) + 1 or done, text.find(" ", at)
            end = len(text) if end < 0 else end
            parts += [text[done:start], _small_sigmas(text[start:end])]
            done = end
        return "".join([*parts, text[done:]])

    def apart(self, texts: Sequence[str]) -> list[int]:
        """Return the indices of texts with a character that the library treats differently."""
        others = [i for i, text in enumerate(texts) if not text.isascii()]
        if not others:
            return []
        joined = "".join(texts[i] for i in others)
        codes = np.frombuffer(joined.encode("utf-32-le", "surrogatepass"), "<u4")
        treatment = self._treatment[codes]
        if not treatment.all():
            self._compare(np.unique(codes[treatment == UNSEEN]))
            treatment = self._treatment[codes]
        if treatment.max() < APART:
            return []
        ends = np.cumsum([len(texts[i]) for i in others])
        rows = np.unique(np.searchsorted(ends, np.flatnonzero(treatment == APART), "right"))
        return [others[i] for i in rows.tolist()]

    def words(self, text: str) -> Iterator[Letters]:
        """Yield the words of a settled text."""
        for word in self._split_at_spaces(text):
            if self.lowercase:
                word = [(low, index) for letter, index in word for low in letter.lower()]
            if self.strip_accents:
                word = [part for part in _decompose(word) if unicodedata.category(part[0]) != "Mn"]
            yield from _split_at_punctuation(word)

    def _split_at_spaces(self, text: str) -> Iterator[Letters]:
        """Yield runs without spaces, control characters dropped, each ideograph by itself."""
        word: Letters = []
        for index, letter in enumerate(text):
            if letter not in "\t\n\r" and _dropped(letter):
                continue
            alone = self.chinese and any(low <= ord(letter) <= high for low, high in IDEOGRAPHS)
            if alone or letter.isspace():
                yield word
                word = []
            if alone:
                yield [(letter, index)]
            elif not letter.isspace():
                word.append((letter, index))
        yield word

    def _compare(self, codes: np.ndarray) -> None:
        """Record whether the library treats these characters alike.

        Each stands in an "aXb" of its own, with a bar between them.
        """
        letters = [chr(code) for code in codes]
        text = "|".join(f"a{letter}b" for letter in letters)
        split = pre_tokenizers.BertPreTokenizer().pre_tokenize_str(
            self.normalizer.normalize_str(text)
        )
        ours = _between_bars(["".join(letter for letter, _ in word) for word in self.words(text)])
        theirs = _between_bars([word for word, _ in split])
        self._treatment[codes] = [
            ALIKE if our == their and not (self.strip_accents and _is_sorted(letter)) else APART
            for letter, our, their in zip(letters, ours, theirs, strict=True)
        ]


@functools.cache
def google(lowercase: bool, strip_accents: bool, chinese: bool) -> Rules:
    """Return this process's one `Rules` for the options, which remembers the characters it saw."""
    return Rules(lowercase, strip_accents, chinese)


def replace_surrogates(text: str) -> str:
    """Replace each lone surrogate by U+FFFD; a pair becomes the character that it encodes."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _small_sigmas(text: str) -> str:
    small = text.replace("İ", "I").lower()  # İ is the one letter that lowercases to two
    return "".join(
        low if letter == "Σ" else letter for letter, low in zip(text, small, strict=True)
    )


def _dropped(letter: str) -> bool:
    return letter in "\0\ufffd" or unicodedata.category(letter) in ("Cc", "Cf")


def _decompose(word: Letters) -> Letters:
    """Return the canonical decomposition (NFD): marks apart from their letters, and sorted."""
    parts = [
        (part, index) for letter, index in word for part in unicodedata.normalize("NFD", letter)
    ]
    groups = itertools.groupby(parts, lambda part: unicodedata.combining(part[0]) > 0)
    sort = functools.partial(sorted, key=lambda part: unicodedata.combining(part[0]))
    return [part for marks, group in groups for part in (sort(group) if marks else group)]


def _is_sorted(letter: str) -> bool:
    """Tell whether a letter leaves a mark in the word whose index depends on its neighbours."""
    parts = unicodedata.normalize("NFD", letter.lower())
    return any(unicodedata.combining(part) and unicodedata.category(part) != "Mn" for part in parts)


def _split_at_punctuation(word: Letters) -> Iterator[Letters]:
    """Yield the parts of a word, each punctuation character by itself."""
    start = 0
    for i, (letter, _) in enumerate(word):
        symbol = "!" <= letter <= "~" and not letter.isalnum()
        if symbol or unicodedata.category(letter).startswith("P"):
            yield from (part for part in (word[start:i], [word[i]]) if part)
            start = i + 1
    if start < len(word):
        yield word[start:]


def _between_bars(words: list[str]) -> list[list[str]]:
    return [list(group) for bar, group in itertools.groupby(words, "|".__eq__) if not bar]
