"""The rule by which a hybrid model generates: from left to right, as it reads causal examples."""

from __future__ import annotations

from collections.abc import Sequence

from bert_jax.errors import DataError
from bert_jax.predictors.base import Model, Row, Work
from bert_jax.predictors.generate import Generate


class GenerateHybrid(Generate):
    """Results of `generate.Generate`; a text with [MASK] has a place to fill, and is refused."""

    def __init__(self, model: Model):
        assert model.run.from_left is not None
        super().__init__(Model(model.run.from_left, model.options))

    def encode(self, rows: Sequence[Row]) -> Work:
        """Encode one prompt a line; DataError if one of them holds [MASK]."""
        mask = self.model.run.tokenizer.special.mask
        for row, ids in zip(rows, self.ids(rows, escape=False), strict=True):
            if mask in ids:
                raise DataError(
                    f"line {row.number}: a text with [MASK], and a hybrid model goes on with texts",
                    "leave [MASK] out, or have it filled by fill-mask",
                )
        return super().encode(rows)
