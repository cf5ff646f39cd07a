"""Texts of a page: reading lines, encoding them, and what pages say of texts and models."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from html import escape
from pathlib import Path

from bert_jax.errors import DataError
from bert_jax.interop import runs
from bert_jax.predictors.base import OfText, Row
from bert_jax.system import jsons

JOINERS = "\u200c\u200d"  # control characters that are part of a word or an emoji
SIGNS = {"\n": "↵", "\t": "⇥"}


class Texts(OfText):
    """Reader of texts and pairs, encoded as by `predict`; a literal [MASK] is the special token."""

    forms = (("text", "text_pair"), ("text",))

    def read(self, number: int, line: str) -> Row:
        """Read a line; one with a tab is a pair."""
        self.plain = ("text", "text_pair") if "\t" in line else ("text",)
        return super().read(number, line)

    def parts(self, rows: Sequence[Row]) -> tuple[list[list[list[int]]], list[bool]]:
        """Return the ids of each row's texts without special tokens, and whether they were cut."""
        for row in rows:
            if blank := next((key for key, text in row.fields.items() if not text.strip()), None):
                raise DataError(f"line {row.number}: {blank} is empty", "give each text some words")
        encode = self.model.run.tokenizer.encode_batch
        whole = [encode(list(row.fields.values()), escape=False) for row in rows]
        fitted = [self.fit(row, parts) for row, parts in zip(rows, whole, strict=True)]
        return fitted, [after is not before for after, before in zip(fitted, whole, strict=True)]


class Labelled(OfText):
    """Reader of texts; a JSON line may have a `label`, which points are coloured by."""

    example = '{"text": "Paris is the capital of France.", "label": "travel"}'

    def _json(self, number: int, line: str) -> Row:
        row, stated = super()._json(number, line), jsons.parse(line, dict)
        if problem := jsons.wrong(stated, {"label": jsons.Maybe(str | int)}):
            raise DataError(f"line {number}: {problem}", f"for example {self.example}")
        if stated.get("label") is not None:
            row.fields["label"] = str(stated["label"])
        return row


def model_name(run: runs.TrainedModel) -> str:
    """Return the name of the model's folder."""
    return Path(run.meta.get("foreign", run.folder)).resolve().name


def model_facts(run: runs.TrainedModel) -> list[str]:
    """Return the model's name and step as HTML, for the line under a page's title."""
    return [
        f"<b><bdi>{escape(model_name(run))}</bdi></b>",
        *([] if "foreign" in run.meta else [f"step {run.step:,}"]),
    ]


def visible(text: str) -> str:
    """Make control characters visible, such as those that change the direction of text."""

    def shown(c: str) -> str:
        if c in JOINERS or unicodedata.category(c) not in ("Cc", "Cf"):
            return c
        return SIGNS.get(c) or f"⟨U+{ord(c):04X}⟩"

    return "".join(map(shown, text))


def shorten(text: str, most: int) -> str:
    """Cut a long text."""
    return text if len(text) <= most else f"{text[:most]}…"
