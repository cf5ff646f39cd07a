"""How a hybrid model generates: a text with [MASK] is filled, others go on from left to right."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np

from bert_jax.predictors.base import Model, OfText, Row, Work
from bert_jax.predictors.generate import Generate
from bert_jax.predictors.unmask import Unmask


class GenerateHybrid(OfText):
    """Results of `unmask.Unmask` for texts with [MASK], of `generate.Generate` for others."""

    example = '{"text": "Paris is"}'
    heading = ()

    def __init__(self, model: Model):
        super().__init__(model)
        assert model.run.from_left is not None
        options = dataclasses.replace(model.options, steps=None, order="", show_steps=False)
        if not options.temperature:
            options = dataclasses.replace(options, seed=None)  # which orders rounds alone
        self.predictors = (Generate(Model(model.run.from_left, options)), Unmask(model))

    def encode(self, rows: Sequence[Row]) -> Work:
        """Encode the lines of each kind; a batch that has both is computed as two."""
        mask = self.model.run.tokenizer.special.mask
        kinds = np.array([int(mask in ids) for ids in self.ids(rows, escape=False)])
        numbers = np.zeros(len(rows), np.int64)  # of a row among those of its kind
        works: dict[int, Work] = {}
        lengths = np.zeros(len(rows), np.int64)
        for kind in set(kinds.tolist()):
            own = np.flatnonzero(kinds == kind)
            numbers[own] = np.arange(len(own))
            works[kind] = self.predictors[kind].encode([rows[i] for i in own.tolist()])
            lengths[own] = works[kind].lengths

        def compute(chosen: np.ndarray, length: int, size: int) -> Any:
            outputs: dict[int, Any] = {}
            for kind, work in works.items():
                here = np.flatnonzero(kinds[chosen] == kind)
                if len(here):
                    found = work.compute(numbers[chosen[here]], length, size)
                    back = np.zeros(size, np.int64)  # row of the batch -> row of what was found
                    back[here] = np.arange(len(here))
                    outputs[kind] = jax.tree.map(lambda array, back=back: array[back], found)
            return outputs

        def results(outputs: list[Any]) -> Iterator[dict[str, Any]]:
            answers = {
                kind: work.results(
                    [o[kind] for o, k in zip(outputs, kinds, strict=True) if k == kind]
                )
                for kind, work in works.items()
            }
            for kind in kinds.tolist():
                yield next(answers[kind])

        return Work(lengths, compute, results)

    def text(self, result: dict[str, Any]) -> str:
        """Write the final text, as a masked model's with its rounds."""
        return self.predictors[1].text(result)
