"""The tasks of `bert-jax predict`: one file and one row of the table each.

A row is a predictor, made from a `base.Model`. It decides how a line is read and what the model
computes for it: see `base.Predictor`.
"""

from __future__ import annotations

from collections.abc import Callable

from bert_jax.predictors import (
    answer,
    classify,
    embed,
    fill_mask,
    generate,
    generate_hybrid,
    nsp,
    tag,
    unmask,
)
from bert_jax.predictors.base import Model, Predictor


def generator(model: Model) -> Predictor:
    """Return how a model generates: masked models fill masks, causal ones go from left to right.

    This is the one place where that is decided.
    """
    if model.run.from_left is not None:
        return generate_hybrid.GenerateHybrid(model)
    masked = "mlm" in model.run.config.objectives and not model.run.config.model.causal
    return unmask.Unmask(model) if masked else generate.Generate(model)


TABLE: dict[str, Callable[[Model], Predictor]] = {
    "fill-mask": fill_mask.FillMask,
    "nsp": nsp.Nsp,
    "classify": classify.Classify,
    "tag": tag.Tag,
    "answer": answer.Answer,
    "embed": embed.Embed,
    "generate": generator,
}
