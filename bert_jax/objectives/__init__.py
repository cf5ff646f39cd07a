"""Training objectives: a row of TABLE here and a row of `knobs.OBJECTIVES` each.

`base.Objective` says what an objective does. Most are a head and the targets of a batch, from
`words.py` or `labelled.py`. Objectives that differ in more have a file each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import jax

from bert_jax.batch import Batch, Metrics
from bert_jax.config import knobs
from bert_jax.masking.corrupt import corrupt_batch
from bert_jax.objectives import labelled, words
from bert_jax.objectives.base import Objective, make_full_word_head, make_word_head, over_labels
from bert_jax.objectives.diffusion import Diffusion
from bert_jax.objectives.hybrid import Hybrid
from bert_jax.objectives.replaced import Replaced, judge_all, make_detector

OVER_PAIRS = over_labels(pooled=True, outputs=2, dropout=False)  # label 0 is the true order
OBJECTIVES = (
    Objective("mlm", make_word_head, words.find_masked_words),
    Objective("nsp", OVER_PAIRS, labelled.find_labels),
    Objective("sop", OVER_PAIRS, labelled.find_labels),
    Diffusion("diffusion", make_word_head, words.find_masked_words),
    Hybrid("hybrid", make_full_word_head, words.find_next_words),
    words.CausalLm("causal_lm", make_full_word_head, words.find_next_words),
    Replaced("replaced", make_detector, judge_all),
    Objective("classify", over_labels(pooled=True), labelled.find_labels),
    labelled.Regress("regress", over_labels(pooled=True, outputs=1), labelled.find_values),
    Objective("tag", over_labels(pooled=False), labelled.find_tags),
    Objective(
        "span",
        over_labels(pooled=False, outputs=2, dropout=False),
        labelled.find_spans,
        labelled.arrange_spans,
    ),
    Objective(
        "choice",
        over_labels(pooled=True, outputs=1),
        labelled.find_options,
        labelled.arrange_options,
    ),
)
TABLE = {objective.name: objective for objective in OBJECTIVES}


def configure(settings: Mapping[str, knobs.Objective]) -> dict[str, Objective]:
    """Return the objectives of a config, with the config's options."""
    return {name: TABLE[name].configure(options) for name, options in settings.items()}


def choose_corruption(table: Mapping[str, Objective]) -> Callable[..., tuple[Batch, Metrics]]:
    """Return the function that masks the batches of these objectives: see `corrupt_batch`."""
    own = (objective.corrupt for objective in table.values() if objective.masks_itself)
    return next(own, corrupt_batch)


def count_targets(table: Mapping[str, Objective], batch: Batch) -> dict[str, jax.Array]:
    """Count the targets by which each loss, or each part of a loss, is divided."""
    counts: dict[str, jax.Array] = {}
    for objective in table.values():
        counts |= objective.count(batch)
    return counts
