"""Suite `pretrain`: the validation split as training scores it."""

from __future__ import annotations

from bert_jax.config import knobs
from bert_jax.errors import ConfigError
from bert_jax.evaluation.corpus import both
from bert_jax.interop import runs
from bert_jax.suites import Detailed, OfCorpus
from bert_jax.suites.base import Progress
from bert_jax.suites.corpus import choose_config, make_evaluator


def score(run: runs.TrainedModel, options: OfCorpus) -> Detailed:
    """Return losses, accuracies and baselines, and loss and accuracy of each example."""
    config = choose_config(run, options)
    if not config.objectives.keys() & set(knobs.PRETRAINING):
        have = ", ".join(run.config.objectives) or "no head at all"
        raise ConfigError(
            f"suite pretrain needs a head of {', '.join(knobs.PRETRAINING)}; "
            f"{run.folder} has {have}",
            "and pairs to fit",
        )
    evaluator, params = make_evaluator(run, options, config)
    result, of_examples = evaluator.detailed(params, Progress("evaluating"))
    if run.from_left is None:
        return result, of_examples
    causal, of_causal = score(run.from_left, options)
    return both(result, causal), both(of_examples, of_causal)
