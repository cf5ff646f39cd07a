"""The generator that `mlm` trains where objective `replaced` asks for one, as ELECTRA does."""

from __future__ import annotations

import dataclasses

from bert_jax.config.knobs import Config, Model


def share(config: Config) -> float:
    """Return the width of the generator as a share of the encoder's; 0 where there is none."""
    return max((objective.generator for objective in config.objectives.values()), default=0.0)


def of(config: Config) -> Model | None:
    """Return the model settings of the generator; None where there is none.

    It has as many layers as the encoder, and a share of its width, heads and feed-forward; its
    embeddings are the encoder's, and as wide.
    """
    model, part = config.model, share(config)
    if not part:
        return None
    assert model.hidden is not None
    assert model.heads is not None
    assert model.mlp is not None
    hidden, heads, mlp = (
        max(1, round(part * size)) for size in (model.hidden, model.heads, model.mlp)
    )
    return dataclasses.replace(
        model, hidden=hidden, heads=heads, mlp=mlp, embedding=model.table_width
    )
