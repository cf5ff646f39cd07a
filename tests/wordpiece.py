"""What google's tokenization.py does, in plain Python: the words of a text, and their pieces."""

from __future__ import annotations

import re
import unicodedata

IDEOGRAPHS = [
    range(0x4E00, 0xA000),
    range(0x3400, 0x4DC0),
    range(0xF900, 0xFB00),
    range(0x2F800, 0x2FA20),
]
IDEOGRAPHS += [
    range(0x20000, 0x2A6E0),
    range(0x2A700, 0x2B740),
    range(0x2B740, 0x2B820),
    range(0x2B820, 0x2CEB0),
]
ASCII_MARKS = re.compile(r"[!-/:-@\[-`{-~]")


def google_words(text: str, lowercase: bool) -> list[str]:
    """Control characters go, ideographs are words, then case and accents go, then punctuation is
    set apart.
    """
    kept = [
        c
        for c in text
        if c in "\t\n\r" or not (c in "\0\ufffd" or unicodedata.category(c) in ("Cc", "Cf"))
    ]
    spaced = "".join(f" {c} " if any(ord(c) in block for block in IDEOGRAPHS) else c for c in kept)
    words = []
    for word in spaced.split():
        if lowercase:
            word = "".join(
                c
                for c in unicodedata.normalize("NFD", word.lower())
                if unicodedata.category(c) != "Mn"
            )
        marks = (ASCII_MARKS.match(c) or unicodedata.category(c)[0] == "P" for c in word)
        words += "".join(
            f" {c} " if mark else c for c, mark in zip(word, marks, strict=True)
        ).split(" ")
    return [word for word in words if word]


def pieces(word: str, vocab: set[str], limit: int = 200) -> list[str]:
    """Greedy longest match first, as the paper states it."""
    found, start = [], 0
    while start < len(word) <= limit:
        prefix = "##" if start else ""
        end = next(
            (e for e in range(len(word), start, -1) if prefix + word[start:e] in vocab), None
        )
        if end is None:
            break
        found.append(prefix + word[start:end])
        start = end
    return found if start == len(word) else ["[UNK]"]
