"""The texts of a page: how a line is read, and the pieces of each."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from bert_jax.errors import DataError
from bert_jax.interop import runs
from bert_jax.predictors.base import OfText, Row

JOINERS = "\u200c\u200d"  # controls that belong to a script or an emoji
SIGNS = {"\n": "↵", "\t": "⇥"}


class Texts(OfText):
    """Texts and pairs, encoded as `predict` does; a literal [MASK] is the special token."""

    forms = (("text", "text_pair"), ("text",))

    def read(self, number: int, line: str) -> Row:
        """A line with a tab is a pair."""
        self.plain = ("text", "text_pair") if "\t" in line else ("text",)
        return super().read(number, line)

    def parts(self, rows: Sequence[Row]) -> tuple[list[list[list[int]]], list[bool]]:
        """Ids of the text or the two texts of each row, without special tokens, and whether they had to be cut."""
        for row in rows:
            if blank := next((key for key, text in row.fields.items() if not text.strip()), None):
                raise DataError(f"line {row.number}: {blank} is empty", "give each text some words")
        encode = self.model.run.tokenizer.encode_batch
        found = [encode(list(row.fields.values()), escape=False) for row in rows]
        fitted = [self.fit(row, parts) for row, parts in zip(rows, found, strict=True)]
        return fitted, [now is not before for now, before in zip(fitted, found, strict=True)]


def called(run: runs.Run) -> str:
    """The model, by the name of its folder."""
    return Path(run.meta.get("foreign", run.folder)).resolve().name


def introduced(run: runs.Run) -> list[str]:
    """The model and its step, as HTML: the first words under a page's title."""
    return [
        f"<b><bdi>{escape(called(run))}</bdi></b>",
        *([] if "foreign" in run.meta else [f"step {run.step:,}"]),
    ]


def stated(data: Any) -> str:
    """Data for the page's script, as JSON that ends no script."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":  # none stands outside of a string
        text = text.replace(character, f"\\u{ord(character):04x}")
    return f'<script type="application/json" id="data">{text}</script>'


def visible(text: str) -> str:
    """The text with its control characters shown, those that would turn the lines around it among them."""
    return "".join(_shown(c) if unicodedata.category(c) in ("Cc", "Cf") else c for c in text)


def shorten(text: str, most: int) -> str:
    """The front of a long text."""
    return text if len(text) <= most else f"{text[:most]}…"


def _shown(c: str) -> str:
    return c if c in JOINERS else SIGNS.get(c) or f"⟨U+{ord(c):04X}⟩"
