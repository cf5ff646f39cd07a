"""Does a loss on pairs of segments help? NSP, its pairs without the loss, and three alternatives.

    bert-jax study run experiments/next_sentence --workdir=runs/next_sentence
    bert-jax study run experiments/next_sentence:full --workdir=runs/next_sentence_full

The alternatives are full sentences, SOP, and a left-to-right model. BERT's table 5 and RoBERTa's
table 2.
"""

from bert_jax.studies.definition import Finetune, Suite, variants
from experiments.scales import get_scale


def get_study(scale="cpu"):
    shared = get_scale(scale)
    arms = {
        "NSP": {"pairs": "nsp", "objectives.nsp.weight": shared.nsp_weight},
        "segment pairs, no loss": {"pairs": "nsp", "objectives.nsp.weight": 0.0},
        "full sentences": {"pairs": "none"},
        "SOP": {"pairs": "sop", "objectives.sop.weight": shared.nsp_weight},
        "left to right": {
            "pairs": "none",
            "objectives.causal_lm.weight": 1.0,
            # The loss counts the tokens that the other runs may predict, so not the end of text.
            "objectives.causal_lm.end": False,
            "model.causal": True,
        },
    }
    # The same rows for every run.
    more = {"validation": Suite("pretrain", (("changes", (("pairs", "none"),)),))}
    if scale == "full":
        more |= {"mrpc": Finetune("mrpc"), "squad": Finetune("squad")}
    return shared.study(
        question="Does next sentence prediction help, or the pairs it needs, or is either in the "
        "way?",
        axes=(variants("objective", arms),),
        more=more,
        apart={"own_rows": Suite("pretrain")},
        baselines={"objective": "NSP"},
        published=("bert_table_5", "roberta_table_2"),
        notes="validation is of full sentences for every run, own_rows of what it was trained on. "
        "Left to right has a loss on every token and none on masked ones: only what comes after "
        "compares it with the others.",
    )
