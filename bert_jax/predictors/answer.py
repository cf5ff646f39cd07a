"""The predictor that finds the answer to a question in a context."""

from __future__ import annotations

import dataclasses
from typing import Any

from bert_jax.data.answers import Candidate
from bert_jax.data.examples import Example
from bert_jax.predictors.base import Model, Row, indented, percent
from bert_jax.predictors.labelled import Labelled


class Answer(Labelled):
    """Results {"question", "answer", "start", "end", "score"}; with --top-k also "n_best", a list.

    The answer is context[start:end]; where there is none it is empty, and start and end are 0. The
    score is a probability among the best answers.
    """

    heads = ("span",)
    plain = ("question", "context")
    forms = (("question", "context"),)
    example = '{"question": "Where is Paris?", "context": "Paris lies in France."}'
    windows = True
    heading = ("question",)

    def __init__(self, model: Model):
        super().__init__(model)
        top_k, threshold = model.options.top_k, model.options.no_answer_threshold
        self.task = dataclasses.replace(self.task, n_best=max(self.task.n_best, top_k or 0))
        if threshold is not None:
            self.task = dataclasses.replace(
                self.task, no_answer=True, no_answer_threshold=threshold
            )

    def example_of(self, row: Row) -> Example:
        """Return the question, with the context as its pair."""
        return Example(f"line {row.number}", "", row.fields["question"], row.fields["context"])

    def result(self, row: Row, prediction: Any) -> dict[str, Any]:
        """Return the chosen answer, which a threshold may make another than the best."""
        span = (prediction.text, prediction.start, prediction.end)
        chosen = next(c for c in prediction.n_best if (c.text, c.start, c.end) == span)
        result = {"question": row.fields["question"], **_written(chosen)}
        if (top_k := self.model.options.top_k) is not None:
            result["n_best"] = [_written(candidate) for candidate in prediction.n_best[:top_k]]
        return result

    def text(self, result: dict[str, Any]) -> str:
        """Write the answer and where it stands, then the others that were asked for."""
        tables = [indented([_row(result)])]
        if others := result.get("n_best"):
            tables += ["  best by score:", indented(map(_row, others))]
        return "\n".join(tables)


def _row(found: dict[str, Any]) -> tuple[str, ...]:
    place = f"characters {found['start']} to {found['end']}" if found["answer"] else ""
    return found["answer"] or "(no answer)", percent(found["score"]), place


def _written(candidate: Candidate) -> dict[str, Any]:
    return {
        "answer": candidate.text,
        "start": candidate.start,
        "end": candidate.end,
        "score": candidate.probability,
    }
