"""Targets of the objectives over labels.

A target of -1, or a value of NaN, has the weight 0.
"""

import jax
import jax.numpy as jnp

from bert_jax.batch import Batch, Metrics
from bert_jax.objectives.base import Objective, Targets


def keep_known(targets: jax.Array) -> Targets:
    """Return the targets and their weights: 0 for an unknown target, which is below 0, else 1."""
    # Labels [2, -1] become the targets [2, 0] with the weights [1, 0].
    return jnp.maximum(targets, 0), (targets >= 0).astype(jnp.float32)


def find_labels(batch: Batch) -> Targets:
    """Return the class of each text or pair [B, S], and its weight."""
    return keep_known(batch["labels"])


def find_tags(batch: Batch) -> Targets:
    """Return the tag of each token [B, L], and its weight."""
    return keep_known(batch["tags"])


def find_spans(batch: Batch) -> Targets:
    """Return the columns where each answer starts and ends [B, 2], and their weights.

    The columns are 0 if the question has no answer.
    """
    columns, weights = keep_known(batch["spans"])
    # Google's SQuAD code takes the mean of the losses of the start and the end.
    return columns, 0.5 * weights


def arrange_spans(outputs: jax.Array, batch: Batch) -> jax.Array:
    """Return the logits of all columns for the start and the end of the answer [B, 2, L].

    Columns of padding have very low logits. The original's softmax includes padding, so its loss
    depends on the length to which rows are padded.
    """
    # From [B, L, 2]: the classes of the softmax are the columns of a row, not start and end.
    return jnp.where(batch["segment_ids"][..., None] > 0, outputs, -1e9).swapaxes(1, 2)


def find_options(batch: Batch) -> Targets:
    """Return the number of the right option of each question [B], and its weight."""
    # A row is one question, and its options are the examples of the row: [B, 1] to [B].
    return keep_known(batch["labels"][:, 0])


def arrange_options(outputs: jax.Array, batch: Batch) -> jax.Array:
    """Return the scores of the options [B, S]; a missing option has a very low score."""
    options = jnp.max(batch["segment_ids"], axis=1, keepdims=True)  # [B, 1], their number
    scores = outputs[..., 0]
    return jnp.where(jnp.arange(1, scores.shape[1] + 1)[None] <= options, scores, -1e9)


def find_values(batch: Batch) -> Targets:
    """Return the target number of each text or pair [B, 1], and its weight."""
    known = jnp.isfinite(batch["values"])
    # A weight of 0 would not be enough, because 0 * NaN is NaN.
    return jnp.where(known, batch["values"], 0.0), known.astype(jnp.float32)


class Regress(Objective):
    """Squared error of a number for each text or pair."""

    def loss(self, outputs: jax.Array, batch: Batch) -> Metrics:
        """Return {"regress_loss": (sum of squared errors, number of targets)}."""
        values, weights = self.find_targets(batch)
        errors = outputs[..., 0] - values
        return {"regress_loss": (jnp.sum(weights * errors**2), jnp.sum(weights))}
