"""What the tasks of `predict` share: the model, the lines of input, and the base classes."""

import dataclasses
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

import jax
import msgspec
import numpy as np

from bert_jax.batch import Batch
from bert_jax.config.knobs import TEXT
from bert_jax.data import encoding
from bert_jax.errors import ConfigError, DataError, need
from bert_jax.evaluation import inference
from bert_jax.interop import runs
from bert_jax.objectives import network
from bert_jax.predictors.options import Options
from bert_jax.reporting.text_table import format_table
from bert_jax.system import jsons


class Stated(msgspec.Struct):
    """The keys that a JSON line may have; other keys are ignored."""

    text: str | None = None
    text_pair: str | None = None
    question: str | None = None
    context: str | None = None
    words: list[str] | None = None
    options: list[str] | None = None


class Line(NamedTuple):
    """One line of input: its number, from 1, and its fields by name."""

    number: int
    fields: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Work:
    """The rows of some lines, and the functions that compute rows and make results of lines."""

    lengths: np.ndarray  # int64 [N], tokens of each row of the model
    # Numbers of rows, padded length, padded count -> arrays [count, …].
    compute: Callable[[np.ndarray, int, int], Any]
    results: Callable[[list[Any]], Iterator[dict[str, Any]]]  # outputs of rows -> results of lines
    cut: int = 0  # lines that lost text

    def answer(self, batch_size: int) -> Iterator[dict[str, Any]]:
        """Compute all rows, then yield the result of each line."""
        yield from self.results(self.compute_rows(batch_size))

    def compute_rows(self, batch_size: int) -> list[Any]:
        """Compute the output of each row; rows of similar length share a batch."""
        outputs: list[Any] = [None] * len(self.lengths)
        plan = inference.plan_by_length(self.lengths, batch_size, shrink_last=True)
        for rows, arrays in inference.run_plan(lambda planned: self.compute(*planned), plan):
            for k, row in enumerate(rows):
                outputs[row] = jax.tree.map(lambda array, k=k: array[k], arrays)
        return outputs


class AskedModel:
    """A trained model, and the options that its predictor was given."""

    def __init__(self, run: runs.TrainedModel, options: Options):
        self.run, self.options = run, options
        self.limit = run.longest

    def choose_head(self, *names: str) -> str:
        """Return the first of the named heads that the model has; ConfigError if it has none."""
        heads = self.run.config.objectives
        have = f"it has: {', '.join(heads)}" if heads else "it has no head, only an encoder"
        name = next((name for name in names if name in heads), "")
        needed = f"{' or '.join(names)} head" if names else "head"
        need(bool(name), f"{self.run.folder} has no {needed}", have)
        return name

    def place_params(self, name: str = "") -> Any:
        """Put the parameters of the encoder, and of a head if one is named, on the device.

        The encoder's matmul kernels are rounded to the type that the model computes in.
        """
        config, params = self.run.config, self.run.params
        encoder = network.with_rounded_kernels(config.model, params["encoder"])
        if not name:
            return jax.device_put({"encoder": encoder})
        chosen = {part: params[part] for part in network.list_parts(config, name)}
        return jax.device_put(chosen | {"encoder": encoder})

    def compile_head(
        self, name: str, function: Callable[[jax.Array], Any]
    ) -> Callable[[Batch], Any]:
        """Compile `function` of the outputs of one head; return a function of a batch.

        The function is compiled anew for each shape of a batch.
        """
        one_head = network.build_network(
            self.run.config, self.run.tokenizer.size, only=self.choose_head(name)
        )
        params = self.place_params(name)

        @jax.jit
        def apply(params: Any, batch: Batch) -> Any:
            return function(network.compute_outputs(one_head, params, batch)[name])

        return lambda batch: apply(params, batch)


class Predictor:
    """A task on one model: it reads lines, computes their results, and writes results as text."""

    plain: tuple[str, ...] = ("text",)  # fields of a line that is not JSON, tabs between
    forms: tuple[tuple[str, ...], ...] = (("text",),)  # keys of a JSON line, the first that fits
    windows: ClassVar[bool] = False  # whether it can read a long text in windows
    heading: ClassVar[tuple[str, ...]] = ("text", "text_pair")  # shown above a result as text

    def __init__(self, model: AskedModel):
        self.model = model
        self.limit = model.limit  # tokens of a row
        if model.options.long == "windows" and not self.windows:
            name = type(self).__name__.lower()
            raise ConfigError(
                f"{name} does not look at texts in windows", "--long=cut, or split the texts"
            )

    @property
    def example(self) -> str:
        """The shape of a JSON line that the task takes, for error messages."""
        keys = self.plain or self.forms[0]
        return "{" + ", ".join(f'"{key}": …' for key in keys) + "}"

    def encode(self, rows: Sequence[Line]) -> Work:
        """Encode lines as rows of the model; raise DataError if a line cannot be encoded."""
        raise NotImplementedError

    def format_result(self, result: dict[str, Any]) -> str:
        """Write a result as text for people."""
        raise NotImplementedError

    def check_stride(self, in_windows: bool) -> None:
        """Refuse --stride and --stride-as if long texts are not read in windows."""
        options = self.model.options
        need(
            in_windows or (options.stride is None and not options.stride_as),
            "--stride and --stride-as describe windows, and long texts are not read in windows",
            "--long=windows, or leave them out",
        )

    def read(self, number: int, line: str) -> Line:
        """Parse a line, which is a JSON object or plain texts; a blank line gives empty texts."""
        parse = self._json if line.lstrip().startswith("{") else self._plain
        row = parse(number, line)
        size = sum(len("".join(text)) for text in row.fields.values())
        if size > TEXT:
            raise DataError(
                f"line {number}: {size:,} characters, more than {TEXT:,}",
                "divide it, or leave it out",
            )
        return row

    def _plain(self, number: int, line: str) -> Line:
        if not line.strip():
            return Line(number, dict.fromkeys(self.plain or ("text",), ""))
        if not self.plain:
            raise DataError(f"line {number}: not JSON", f"for example {self.example}")
        parts = line.split("\t") if len(self.plain) > 1 else [line]
        if len(parts) != len(self.plain):
            missing = ", ".join(self.plain[len(parts) :])
            problem = f"no {missing}" if missing else f"{len(parts)} texts, not {len(self.plain)}"
            raise DataError(
                f"line {number}: {problem}",
                f"texts with a tab between, or JSON, for example {self.example}",
            )
        return Line(number, dict(zip(self.plain, parts, strict=True)))

    def _json(self, number: int, line: str) -> Line:
        hint = f"for example {self.example}"
        try:
            value = jsons.parse(line)
        except jsons.Malformed as error:
            raise DataError(
                f"line {number}: {error}", "a line that begins with { is read as JSON"
            ) from error
        try:
            stated = msgspec.structs.asdict(jsons.fit(value, Stated))
        except jsons.Malformed as error:
            raise DataError(f"line {number}: {error}", hint) from error
        fields = {key: given for key, given in stated.items() if given is not None}
        form = next((form for form in self.forms if fields.keys() >= set(form)), None)
        if form is None:
            absent = ([key for key in form if key not in fields] for form in self.forms)
            needs = " or ".join(" and ".join(keys) for keys in absent)
            raise DataError(f"line {number}: no {needs}", hint)
        if "text_pair" in fields and "text_pair" not in form:
            raise DataError(f"line {number}: a text_pair, and this task takes one text", hint)
        return Line(number, {key: fields[key] for key in form})


class OfText(Predictor):
    """A predictor that makes one row [CLS] A [SEP] or [CLS] A [SEP] B [SEP] of a text or a pair."""

    apply: Callable[..., Any]  # a batch -> what the model computes for each row
    # What to do about a text that is too long.
    shorten = "split the text, or lose its end with --long=cut"

    def tokenize_field(
        self, rows: Sequence[Line], key: str = "text", escape: bool = True
    ) -> list[list[int]]:
        """Tokenize a field of each line, without adding special tokens.

        With escape=False a [MASK] in the text becomes the special token; by default it is plain
        text.
        """
        texts = [row.fields[key] for row in rows]
        return self.model.run.tokenizer.encode_batch(texts, escape=escape)

    def cut_texts(self, row: Line, parts: list[list[int]]) -> list[list[int]]:
        """Cut the texts of a row to the model's length with --long=cut; else refuse a long row."""
        added = self.model.run.tokenizer.special.added(len(parts))
        count, room = sum(map(len, parts)), self.limit - added
        if count <= room:
            return parts
        if self.model.options.long != "cut":
            raise DataError(
                f"line {row.number}: {count + added} tokens with [CLS] and [SEP], "
                f"and the model takes {self.limit}",
                self.shorten,
            )
        first, *second = parts
        cut = encoding.truncate_pair(first, second[0] if second else [], room)
        return [list(part) for part in cut[: len(parts)]]

    def count_tokens(self, parts: Sequence[Sequence[Sequence[int]]]) -> np.ndarray:
        """Count the tokens of each row, including its special tokens.

        `parts` has the token ids of each text of each row.
        """
        added = self.model.run.tokenizer.special.added
        return np.array([sum(map(len, texts)) + added(len(texts)) for texts in parts], np.int64)

    def assemble_batch(self, parts: list[list[list[int]]], length: int, size: int) -> Batch:
        """Assemble `size` rows of `length` tokens from tokenized texts or pairs, with padding."""
        return encoding.pad_rows(self.model.run.tokenizer.special, parts, length, size=size)

    def encode(self, rows: Sequence[Line]) -> Work:
        """Encode the texts of each line as a row.

        `apply` computes the output of a row, and `make_result` makes the result of its line.
        """
        by_field = [self.tokenize_field(rows, key) for key in self.plain]
        parts = [list(texts) for texts in zip(*by_field, strict=True)]
        fitted = [self.cut_texts(row, texts) for row, texts in zip(rows, parts, strict=True)]

        def compute(chosen: np.ndarray, length: int, size: int) -> Any:
            return self.apply(self.assemble_batch([fitted[i] for i in chosen], length, size))

        def results(outputs: list[Any]) -> Iterator[dict[str, Any]]:
            return map(self.make_result, rows, outputs)

        cut = sum(after is not before for after, before in zip(fitted, parts, strict=True))
        return Work(self.count_tokens(fitted), compute, results, cut)

    def make_result(self, row: Line, output: Any) -> dict[str, Any]:
        """Make the result of a line from the model's output for its row."""
        raise NotImplementedError


def indent_table(rows: Iterable[Sequence[str]]) -> str:
    """Align the columns of a table, indented as below a heading."""
    return textwrap.indent(format_table(rows), "  ")


def format_percent(share: float) -> str:
    """Format a probability as a percentage of fixed width, for a column."""
    return f"{100 * share:5.1f} %"
