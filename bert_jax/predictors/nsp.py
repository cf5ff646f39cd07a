"""The predictor of the probability that the second text follows the first."""

from __future__ import annotations

from typing import Any

import jax

from bert_jax.predictors.base import Model, OfText, Row, indented, percent


class Nsp(OfText):
    """Results {"text", "text_pair", "is_next"}."""

    plain = ("text", "text_pair")
    forms = (("text", "text_pair"),)
    heading = ("text", "text_pair")
    example = '{"text": "He went out.", "text_pair": "It rained."}'

    def __init__(self, model: Model):
        super().__init__(model)
        self.apply = model.head("nsp", lambda logits: jax.nn.softmax(logits, -1)[:, 0, 0])  # [B]

    def result(self, row: Row, output: Any) -> dict[str, Any]:
        """Return the result of a line."""
        return {**row.fields, "is_next": float(output)}

    def text(self, result: dict[str, Any]) -> str:
        """Write the probabilities that the second text follows the first, and that it does not."""
        follows = result["is_next"]
        rows = [("the second follows the first", follows), ("it does not", 1 - follows)]
        return indented((what, percent(share)) for what, share in rows)
