"""Readers of the texts of a page: texts and pairs, and texts with labels."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from bert_jax.errors import DataError
from bert_jax.predictors.base import Line, OfText
from bert_jax.system import jsons


class Texts(OfText):
    """Reader of texts and pairs, encoded as by `predict`; a literal [MASK] is the special token."""

    forms = (("text", "text_pair"), ("text",))

    def read(self, number: int, line: str) -> Line:
        """Read a line; one with a tab is a pair."""
        self.plain = ("text", "text_pair") if "\t" in line else ("text",)
        return super().read(number, line)

    def parts(self, rows: Sequence[Line]) -> tuple[list[list[list[int]]], list[bool]]:
        """Encode the texts of each row without special tokens; tell which rows were cut."""
        for row in rows:
            if blank := next((key for key, text in row.fields.items() if not text.strip()), None):
                raise DataError(f"line {row.number}: {blank} is empty", "give each text some words")
        encode = self.model.run.tokenizer.encode_batch
        whole = [encode(list(row.fields.values()), escape=False) for row in rows]
        fitted = [self.fit(row, parts) for row, parts in zip(rows, whole, strict=True)]
        return fitted, [after is not before for after, before in zip(fitted, whole, strict=True)]


class Label(msgspec.Struct):
    """The label of a JSON line."""

    label: str | int | None = None


class Labelled(OfText):
    """Reader of texts; a JSON line may have a `label`, which points are coloured by."""

    example = '{"text": "Paris is the capital of France.", "label": "travel"}'

    def _json(self, number: int, line: str) -> Line:
        row = super()._json(number, line)
        try:
            label = jsons.parse(line, Label).label
        except jsons.Malformed as error:
            raise DataError(f"line {number}: {error}", f"for example {self.example}") from error
        if label is not None:
            row.fields["label"] = str(label)
        return row
