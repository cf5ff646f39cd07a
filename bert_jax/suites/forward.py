"""Computes rows by a model: the one way in which suites compute.

    forward = Forward.of_head(run, "mlm", lambda logits, batch: logits.argmax(-1))
    for rows, guesses in forward(lengths, make, batch_size, progress):
        ...                               # indices of some rows, and outputs [rows, ...]

`embed_texts` computes vectors of texts or of their words, at the last layer or at every layer.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from bert_jax import sharding
from bert_jax.batch import Batch
from bert_jax.config import knobs
from bert_jax.evaluation import inference
from bert_jax.interop import runs
from bert_jax.models.encoder import Encoder, compute_layers
from bert_jax.models.pooler import POOLINGS, pool_examples
from bert_jax.objectives import network

Make = Callable[[np.ndarray, int, int], Batch]  # numbers of rows, padded length, padded count


def place_params(params: Any) -> tuple[Any, Mesh]:
    """Put parameters on all devices; return the placed parameters and the mesh."""
    mesh = sharding.make_mesh(knobs.Parallel())
    return jax.device_put(params, sharding.state_shardings(params, mesh)), mesh


class Forward:
    """A function that computes the outputs of rows, compiled once for each shape of a batch."""

    def __init__(self, function: Callable[[Any, Batch], Any], params: Any):
        self.params, self.mesh = place_params(params)
        self.compiled = jax.jit(function, out_shardings=sharding.replicated(self.mesh))

    @classmethod
    def of_head(
        cls, run: runs.TrainedModel, head: str, function: Callable[[Any, Batch], Any]
    ) -> "Forward":
        """Make a `Forward` that applies `function` to the outputs of one head and the batch."""
        one_head = network.build_network(run.config, run.tokenizer.size, only=head)
        params = {part: run.params[part] for part in network.list_parts(run.config, head)}

        def step(params: Any, batch: Batch) -> Any:
            return function(network.compute_outputs(one_head, params, batch)[head], batch)

        return cls(step, params)

    def __call__(
        self,
        lengths: np.ndarray,
        make: Make,
        batch_size: int = 0,
        progress: inference.Progress = inference.ignore_progress,
        tokens: int = inference.TOKENS,
    ) -> Iterator[tuple[np.ndarray, Any]]:
        """Compute every row once; yield, batch by batch, the indices of its rows and their outputs.

        Args:
          lengths: the number of tokens of each row.
          make: assembles a batch from indices of rows; it adds padding rows up to the batch's size.
          batch_size: rows of a batch; 0 means about `tokens` tokens in a batch.
          progress: called with the tokens done so far, padding included, and with the tokens in
            total.
          tokens: tokens of a batch, if batch_size is 0.
        """

        def compute(planned: inference.Planned) -> Any:
            return self.compiled(self.params, inference.place_batch(make(*planned), self.mesh))

        plan = inference.plan_by_shape(lengths, self.mesh, batch_size, tokens)
        return inference.run_plan(
            compute, plan, progress, cost=lambda one: one.length * len(one.rows)
        )


def embed_texts(
    run: runs.TrainedModel,
    lengths: np.ndarray,
    make: Make,
    batch_size: int,
    progress: inference.Progress,
    *,
    every_layer: bool = False,
    words: Sequence[np.ndarray] | None = None,
) -> dict[str, np.ndarray]:
    """Compute vectors of texts, one for each pooling, or vectors of the words of texts.

    Args:
      run: the model.
      lengths: the number of tokens of each text.
      make: assembles a batch of some texts.
      batch_size: rows of a batch; 0 means about `inference.TOKENS` tokens in a batch.
      progress: called with the tokens done so far and in total.
      every_layer: return the embeddings and the output of each layer, not only of the last layer.
      words: for each text, the column of the token whose vector stands for each of its words.

    Returns:
      {pooling: vectors}, float32 [layers, N, D], where N counts the texts. With `words` it is
      {"word": vectors}, and N counts the words of all texts.
    """
    cfg, size = run.config.model, run.tokenizer.size
    encoder = Encoder(cfg, size, pool=False)

    def step(params: Any, batch: Batch) -> dict[str, jax.Array]:
        if every_layer:
            layers = compute_layers(cfg, size, params, batch).hidden
        else:
            encoded: Any = encoder.apply({"params": params}, batch)
            layers = encoded.hidden[None]
        layers = layers.astype(jnp.float32)  # [layers, B, L, D]
        if words is not None:
            return {"word": jnp.moveaxis(layers, 0, 2)}  # [B, L, layers, D]
        pooled = {}
        for pooling in POOLINGS:
            vectors = [pool_examples(x, batch, pooling, cfg.causal)[:, 0] for x in layers]
            pooled[pooling] = jnp.stack(vectors, axis=1)  # [B, layers, D]
        return pooled

    counts = np.ones(len(lengths), int) if words is None else np.array(list(map(len, words)))
    ends = np.cumsum(counts)  # of each text's vectors
    vectors: dict[str, np.ndarray] = {}
    forward = Forward(step, run.params["encoder"])
    for rows, outputs in forward(lengths, make, batch_size, progress):
        for pooling, values in outputs.items():
            layers, width = values.shape[-2:]
            found = vectors.setdefault(pooling, np.zeros((layers, ends[-1], width), np.float32))
            for row, value in zip(rows.tolist(), values, strict=True):
                items = value[None] if words is None else value[words[row]]  # [items, layers, D]
                found[:, ends[row] - counts[row] : ends[row]] = np.moveaxis(items, 1, 0)
    return vectors
