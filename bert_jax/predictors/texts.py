"""Tasks that read one vector of a text or a pair of texts: `nsp` and `embed`."""

import math
from typing import Any

import jax
import jax.numpy as jnp

from bert_jax.batch import Batch
from bert_jax.models.encoder import Encoder
from bert_jax.models.pooler import pool_examples
from bert_jax.predictors.base import AskedModel, Line, OfText, format_percent, indent_table

FIRST = 5  # numbers of a vector that people are shown


class Nsp(OfText):
    """Task `nsp`: results {"text", "text_pair", "is_next"}.

    "is_next" is the probability that the second text follows the first.
    """

    plain = ("text", "text_pair")
    forms = (("text", "text_pair"),)

    def __init__(self, model: AskedModel):
        super().__init__(model)
        self.apply = model.compile_head(
            "nsp", lambda logits: jax.nn.softmax(logits, -1)[:, 0, 0]
        )  # [B]

    def make_result(self, row: Line, output: Any) -> dict[str, Any]:
        """Make the result of a line from the probability that its second text follows."""
        return {**row.fields, "is_next": float(output)}

    def format_result(self, result: dict[str, Any]) -> str:
        """Write the probabilities that the second text follows the first, and that it does not."""
        follows = result["is_next"]
        rows = [("the second follows the first", follows), ("it does not", 1 - follows)]
        return indent_table((what, format_percent(share)) for what, share in rows)


class Embed(OfText):
    """Task `embed`: results {"text", "embedding"}, one vector of each text.

    The vector is the mean of all tokens' vectors, [CLS] and [SEP] included, or the vector of [CLS].
    A causal model gives the vector of the last token instead of [CLS].
    """

    def __init__(self, model: AskedModel):
        super().__init__(model)
        run, options = model.run, model.options
        pooling = options.pooling or run.sentence.get("pooling") or "mean"
        normalize = options.normalize or run.sentence.get("normalize", False)
        causal = run.config.model.causal
        encoder = Encoder(run.config.model, run.tokenizer.size, pool=False)
        params = model.place_params()["encoder"]

        @jax.jit
        def pool_texts(params: Any, batch: Batch) -> jax.Array:
            encoded: Any = encoder.apply({"params": params}, batch)
            hidden = encoded.hidden.astype(jnp.float32)
            vector = pool_examples(hidden, batch, pooling, causal)[:, 0]  # [B, D]
            length = jnp.sqrt(jnp.sum(vector**2, -1, keepdims=True))
            return vector / jnp.maximum(length, 1e-12) if normalize else vector

        self.apply = lambda batch: pool_texts(params, batch)

    def make_result(self, row: Line, output: Any) -> dict[str, Any]:
        """Make the result of a line from the vector of its text."""
        return {"text": row.fields["text"], "embedding": [float(x) for x in output]}

    def format_result(self, result: dict[str, Any]) -> str:
        """Write how many numbers the vector has, its Euclidean length, and its first numbers."""
        vector = result["embedding"]
        first = " ".join(f"{x:.3f}" for x in vector[:FIRST])
        facts = f"{len(vector)} numbers of length {math.hypot(*vector):.3f}"
        return f"  {facts}: {first} … (all with --format=json)"
