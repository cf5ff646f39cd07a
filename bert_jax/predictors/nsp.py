"""The predictor of the probability that the second text follows the first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from bert_jax.predictors.base import Model, OfText, Row, Work


class Nsp(OfText):
    """Results {"text", "text_pair", "is_next"}."""

    plain = ("text", "text_pair")
    forms = (("text", "text_pair"),)
    example = '{"text": "He went out.", "text_pair": "It rained."}'

    def __init__(self, model: Model):
        super().__init__(model)
        self.apply = model.head("nsp", lambda logits: jax.nn.softmax(logits, -1)[:, 0, 0])  # [B]

    def encode(self, rows: Sequence[Row]) -> Work:
        """Encode one pair a line."""
        first, second = self.ids(rows), self.ids(rows, "text_pair")
        pairs = [list(pair) for pair in zip(first, second, strict=True)]
        return self.one_each(rows, pairs, self.apply, self.result)

    def result(self, row: Row, is_next: Any) -> dict[str, Any]:
        """Return the result of a line."""
        return {**row.fields, "is_next": float(is_next)}
