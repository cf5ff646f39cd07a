"""Targets of masked and of causal language modelling: the tokens of the text."""

import dataclasses
import functools

import jax.numpy as jnp

from bert_jax.batch import Batch
from bert_jax.config import knobs
from bert_jax.objectives.base import Objective, Targets


def find_masked_words(batch: Batch) -> Targets:
    """Return the true token and the weight of each prediction slot, both [B, K].

    A spare slot has the weight 0. A loss is later divided by the sum of the weights alone.
    Google's code adds 1e-5 to this sum, so its loss depends on how a batch is split. For 20
    predictions the loss changes by 5e-7 of itself.
    """
    return batch["predict_targets"], batch["predict_weights"]


def find_next_words(batch: Batch, end: bool = True) -> Targets:
    """Return the token after each column [B, L], with the weight 1 if it is predicted, else 0.

    With `end`, every token of the same example after [CLS] is predicted, each [SEP] included. A
    [SEP] between documents, or between the texts of a pair, ends a text. The last [SEP] of a row
    mostly ends no text, because the document goes on in another row. So the model learns where a
    text may stop, and that a text stops at the row's length. Without `end`, only tokens that may be
    masked are predicted: the tokens of `mlm`.
    """
    # Tokens [CLS] a b [SEP] become a b [SEP] [CLS].
    following = jnp.roll(batch["tokens"], -1, axis=1)
    segments = batch["segment_ids"]
    # Segments [1 1 1 2 2 0] give [T T F T F F]: no example predicts the [CLS] of the next.
    predicted = (segments == jnp.roll(segments, -1, axis=1)) & (segments > 0)
    if not end:
        predicted &= jnp.roll(batch["unit_ids"], -1, axis=1) >= 0
    predicted = predicted.at[:, -1].set(False)  # nothing follows the last column
    return following, predicted.astype(jnp.float32)


class CausalLm(Objective):
    """Cross-entropy of the next token, at every token that another token follows."""

    def configure(self, options: knobs.Objective) -> Objective:
        """Return a copy of the objective; the option `end` says whether [SEP] is predicted."""
        targets = functools.partial(find_next_words, end=options.end)
        return dataclasses.replace(self, find_targets=targets)
