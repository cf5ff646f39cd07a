"""Ask a suite of a model."""

from typing import Any

from bert_jax import suites
from bert_jax.interop import runs

WORDS = ["cat", "dog", "friend", "river", "child", "bird", "garden", "sea", "tree", "road"]


def score(run: runs.TrainedModel, suite: str, **asked: Any) -> suites.Detailed:
    """Score a run on a suite, in all and by example."""
    (options,) = suites.build_options([suite], **asked)
    return suites.score(run, options)


def ask(run: runs.TrainedModel, suite: str, **asked: Any) -> dict[str, Any]:
    """Score a run on a suite, in all."""
    return score(run, suite, **asked)[0]
