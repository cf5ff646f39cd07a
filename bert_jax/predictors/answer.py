"""The answer to a question that stands in a context."""

from __future__ import annotations

import dataclasses
from typing import Any

from bert_jax.data.labelled.answers import Candidate
from bert_jax.data.labelled.examples import Example
from bert_jax.predictors.base import Model, Row
from bert_jax.predictors.labelled import Labelled


class Answer(Labelled):
    """{"question", "answer", "start", "end", "score"}, and with --top-k "n_best", a list of such.

    The answer is context[start:end]; where there is none it is empty, and start and end are 0. The score is a
    probability among the best answers.
    """

    heads = ("span",)
    plain = ("question", "context")
    forms = (("question", "context"),)
    example = '{"question": "Where is Paris?", "context": "Paris lies in France."}'
    windows = True

    def __init__(self, model: Model):
        super().__init__(model)
        top_k, threshold = model.options.top_k, model.options.no_answer_threshold
        self.task = dataclasses.replace(self.task, n_best=max(self.task.n_best, top_k or 0))
        if threshold is not None:
            self.task = dataclasses.replace(
                self.task, no_answer=True, no_answer_threshold=threshold
            )

    def example_of(self, row: Row) -> Example:
        """The question, and the context as its pair."""
        return Example(f"line {row.number}", "", row.fields["question"], row.fields["context"])

    def result(self, row: Row, prediction: Any) -> dict[str, Any]:
        """The answer that was chosen, which need not be the first where a threshold says so."""
        span = (prediction.text, prediction.start, prediction.end)
        chosen = next(one for one in prediction.n_best if (one.text, one.start, one.end) == span)
        found = {"question": row.fields["question"], **_written(chosen)}
        if self.model.options.top_k is not None:
            found["n_best"] = [
                _written(one) for one in prediction.n_best[: self.model.options.top_k]
            ]
        return found


def _written(one: Candidate) -> dict[str, Any]:
    return {"answer": one.text, "start": one.start, "end": one.end, "score": one.probability}
