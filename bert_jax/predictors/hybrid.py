"""Task `generate`: fills masks, continues texts, or does both, depending on the model.

A hybrid model fills the masks of a text, or continues a text without masks from left to right.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from bert_jax.predictors.base import AskedModel, Line, OfText, Predictor, Work
from bert_jax.predictors.generate import Generate
from bert_jax.predictors.masked import Unmask


@dataclasses.dataclass(frozen=True)
class _Both(Work):
    """The work of lines with masks and of lines without, which are computed separately."""

    works: tuple[Work, ...] = ()  # of each kind
    kinds: Sequence[int] = ()  # of each line

    def answer(self, batch_size: int) -> Iterator[dict[str, Any]]:
        """Compute the lines of each kind, and yield the results in the order of all lines."""
        answers = [work.answer(batch_size) for work in self.works]
        for kind in self.kinds:
            yield next(answers[kind])


class GenerateHybrid(OfText):
    """Task `generate` of hybrid models: fills texts with [MASK], and continues other texts.

    Results are those of `masked.Unmask` or of `generate.Generate`.
    """

    heading = ()
    windows = True  # its predictors refuse them, with reasons of their own

    def __init__(self, model: AskedModel):
        super().__init__(model)
        assert model.run.from_left is not None
        options = dataclasses.replace(model.options, steps=None, order="", show_steps=False)
        if not options.temperature:
            options = dataclasses.replace(options, seed=None)  # which orders nothing but rounds
        self.predictors = (Generate(AskedModel(model.run.from_left, options)), Unmask(model))

    def encode(self, rows: Sequence[Line]) -> Work:
        """Encode lines with [MASK] by one predictor, and lines without [MASK] by another."""
        mask = self.model.run.tokenizer.special.mask
        kinds = [int(mask in ids) for ids in self.tokenize_field(rows, escape=False)]
        works = []
        for number, predictor in enumerate(self.predictors):
            own = [row for row, kind in zip(rows, kinds, strict=True) if kind == number]
            works.append(predictor.encode(own))
        lengths = np.concatenate([work.lengths for work in works])
        return _Both(lengths, works[0].compute, works[0].results, works=tuple(works), kinds=kinds)

    def format_result(self, result: dict[str, Any]) -> str:
        """Format the text of a result and, if it was filled in rounds, what each round revealed."""
        return self.predictors[1].format_result(result)


def make_generator(model: AskedModel) -> Predictor:
    """Make the predictor by which a model generates.

    Masked models fill masks, causal models write from left to right, and hybrid models do both.
    Nothing else decides this.
    """
    if model.run.from_left is not None:
        return GenerateHybrid(model)
    masked = "mlm" in model.run.config.objectives and not model.run.config.model.causal
    return Unmask(model) if masked else Generate(model)
