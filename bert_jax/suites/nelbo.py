"""Suite `nelbo`: the negative log-likelihood of the validation text, or a bound on it, in nats.

Of a left-to-right model it is exact. Of a masked model, whatever it was trained with, it is the
bound of masked diffusion: each example is read under several draws of how many of its tokens are
masked, spread over all numbers from one to all, and its cross-entropies are weighted as
`objectives/diffusion.py` says. Both are over the same tokens, so the numbers compare. A hybrid
model has both: its bound, and as `left_to_right` its likelihood.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from bert_jax.config import knobs
from bert_jax.evaluation.metrics import EXAMPLES
from bert_jax.interop import runs
from bert_jax.suites.base import Detailed, Progress, Result, SuiteOptions, both_ways, need_head
from bert_jax.suites.corpus import chosen, evaluator

DRAWS = 8  # of an example
MASKS: dict[str, Any] = {"replace": (1.0, 0.0, 0.0), "unit": "token"}


def nelbo(run: runs.TrainedModel, options: SuiteOptions) -> Result:
    """Return nats a token, their standard error over documents, and what they were taken of."""
    return nelbo_each(run, options)[0]


def nelbo_each(run: runs.TrainedModel, options: SuiteOptions) -> Detailed:
    """Return the same, and the nats and tokens of each example."""
    return both_ways(_each, run, options)


def _each(run: runs.TrainedModel, options: SuiteOptions) -> Detailed:
    name, draws, end = "diffusion", options.draws or DRAWS, True
    if "causal_lm" in run.config.objectives:
        name, draws, end = "causal_lm", 1, False
    else:
        need_head(run, "mlm", "nelbo")
    config = chosen(run, options)
    shift = any(objective.shift for objective in config.objectives.values())
    objectives = {name: knobs.Objective(weight=1.0, end=end, shift=shift)}
    config = dataclasses.replace(config, objectives=objectives)
    scorer, params = evaluator(run, options, config, rate=1.0, **MASKS)
    masks = scorer.draws(draws) if name == "diffusion" else None
    _, arrays = scorer.detailed(params, Progress("nelbo"), masks)
    nats, tokens = (arrays[f"{name}_loss.{part}"] / draws for part in ("sum", "count"))
    mean = nats.sum() / tokens.sum()
    result = {
        "nats_per_token": mean,
        "perplexity": math.exp(mean),
        "standard_error": _standard_error(nats, tokens, scorer.source.documents()),
        "tokens": int(tokens.sum()),
        "examples": len(tokens),
        "draws": draws,
    }
    return result, {"nelbo.sum": nats, "nelbo.count": tokens, EXAMPLES: arrays[EXAMPLES]}


def _standard_error(nats: np.ndarray, tokens: np.ndarray, documents: np.ndarray) -> float:
    """Return that of the ratio of two sums over examples, those of a document not independent."""
    _, cluster = np.unique(documents, return_inverse=True)
    residuals = np.bincount(cluster, nats - tokens * nats.sum() / tokens.sum())
    count = len(residuals)
    if count < 2:
        return math.nan
    return float(math.sqrt(count / (count - 1) * (residuals**2).sum()) / tokens.sum())
