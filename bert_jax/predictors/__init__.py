"""What a model can be asked: one file and one row of the table each.

A row is made of a `base.Model` and says how a line is read and what it asks of the model: see `base.Predictor`.
"""

from __future__ import annotations

from collections.abc import Callable

from bert_jax.predictors import answer, classify, embed, fill_mask, generate, nsp, tag
from bert_jax.predictors.base import Model, Predictor

TABLE: dict[str, Callable[[Model], Predictor]] = {
    "fill-mask": fill_mask.FillMask,
    "nsp": nsp.Nsp,
    "classify": classify.Classify,
    "tag": tag.Tag,
    "answer": answer.Answer,
    "embed": embed.Embed,
    "generate": generate.Generate,
}
