"""The items and chunks that every corpus source yields, and the sentence splitter."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import sentencex

from bert_jax.data.tokenizer import replace_surrogates
from bert_jax.errors import DataError

PIECE = 1 << 20  # bytes or characters of a line held at once; a longer line is cut near here
CHUNK = 1 << 18  # characters of a document held at once
REPLACED = "\ufffd"  # the replacement character, in place of bytes that are no text
SENTENCE = 16_384  # characters; a longer sentence is cut at a space
# Stands before a sentence that no space separates from the one before it. As a space by Python's
# rules, it is in no sentence.
GLUED = "\x1f"


class Item(NamedTuple):
    """A piece of work: a file, a range of rows, some modules."""

    name: str  # for messages
    weight: int  # bytes, about
    spec: tuple  # what the source's `read` needs


class Chunk(NamedTuple):
    """Consecutive lines of one record, which is a document or a part of one."""

    lines: list[str]
    last: bool = True  # ends the record
    joins: bool = False  # the record continues the document of the previous record
    bad: bool = False  # one bad chunk drops its record


@dataclasses.dataclass
class Tally:
    """Counts of a reader, and the place of the first problem of each kind."""

    counts: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    first: dict[str, str] = dataclasses.field(default_factory=dict)

    def add(self, kind: str, where: str) -> None:
        """Count a problem, and remember where the first of its kind was."""
        self.counts[kind] += 1
        self.first.setdefault(kind, where)


def decode(data: bytes, policy: str, where: str, offset: int, tally: Tally) -> tuple[str, bool]:
    """Decode bytes by the policy `on_bad_text`; return the text and whether to drop its record."""
    try:
        text = data.decode()
        start, problem = text.find("\0"), "a NUL character"
        if start < 0:
            return text, False
        start = len(text[:start].encode())
    except UnicodeDecodeError as error:
        text = data.decode(errors="replace")
        start, problem = error.start, "invalid UTF-8"
    return _bad(text, policy, f"{where}, byte {offset + start}: {problem}", tally)


def check(text: str, policy: str, where: Callable[[], str], tally: Tally) -> tuple[str, bool]:
    """Do as `decode` for decoded text, in which JSON escapes may still give NUL or a surrogate."""
    if "\0" in text:
        return _bad(text, policy, f"{where()}: a NUL character", tally)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            return _bad(
                text, policy, f"{where()}, character {error.start}: a lone surrogate", tally
            )
    return text, False


def _bad(text: str, policy: str, problem: str, tally: Tally) -> tuple[str, bool]:
    if policy == "fail":
        hint = "set --config.corpus.on_bad_text=replace or skip, or repair the file"
        raise DataError(problem, hint)
    tally.add("bad_text", problem)
    return replace_surrogates(text.replace("\0", REPLACED)), policy == "skip"


def chunks(text: str, bad: bool = False, joins: bool = False) -> Iterator[Chunk]:
    """Yield a whole document in chunks of bounded size; only a newline separates lines."""
    lines: list[str] = []
    size = start = 0
    while start <= len(text):
        end = text.find("\n", start, start + PIECE)
        if end < 0 and len(text) - start > PIECE:
            end = start + cut(text[start : start + PIECE], (". ", "! ", "? ", "。"))
            lines.append(text[start:end])
            start = end
        else:
            end = len(text) if end < 0 else end
            lines.append(text[start:end])
            start = end + 1
        size += len(lines[-1])
        if size >= CHUNK:
            yield Chunk(lines, False, joins, bad)
            lines, size = [], 0
    yield Chunk(lines, True, joins, bad)


def cut(piece: Any, ends: tuple, space: Any = " ") -> int:
    """Return where to cut a line that is too long.

    That is after a sentence in the second half, else after a space there, else at the end.
    """
    half = len(piece) // 2
    after = [piece.rfind(end, half) + len(end) for end in ends if piece.rfind(end, half) >= 0]
    return max(after) if after else piece.rfind(space, half) + 1 or len(piece)


def sentences(line: str, language: str | None, tally: Tally) -> list[str]:
    """Split a line into sentences, and normalise spaces; without a language, the line is one.

    A sentence has GLUED before it where the line has no space there, as between Chinese ones.

    sentencex was chosen by measurement on 1.4 MB of English: 78 MB/s, against 14 for blingfire, 1.1
    for syntok and 0.2 for pysbd; it and blingfire agree on the number of sentences within 0.2 % and
    on the usual abbreviations.
    """
    # U+2028, U+0085 and the like count as spaces, never as the end of a line.
    line = " ".join(line.split())
    parts = [s.strip() for s in sentencex.segment(language, line)] if language and line else [line]
    parts = [s for s in parts if s]
    if len(line) > SENTENCE:
        parts = [piece for s in parts for piece in _bounded(s, tally)]
    return parts if " ".join(parts) == line else list(_marked(parts, line))


def _bounded(sentence: str, tally: Tally) -> Iterator[str]:
    while len(sentence) > SENTENCE:
        tally.counts["cut_sentences"] += 1
        end = cut(sentence[:SENTENCE], ())
        yield sentence[:end].strip()
        sentence = sentence[end:].strip()
    if sentence:
        yield sentence


def _marked(parts: list[str], line: str) -> Iterator[str]:
    """Yield the parts of a line, with GLUED before those that follow one without a space."""
    at = 0
    for part in parts:
        place = line.find(part, at)
        yield f"{GLUED}{part}" if 0 < place == at else part
        at = max(place, at) + len(part)
