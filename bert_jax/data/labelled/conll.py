"""Formats of labelled words: CoNLL columns and CoNLL-U become one row a sentence, with the line of each word."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from bert_jax.config.knobs import LINE, Task
from bert_jax.data.labelled.formats import Count, Row, lines

SAMPLE = 400  # lines by which a file is known
CONLLU = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
COMMENT = re.compile(r"#(\s|##)")  # a token may well begin with '#'
NAMED = re.compile(r"#\s*[\w.]+\s*=")  # NAME = VALUE
ENTITY = re.compile(r"O|[BIES]-.+")  # the label of a word that is, or is not, part of one
SPECIAL = re.compile(
    r"\d+[-.]\d"
)  # the number of several words in one (1-2), and of a node without one (1.1)

Line = tuple[int, str, str]  # number, text, what is wrong with it


class Layout(NamedTuple):
    """What the columns of a file are, by its first lines."""

    sample: str  # the first line of a word
    sentences: list[list[list[str]]]  # the columns of each word
    label: int  # column of the labels
    numbered: bool  # the first column counts the words, and what follows the label may be missing


def cells(text: str) -> list[str]:
    """Return the columns of a line, between tabs, else blanks."""
    return text.split("\t") if "\t" in text else [cell for cell in text.split(" ") if cell]


def layout(texts: list[str]) -> Layout:
    """Return the layout of a file that begins with these lines."""
    sample = next(
        (text for text in texts if text.strip() and not text.startswith(("#", "-DOCSTART-"))), ""
    )
    blocks: list[list[list[str]]] = [[]]
    for text in texts:
        if not text.strip():
            blocks.append([])
        elif not _comment(text, sample, bool(blocks[-1])):
            blocks[-1].append(cells(text))
    found = [block for block in blocks if block]
    words = [row for block in found for row in block if not SPECIAL.match(row[0])]
    columns = range(2, max(map(len, words), default=0))
    entities = [
        n
        for n in columns
        if most([len(row) > n and bool(ENTITY.fullmatch(row[n])) for row in words])
    ]
    if entities and most([_counted(block) for block in found]):
        return Layout(sample, found, entities[0], True)
    return Layout(sample, found, len(cells(sample)) - 1, False)


def most(votes: list[bool]) -> bool:
    """Return whether lines agree; one that is malformed is for the reader to name."""
    return bool(votes) and sum(votes) >= 0.75 * len(votes)


def _counted(block: list[list[str]]) -> bool:
    """Return whether the first column counts the words."""
    numbers = [row[0] for row in block if not SPECIAL.match(row[0])]
    return numbers == [str(n) for n in range(1, len(numbers) + 1)]


def _comment(text: str, sample: str, begun: bool) -> bool:
    """Return whether a line is no word, given that of some word, and whether its sentence has begun."""
    if text.startswith("-DOCSTART-"):
        return True
    if begun or not COMMENT.match(text):
        return False
    return (
        bool(NAMED.match(text))
        or ("\t" in text) != ("\t" in sample)
        or len(cells(text)) != len(cells(sample))
    )


def conll(path: Path, task: Task, count: Count) -> Iterator[Row]:
    """Read columns between tabs, else blanks: "0", "1", ..., counted from the last "-1", "-2", ....

    "text" is the first and "label" the last; one column alone has no labels. Where the first counts the words, as in
    the IOB2 files of Universal NER, "text" is the second and "label" the first that has labels of entities alone; what
    is behind it may be missing. Comments stand before a sentence; a token may begin with '#' too.
    """
    form = layout([text for _, text, _ in itertools.islice(lines(path), SAMPLE)])
    for block in _blocks(path, lambda text, begun: _comment(text, form.sample, begun)):
        if form.numbered:
            yield from _numbered(path, block, form.label, count)
            continue
        names = [str(n) for n in range(form.label + 1)]
        aliases = {"text": "0"}
        if form.label:
            aliases["label"] = names[-1]
            aliases |= {str(n - len(names)): str(n) for n in range(1, len(names))}
        yield from _sentence(
            path, block, [cells(text) for _, text, _ in block], names, aliases, count
        )


def _numbered(path: Path, block: list[Line], label: int, count: Count) -> Iterator[Row]:
    """Read a sentence whose words are numbered: the columns that all its words have."""
    kept = [line for line in block if not SPECIAL.match(line[1])]
    rows = [cells(text) for _, text, _ in kept]
    names = [str(n) for n in range(max(label + 1, min(map(len, rows), default=0)))]
    cut = [row[: len(names)] for row in rows]
    yield from _sentence(path, kept, cut, names, {"text": "1", "label": str(label)}, count)


def conllu(path: Path, task: Task, count: Count) -> Iterator[Row]:
    """Read CoNLL-U: columns by name; ranges of words (1-2) and empty nodes (1.1) are no words."""
    aliases = {"text": "form", "label": "upos"}
    for block in _blocks(path, lambda text, begun: text.startswith("#")):
        kept = [part for part in block if not SPECIAL.match(part[1])]
        yield from _sentence(
            path, kept, [text.split("\t") for _, text, _ in kept], list(CONLLU), aliases, count
        )


def _blocks(path: Path, skipped: Callable[[str, bool], bool]) -> Iterator[list[Line]]:
    """Yield the lines of each sentence; `skipped` tells what is no word, given whether one came before."""
    block: list[Line] = []
    size = 0
    for number, text, problem in lines(path):
        if not text.strip() and not problem:
            if block:
                yield block
            block, size = [], 0
        elif size <= LINE and (
            problem or not skipped(text, bool(block))
        ):  # no more of it is kept than that
            size += len(text)
            problem = problem or (
                f"a sentence of more than {LINE:,} characters" if size > LINE else ""
            )
            block.append((number, text, problem))
    if block:
        yield block


def _sentence(
    path: Path,
    block: list[Line],
    rows: list[list[str]],
    names: list[str],
    aliases: dict[str, str],
    count: Count,
) -> Iterator[Row]:
    count.rows += 1
    for (line, _, problem), row in zip(block, rows, strict=True):
        if not problem and len(row) != len(names):
            problem = f"{len(row)} columns, not {len(names)}"
        if problem:
            count.refuse(f"{path}:{line}", problem)
            return
    if block:
        fields = {
            name: list(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)
        }
        fields |= {alias: fields[name] for alias, name in aliases.items()}
        yield Row(
            f"{path}:{block[0][0]}", count.rows - 1, fields, tuple(line for line, *_ in block)
        )
