"""The predictor of one vector a text: the mean over its tokens, [CLS] and [SEP] too, or [CLS]'s."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from bert_jax.batch import Batch
from bert_jax.models.encoder import Encoder
from bert_jax.models.pooler import pool_examples
from bert_jax.objectives import network
from bert_jax.predictors.base import Model, OfText, Row

FIRST = 5  # numbers shown to people


class Embed(OfText):
    """Results {"text", "embedding"}."""

    def __init__(self, model: Model):
        super().__init__(model)
        run, options = model.run, model.options
        pooling = options.pooling or run.sentence.get("pooling") or "mean"
        normalize = options.normalize or run.sentence.get("normalize", False)
        encoder = Encoder(run.config.model, run.tokenizer.size, pool=False)
        params = jax.device_put(
            network.with_rounded_kernels(run.config.model, run.params["encoder"])
        )

        @jax.jit
        def vectors(params: Any, batch: Batch) -> jax.Array:
            encoded: Any = encoder.apply({"params": params}, batch)
            hidden = encoded.hidden.astype(jnp.float32)
            vector = pool_examples(hidden, batch, pooling)[:, 0]  # [B, D]
            length = jnp.sqrt(jnp.sum(vector**2, -1, keepdims=True))
            return vector / jnp.maximum(length, 1e-12) if normalize else vector

        self.apply = lambda batch: vectors(params, batch)

    def result(self, row: Row, output: Any) -> dict[str, Any]:
        """Return the result of a line."""
        return {"text": row.fields["text"], "embedding": [float(x) for x in output]}

    def text(self, result: dict[str, Any]) -> str:
        """Write the size and length of the vector, and its first numbers."""
        vector = result["embedding"]
        first = " ".join(f"{x:.3f}" for x in vector[:FIRST])
        facts = f"{len(vector)} numbers of length {math.hypot(*vector):.3f}"
        return f"  {facts}: {first} … (all with --format=json)"
