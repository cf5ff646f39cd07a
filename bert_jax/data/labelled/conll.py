"""Readers of labelled words: CoNLL columns and CoNLL-U, one row a sentence."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from bert_jax.config.knobs import LINE, Task
from bert_jax.data.labelled.formats import Count, Row, lines

SAMPLE = 400  # first lines of a file, from which its format and layout are recognised
CONLLU = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
COMMENT = re.compile(r"#(\s|##)")  # a token may well begin with '#'
NAMED = re.compile(r"#\s*[\w.]+\s*=")  # NAME = VALUE
ENTITY = re.compile(r"O|[BIES]-.+")  # the label of a word that is, or is not, part of one
SPECIAL = re.compile(r"\d+[-.]\d")  # the number of a multiword token (1-2) or an empty node (1.1)

Line = tuple[int, str, str]  # number, text, problem


class Layout(NamedTuple):
    """Meaning of a file's columns, recognised from its first lines."""

    sample: str  # the first line of a word
    sentences: list[list[list[str]]]  # the columns of each word
    label: int  # column of the labels
    numbered: bool  # the first column counts the words, and what follows the label may be missing


def cells(text: str) -> list[str]:
    """Return the columns of a line, which tabs separate, else blanks."""
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
    sentences = [block for block in blocks if block]
    words = [row for block in sentences for row in block if not SPECIAL.match(row[0])]
    columns = range(2, max(map(len, words), default=0))
    entities = [
        n
        for n in columns
        if most([len(row) > n and bool(ENTITY.fullmatch(row[n])) for row in words])
    ]
    if entities and most([_counted(block) for block in sentences]):
        return Layout(sample, sentences, entities[0], True)
    return Layout(sample, sentences, len(cells(sample)) - 1, False)


def most(votes: list[bool]) -> bool:
    """Return whether most lines agree; the reader reports those that are malformed."""
    return bool(votes) and sum(votes) >= 0.75 * len(votes)


def _counted(block: list[list[str]]) -> bool:
    """Return whether the first column counts the words."""
    numbers = [row[0] for row in block if not SPECIAL.match(row[0])]
    return numbers == [str(n) for n in range(1, len(numbers) + 1)]


def _comment(text: str, sample: str, begun: bool) -> bool:
    """Return whether a line is not a word.

    `sample` is the line of some word of the file; `begun` tells whether a word of the same
    sentence came before.
    """
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
    """Read columns that tabs separate, else blanks, as "0", "1", ... and also "-1", "-2", ....

    "text" is the first and "label" the last; a single column has no labels. Where the first column
    counts the words, as in the IOB2 files of Universal NER, "text" is the second and "label" the
    first column that has labels of entities alone; columns after it may be missing. Comments stand
    before a sentence; a token may begin with '#' too.
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
        rows = [cells(text) for _, text, _ in block]
        yield from _sentence(path, block, rows, names, aliases, count)


def _numbered(path: Path, block: list[Line], label: int, count: Count) -> Iterator[Row]:
    """Read a sentence whose words are numbered: those columns that all its words have."""
    words = [line for line in block if not SPECIAL.match(line[1])]
    rows = [cells(text) for _, text, _ in words]
    names = [str(n) for n in range(max(label + 1, min(map(len, rows), default=0)))]
    rows = [row[: len(names)] for row in rows]
    yield from _sentence(path, words, rows, names, {"text": "1", "label": str(label)}, count)


def conllu(path: Path, task: Task, count: Count) -> Iterator[Row]:
    """Read CoNLL-U: columns by name; multiword tokens (1-2) and empty nodes (1.1) are left out."""
    aliases = {"text": "form", "label": "upos"}
    for block in _blocks(path, lambda text, begun: text.startswith("#")):
        words = [line for line in block if not SPECIAL.match(line[1])]
        rows = [text.split("\t") for _, text, _ in words]
        yield from _sentence(path, words, rows, list(CONLLU), aliases, count)


def _blocks(path: Path, skipped: Callable[[str, bool], bool]) -> Iterator[list[Line]]:
    """Yield the lines of each sentence.

    `skipped(text, begun)` tells whether a line is not a word, as `_comment` does.
    """
    block: list[Line] = []
    size = 0
    for number, text, problem in lines(path):
        if not text.strip() and not problem:
            if block:
                yield block
            block, size = [], 0
        elif size <= LINE and (problem or not skipped(text, bool(block))):
            size += len(text)
            if size > LINE and not problem:  # the rest of the sentence is not kept
                problem = f"a sentence of more than {LINE:,} characters"
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
        columns = map(list, zip(*rows, strict=True))
        fields = dict(zip(names, columns, strict=True))
        fields |= {alias: fields[name] for alias, name in aliases.items()}
        numbers = tuple(number for number, *_ in block)
        yield Row(f"{path}:{numbers[0]}", count.rows - 1, fields, numbers)
