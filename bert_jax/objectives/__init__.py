"""The training objectives: each has a row in TABLE here and a row in `knobs.OBJECTIVES`.

`base.Objective` says what an objective does. Most objectives consist of a head and a function for
the targets of a batch, from `words.py` or `labelled.py`. The other objectives have a file each.
"""

from collections.abc import Callable, Mapping
from functools import partial

import jax

from bert_jax.batch import Batch, Metrics
from bert_jax.config import knobs
from bert_jax.masking.corrupt import corrupt_batch
from bert_jax.objectives import labelled, words
from bert_jax.objectives.base import Objective, make_label_head, make_word_head
from bert_jax.objectives.diffusion import Diffusion
from bert_jax.objectives.hybrid import Hybrid
from bert_jax.objectives.replaced import Replaced, judge_all, make_detector

WORD_OF_EVERY_TOKEN = partial(make_word_head, everywhere=True)  # [B, L, V padded]
ONE_NUMBER = partial(make_label_head, outputs=1)
# [B, S, 2] of pairs and [B, L, 2] of spans. Google's code has no dropout before either.
TWO_LOGITS = partial(make_label_head, outputs=2, dropout=False)
OBJECTIVES = (
    Objective("mlm", make_word_head, words.find_masked_words),
    Objective("nsp", TWO_LOGITS, labelled.find_labels),  # label 0 is the true order
    Objective("sop", TWO_LOGITS, labelled.find_labels),
    Diffusion("diffusion", make_word_head, words.find_masked_words),
    Hybrid("hybrid", WORD_OF_EVERY_TOKEN, words.find_next_words),
    words.CausalLm("causal_lm", WORD_OF_EVERY_TOKEN, words.find_next_words),
    Replaced("replaced", make_detector, judge_all),
    Objective("classify", make_label_head, labelled.find_labels),
    labelled.Regress("regress", ONE_NUMBER, labelled.find_values),
    Objective("tag", make_label_head, labelled.find_tags),
    Objective("span", TWO_LOGITS, labelled.find_spans, labelled.arrange_spans),
    Objective("choice", ONE_NUMBER, labelled.find_options, labelled.arrange_options),
)
TABLE = {objective.name: objective for objective in OBJECTIVES}
OWN_MASKS = (Hybrid, Replaced)  # they mask in ways of their own, and all others by `corrupt_batch`


def configure(settings: Mapping[str, knobs.Objective]) -> dict[str, Objective]:
    """Return {name: Objective} for the entries of `objectives`, with their options."""
    return {name: TABLE[name].configure(options) for name, options in settings.items()}


def choose_corruption(table: Mapping[str, Objective]) -> Callable[..., tuple[Batch, Metrics]]:
    """Return the function that masks the batches of these objectives, such as `corrupt_batch`."""
    own = (objective.corrupt for objective in table.values() if isinstance(objective, OWN_MASKS))
    return next(own, corrupt_batch)


def count_targets(table: Mapping[str, Objective], batch: Batch) -> dict[str, jax.Array]:
    """Count the targets of each objective, or of each part of its loss; return {name: count}.

    The losses are divided by these counts.
    """
    counts: dict[str, jax.Array] = {}
    for objective in table.values():
        counts |= objective.count(batch)
    return counts
