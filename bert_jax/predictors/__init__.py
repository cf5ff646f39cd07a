"""The tasks of `bert-jax predict`, in a table TASKS that the command, its help and Python read.

A row of TASKS says what the task does and what its lines of input and output look like. The row
also names the class or function that makes a predictor from a `base.AskedModel`. The predictor
reads the lines and computes their results, see `base.Predictor`. The flags of the command are
described in `options.py`.
"""

import importlib
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:  # --help does not wait for jax
    from bert_jax.predictors.base import AskedModel, Predictor


class Task(NamedTuple):
    """Row of TASKS: what a task does, its lines of input and output, and what makes a predictor."""

    does: str
    takes: tuple[str, ...]  # lines of input
    gives: tuple[str, ...]  # lines of output
    maker: str  # FILE.NAME in this folder, of a predictor or of a function that chooses one

    def make(self, model: "AskedModel") -> "Predictor":
        """Make the predictor of the task for a model."""
        file, _, name = self.maker.partition(".")
        predictor: Predictor = getattr(importlib.import_module(f"{__name__}.{file}"), name)(model)
        return predictor


TASKS = {
    "fill-mask": Task(
        "fill each [MASK] with its likeliest tokens: one token a mask, since a masked model does "
        "not know the length of a gap",
        ("Paris is the [MASK] of France.", '{"text": "Paris is the [MASK] of France."}'),
        ('{"text": …, "masks": [[{"token": …, "probability": …}, …], …]}',),
        "masked.FillMask",
    ),
    "nsp": Task(
        "tell how probable it is that the second text of a pair follows the first",
        ("He went out.<tab>It rained.", '{"text": "He went out.", "text_pair": "It rained."}'),
        ('{"text": …, "text_pair": …, "is_next": …}',),
        "texts.Nsp",
    ),
    "classify": Task(
        "label a text or a pair, rate it, or choose among options, as the model was trained to",
        (
            "It rained all day.",
            '{"text": "It rained all day."}',
            '{"text": "It rains.", "text_pair": "The sun shines."}',
            '{"text": "It rained.", "options": ["We got wet.", "We stayed dry."]}',
        ),
        ('{"text": …, "label": …, "probabilities": {"LABEL": …, …}}', '{"text": …, "value": …}'),
        "labelled.Classify",
    ),
    "tag": Task(
        "label each word, and find the entities that the labels mark",
        (
            "Paris is in France .",
            '{"text": "Paris is in France ."}',
            '{"words": ["Paris", "is", "in", "France", "."]}',
        ),
        ('{"words": […], "labels": […]}',),
        "labelled.Tag",
    ),
    "answer": Task(
        "find the answer to a question in a context",
        (
            "Where is Paris?<tab>Paris lies in France.",
            '{"question": "Where is Paris?", "context": "Paris lies in France."}',
        ),
        ('{"question": …, "answer": …, "start": …, "end": …, "score": …}',),
        "labelled.Answer",
    ),
    "embed": Task(
        "make one vector of a text",
        ("Paris is the capital of France.", '{"text": "Paris is the capital of France."}'),
        ('{"text": …, "embedding": […]}',),
        "texts.Embed",
    ),
    "generate": Task(
        "go on with a text (a causal model), or fill its masks in rounds (a masked one)",
        ("Paris is", "Paris is the [MASK] of France.", '{"text": "Paris is"}'),
        ('{"text": …}', '{"text": …, "continuation": …, "stopped": …}'),
        "hybrid.make_generator",
    ),
}
