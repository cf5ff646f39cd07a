"""Words as google's tokenization.py cuts them, by the Unicode tables of this Python.

The tokenizers library has tables of its own: it drops private-use characters, takes U+2B820 to U+2B91F for letters, and
knows nothing of what Unicode gained since. For most texts the two agree; `Rules.apart` finds the others, and
`Rules.words` cuts them.

Both ways make one character after the other into something: what becomes of X in "aXb" becomes of it everywhere. So a
character is tried once, when it is first seen. Only two things depend on neighbours. A capital sigma that ends a word
becomes ς: `Rules.settled` writes it small beforehand. And combining marks are put in order: those that stay in the
word, which are few, count as taken otherwise.
"""

from __future__ import annotations

import functools
import itertools
import re
import unicodedata
from collections.abc import Iterator, Sequence

import numpy as np
from tokenizers import normalizers, pre_tokenizers

UNSEEN, ALIKE, APART = range(3)
IDEOGRAPHS = (  # each a word by itself
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0x2F800, 0x2FA1F),
)
_VOID = re.compile(
    "[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufffd]"
)  # dropped, and yet what a sigma would take for an end
Letters = list[tuple[str, int]]  # characters, and where in the text each comes from


class Rules:
    """google's rules, and which characters the tokenizers library takes otherwise."""

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
        self._taken = np.full(0x110000, UNSEEN, np.uint8)  # how the library takes each code point
        self._taken[:0x80] = ALIKE
        self._taken[0xD800:0xE000] = (
            APART  # half a character: google's code keeps it, the library takes no such text
        )

    def settled(self, text: str) -> str:
        """The text with each capital sigma small, in its final form at the end of a word; one for one."""
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
        """Which of the texts hold a character that the library takes otherwise."""
        others = [i for i, text in enumerate(texts) if not text.isascii()]
        if not others:
            return []
        joined = "".join(texts[i] for i in others)
        codes = np.frombuffer(joined.encode("utf-32-le", "surrogatepass"), "<u4")
        taken = self._taken[codes]
        if not taken.all():
            self._try(np.unique(codes[taken == UNSEEN]))
            taken = self._taken[codes]
        if taken.max() < APART:
            return []
        ends = np.cumsum([len(texts[i]) for i in others])
        found = np.unique(np.searchsorted(ends, np.flatnonzero(taken == APART), "right"))
        return [others[i] for i in found.tolist()]

    def words(self, text: str) -> Iterator[Letters]:
        """The words of a settled text."""
        for word in self._spaced(text):
            if self.lowercase:
                word = [(low, place) for letter, place in word for low in letter.lower()]
            if self.strip_accents:
                word = [one for one in _decomposed(word) if unicodedata.category(one[0]) != "Mn"]
            yield from _split_at_punctuation(word)

    def _spaced(self, text: str) -> Iterator[Letters]:
        """What stands between spaces, without control characters; an ideograph by itself."""
        word: Letters = []
        for place, letter in enumerate(text):
            if letter not in "\t\n\r" and _dropped(letter):
                continue
            alone = self.chinese and any(low <= ord(letter) <= high for low, high in IDEOGRAPHS)
            if alone or letter.isspace():
                yield word
                word = []
            if alone:
                yield [(letter, place)]
            elif not letter.isspace():
                word.append((letter, place))
        yield word

    def _try(self, codes: np.ndarray) -> None:
        """Notes how the library takes these characters: each in its own "aXb", with a bar between them."""
        letters = [chr(code) for code in codes]
        text = "|".join(f"a{letter}b" for letter in letters)
        split = pre_tokenizers.BertPreTokenizer().pre_tokenize_str(
            self.normalizer.normalize_str(text)
        )
        ours = _between_bars(["".join(letter for letter, _ in word) for word in self.words(text)])
        theirs = _between_bars([word for word, _ in split])
        self._taken[codes] = [
            ALIKE if our == their and not (self.strip_accents and _ordered(letter)) else APART
            for letter, our, their in zip(letters, ours, theirs, strict=True)
        ]


@functools.cache
def google(lowercase: bool, strip_accents: bool, chinese: bool) -> Rules:
    """The rules for such text, which know the characters that were seen in this process."""
    return Rules(lowercase, strip_accents, chinese)


def _small_sigmas(text: str) -> str:
    small = text.replace("İ", "I").lower()  # the one letter that becomes two
    return "".join(
        low if letter == "Σ" else letter for letter, low in zip(text, small, strict=True)
    )


def _dropped(letter: str) -> bool:
    return letter in "\0\ufffd" or unicodedata.category(letter) in ("Cc", "Cf")


def _decomposed(word: Letters) -> Letters:
    """The canonical decomposition (NFD): combining marks apart from their letters, and in order."""
    parts = [
        (part, place) for letter, place in word for part in unicodedata.normalize("NFD", letter)
    ]
    groups = itertools.groupby(parts, lambda one: unicodedata.combining(one[0]) > 0)
    sort = functools.partial(sorted, key=lambda one: unicodedata.combining(one[0]))
    return [one for marks, group in groups for one in (sort(group) if marks else group)]


def _ordered(letter: str) -> bool:
    """Whether it leaves a mark in the word whose place depends on its neighbours."""
    parts = unicodedata.normalize("NFD", letter.lower())
    return any(unicodedata.combining(part) and unicodedata.category(part) != "Mn" for part in parts)


def _split_at_punctuation(word: Letters) -> Iterator[Letters]:
    """The parts of a word, each punctuation character by itself."""
    start = 0
    for i, (letter, _) in enumerate(word):
        if ("!" <= letter <= "~" and not letter.isalnum()) or unicodedata.category(
            letter
        ).startswith("P"):
            yield from (part for part in (word[start:i], [word[i]]) if part)
            start = i + 1
    if start < len(word):
        yield word[start:]


def _between_bars(words: list[str]) -> list[list[str]]:
    return [list(group) for bar, group in itertools.groupby(words, "|".__eq__) if not bar]
