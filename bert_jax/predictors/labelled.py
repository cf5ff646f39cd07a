"""Tasks that read a fine-tuned head: `classify`, `tag` and `answer`.

Texts are encoded, and outputs decoded, as by the evaluation of a fine-tuned model.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from bert_jax.data import answers, features
from bert_jax.data.examples import Example
from bert_jax.errors import DataError, need
from bert_jax.evaluation import scores
from bert_jax.predictors.base import AskedModel, Line, Predictor, Work, format_percent, indent_table

LABELS = 20  # listed for people
BLANK = ("", " ")  # options of a blank line, whose answer is not shown


class Labelled(Predictor):
    """A predictor that turns lines into examples, and predictions for the examples into results."""

    heads: ClassVar[tuple[str, ...]]  # the model must have one of these

    def __init__(self, model: AskedModel):
        super().__init__(model)
        config, options = model.run.config, model.options
        self.kind = model.choose_head(*self.heads)
        self.labels = config.objectives[self.kind].labels
        settings = {name: getattr(options, name) for name in ("long", "stride", "stride_as")}
        changes = {name: value for name, value in settings.items() if value not in ("", None)}
        self.task = dataclasses.replace(config.task, **changes)
        self.check_stride(self.task.long in ("auto", "windows"))
        self.most = answers.BEST
        self.limit = min(model.limit, config.sequence_length)
        self.apply = model.compile_head(self.kind, lambda logits: logits)

    def make_example(self, row: Line) -> Example:
        """Turn a line into an example without a label; raise DataError if it cannot be one."""
        raise NotImplementedError

    def make_result(self, row: Line, prediction: Any) -> dict[str, Any]:
        """Make the result of a line from the prediction for it."""
        raise NotImplementedError

    def encode(self, rows: Sequence[Line]) -> Work:
        """Encode lines as an evaluation encodes examples; a long text may become several rows."""
        tokenizer = self.model.run.tokenizer
        examples = [self.make_example(row) for row in rows]
        try:
            encoded = features.encode_examples(
                examples, self.kind, tokenizer, self.task, self.limit, train=False
            )
        except DataError as error:
            if "task.long" not in (error.hint or ""):
                raise
            hint = "--long=cut loses its end"
            if self.windows:
                hint += "; there is --long=windows too"
            raise DataError(str(error), hint) from error

        def compute(chosen: np.ndarray, length: int, size: int) -> Any:
            batch = features.gather_rows(encoded, chosen, length, size, tokenizer.special)
            return self.apply(batch)

        def results(outputs: list[Any]) -> Iterator[dict[str, Any]]:
            pairs = zip(outputs, encoded.lengths.tolist(), strict=True)
            trimmed = [answers.trim_output(self.kind, output, length) for output, length in pairs]
            predictions = answers.decode_outputs(
                self.kind, encoded, examples, trimmed, self.task, self.most
            )
            return map(self.make_result, rows, predictions)

        return Work(encoded.lengths, compute, results, encoded.cut)


class Classify(Labelled):
    """Task `classify`: results {"text", "label", "probabilities": {label: p}}.

    A model that predicts a number gives {"text", "value"}. If there are no options to choose among,
    as in a blank line, the label is None.
    """

    heads = ("classify", "regress", "choice")

    def __init__(self, model: AskedModel):
        super().__init__(model)
        pair = ("text", "text_pair")
        if self.kind == "choice":
            self.plain, self.forms = (), (("text", "options"),)
        elif self.task.text_pair:  # trained on nothing but pairs
            self.plain, self.forms = pair, (pair,)
        else:
            self.forms = (pair, ("text",))

    def make_example(self, row: Line) -> Example:
        """Return an example of a line's text, its pair of texts, or its text and options."""
        where, fields = f"line {row.number}", row.fields
        options: tuple[str, ...] = ()
        if self.kind == "choice":
            options = tuple(fields.get("options", BLANK))
            if len(options) < 2 or len(set(options)) < len(options):
                raise DataError(f"{where}: options = {list(options)!r}", "two or more that differ")
        return Example(where, "", fields["text"], fields.get("text_pair"), options=options)

    def make_result(self, row: Line, prediction: Any) -> dict[str, Any]:
        """Return the predicted number, or the likeliest label and all probabilities."""
        if self.kind == "regress":
            return {**row.fields, "value": prediction}
        if self.kind == "choice" and "options" not in row.fields:  # a blank line
            return {**row.fields, "label": None, "probabilities": {}}
        names = row.fields.get("options", self.labels)
        shares = dict(zip(names, prediction.tolist(), strict=True))
        return {**row.fields, "label": names[int(prediction.argmax())], "probabilities": shares}

    def format_result(self, result: dict[str, Any]) -> str:
        """Write the predicted number, or a table of labels, the likeliest first."""
        if "value" in result:
            return f"  {result['value']:.3f}"
        best = sorted(result["probabilities"].items(), key=lambda one: -one[1])
        more = f"\n  and {len(best) - LABELS} more labels" if len(best) > LABELS else ""
        return indent_table((label, format_percent(share)) for label, share in best[:LABELS]) + more


class Tag(Labelled):
    """Task `tag`: results {"words", "labels"}; with --entities also "entities".

    "labels" has a label for each word. An entity is {"text", "label", "start", "end"}, where start
    and end count characters. A line with a text is split into words at blanks. If a line gives
    words, its text is the words joined by blanks. As in transformers, byte-level BPE sees a blank
    before each of given words. Before the first word of a text it sees a blank only if the text
    begins with one.
    """

    heads = ("tag",)
    forms = (("words",), ("text",))
    example = '{"words": […]}'
    windows = True
    heading = ("words",)

    def __init__(self, model: AskedModel):
        super().__init__(model)
        need(
            not model.options.entities or scores.is_entities(self.labels),
            f"the labels {', '.join(self.labels)} mark no entities",
            "--entities merges words labelled B-… and I-…",
        )

    def make_example(self, row: Line) -> Example:
        """Return an example of the words of a line."""
        text = row.fields.get("text", "")
        return Example(f"line {row.number}", "", text=text, words=tuple(_split_words(row)))

    def make_result(self, row: Line, prediction: Any) -> dict[str, Any]:
        """Return a label for each word; the label is None, not O, for words that were cut off."""
        words = _split_words(row)
        labels = [self.labels[tag] if tag >= 0 else None for tag in prediction]
        result: dict[str, Any] = {"words": words, "labels": labels}
        if self.model.options.entities:
            text = row.fields.get("text", " ".join(words))
            result["entities"] = find_entities(text, words, labels)
        return result

    def format_result(self, result: dict[str, Any]) -> str:
        """Write a table of words and labels, then the entities."""
        labels = [label or "(cut off)" for label in result["labels"]]
        tables = [indent_table(zip(result["words"], labels, strict=True))]
        if found := result.get("entities"):
            tables += ["  entities:", indent_table((one["text"], one["label"]) for one in found)]
        return "\n".join(tables)


def _split_words(row: Line) -> list[str]:
    return row.fields["words"] if "words" in row.fields else row.fields["text"].split()


def find_entities(
    text: str, words: Sequence[str], labels: Sequence[str | None]
) -> list[dict[str, Any]]:
    """Return the entities that labels mark, each as {"text", "label", "start", "end"}.

    The labels are read as by seqeval.
    """
    from seqeval.metrics.sequence_labeling import get_entities

    starts: list[int] = []
    end = 0
    for word in words:
        starts.append(text.index(word, end))
        end = starts[-1] + len(word)
    results = []
    for label, first, last in get_entities([label or "O" for label in labels]):
        start, end = starts[first], starts[last] + len(words[last])
        results.append({"text": text[start:end], "label": label, "start": start, "end": end})
    return results


class Answer(Labelled):
    """Task `answer`: results {"question", "answer", "start", "end", "score"}.

    With --top-k there is also "n_best", a list of answers. The answer is context[start:end]. If
    there is no answer, it is empty, and start and end are 0. The score is the answer's probability
    among the best answers.
    """

    heads = ("span",)
    plain = ("question", "context")
    forms = (("question", "context"),)
    windows = True
    heading = ("question",)

    def __init__(self, model: AskedModel):
        super().__init__(model)
        self.most = max(answers.BEST, model.options.top_k or 0)
        threshold = model.options.no_answer_threshold
        if threshold is not None:
            self.task = dataclasses.replace(
                self.task, no_answer=True, no_answer_threshold=threshold
            )

    def make_example(self, row: Line) -> Example:
        """Return an example with the question as its text and the context as its second text."""
        return Example(f"line {row.number}", "", row.fields["question"], row.fields["context"])

    def make_result(self, row: Line, prediction: Any) -> dict[str, Any]:
        """Return the answer that the evaluation chooses, in the form that the class describes.

        With a threshold for no answer, this need not be the answer with the best score.
        """
        span = (prediction.text, prediction.start, prediction.end)
        chosen = next(c for c in prediction.n_best if (c.text, c.start, c.end) == span)
        result = {"question": row.fields["question"], **_describe_answer(chosen)}
        if (top_k := self.model.options.top_k) is not None:
            result["n_best"] = [_describe_answer(one) for one in prediction.n_best[:top_k]]
        return result

    def format_result(self, result: dict[str, Any]) -> str:
        """Write the answer and its place in the context, then the best answers if asked for."""
        tables = [indent_table([_tabulate_answer(result)])]
        if others := result.get("n_best"):
            tables += ["  best by score:", indent_table(map(_tabulate_answer, others))]
        return "\n".join(tables)


def _describe_answer(candidate: answers.Candidate) -> dict[str, Any]:
    return {
        "answer": candidate.text,
        "start": candidate.start,
        "end": candidate.end,
        "score": candidate.probability,
    }


def _tabulate_answer(found: dict[str, Any]) -> tuple[str, ...]:
    place = f"characters {found['start']} to {found['end']}" if found["answer"] else ""
    return found["answer"] or "(no answer)", format_percent(found["score"]), place
