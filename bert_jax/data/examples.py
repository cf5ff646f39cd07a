"""Checked examples of a labelled task: what every later stage may rely on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of a span task; `context[start : start + len(text)] == text`, counted in characters."""

    text: str
    start: int


@dataclass(frozen=True, slots=True)
class Example:
    """One labelled thing.

    `label` is an int (classify, choice), a float (regress), one int a word (tag) or the answers (span: empty is no
    answer); None where the data has no labels, as test splits may.
    """

    where: str  # FILE:LINE, for messages
    id: str
    text: str = ""  # span: the question; choice: what the options follow
    pair: str | None = None  # span: the context
    words: tuple[str, ...] = ()  # tag
    options: tuple[str, ...] = ()  # choice
    label: Any = None
