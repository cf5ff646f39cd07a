"""The probability that the second text follows the first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from bert_jax.predictors.base import Model, OfText, Row, Work


class Nsp(OfText):
    """{"text", "text_pair", "is_next"}."""

    plain = ("text", "text_pair")
    forms = (("text", "text_pair"),)
    example = '{"text": "He went out.", "text_pair": "It rained."}'

    def __init__(self, model: Model):
        super().__init__(model)
        self.apply = model.head(
            "nsp", lambda logits: jax.nn.softmax(logits, -1)[:, 0, 0]
        )  # of [B, 1, 2]

    def encode(self, rows: Sequence[Row]) -> Work:
        """One pair a line."""
        pairs = [
            list(pair) for pair in zip(self.ids(rows), self.ids(rows, "text_pair"), strict=True)
        ]
        return self.one_each(rows, pairs, self.apply, self.result)

    def result(self, row: Row, is_next: Any) -> dict[str, Any]:
        """What is written of a line."""
        return {**row.fields, "is_next": float(is_next)}
