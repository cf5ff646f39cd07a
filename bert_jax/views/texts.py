"""Readers of the texts of a page, which also compute hidden states and attention of texts."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import msgspec
import numpy as np

from bert_jax.batch import Batch
from bert_jax.errors import DataError
from bert_jax.models.encoder import compute_layers
from bert_jax.predictors.base import AskedModel, Line, OfText, Work
from bert_jax.system import jsons

Parts = list[list[list[int]]]  # of each row, of each of its texts: token ids


class Texts(OfText):
    """Reader of texts and pairs; a [MASK] in a text is the special token.

    Texts are encoded as by `predict`.
    """

    forms = (("text", "text_pair"), ("text",))

    def __init__(self, model: AskedModel):
        super().__init__(model)
        self._compiled: dict[str, Any] = {}  # name -> a function, and its parameters placed

    def read(self, number: int, line: str) -> Line:
        """Read a line; a line with a tab is a pair."""
        self.plain = ("text", "text_pair") if "\t" in line else ("text",)
        return super().read(number, line)

    def tokenize_texts(self, rows: Sequence[Line]) -> tuple[Parts, list[bool]]:
        """Tokenize the texts of each row, without special tokens; tell which rows were cut."""
        for row in rows:
            if blank := next((key for key, text in row.fields.items() if not text.strip()), None):
                raise DataError(f"line {row.number}: {blank} is empty", "give each text some words")
        encode = self.model.run.tokenizer.encode_batch
        whole = [encode(list(row.fields.values()), escape=False) for row in rows]
        fitted = [self.cut_texts(row, parts) for row, parts in zip(rows, whole, strict=True)]
        return fitted, [after is not before for after, before in zip(fitted, whole, strict=True)]

    def look_inside(self, parts: Parts, what: Literal["hidden", "attention"]) -> list[np.ndarray]:
        """Compute each row's vectors [layers + 1, n, D] or attention [layers, heads, n, n]."""
        run = self.model.run

        def apply(params: Any, batch: Batch) -> jax.Array:
            layers = compute_layers(run.config.model, run.tokenizer.size, params, batch)
            values = layers.hidden if what == "hidden" else layers.attention
            return jnp.moveaxis(values.astype(jnp.float32), 1, 0)  # rows first

        def cut(values: np.ndarray, n: int) -> np.ndarray:
            return values[:, :n] if what == "hidden" else values[..., :n, :n]

        return self.compute(what, parts, apply, run.params["encoder"], cut)

    def compute(
        self,
        name: str,
        parts: Parts,
        function: Callable[[Any, Batch], Any],
        params: Any,
        cut: Callable[[np.ndarray, int], np.ndarray],
    ) -> list[np.ndarray]:
        """Compute a function of each row, in batches of rows of similar length.

        Args:
          name: the name under which the compiled function is kept for further calls.
          parts: the token ids of each text of each row.
          function: maps parameters and a batch to an array with an entry for each row.
          params: the parameters.
          cut: removes the padding from a row's result, given the number of tokens of the row.
        """
        counts = self.count_tokens(parts)
        if name not in self._compiled:
            self._compiled[name] = (jax.jit(function), jax.device_put(params))
        apply, placed = self._compiled[name]

        def compute(chosen: np.ndarray, length: int, size: int) -> Any:
            batch = self.assemble_batch([parts[i] for i in chosen], length, size)
            places = np.arange(length, dtype=np.int32)
            batch["predict_positions"] = np.broadcast_to(places, (size, length)).copy()
            # By default an accelerator rounds the factors of float32 matmuls.
            with jax.default_matmul_precision("highest"):
                return apply(placed, batch)

        found = Work(counts, compute, iter).compute_rows(self.model.options.batch_size)
        return [cut(np.asarray(row), int(n)) for row, n in zip(found, counts, strict=True)]


class Label(msgspec.Struct):
    """The label that a JSON line may have."""

    label: str | int | None = None


class Labelled(OfText):
    """Reader of texts; a JSON line may have a `label`, which gives the colour of its points."""

    example = '{"text": "Paris is the capital of France.", "label": "travel"}'

    def _json(self, number: int, line: str) -> Line:
        row = super()._json(number, line)
        try:
            label = jsons.parse(line, Label).label
        except jsons.Malformed as error:
            raise DataError(f"line {number}: {error}", f"for example {self.example}") from error
        if label is not None:
            row.fields["label"] = str(label)
        return row
