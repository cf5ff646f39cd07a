"""The base of predictors for fine-tuned heads: rows and predictions as in an evaluation."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from bert_jax.data import answers, features
from bert_jax.data.examples import Example
from bert_jax.errors import DataError
from bert_jax.predictors.base import Model, Predictor, Row, Work


class Labelled(Predictor):
    """A predictor that turns lines into examples, and predictions for them into results."""

    heads: ClassVar[tuple[str, ...]]  # the model must have one of these

    def __init__(self, model: Model):
        super().__init__(model)
        config, options = model.run.config, model.options
        self.kind = model.choose(*self.heads)
        self.labels = config.objectives[self.kind].labels
        settings = {name: getattr(options, name) for name in ("long", "stride", "stride_as")}
        changes = {name: value for name, value in settings.items() if value not in ("", None)}
        self.task = dataclasses.replace(config.task, **changes)
        self.limit = min(model.limit, config.sequence_length)
        self.apply = model.head(self.kind, lambda logits: logits)

    def example_of(self, row: Row) -> Example:
        """Return a line as an example without a label; DataError if it cannot be one."""
        raise NotImplementedError

    def result(self, row: Row, prediction: Any) -> dict[str, Any]:
        """Return the result of a line."""
        raise NotImplementedError

    def encode(self, rows: Sequence[Row]) -> Work:
        """Encode lines as an evaluation does; a long text may have several rows."""
        tokenizer, examples = self.model.run.tokenizer, [self.example_of(row) for row in rows]
        try:
            encoded = features.encode_examples(
                examples, self.kind, tokenizer, self.task, self.limit, train=False
            )
        except DataError as error:
            if "task.long" not in (error.hint or ""):
                raise
            raise DataError(
                str(error), "--long=cut loses its end; tag and answer have --long=windows too"
            ) from error

        def compute(chosen: np.ndarray, length: int, size: int) -> Any:
            batch = features.gather_rows(encoded, chosen, length, size, tokenizer.special)
            return self.apply(batch)

        def results(outputs: list[Any]) -> Iterator[dict[str, Any]]:
            pairs = zip(outputs, encoded.lengths.tolist(), strict=True)
            trimmed = [answers.trim_output(self.kind, output, length) for output, length in pairs]
            predictions = answers.decode_outputs(self.kind, encoded, examples, trimmed, self.task)
            return map(self.result, rows, predictions)

        return Work(encoded.lengths, compute, results, encoded.cut)
