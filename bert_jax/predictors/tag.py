"""The predictor of a label for every word, and of the entities that the labels mark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bert_jax.data.examples import Example
from bert_jax.errors import ConfigError
from bert_jax.evaluation import scores
from bert_jax.predictors.base import Model, Row, indented
from bert_jax.predictors.labelled import Labelled


class Tag(Labelled):
    """Results {"words", "labels"}; with --entities also "entities", a list of what the labels mark.

    An entity is {"text", "label", "start", "end"}, counted in characters. A text is split at
    blanks. Where words are given, entities lie in the text they make with a blank between.
    As in transformers, byte-level BPE sees a blank before each of given words, but before the first
    word of a text only if the text has it.
    """

    heads = ("tag",)
    forms = (("words",), ("text",))
    example = '{"words": ["Paris", "is", "in", "France", "."]}'
    windows = True
    heading = ("words",)

    def __init__(self, model: Model):
        super().__init__(model)
        if model.options.entities and not scores.is_entities(self.labels):
            raise ConfigError(
                f"the labels {', '.join(self.labels)} mark no entities",
                "--entities merges words labelled B-… and I-…",
            )

    def example_of(self, row: Row) -> Example:
        """Return the words of a line as an example."""
        text = row.fields.get("text", "")
        return Example(f"line {row.number}", "", text=text, words=tuple(self._words(row)))

    def result(self, row: Row, prediction: Any) -> dict[str, Any]:
        """Return a label for each word; None, not O, where the text was cut off before it."""
        words = self._words(row)
        labels = [self.labels[tag] if tag >= 0 else None for tag in prediction]
        result: dict[str, Any] = {"words": words, "labels": labels}
        if self.model.options.entities:
            result["entities"] = entities(row.fields.get("text", " ".join(words)), words, labels)
        return result

    def text(self, result: dict[str, Any]) -> str:
        """Write a table of words and labels, then the entities."""
        labels = [label or "(cut off)" for label in result["labels"]]
        tables = [indented(zip(result["words"], labels, strict=True))]
        if found := result.get("entities"):
            tables += ["  entities:", indented((one["text"], one["label"]) for one in found)]
        return "\n".join(tables)

    @staticmethod
    def _words(row: Row) -> list[str]:
        return row.fields["words"] if "words" in row.fields else row.fields["text"].split()


def entities(text: str, words: Sequence[str], labels: Sequence[str | None]) -> list[dict[str, Any]]:
    """Return the entities that labels mark, as seqeval reads them."""
    from seqeval.metrics.sequence_labeling import get_entities

    spans, at = [], 0
    for word in words:
        at = text.index(word, at)
        spans.append((at, at + len(word)))
        at += len(word)
    results = []
    for label, first, last in get_entities([label or "O" for label in labels]):
        start, end = spans[first][0], spans[last][1]
        results.append({"text": text[start:end], "label": label, "start": start, "end": end})
    return results
