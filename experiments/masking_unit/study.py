"""Units that are masked as one: tokens, whole words, spans of words, or collocations.

    bert-jax study run experiments/masking_unit --workdir=runs/masking_unit
    bert-jax study run experiments/masking_unit:full --workdir=runs/masking_unit_full

Collocations are chosen by pointwise mutual information.
"""

from bert_jax.studies.definition import Finetune, Suite, variants
from experiments.scales import get_scale


def get_study(scale="cpu"):
    shared = get_scale(scale)
    shared.base.pairs = "none"
    arms = {unit: {"masking.unit": unit} for unit in ("token", "word", "span")}
    arms["pmi"] = {"masking.unit": "pmi", "masking.pmi_coverage": shared.collocated}
    more = {"whole_words": Suite("pretrain", (("changes", (("evals.validation.unit", "word"),)),))}
    if scale == "full":
        more["squad2"] = Finetune("squad2")
    return shared.study(
        question="Does masking whole words, spans or collocations train a better model than "
        "masking single tokens?",
        axes=(variants("masking.unit", arms),),
        more=more,
        baselines={"masking.unit": "token"},
        notes="Held-out text is masked token by token for every run, which is what the first was "
        "trained for, and once more by whole words.",
    )
