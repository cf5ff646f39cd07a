"""What predictors of heads over labels share: their rows and predictions are made as in an evaluation."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from bert_jax.data.labelled import answers, features
from bert_jax.data.labelled.examples import Example
from bert_jax.errors import ConfigError, DataError
from bert_jax.predictors.base import Model, Predictor, Row, Work


class Labelled(Predictor):
    """Lines become examples, and predictions of examples become results."""

    heads: ClassVar[tuple[str, ...]]  # of which the model has one

    def __init__(self, model: Model):
        super().__init__(model)
        config, options = model.run.config, model.options
        self.kind = model.choose(*self.heads)
        self.labels = config.objectives[self.kind].labels
        given: dict[str, Any] = {
            "long": options.long,
            "stride": options.stride,
            "stride_as": options.stride_as,
        }
        self.task = dataclasses.replace(
            config.task, **{k: v for k, v in given.items() if v not in ("", None)}
        )
        self.limit = min(model.limit, config.sequence_length)
        self.apply = model.head(self.kind, lambda logits: logits)

    def example_of(self, row: Row) -> Example:
        """The line as an example without a label; DataError if it is none."""
        raise NotImplementedError

    def result(self, row: Row, prediction: Any) -> dict[str, Any]:
        """What is written of a line."""
        raise NotImplementedError

    def encode(self, rows: Sequence[Row]) -> Work:
        """The rows of an evaluation; a long text may have several."""
        tokenizer, examples = self.model.run.tokenizer, [self.example_of(row) for row in rows]
        try:
            made = features.encode(
                examples, self.kind, tokenizer, self.task, self.limit, train=False
            )
        except DataError as error:
            if self.task.long != "refuse":
                raise
            raise DataError(
                str(error), "--long=cut loses its end; tag and answer have --long=windows too"
            ) from error
        if made.type_ids.max(initial=0) >= self.model.run.config.model.type_vocab:
            what = f"{self.model.run.folder} has one segment type, and the second text of a pair another"
            raise ConfigError(what, "ask a model with model.type_vocab = 2")

        def compute(chosen: np.ndarray, length: int, size: int) -> Any:
            return self.apply(features.batch(made, chosen, length, size, tokenizer.special))

        def results(outputs: list[Any]) -> Iterator[dict[str, Any]]:
            lengths = made.lengths.tolist()
            trimmed = [
                answers.trim(self.kind, one, n) for one, n in zip(outputs, lengths, strict=True)
            ]
            predictions = answers.decode(self.kind, made, examples, trimmed, self.task)
            return map(self.result, rows, predictions)

        return Work(made.lengths, compute, results, made.cut)
