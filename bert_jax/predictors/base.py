"""The interface of a predictor, and what they share: the model that is asked, and how a line is read."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np

from bert_jax.batch import Batch
from bert_jax.config.knobs import TEXT
from bert_jax.data import encoding
from bert_jax.errors import ConfigError, DataError
from bert_jax.interop import runs
from bert_jax.objectives import network
from bert_jax.system import jsons

STRINGS = ("text", "text_pair", "question", "context")  # keys of a JSON line that hold a string
LISTS = ("words", "options")  # and a list of them


@dataclasses.dataclass(frozen=True)
class Options:
    """What is asked for besides the task."""

    top_k: int | None = (
        None  # fill-mask: tokens, else 5; answer: answers listed, else none; generate: drawn from
    )
    pooling: str = ""  # embed: mean or cls; empty is what the model says, else mean
    normalize: bool = False  # embed: to length 1, which a model may also ask for itself
    entities: bool = False  # tag: merge what B- and I- labels mark
    no_answer_threshold: float | None = (
        None  # answer: no answer if that scores higher by more than this
    )
    max_tokens: int | None = (
        None  # generate: to go on for at most, else what there is room for up to 64
    )
    temperature: float = 0.0  # generate: 0 takes the likeliest token
    top_p: float | None = None  # generate: drawn from the likeliest that have this share
    seed: int | None = None  # generate: of the draws
    long: str = (
        ""  # a text too long for the model: refuse it, cut its end, or look at it in windows
    )
    stride: int | None = None  # of windows, in tokens
    stride_as: str = ""  # what neighbours share, or how far the next one begins: `data/windows.py`
    batch_size: int = 32
    on_bad_row: str = "fail"  # a line that cannot be read ends it, or is left out


class Row(NamedTuple):
    """One line: its number from 1, and its fields."""

    number: int
    fields: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Work:
    """What some lines ask of the model."""

    lengths: np.ndarray  # int64 [N], tokens of each row of the model
    compute: Callable[
        [np.ndarray, int, int], Any
    ]  # numbers of rows, padded length, padded count -> arrays [count, …]
    results: Callable[
        [list[Any]], Iterator[dict[str, Any]]
    ]  # what was computed of each row -> a result a line
    cut: int = 0  # lines that lost text


class Model:
    """A run, and what is asked of it."""

    def __init__(self, run: runs.Run, options: Options):
        self.run, self.options = run, options
        self.limit = run.longest

    def choose(self, *names: str) -> str:
        """Which of these heads the model has."""
        there = self.run.config.objectives
        if found := next((name for name in names if name in there), None):
            return found
        have = f"it has: {', '.join(there)}" if there else "it has no head, only an encoder"
        raise ConfigError(f"{self.run.folder} has no {' or '.join(names)} head", have)

    def parameters(self, name: str) -> Any:
        """Of the encoder, with its factors rounded, and of one head, on the device."""
        encoder = network.rounded(self.run.config.model, self.run.params["encoder"])
        return jax.device_put({"encoder": encoder, name: self.run.params[name]})

    def head(self, name: str, function: Callable[[jax.Array], Any]) -> Callable[[Batch], Any]:
        """A function of the outputs of one head, compiled for each shape of a batch."""
        labels = len(self.run.config.objectives[self.choose(name)].labels)
        of_one = network.Network(self.run.config.model, self.run.tokenizer.size, ((name, labels),))
        params = self.parameters(name)
        apply = jax.jit(
            lambda params, batch: function(network.outputs(of_one, params, batch)[name])
        )
        return lambda batch: apply(params, batch)


class Predictor:
    """One task, asked of one model."""

    plain: tuple[str, ...] = ("text",)  # what a line that is no JSON holds, tabs between
    forms: tuple[tuple[str, ...], ...] = (("text",),)  # keys of a JSON line, the first that fits
    example: str = '{"text": "Paris is the capital of France."}'
    windows: ClassVar[bool] = False  # whether it can look at a long text in windows

    def __init__(self, model: Model):
        self.model = model
        self.limit = model.limit  # tokens of a row
        if model.options.long == "windows" and not self.windows:
            raise ConfigError(
                f"{self.name} does not look at texts in windows", "--long=cut, or split the texts"
            )

    @property
    def name(self) -> str:
        """What it is called in messages."""
        return type(self).__name__.lower()

    def remarks(self) -> list[str]:
        """What of the lines so far was maybe not meant."""
        return []

    def encode(self, rows: Sequence[Row]) -> Work:
        """What these lines ask of the model; DataError if one of them cannot be asked."""
        raise NotImplementedError

    def read(self, number: int, line: str) -> Row:
        """Return the fields of a line: a JSON object, or plain texts; a blank line holds empty ones."""
        row = self._fields(number, line)
        size = sum(
            len(text)
            for value in row.fields.values()
            for text in ([value] if isinstance(value, str) else value)
        )
        if size > TEXT:
            raise DataError(
                f"line {number}: {size:,} characters, more than {TEXT:,}",
                "divide it, or leave it out",
            )
        return row

    def _fields(self, number: int, line: str) -> Row:
        if not line.lstrip().startswith("{"):
            parts = line.split("\t") if len(self.plain) > 1 else [line]
            if len(parts) != len(self.plain) and not line.strip():
                parts = [""] * len(self.plain)
            if not self.plain:
                raise DataError(f"line {number}: not JSON", f"for example {self.example}")
            if len(parts) != len(self.plain):
                missing = self.plain[len(parts) :]
                what = (
                    f"no {missing[0]}" if missing else f"{len(parts) - 1} tabs, and a pair has one"
                )
                keys = ", ".join(f'"{key}": …' for key in self.plain)
                raise DataError(
                    f"line {number}: {what}",
                    f"write two texts a line with a tab between, or as JSON {{{keys}}}",
                )
            return Row(number, dict(zip(self.plain, parts, strict=True)))
        try:
            stated = jsons.parse(line, dict)
        except jsons.Malformed as error:
            hint = "a line that begins with { is read as JSON"
            raise DataError(f"line {number}: {error}", hint) from error
        found = {key: stated[key] for key in (*STRINGS, *LISTS) if stated.get(key) is not None}
        for key, value in found.items():
            items = value if key in LISTS and isinstance(value, list) else [value]
            if (key in LISTS) != isinstance(value, list) or not all(
                isinstance(item, str) for item in items
            ):
                what = "a list of strings" if key in LISTS else "a string"
                raise DataError(
                    f"line {number}: {key!r} is not {what}", f"for example {self.example}"
                )
        form = next((form for form in self.forms if found.keys() >= set(form)), None)
        if form is None:
            needs = " or ".join(
                " and ".join(key for key in form if key not in found) for form in self.forms
            )
            raise DataError(f"line {number}: no {needs}", f"for example {self.example}")
        if "text_pair" in found and "text_pair" not in form:
            hint = "join the two, or leave it out"
            raise DataError(f"line {number}: a text_pair, and this task takes one text", hint)
        return Row(number, {key: found[key] for key in form})


class OfText(Predictor):
    """A predictor that asks for [CLS] A [SEP], or [CLS] A [SEP] B [SEP], as one row."""

    def ids(self, rows: Sequence[Row], key: str = "text", escape: bool = True) -> list[list[int]]:
        """Ids without special tokens, except a [MASK] that is meant as one."""
        return self.model.run.tokenizer.encode_batch(
            [row.fields[key] for row in rows], escape=escape
        )

    def fit(self, row: Row, parts: list[list[int]]) -> list[list[int]]:
        """The texts of a row within the model's length; none is cut in silence."""
        room = self.limit - 1 - len(parts)  # [CLS], and [SEP] after each
        count = sum(map(len, parts))
        if count <= room:
            return parts
        if self.model.options.long != "cut":
            tokens = count + 1 + len(parts)
            raise DataError(
                f"line {row.number}: {tokens} tokens with [CLS] and [SEP], and the model takes {self.limit}",
                "split the text, or lose its end with --long=cut; fill-mask has --long=windows too",
            )
        first, second = encoding.truncate(parts[0], parts[1] if len(parts) > 1 else [], room)
        return [list(first), list(second)][: len(parts)]

    def batch(self, parts: list[list[list[int]]], length: int, size: int) -> Batch:
        """The rows of some texts or pairs, padded."""
        return encoding.rows(self.model.run.tokenizer.special, parts, length, size=size)

    def one_each(
        self,
        rows: Sequence[Row],
        parts: Sequence[list[list[int]]],
        apply: Callable[[Batch], Any],
        result: Callable[[Row, Any], dict[str, Any]],
    ) -> Work:
        """The work of one row of the model a line."""
        fitted = [self.fit(row, one) for row, one in zip(rows, parts, strict=True)]

        def compute(chosen: np.ndarray, length: int, size: int) -> Any:
            return apply(self.batch([fitted[i] for i in chosen], length, size))

        def results(outputs: list[Any]) -> Iterator[dict[str, Any]]:
            return map(result, rows, outputs)

        cut = sum(now is not before for now, before in zip(fitted, parts, strict=True))
        return Work(lengths(fitted), compute, results, cut)


def lengths(parts: Sequence[Sequence[Sequence[int]]]) -> np.ndarray:
    """Tokens of each row, [CLS] and each [SEP] among them."""
    return np.array([1 + sum(len(part) + 1 for part in one) for one in parts], np.int64)
