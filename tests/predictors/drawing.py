"""What tests share: golden models, and a small model that writes."""

import functools
from typing import Any

from bert_jax.api import Model
from bert_jax.interop import runs
from tests import variants
from tests.suites import masked

GOLDEN = variants.GOLDEN / "huggingface"
# Changes of a model that reads from left to right.
CAUSAL = {"objectives__causal_lm__weight": 1, "model__causal": "true", "checkpoints__best": ""}


def make_model(**changes: object) -> runs.TrainedModel:
    """A model of 40 positions and random weights."""
    shape = {"pairs": "none", "model__layers": 2, "model__init_stddev": 0.4}
    return masked.make_model((*masked.PIECES, ",", "(", ")"), 40, **shape | changes)


@functools.cache
def open_golden(name: str) -> runs.TrainedModel:
    """A golden model, with the vocabulary that pipelines.json was made with."""
    vocabulary = str(GOLDEN / "pretraining" / "vocab.txt")
    return runs.open_run(str(GOLDEN / name), tokenizer=vocabulary)


def generate(run: runs.TrainedModel, texts: list[str], **options: Any) -> list[dict[str, Any]]:
    """What `predict generate` answers."""
    return Model(run).generate(texts, **options)
