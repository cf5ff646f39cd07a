"""The predictor of a class, a number or the best of some options, as the model's head has it."""

from __future__ import annotations

from typing import Any

from bert_jax.data.examples import Example
from bert_jax.errors import DataError
from bert_jax.predictors.base import Model, Row, indented, percent
from bert_jax.predictors.labelled import Labelled

LABELS = 20  # listed for people


class Classify(Labelled):
    """Results {"text", "label", "probabilities": {label: p}}; of regress {"text", "value"}."""

    heads = ("classify", "regress", "choice")
    heading = ("text", "text_pair")

    def __init__(self, model: Model):
        super().__init__(model)
        pair = ("text", "text_pair")
        if self.kind == "choice":
            self.plain, self.forms = (), (("text", "options"),)
            self.example = '{"text": "It rained.", "options": ["We got wet.", "We stayed dry."]}'
        elif self.task.text_pair:  # trained on pairs alone
            self.plain, self.forms = pair, (pair,)
            self.example = '{"text": "It rains.", "text_pair": "The sun shines."}'
        else:
            self.forms = (pair, ("text",))

    def example_of(self, row: Row) -> Example:
        """Return a text, a pair, or a text and its options."""
        fields = row.fields
        options = tuple(fields.get("options", ()))
        if self.kind == "choice" and (len(options) < 2 or len(set(options)) < len(options)):
            raise DataError(
                f"line {row.number}: options = {list(options)!r}", "two or more that differ"
            )
        return Example(
            f"line {row.number}", "", fields["text"], fields.get("text_pair"), options=options
        )

    def result(self, row: Row, prediction: Any) -> dict[str, Any]:
        """Return the number, or the likeliest label and all probabilities."""
        if self.kind == "regress":
            return {**row.fields, "value": prediction}
        names = row.fields.get("options", self.labels)
        probabilities = dict(zip(names, prediction.tolist(), strict=True))
        return {
            **row.fields,
            "label": names[int(prediction.argmax())],
            "probabilities": probabilities,
        }

    def text(self, result: dict[str, Any]) -> str:
        """Write the number, or a table of labels, the likeliest first."""
        if "value" in result:
            return f"  {result['value']:.3f}"
        best = sorted(result["probabilities"].items(), key=lambda one: -one[1])
        rows = [(label, percent(share)) for label, share in best[:LABELS]]
        more = f"\n  and {len(best) - LABELS} more labels" if len(best) > LABELS else ""
        return indented(rows) + more
