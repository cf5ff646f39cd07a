"""Ask a suite of a model, and read the passages of a text."""

from typing import Any

from bert_jax import suites
from bert_jax.interop import runs
from bert_jax.suites import texts

WORDS = ["cat", "dog", "friend", "river", "child", "bird", "garden", "sea", "tree", "road"]


def score(run: runs.TrainedModel, suite: str, **asked: Any) -> suites.Detailed:
    """Score a run on a suite, in all and by example."""
    (options,) = suites.build_options([suite], **asked)
    return suites.score(run, options)


def ask(run: runs.TrainedModel, suite: str, **asked: Any) -> dict[str, Any]:
    """Score a run on a suite, in all."""
    return score(run, suite, **asked)[0]


def load_passages(run: runs.TrainedModel, source: object, **asked: int) -> list[texts.Passage]:
    """Read the passages of a source, as suites `cross_rate` and `nelbo` do."""
    (options,) = suites.build_options(["cross_rate"], source=str(source), **asked)
    return texts.load_passages(run, options)
