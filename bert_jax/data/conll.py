"""Formats of labelled words: CoNLL columns and CoNLL-U become one row a sentence, with the line of each word."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from bert_jax.data.formats import Count, Row, lines
from bert_jax.knobs import Task

CONLLU = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")


def conll(path: Path, task: Task, count: Count) -> Iterator[Row]:
    """Columns between tabs, else blanks: "0", "1", ..., counted from the last "-1", "-2", ....

    "text" is the first and "label" the last; one column alone has no labels. Tokens may begin with '#', so only
    -DOCSTART- lines are skipped.
    """
    width = 0
    for block in _blocks(path, "-DOCSTART-"):
        cells = [text.split("\t") if "\t" in text else [c for c in text.split(" ") if c] for _, text, _ in block]
        width = width or len(cells[0])
        names = [str(n) for n in range(width)]
        aliases = {"text": "0"}
        if width > 1:
            aliases["label"] = names[-1]
            aliases |= {str(n - width): str(n) for n in range(1, width)}
        yield from _sentence(path, block, cells, names, aliases, count)


def conllu(path: Path, task: Task, count: Count) -> Iterator[Row]:
    """CoNLL-U: columns by name; ranges of words (1-2) and empty nodes (1.1) are no words."""
    aliases = {"text": "form", "label": "upos"}
    for block in _blocks(path, "#"):
        kept = [part for part in block if not re.match(r"\d+[-.]\d", part[1])]
        yield from _sentence(path, kept, [text.split("\t") for _, text, _ in kept], CONLLU, aliases, count)


def _blocks(path: Path, skipped: str) -> Iterator[list[tuple[int, str, str]]]:
    block: list[tuple[int, str, str]] = []
    for number, text, problem in lines(path):
        if not text.strip() and not problem:
            if block:
                yield block
            block = []
        elif not text.startswith(skipped):
            block.append((number, text, problem))
    if block:
        yield block


def _sentence(
    path: Path, block: list, cells: list[list[str]], names: Sequence[str], aliases: dict[str, str], count: Count
) -> Iterator[Row]:
    count.rows += 1
    for (line, _, problem), row in zip(block, cells, strict=True):
        if not problem and len(row) != len(names):
            problem = f"{len(row)} columns, not {len(names)}"
        if problem:
            count.refuse(f"{path}:{line}", problem)
            return
    if block:
        fields = {name: list(column) for name, column in zip(names, zip(*cells, strict=True), strict=True)}
        fields |= {alias: fields[name] for alias, name in aliases.items()}
        yield Row(f"{path}:{block[0][0]}", count.rows - 1, fields, tuple(line for line, *_ in block))
