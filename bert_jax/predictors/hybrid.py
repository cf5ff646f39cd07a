"""Task `generate`: how a model does it; a hybrid model fills masks, or goes on from the left."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from bert_jax.predictors.base import AskedModel, Line, OfText, Predictor, Work
from bert_jax.predictors.generate import Generate
from bert_jax.predictors.masked import Unmask


@dataclasses.dataclass(frozen=True)
class _Both(Work):
    """The work of lines of two kinds, each computed by itself."""

    works: tuple[Work, ...] = ()  # of each kind
    kinds: Sequence[int] = ()  # of each line

    def answer(self, batch_size: int) -> Iterator[dict[str, Any]]:
        """Compute each kind; yield the results in the order of the lines."""
        answers = [work.answer(batch_size) for work in self.works]
        for kind in self.kinds:
            yield next(answers[kind])


class GenerateHybrid(OfText):
    """Results of `masked.Unmask` for texts with [MASK], of `generate.Generate` for others."""

    heading = ()

    def __init__(self, model: AskedModel):
        super().__init__(model)
        assert model.run.from_left is not None
        options = dataclasses.replace(model.options, steps=None, order="", show_steps=False)
        if not options.temperature:
            options = dataclasses.replace(options, seed=None)  # which orders nothing but rounds
        self.predictors = (Generate(AskedModel(model.run.from_left, options)), Unmask(model))

    def encode(self, rows: Sequence[Line]) -> Work:
        """Encode the lines of each kind."""
        mask = self.model.run.tokenizer.special.mask
        kinds = [int(mask in ids) for ids in self.ids(rows, escape=False)]
        works = []
        for number, predictor in enumerate(self.predictors):
            own = [row for row, kind in zip(rows, kinds, strict=True) if kind == number]
            works.append(predictor.encode(own))
        lengths = np.concatenate([work.lengths for work in works])
        return _Both(lengths, works[0].compute, works[0].results, works=tuple(works), kinds=kinds)

    def text(self, result: dict[str, Any]) -> str:
        """Write the final text, with the rounds that filled it."""
        return self.predictors[1].text(result)


def make_generator(model: AskedModel) -> Predictor:
    """Choose how a model generates: masked models fill masks, causal ones go from left to right.

    This is the one place where that is decided.
    """
    if model.run.from_left is not None:
        return GenerateHybrid(model)
    masked = "mlm" in model.run.config.objectives and not model.run.config.model.causal
    return Unmask(model) if masked else Generate(model)
