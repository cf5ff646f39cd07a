"""GPT-2's byte-level BPE as it was published, in plain Python: a text to words, bytes and pieces.

The words are the matches of

    's|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+

which Python's `re` cannot read; here each alternative is tried in turn, by the categories of
Unicode. In a word, the pair of neighbours that was merged first in training is merged, everywhere,
until no neighbours are a merge.
"""

from __future__ import annotations

import itertools
import unicodedata

ENDINGS = ("'s", "'t", "'re", "'ve", "'m", "'ll", "'d")
# Unicode's White_Space.
SPACES = {
    *"\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000",
    *map(chr, range(0x2000, 0x200B)),
}


def kind(character: str) -> str:
    if character in SPACES:
        return "space"
    return {"L": "letter", "N": "number"}.get(unicodedata.category(character)[0], "other")


def words(text: str) -> list[str]:
    found, at = [], 0
    while at < len(text):
        end = _end(text, at)
        found.append(text[at:end])
        at = end
    return found


def _end(text: str, at: int) -> int:
    """Where the word that begins at a place ends."""
    for ending in ENDINGS:
        if text.startswith(ending, at):
            return at + len(ending)
    first = at + (text[at] == " ")
    if first < len(text) and kind(text[first]) != "space":
        return _run(text, first)
    end = _run(text, at)  # of spaces
    if end == len(text) or end == at + 1:
        return end
    return end - 1  # the last one belongs to what follows


def _run(text: str, at: int) -> int:
    """Where a run of one kind ends."""
    end = at
    while end < len(text) and kind(text[end]) == kind(text[at]):
        end += 1
    return end


def alphabet() -> dict[int, str]:
    """The character that a byte is written as: itself where it is printed, else one from 256 on."""
    printed = [
        *range(ord("!"), ord("~") + 1),
        *range(ord("¡"), ord("¬") + 1),
        *range(ord("®"), ord("ÿ") + 1),
    ]
    spelt, more = {byte: chr(byte) for byte in printed}, 256
    for byte in range(256):
        if byte not in spelt:
            spelt[byte], more = chr(more), more + 1
    return spelt


SPELT = alphabet()


def merged(word: str, ranks: dict[tuple[str, str], int]) -> list[str]:
    """The pieces of a word, which is in the characters of bytes."""
    pieces = list(word)
    while len(pieces) > 1:
        pairs = {*itertools.pairwise(pieces)}
        first, second = best = min(pairs, key=lambda pair: ranks.get(pair, len(ranks)))
        if best not in ranks:
            break
        joined, at = [], 0
        while at < len(pieces):
            both = pieces[at : at + 2] == [first, second]
            joined.append(first + second if both else pieces[at])
            at += 2 if both else 1
        pieces = joined
    return pieces


def pieces(text: str, merges: list[tuple[str, str]]) -> list[str]:
    """The pieces of a text."""
    ranks = {pair: rank for rank, pair in enumerate(merges)}
    return [
        piece
        for word in words(text)
        for piece in merged("".join(SPELT[byte] for byte in word.encode()), ranks)
    ]
